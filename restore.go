package tonbo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo/cache"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

const (
	readAhead  = 32       // entries read at once
	keptLimit  = 32 << 20 // bytes of payloads kept between finding the entries and applying them
	stepBack   = 32       // slots read at once while the tail is not known
	absentness = 4        // tries before a slot that must be there is taken for gone
)

// tailReader finds and reads the entries that carry the pages of a state: those above the base or the newest whole entry, up to head. Where they end in a fork's create, it
// goes on in the source's log.
type tailReader struct {
	h      *handle
	log    *fence.Log
	head   *fence.Entry
	pseudo bool // head is not in the log: it stands behind the source's point

	source   *tailReader // of a fork whose create is needed, nil else
	sourceAt uint64      // slot of that create

	mu    sync.Mutex
	base  *base.Manifest          // what is below the entries, nil: nothing
	kept  map[uint64]*fence.Entry // read, with their payloads
	bytes int64
	slots []uint64 // ascending, of entries that carry pages
	floor uint64   // slots is complete above it
	known bool
}

func (h *handle) newTail(head *fence.Entry) *tailReader {
	t := &tailReader{h: h, log: h.log, head: head, kept: map[uint64]*fence.Entry{}}
	t.keep(head)
	return t
}

// sourceTail reads on behind a fork's create: its Base and Tail are the source's.
func (t *tailReader) sourceTail(create *fence.Entry) *tailReader {
	head := &fence.Entry{
		Kind: fence.Commit, ID: create.Source.ID, Slot: create.Source.Slot + 1, State: create.State, Base: create.Base, Tail: create.Tail,
	}
	log := fence.New(t.h.store, create.Source.Name, fence.Options{Logger: t.h.o.Logger})
	return &tailReader{h: t.h, log: log, head: head, pseudo: true, base: t.base, kept: map[uint64]*fence.Entry{}}
}

// keep remembers an entry's payload while there is room.
func (t *tailReader) keep(e *fence.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.Payload != nil && t.bytes+int64(len(e.Payload)) > keptLimit && e != t.head {
		return
	}
	if t.kept[e.Slot] == nil {
		t.kept[e.Slot] = e
		t.bytes += int64(len(e.Payload))
	}
}

// load finds the entries above floor and reads them, as many as there is room for. It runs beside the LIST that confirms a claim.
func (t *tailReader) load(ctx context.Context, floor uint64) error {
	g, gctx := errgroup.WithContext(ctx)
	if t.head.Base != "" && !t.head.Whole && t.base == nil {
		g.Go(func() (err error) { t.base, err = t.h.readBase(gctx, t.head); return err })
	}
	if t.head.Base == "" || t.head.Tail != nil || t.base != nil {
		g.Go(func() error { return t.readAll(gctx, floor) })
		if err := g.Wait(); err != nil {
			return err
		}
	} else {
		if err := g.Wait(); err != nil {
			return err
		}
		if err := t.readAll(ctx, floor); err != nil {
			return err
		}
	}
	return t.loadSource(ctx, floor)
}

// loadSource goes on in the source's log when the entries begin with a fork's create.
func (t *tailReader) loadSource(ctx context.Context, floor uint64) error {
	if t.source != nil || len(t.slots) == 0 || t.slots[0] <= floor {
		return nil
	}
	create, err := t.read(ctx, t.slots[0])
	if err != nil || create.Source == nil {
		return err
	}
	t.keep(create)
	t.source, t.sourceAt = t.sourceTail(create), create.Slot
	return t.source.load(ctx, 0)
}

// readAll finds the entries above floor and reads them, as many as there is room for.
func (t *tailReader) readAll(ctx context.Context, floor uint64) error {
	if err := t.find(ctx, floor); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readAhead)
	for _, s := range t.slots {
		if t.has(s) || s <= floor {
			continue
		}
		if t.full() {
			break
		}
		g.Go(func() error {
			e, err := t.read(ctx, s)
			if err == nil {
				t.keep(e)
			}
			return err
		})
	}
	return g.Wait()
}

