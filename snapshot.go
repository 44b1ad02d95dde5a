package tonbo

import (
	"context"
	"fmt"
	"sync"

	"github.com/tonbo-go/tonbo/cache"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/vfs"
)

// snapshot is one point of the database's history, as connections of a read-only handle see it. It never becomes another one: a handle that moves on makes a new
// one, and takes over the pages that are the same. Pages that are fetched for it are of its point, whenever they come.
type snapshot struct {
	fetcher
	r     *reader
	entry *fence.Entry
	pages *pageStore
	vfs   *vfs.Snapshot

	where cellMap

	mu     sync.Mutex // held while where is changed
	absent int
	proved bool // the whole has been compared with its checksum

	users int  // connections, and the reader while it is the present one; guarded by r.mu
	shown bool // to connections; guarded by r.mu
}

var (
	_ partial            = (*snapshot)(nil)
	_ vfs.SnapshotSource = (*snapshot)(nil)
)

// newSnapshot makes the point after e, whose entries t has found. It takes over the pages of from that have not changed since, when from is not nil, and what is at
// hand.
func (r *reader) newSnapshot(ctx context.Context, e *fence.Entry, t *tailReader, from *snapshot) (_ *snapshot, err error) {
	st := e.State
	if int(st.PageSize) != r.pages.size {
		return nil, fmt.Errorf("%w: the log of %s says page size %d, and %d before", ErrCorrupt, r.h.name, st.PageSize, r.pages.size)
	}
	tl, err := t.tail(ctx)
	if err != nil {
		return nil, err
	}
	l := t.locator(tl, e.Slot, int(st.PageSize), st.PageCount)
	s := &snapshot{r: r, entry: e, pages: r.pages, where: newCellMap(int(st.PageCount)), absent: int(st.PageCount)}
	if segment.LockPage(int(st.PageSize)) <= st.PageCount { // SQLite never uses it
		s.absent--
	}
	defer func() {
		if err != nil {
			s.free()
		}
	}()
	// (1) What an earlier point has already.
	if from != nil {
		l.reuse(from.loc.Load())
		s.takeOver(from)
		if err := r.h.changedSince(ctx, t, tl, from.entry.Slot, s.forget); err != nil {
			return nil, err
		}
	}
	// (2) What is at hand.
	floor := uint64(0)
	var prior func(pgno uint32, buf []byte) bool
	if from != nil {
		floor = from.entry.Slot
		prior = func(pgno uint32, buf []byte) bool {
			w := from.where.load(pgno)
			return w != 0 && s.pages.readAt(buf, w-1, 0) == nil
		}
	}
	if err := t.atHand(ctx, st.PageCount, floor, prior, func(pgno uint32, page []byte) error {
		return s.put(l, pgno, page, []cache.PageSum{{Page: pgno, Sum: segment.PageSum(pgno, page)}})
	}); err != nil {
		return nil, err
	}
	if t.upper != nil {
		l.upper = t.upper.object
	}
	s.begin(r.h, s, l, s.where.n, s.where.n-s.absent)
	if err := s.compare(); err != nil {
		s.stop()
		return nil, err
	}
	s.settle()
	s.vfs = vfs.AttachSnapshot(s)
	return s, nil
}

// takeOver shares the pages that from has.
func (s *snapshot) takeOver(from *snapshot) {
	from.mu.Lock()
	defer from.mu.Unlock()
	var shared []uint32
	for p, w := range from.where.all() {
		if int(p) > s.where.n {
			break
		}
		s.where.store(p, w)
		s.absent--
		shared = append(shared, w-1)
	}
	s.pages.share(shared)
}

// forget makes pages absent again. Nobody uses s yet.
func (s *snapshot) forget(first, last uint32) {
	var freed []uint32
	for p := first; p <= last && int(p) <= s.where.n; p++ {
		if w := s.where.load(p); w != 0 {
			s.where.store(p, 0)
			freed = append(freed, w-1)
			s.absent++
		}
	}
	s.pages.release(freed)
}

// cells lists the cells of the pages that are here.
func (s *snapshot) cells() []uint32 {
	r := make([]uint32, 0, s.where.n-s.absent)
	for _, w := range s.where.all() {
		r = append(r, w-1)
	}
	return r
}

