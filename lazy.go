package tonbo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tonbo-go/tonbo/cache"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/layout"
	"github.com/tonbo-go/tonbo/internal/pageset"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/vfs"
)

// lazy brings the pages of a local file that has not all of them: those that SQLite asks for at once, the rest in the background (hydrate.go).
//
// A page is absent until its bytes are in the file. An absent page never changed here since the file was begun, or its newest version is in the write-ahead log: what
// the objects of the state at that time hold is what belongs into the file. Its bit is set after its bytes are written, under mu, which SQLite's own writes into the
// file take too: who comes second finds the bit set, and SQLite's bytes win.
type lazy struct {
	h    *handle
	f    *os.File
	size int // of a page, bytes
	lock uint32
	loc  atomic.Pointer[locator]
	ctx  context.Context // ends with the observation of the file
	stop context.CancelFunc

	complete atomic.Bool // no page is absent: nobody is asked any more
	present  []atomic.Uint64
	bound    atomic.Uint32 // pages beyond it never come from the remote
	waiting  atomic.Int32  // reads of SQLite that wait for a page
	ahead    readAheads
	meter    *progressMeter

	mu     sync.Mutex // held while the file is written
	absent int        // pages up to bound that are not in the file

	gates gates

	once    sync.Once // starts the hydration
	workers sync.WaitGroup
	done    chan struct{} // closed when every page is there and the whole has been compared, or when it has failed

	state struct {
		sync.Mutex
		err  error // why it failed
		last error // of the last try
		over bool  // done is closed
	}
}

var _ vfs.PageSource = (*lazy)(nil)

// newLazy makes the source of the pages that are not in present.
func (h *handle) newLazy(l *locator, present *pageset.Bits) (*lazy, error) {
	f, err := os.OpenFile(h.dir.Path(), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	n := present.Len()
	s := &lazy{h: h, f: f, size: l.pageSize, lock: segment.LockPage(l.pageSize), present: make([]atomic.Uint64, (n+63)/64), done: make(chan struct{}), absent: n - present.Count()}
	for i, w := range present.Words() {
		s.present[i].Store(w)
	}
	s.bound.Store(uint32(n))
	s.loc.Store(l)
	s.ctx, s.stop = context.WithCancel(h.life)
	s.gates.m = map[gateKey]*gate{}
	s.meter = h.progress("hydrate", int64(n)*int64(l.pageSize))
	s.meter.add(int64(present.Count()) * int64(l.pageSize))
	s.complete.Store(s.absent == 0)
	return s, nil
}

// close ends the fetching. SQLite's connections are closed, or are refused from now on.
func (s *lazy) close() error {
	s.stop()
	s.workers.Wait()
	return s.f.Close()
}

// isAbsent tells whether a page has to be fetched.
func (s *lazy) isAbsent(p uint32) bool {
	return p <= s.bound.Load() && s.present[(p-1)>>6].Load()&(1<<((p-1)&63)) == 0
}

// mark: the page is in the file. s.mu is held.
func (s *lazy) mark(p uint32) {
	if s.isAbsent(p) {
		s.present[(p-1)>>6].Or(1 << ((p - 1) & 63))
		s.absent--
		s.meter.add(int64(s.size))
	}
	if s.absent == 0 {
		s.complete.Store(true)
	}
}

// left is the number of absent pages.
func (s *lazy) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.absent
}