// readBase reads the manifest that an entry stands on.
func (h *handle) readBase(ctx context.Context, e *fence.Entry) (*base.Manifest, error) {
	o, err := h.store.Get(ctx, e.Base, remote.GetOptions{})
	if errors.Is(err, remote.ErrNotFound) {
		return nil, fmt.Errorf("%w: %s/%s is missing (slot %d stands on it)", ErrCorrupt, h.store, e.Base, e.Slot)
	}
	if err != nil {
		return nil, err
	}
	m, err := base.Decode(o.Body)
	if err != nil {
		return nil, fmt.Errorf("%w: %s/%s: %w", ErrCorrupt, h.store, e.Base, err)
	}
	if m.PageSize != e.State.PageSize || m.ID == e.ID.String() && m.Slot > e.Slot { // a fork's source counts its own slots
		return nil, fmt.Errorf("%w: %s/%s is not a base of slot %d", ErrCorrupt, h.store, e.Base, e.Slot)
	}
	return m, nil
}

// bottom is the highest slot of this log whose pages are in the base: none, when the base is a fork's source's.
func (t *tailReader) bottom() uint64 {
	if t.ownBase() {
		return t.base.Slot
	}
	return 0
}

func (t *tailReader) ownBase() bool { return t.base != nil && t.base.ID == t.head.ID.String() }

func (t *tailReader) has(slot uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.kept[slot] != nil
}

func (t *tailReader) full() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytes > keptLimit/2
}

// find makes slots complete above floor: from the head's own list, else by walking down, since slots are contiguous.
func (t *tailReader) find(ctx context.Context, floor uint64) error {
	if t.known && t.floor <= floor {
		return nil
	}
	head := t.head
	t.slots, t.known, t.floor = nil, true, 0
	switch {
	case head.Whole, head.Source != nil: // a fork's create: its Tail is the source's
		t.slots = []uint64{head.Slot}
		return nil
	case head.Tail != nil:
		t.slots = slices.Clone(head.Tail)
		if head.Carries() {
			t.slots = append(t.slots, head.Slot)
		}
		return nil
	}
	floor = max(floor, t.bottom())
	if t.floor = floor; floor == t.bottom() {
		t.floor = 0
	}
	above := head
	if head.Carries() {
		t.slots = []uint64{head.Slot}
	}
	for above.Kind != fence.Create && !above.Whole && above.Slot > floor+1 {
		from := above.Slot
		if above.Kind == fence.Rewind { // what stands on it is the point that it goes back to
			from = above.To + 1
		}
		batch, err := t.below(ctx, from, floor)
		if err != nil {
			return err
		}
		for _, e := range batch {
			if above.Kind != fence.Rewind && !(t.pseudo && above == head) {
				if err := above.Follows(e); err != nil {
					return err
				}
			}
			if above = e; e.Carries() {
				t.slots = append(t.slots, e.Slot)
			}
			t.keep(e)
			if e.Kind == fence.Create || e.Kind == fence.Rewind || e.Whole {
				break
			}
		}
		if len(batch) == 0 {
			break
		}
	}
	if above.Kind == fence.Create || above.Whole {
		t.floor = 0
	}
	slices.Reverse(t.slots)
	return nil
}

// below reads the entries just below slot, newest first.
func (t *tailReader) below(ctx context.Context, slot, floor uint64) ([]*fence.Entry, error) {
	n := min(stepBack, slot-1-floor)
	batch := make([]*fence.Entry, n)
	g, ctx := errgroup.WithContext(ctx)
	for i := range batch {
		g.Go(func() (err error) { batch[i], err = t.read(ctx, slot-1-uint64(i)); return err })
	}
	return batch, g.Wait()
}