// free gives the pages up. Nobody uses s any more.
func (s *snapshot) free() { s.pages.release(s.cells()) }

// Size implements [vfs.SnapshotSource].
func (s *snapshot) Size() int64 { return int64(s.where.n) * int64(s.pages.size) }

// ReadPages implements [vfs.SnapshotSource].
func (s *snapshot) ReadPages(ctx context.Context, p []byte, off int64) error {
	err := s.readPages(ctx, p, off)
	if err != nil && ctx.Err() == nil {
		if s.h.life.Err() != nil {
			err = fmt.Errorf("database %s: %w", s.h.name, ErrClosed)
		}
		s.r.lastFetch.Store(&err)
	}
	return err
}

func (s *snapshot) readPages(ctx context.Context, p []byte, off int64) error {
	for len(p) > 0 {
		pgno, in := uint32(off/int64(s.size))+1, int(off%int64(s.size))
		if int(pgno) > s.where.n {
			return fmt.Errorf("page %d of database %s: it has %d as of slot %d", pgno, s.h.name, s.where.n, s.entry.Slot)
		}
		n := min(len(p), s.size-in)
		if pgno == s.lock {
			clear(p[:n])
		} else {
			if s.isAbsent(pgno) {
				if err := s.need(ctx, pgno); err != nil {
					return err
				}
			}
			if err := s.pages.readAt(p[:n], s.where.load(pgno)-1, in); err != nil {
				return fmt.Errorf("page %d of database %s: %w", pgno, s.h.name, err)
			}
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// isAbsent implements partial. The lock page is not.
func (s *snapshot) isAbsent(p uint32) bool {
	return int(p) <= s.where.n && s.where.load(p) == 0 && p != segment.LockPage(s.pages.size)
}

func (s *snapshot) owed(_ *locator, p uint32) bool { return s.isAbsent(p) }

func (s *snapshot) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.absent
}

func (s *snapshot) settled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proved
}

// finish implements partial. The locator stays: a later point takes over the maps that have been read, and a comparison asks which objects the pages are in. Nobody needs the copies of upper pages any more.
func (s *snapshot) finish() {
	if upper := s.loc.Load().upper; upper != nil {
		upper.Forget()
	}
}

// put implements partial.
func (s *snapshot) put(_ *locator, first uint32, b []byte, sums []cache.PageSum) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := s.pages.size
	for i := 0; i < len(sums); {
		n := 0
		var fresh []uint64
		for i+n < len(sums) && s.isAbsent(first+uint32(i+n)) {
			fresh = append(fresh, sums[i+n].Sum)
			n++
		}
		if n == 0 {
			i++
			continue
		}
		cells, err := s.pages.put(b[i*size:(i+n)*size], fresh)
		if err != nil {
			return s.r.h.noRoom(fmt.Errorf("keep pages %d to %d: %w", first+uint32(i), first+uint32(i+n-1), err))
		}
		for k, c := range cells {
			s.where.store(first+uint32(i+k), c+1)
		}
		s.absent -= n
		if s.meter != nil {
			s.meter.add(int64(n * size))
		}
		i += n
	}
	return nil
}

// record implements partial.
func (s *snapshot) record([]cache.PageSum) error {
	err := s.compare()
	if err != nil {
		s.h.broken(err) // before those who wait in Hydrated are told: they find the handle ended
		s.fail(err)
	}
	return err
}

// compare compares the whole, once every page is here, with the checksum that its writer recorded.
func (s *snapshot) compare() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.absent > 0 || s.proved {
		return nil
	}
	if sum := s.pages.xor(s.cells()); sum != s.entry.State.Checksum {
		return fmt.Errorf("%w: database %s: %016x for slot %d, the log says %016x", errSum, s.h.name, sum, s.entry.Slot, s.entry.State.Checksum)
	}
	s.proved = true
	return nil
}

// relocate implements partial: there is no other place for the pages of this point.
func (s *snapshot) relocate(ctx context.Context, _ *locator) (bool, error) {
	return false, s.r.collected(ctx, s)
}