// Ensure implements [vfs.PageSource].
func (s *lazy) Ensure(ctx context.Context, off, n int64) error {
	if s.complete.Load() || n <= 0 {
		return nil
	}
	for p := uint32(off/int64(s.size)) + 1; p <= uint32((off+n-1)/int64(s.size))+1; p++ {
		if s.isAbsent(p) {
			if err := s.need(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// Write implements [vfs.PageSource].
func (s *lazy) Write(off, n int64, write func() error) error {
	if s.complete.Load() {
		return write()
	}
	s.mu.Lock()
	err := write()
	if err == nil {
		for p := uint32(off/int64(s.size)) + 1; p <= uint32((off+n-1)/int64(s.size))+1; p++ {
			s.mark(p)
		}
	}
	s.mu.Unlock()
	return err
}

// Truncate implements [vfs.PageSource].
func (s *lazy) Truncate(size int64, truncate func() error) error {
	if s.complete.Load() {
		return truncate()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := truncate(); err != nil {
		return err
	}
	for n := uint32(size / int64(s.size)); s.bound.Load() > n; s.bound.Add(^uint32(0)) {
		s.mark(s.bound.Load())
	}
	return nil
}

// tries of a read whose outcome the store did not tell.
const foregroundTries = 4

// need brings a page that SQLite reads.
func (s *lazy) need(ctx context.Context, p uint32) error {
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	var b remote.Backoff
	for try := 1; ; try++ {
		l := s.loc.Load()
		err := s.fetchPage(ctx, l, p)
		switch {
		case err == nil:
			s.settle()
			return nil
		case ctx.Err() != nil:
		case errors.Is(err, layout.ErrMissing) && s.relocate(ctx, l):
			continue
		case errors.Is(err, remote.ErrUnknown) && try < foregroundTries:
			if b.Wait(ctx, err) == nil {
				continue
			}
		}
		return s.h.told(fmt.Errorf("page %d of database %s: %w", p, s.h.name, err))
	}
}

// fetchPage fetches the block of a page, and the following ones of a scan. Of concurrent callers for one block one fetches.
func (s *lazy) fetchPage(ctx context.Context, l *locator, p uint32) error {
	o, i, w, err := l.find(ctx, p)
	if err != nil {
		return err
	}
	unlock, err := s.gates.lock(ctx, gateKey{o, i})
	if err != nil {
		return err
	}
	defer unlock()
	if !s.isAbsent(p) {
		return nil
	}
	ix, j := o.Known(), i+1
	window := s.ahead.begin(p)
	for j < len(ix.Blocks) && j < i+window && s.anyAbsent(&ix.Blocks[j]) {
		unlock := s.gates.try(gateKey{o, j})
		if unlock == nil {
			break
		}
		defer unlock()
		j++
	}
	next, err := s.fetch(ctx, l, o, i, j, w)
	if err != nil {
		return err
	}
	if s.isAbsent(p) {
		return fmt.Errorf("%w: page %d of a snapshot older than slot %d", layout.ErrMissing, p, l.slot)
	}
	s.ahead.end(next, window)
	return nil
}

func (s *lazy) anyAbsent(b *segment.Block) bool {
	for _, r := range b.Runs {
		for n := range r.Count {
			if s.isAbsent(r.First + n) {
				return true
			}
		}
	}
	return false
}

// writeBatch is how many bytes are written into the file at once.
const writeBatch = 256 << 10

var batches = sync.Pool{New: func() any { b := make([]byte, 0, writeBatch+segment.MaxPageSize); return &b }}

// fetch brings the blocks i to j-1 of an object: it writes the absent ones of its pages and records the sums of those that are not known. It returns the page
// behind the last one.
func (s *lazy) fetch(ctx context.Context, l *locator, o *layout.Object, i, j int, w *layout.Window) (next uint32, err error) {
	blocks := o.Known().Blocks[i:j]
	first := blocks[0].Runs[0].First
	runs := blocks[len(blocks)-1].Runs
	last := runs[len(runs)-1].First + runs[len(runs)-1].Count - 1
	places := l.places(first, last)
	objects := *l.ready.Load()
	ours := func(p uint32) bool { // no newer object has it
		k := places[p-first].object
		return p <= l.pageCount && k >= 0 && objects[k] == o
	}
	buf := batches.Get().(*[]byte)
	defer batches.Put(buf)
	var start uint32
	b := (*buf)[:0]
	var sums []cache.PageSum
	flush := func() error {
		err := s.put(l, start, b)
		b = b[:0]
		return err
	}
	err = o.Blocks(ctx, i, j, w, func(p uint32, page []byte) error {
		if !ours(p) {
			return nil
		}
		if len(b) > 0 && (p != start+uint32(len(b)/s.size) || len(b) >= writeBatch) {
			if err := flush(); err != nil {
				return err
			}
		}
		if len(b) == 0 {
			start = p
		}
		b = append(b, page...)
		sums = append(sums, cache.PageSum{Page: p, Sum: segment.PageSum(p, page)})
		return nil
	})
	if err == nil && len(b) > 0 {
		err = flush()
	}
	if err != nil {
		return 0, err
	}
	fault("hydrate:written")
	return last + 1, s.record(sums)
}

// record takes the sums of pages that are in the file.
func (s *lazy) record(sums []cache.PageSum) error {
	_, err := s.h.dir.Hydrated(sums)
	switch {
	case errors.Is(err, cache.ErrSums):
		err = fmt.Errorf("%w: database %s: %w", ErrCorrupt, s.h.name, err)
		s.fail(err)
		s.h.broken(err)
		return err
	case err != nil: // known in memory; a later process fetches these pages again
		s.h.o.Logger.Debug("hydrated pages not recorded", "database", s.h.name, "error", err)
	}
	fault("hydrate:recorded")
	return nil
}

// put writes neighbouring pages, those that are still absent, into the file.
func (s *lazy) put(l *locator, first uint32, b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := s.size
	for at := 0; at < len(b); {
		n := 0
		for at+n < len(b) && s.mine(l, first+uint32((at+n)/size)) {
			n += size
		}
		if n == 0 {
			at += size
			continue
		}
		p := first + uint32(at/size)
		if _, err := s.f.WriteAt(b[at:at+n], int64(p-1)*int64(size)); err != nil {
			return fmt.Errorf("write pages %d to %d: %w", p, p+uint32(n/size)-1, err)
		}
		for k := range n / size {
			s.mark(p + uint32(k))
		}
		at += n
	}
	return nil
}

// mine tells whether a page is to be written into the file. s.mu is held.
func (s *lazy) mine(l *locator, p uint32) bool {
	if !s.isAbsent(p) {
		return false
	}
	if l.newest { // a newer state than the one that the file began with: what was shipped since is newer than what belongs into the file
		_, shipped := s.h.dir.Sum(p)
		return !shipped
	}
	return true
}

// holdsRound marks the context of who holds the handle's round.
type holdsRound struct{}

func withRound(ctx context.Context) context.Context {
	return context.WithValue(ctx, holdsRound{}, true)
}

// relocate looks for pages in the newest base of our own, when an object of the state that the file began with has been collected. It tells whether another try is
// worth it. A fenced owner has no newer base.
func (s *lazy) relocate(ctx context.Context, old *locator) bool {
	h := s.h
	if ctx.Value(holdsRound{}) == nil {
		if h.lockRound(ctx) != nil {
			return false
		}
		defer h.unlockRound()
	}
	if s.loc.Load() != old {
		return true
	}
	owner, _ := h.current()
	if h.ended() != nil || owner == nil || owner.Err() != nil {
		return false
	}
	if _, err := h.settle(ctx); err != nil {
		return false
	}
	m := h.compactor.base
	if m == nil || old.base != nil && m.Slot <= old.base.Slot {
		return false
	}
	slot, count, _ := h.dir.Position()
	l := h.newLocator(h.tail.clone(), m, slot, s.size, count)
	l.newest = true
	s.loc.Store(l)
	h.o.Logger.Debug("objects were collected; absent pages come from the newest base", "database", h.name, "slot", m.Slot)
	return true
}

// fail ends the hydration with an error.
func (s *lazy) fail(err error) {
	s.state.Lock()
	defer s.state.Unlock()
	if !s.state.over {
		s.state.err, s.state.over = err, true
		close(s.done)
	}
}

// settle ends the hydration when nothing is left to fetch.
func (s *lazy) settle() {
	if s.left() > 0 || s.h.dir.Unknown() > 0 {
		return
	}
	s.state.Lock()
	defer s.state.Unlock()
	if !s.state.over {
		s.state.over = true
		close(s.done)
	}
}

// broken: the remote does not hold what its log says. What is here must not reach the log, and the handle cannot go on.
func (h *handle) broken(err error) {
	if _, vdb := h.current(); vdb != nil {
		vdb.Refuse(err)
	}
	h.end(err, "")
	h.o.Logger.Error("database corrupt", "event", "corrupt", "database", h.name, "error", err)
}

// learn makes the sums of pages known, as of the last shipped slot, whatever has been written over them here since.
func (s *lazy) learn(ctx context.Context, pages []uint32) error {
	var b remote.Backoff
	for try := 1; ; try++ {
		need := pages[:0:0]
		for _, p := range pages {
			if _, known := s.h.dir.Sum(p); !known {
				need = append(need, p)
			}
		}
		if len(need) == 0 {
			return nil
		}
		l := s.loc.Load()
		err := s.fetchPages(ctx, l, need)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return err
		case errors.Is(err, layout.ErrMissing) && s.relocate(ctx, l):
		case errors.Is(err, remote.ErrUnknown) && try < foregroundTries:
			if err := b.Wait(ctx, err); err != nil {
				return err
			}
		default:
			return s.h.told(fmt.Errorf("pages of database %s: %w", s.h.name, err))
		}
		if err == nil && try > foregroundTries {
			return fmt.Errorf("%w: pages of database %s are not where they should be", ErrCorrupt, s.h.name)
		}
	}
}

// prepare makes known, before an entry is made, the sums that its database checksum will need: no commit waits meanwhile.
func (h *handle) prepare(ctx context.Context, vdb *vfs.Database) error {
	s := h.source()
	if s == nil || h.dir.Unknown() == 0 {
		return nil
	}
	pages, count := vdb.Unshipped()
	if len(pages) == 0 {
		return nil
	}
	_, err := h.sumWithout(ctx, pages, count)
	return err
}

// sumWithout returns the database checksum as it is when changed pages have no content, at the size count: of the last shipped state without these
// pages and without those that a shrink gives up. Sums that are not known are fetched, for whichever way takes fewer.
func (h *handle) sumWithout(ctx context.Context, changed []uint32, count uint32) (uint64, error) {
	_, old, sum := h.dir.Position()
	s := h.source()
	if s == nil || h.dir.Unknown() == 0 {
		for _, p := range changed {
			sum ^= h.dir.PageSum(p)
		}
		for p := count + 1; p <= old; p++ {
			sum ^= h.dir.PageSum(p)
		}
		return sum, nil
	}
	var gone []uint32
	for _, p := range changed {
		if p <= old {
			gone = append(gone, p)
		}
	}
	for p := count + 1; p <= old; p++ {
		gone = append(gone, p)
	}
	if lost := unknownOf(h.dir, gone); len(lost) > 0 {
		set := pageset.NewBits(int(count))
		for _, p := range changed {
			set.Set(p)
		}
		var stay []uint32
		for p := uint32(1); p <= min(count, old); p++ {
			if !set.Has(p) {
				stay = append(stay, p)
			}
		}
		if kept := unknownOf(h.dir, stay); len(kept) < len(lost) { // as after a VACUUM, which writes every page
			if err := s.learn(ctx, kept); err != nil {
				return 0, err
			}
			sum = 0
			for _, p := range stay {
				sum ^= h.dir.PageSum(p)
			}
			return sum, nil
		}
		if err := s.learn(ctx, lost); err != nil {
			return 0, err
		}
	}
	for _, p := range gone {
		sum ^= h.dir.PageSum(p)
	}
	return sum, nil
}

func unknownOf(d *cache.Dir, pages []uint32) []uint32 {
	var r []uint32
	for _, p := range pages {
		if _, known := d.Sum(p); !known {
			r = append(r, p)
		}
	}
	return r
}

// source is what brings absent pages, nil when all are here.
func (h *handle) source() *lazy {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lazy
}

// fillAsOf reads pages of an earlier slot, for a copy of a local file that lacks them.
func (h *handle) fillAsOf(st *cache.State) cache.Fill {
	var l *locator
	var r layout.Reader
	return func(ctx context.Context, page uint32, buf []byte) error {
		if l == nil {
			var err error
			if l, err = h.locatorAt(ctx, st); err != nil {
				return fmt.Errorf("page %d as of slot %d: %w; to go on without what was not shipped, move %s away", page, st.Slot, err, h.dir.Path())
			}
		}
		o, _, _, err := l.find(ctx, page)
		if err == nil {
			_, err = r.Page(ctx, o, page, buf)
		}
		if err != nil {
			return fmt.Errorf("page %d as of slot %d: %w; to go on without what was not shipped, move %s away", page, st.Slot, err, h.dir.Path())
		}
		return nil
	}
}

func (h *handle) locatorAt(ctx context.Context, st *cache.State) (*locator, error) {
	if st == nil || st.Name != h.name || st.Store != h.store.String() {
		return nil, cache.ErrAbsent
	}
	e, err := h.log.Read(ctx, st.Slot)
	if errors.Is(err, remote.ErrNotFound) || err == nil && e.ID != fence.ID(st.ID) {
		return nil, fmt.Errorf("%w: slot %d has been collected", ErrPointGone, st.Slot)
	}
	if err != nil {
		return nil, err
	}
	t := h.newTail(e)
	if err := t.load(ctx, 0); err != nil {
		return nil, err
	}
	tl, err := t.tail(ctx)
	if err != nil {
		return nil, err
	}
	return h.newLocator(tl, t.base, e.Slot, int(st.PageSize), e.State.PageCount), nil
}

// gates let one fetch a block at a time. Who waits leaves when its context ends.
type gates struct {
	mu sync.Mutex
	m  map[gateKey]*gate
}

type gateKey struct {
	o     *layout.Object
	block int
}

type gate struct {
	turn  chan struct{}
	users int
}

func (g *gates) lock(ctx context.Context, k gateKey) (unlock func(), err error) {
	g.mu.Lock()
	t := g.m[k]
	if t == nil {
		t = &gate{turn: make(chan struct{}, 1)}
		g.m[k] = t
	}
	t.users++
	g.mu.Unlock()
	select {
	case t.turn <- struct{}{}:
		return func() { <-t.turn; g.leave(k, t) }, nil
	case <-ctx.Done():
		g.leave(k, t)
		return nil, ctx.Err()
	}
}

// try is lock for who does not wait: nil when somebody has it.
func (g *gates) try(k gateKey) (unlock func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.m[k] != nil {
		return nil
	}
	t := &gate{turn: make(chan struct{}, 1), users: 1}
	t.turn <- struct{}{}
	g.m[k] = t
	return func() { <-t.turn; g.leave(k, t) }
}

func (g *gates) leave(k gateKey, t *gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(g.m, k)
	}
}

// readAheads notices scans: a page right behind what was fetched last is one. Each time it goes on, twice as much is fetched.
type readAheads struct {
	mu      sync.Mutex
	streams [8]struct {
		next   uint32
		window int // blocks
		used   time.Time
	}
}

const (
	maxWindow = 64 // blocks
	nearby    = 16 // pages that a scan may leave out
)

// begin returns how many blocks to fetch for page p.
func (r *readAheads) begin(p uint32) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.streams {
		if s := &r.streams[i]; s.next != 0 && p >= s.next && p < s.next+nearby {
			s.next = 0
			return min(2*s.window, maxWindow)
		}
	}
	return 1
}

// end takes note of what was fetched.
func (r *readAheads) end(next uint32, window int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	oldest := &r.streams[0]
	for i := range r.streams {
		if s := &r.streams[i]; s.next == 0 || oldest.next != 0 && s.used.Before(oldest.used) {
			oldest = s
		}
	}
	oldest.next, oldest.window, oldest.used = next, window, time.Now()
}