// read reads a slot that is in the log. A store may show a fresh object late once: absence is not believed at once.
func (t *tailReader) read(ctx context.Context, slot uint64) (*fence.Entry, error) {
	t.mu.Lock()
	e := t.kept[slot]
	t.mu.Unlock()
	if e != nil {
		return e, nil
	}
	var b remote.Backoff
	for try := 1; ; try++ {
		e, err := t.log.Read(ctx, slot)
		if err == nil && e.ID != t.head.ID {
			return nil, fmt.Errorf("%w: %s is of incarnation %s, the log's head of %s", ErrCorrupt, fence.SlotKey(t.log.Name(), slot), e.ID, t.head.ID)
		}
		if !errors.Is(err, remote.ErrNotFound) {
			return e, err
		}
		if try == absentness {
			return nil, fmt.Errorf("%w: %s/%s is missing", ErrCorrupt, t.h.store, fence.SlotKey(t.log.Name(), slot))
		}
		if err := b.Wait(ctx, err); err != nil {
			return nil, err
		}
	}
}

// above returns the entries above floor that carry pages, ascending. Payloads that were not kept are nil: apply reads them.
func (t *tailReader) above(ctx context.Context, floor uint64) ([]*fence.Entry, error) {
	if err := t.find(ctx, floor); err != nil {
		return nil, err
	}
	var r []*fence.Entry
	for _, s := range t.slots {
		if s <= floor {
			continue
		}
		t.mu.Lock()
		e := t.kept[s]
		t.mu.Unlock()
		if e == nil {
			e = &fence.Entry{Slot: s}
		}
		r = append(r, e)
	}
	return r, nil
}

// piece is an entry to be applied, and the reader that finds its pages.
type piece struct {
	t *tailReader
	e *fence.Entry
}

// pieces lists what carries the pages of the state, above slot floor of this log, oldest first: a fork's source's entries come before its own.
func (t *tailReader) pieces(ctx context.Context, floor uint64) ([]piece, error) {
	entries, err := t.above(ctx, floor)
	if err != nil {
		return nil, err
	}
	var r []piece
	if t.source != nil && floor < t.sourceAt {
		if r, err = t.source.pieces(ctx, 0); err != nil {
			return nil, err
		}
	}
	for _, e := range entries {
		if e.Source == nil {
			r = append(r, piece{t, e})
		}
	}
	return r, nil
}

// complete finds all entries above the base, also those that a floor spared.
func (t *tailReader) complete(ctx context.Context) error {
	if err := t.find(ctx, 0); err != nil {
		return err
	}
	return t.loadSource(ctx, 0)
}

// tail is what was found, for compaction. The source's entries count as the create's.
func (t *tailReader) tail(ctx context.Context) (tail, error) {
	var r tail
	if err := t.complete(ctx); err != nil {
		return r, err
	}
	pieces, err := t.pieces(ctx, 0)
	if err != nil {
		return r, err
	}
	for _, p := range pieces {
		e := p.e
		keep := e.Payload != nil && r.kept+int64(len(e.Payload)) <= tailKept
		if e.State.PageSize == 0 {
			e = &fence.Entry{Slot: e.Slot, ID: p.t.head.ID, State: t.head.State}
		}
		te, err := t.h.tailOf(p.t.log.Name(), e, e.Payload, keep)
		if err != nil {
			return r, err
		}
		if p.t != t {
			te.slot = t.sourceAt
		}
		if keep {
			r.kept += int64(len(e.Payload))
		}
		r.entries = append(r.entries, te)
		r.bytes += te.bytes
	}
	return r, nil
}

// restorer writes pages into the local file.
type restorer struct {
	h     *handle
	t     *tailReader
	f     *os.File
	size  int         // of a page, bytes
	state fence.State // to be reached
	p     *progressMeter

	mu   sync.Mutex
	sums []uint64 // by page number - 1
}

// newRestorer writes into the file at path, which is made if it is not there, until it is the state s. sums are of the pages that it has.
func (h *handle) newRestorer(path string, s fence.State, t *tailReader, sums []uint64) (*restorer, error) {
	if !segment.ValidPageSize(int(s.PageSize)) {
		return nil, fmt.Errorf("%w: the log of %s says page size %d", ErrCorrupt, h.name, s.PageSize)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &restorer{h: h, t: t, f: f, size: int(s.PageSize), state: s, sums: sums, p: h.progress("restore", int64(s.PageCount)*int64(s.PageSize))}, nil
}

// apply writes the entries in their order. It reads ahead, within bounded memory.
func (r *restorer) apply(ctx context.Context, pieces []piece) error {
	for chunk := range slices.Chunk(pieces, readAhead) {
		full := make([]*fence.Entry, len(chunk))
		g, gctx := errgroup.WithContext(ctx)
		for i, p := range chunk {
			if full[i] = p.e; p.e.Payload != nil {
				continue
			}
			g.Go(func() (err error) { full[i], err = p.t.read(gctx, p.e.Slot); return err })
		}
		if err := g.Wait(); err != nil {
			return err
		}
		for i, e := range full {
			if err := eachPage(ctx, r.h, chunk[i].t.log.Name(), e, r.resize(e.State.PageCount), r.put); err != nil {
				return err
			}
			fault("restore:entry")
		}
	}
	return nil
}

// base writes the pages of a base that are newer than slot floor: levels from the bottom up, since the newest version wins.
func (r *restorer) base(ctx context.Context, m *base.Manifest, floor uint64) error {
	if m == nil {
		return nil
	}
	if err := r.resize(m.PageCount); err != nil {
		return err
	}
	put := func(pgno uint32, page []byte) error {
		if pgno > m.PageCount {
			return nil
		}
		return r.put(pgno, page)
	}
	own := "db/" + r.h.name + "/"
	for _, level := range slices.Backward(m.Levels) {
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(transfers)
		for _, s := range level {
			if floor == 0 || s.Slot > floor && strings.HasPrefix(s.Key, own) { // a fork's source's pages are as old as its create
				ref := segment.Ref{Key: s.Key, First: s.First, Last: s.Last, Pages: s.Pages, Size: s.Size}
				g.Go(func() error { return r.h.eachPageOf(ctx, ref, m.PageSize, nil, put) })
			}
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// resize makes the state n pages long: what a shrink gave up does not come back when the database grows again.
func (r *restorer) resize(n uint32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if int(n) < len(r.sums) {
		r.sums = r.sums[:n]
		return r.f.Truncate(int64(n) * int64(r.size))
	}
	r.sums = append(r.sums, make([]uint64, int(n)-len(r.sums))...)
	return nil
}

func (r *restorer) put(pgno uint32, page []byte) error {
	if _, err := r.f.WriteAt(page, int64(pgno-1)*int64(r.size)); err != nil {
		return err
	}
	sum := segment.PageSum(pgno, page)
	r.mu.Lock()
	r.sums[pgno-1] = sum
	r.mu.Unlock()
	r.p.add(int64(len(page)))
	return nil
}

// run restores what is newer than slot floor, compares the whole with the checksum that its writer recorded, and makes it durable. It closes the file.
func (r *restorer) run(ctx context.Context, floor uint64) error {
	pieces, err := r.t.pieces(ctx, floor)
	if err == nil && (floor == 0 || r.t.ownBase()) {
		err = r.base(ctx, r.t.base, floor)
	}
	if err == nil {
		err = r.apply(ctx, pieces)
	}
	if err == nil {
		err = r.finish()
	}
	if cerr := r.f.Close(); err == nil {
		err = cerr
	}
	return err
}

// errSum is a restored state with another checksum than its writer recorded.
var errSum = fmt.Errorf("%w: checksum of the restored pages", ErrCorrupt)

func (r *restorer) finish() error {
	if err := r.resize(r.state.PageCount); err != nil {
		return err
	}
	var sum uint64
	for _, x := range r.sums {
		sum ^= x
	}
	if sum != r.state.Checksum {
		return fmt.Errorf("%w: %016x for slot %d, the log says %016x", errSum, sum, r.t.head.Slot, r.state.Checksum)
	}
	if err := r.f.Truncate(int64(r.state.PageCount) * int64(r.size)); err != nil {
		return err
	}
	return r.f.Sync()
}

// eachPage decodes an entry's pages, those in segments included. fn is called concurrently, for different pages. prep is the error of what had to be done
// before.
func eachPage(ctx context.Context, h *handle, name string, e *fence.Entry, prep error, fn func(pgno uint32, page []byte) error) error {
	if prep != nil {
		return prep
	}
	hd := &segment.Header{PageSize: e.State.PageSize, PageCount: e.State.PageCount, PayloadSize: e.PayloadSize, PayloadSum: e.PayloadSum}
	object := fence.SlotKey(name, e.Slot)
	ix, err := segment.DecodeIndex(e.Payload, hd)
	if err != nil {
		return damaged(h, object, err)
	}
	if err := segment.EachPage(hd, ix, e.Payload, fn); err != nil {
		return damaged(h, object, err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(transfers)
	for _, ref := range ix.Refs {
		g.Go(func() error { return h.eachPageOf(ctx, ref, e.State.PageSize, &e.ID, fn) })
	}
	return g.Wait()
}

// eachPageOf reads a whole segment. id, when it is set, is the incarnation that it must be of.
func (h *handle) eachPageOf(ctx context.Context, ref segment.Ref, pageSize uint32, id *fence.ID, fn func(pgno uint32, page []byte) error) error {
	o, err := h.store.Get(ctx, ref.Key, remote.GetOptions{})
	if errors.Is(err, remote.ErrNotFound) {
		return fmt.Errorf("%w: %s/%s is missing", ErrCorrupt, h.store, ref.Key)
	}
	if err != nil {
		return err
	}
	hd, ix, payload, err := segment.Decode(o.Body)
	if err != nil {
		return damaged(h, ref.Key, err)
	}
	if hd.Kind != segment.KindSegment || id != nil && hd.ID != [16]byte(*id) || hd.PageSize != pageSize || ix.Pages() != ref.Pages {
		return damaged(h, ref.Key, fmt.Errorf("%w: it is not the segment that is meant", segment.ErrFormat))
	}
	return damaged(h, ref.Key, segment.EachPage(hd, ix, payload, fn))
}

// damaged names the object whose content cannot be right.
func damaged(h *handle, key string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, segment.ErrNewer):
		return fmt.Errorf("%w: %s/%s: %w", ErrUnsupported, h.store, key, err)
	case errors.Is(err, segment.ErrFormat):
		return fmt.Errorf("%w: %s/%s: %w", ErrCorrupt, h.store, key, err)
	}
	return fmt.Errorf("%s/%s: %w", h.store, key, err)
}

// sumsOf lists what an entry shipped.
func (h *handle) sumsOf(ctx context.Context, e *fence.Entry) (cache.Shipped, error) {
	if e.Payload == nil {
		var err error
		if e, err = h.log.Read(ctx, e.Slot); err != nil {
			return cache.Shipped{}, err
		}
	}
	s := cache.Shipped{Slot: e.Slot, PageCount: e.State.PageCount, Checksum: e.State.Checksum}
	var mu sync.Mutex
	err := eachPage(ctx, h, h.name, e, nil, func(pgno uint32, page []byte) error {
		sum := segment.PageSum(pgno, page)
		mu.Lock()
		defer mu.Unlock()
		s.Pages = append(s.Pages, cache.PageSum{Page: pgno, Sum: sum})
		return nil
	})
	slices.SortFunc(s.Pages, func(a, b cache.PageSum) int { return int(int64(a.Page) - int64(b.Page)) })
	return s, err
}

// plainWriter makes the copy of a database file a plain one, in rollback mode, so that it opens anywhere without a write-ahead log:
// bytes 18 and 19 are 1 (https://sqlite.org/fileformat2.html#file_format_version_numbers).
type plainWriter struct {
	w    io.Writer
	head []byte // the first bytes, until there are enough
}

const plainHead = 20

func (p *plainWriter) Write(b []byte) (int, error) {
	if len(p.head) == plainHead {
		return p.w.Write(b)
	}
	n := min(plainHead-len(p.head), len(b))
	p.head = append(p.head, b[:n]...)
	if len(p.head) < plainHead {
		return len(b), nil
	}
	head := append([]byte(nil), p.head...)
	head[18], head[19] = 1, 1
	if _, err := p.w.Write(head); err != nil {
		return 0, err
	}
	_, err := p.w.Write(b[n:])
	return len(b), err
}
