package tonbo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/tonbo-go/tonbo/cache"
	"github.com/tonbo-go/tonbo/internal/fsys"
	"github.com/tonbo-go/tonbo/internal/layout"
	"github.com/tonbo-go/tonbo/internal/pageset"
	"github.com/tonbo-go/tonbo/vfs"
)

// lazy is an owner's local file that has not all of its pages: those that SQLite asks for are fetched at once, the rest in the background.
//
// A page is absent until its bytes are in the file. An absent page never changed here since the file was begun, or its newest version is in the write-ahead log: what
// the objects of the state at that time hold is what belongs into the file. Its bit is set after its bytes are written, under mu, which SQLite's own writes into the
// file take too: who comes second finds the bit set, and SQLite's bytes win.
type lazy struct {
	fetcher
	f *fsys.File

	complete atomic.Bool // no page is absent: nobody is asked any more
	present  []atomic.Uint64
	bound    atomic.Uint32 // pages beyond it never come from the remote

	mu     sync.Mutex // held while the file is written
	absent int        // pages up to bound that are not in the file
}

var (
	_ vfs.PageSource = (*lazy)(nil)
	_ partial        = (*lazy)(nil)
)

// newLazy makes the source of the pages that are not in present.
func (h *handle) newLazy(l *locator, present *pageset.Bits) (*lazy, error) {
	f, err := fsys.At(h.dir.Path()).OpenFile(h.dir.Path(), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	n := present.Len()
	s := &lazy{f: f, present: make([]atomic.Uint64, (n+63)/64), absent: n - present.Count()}
	for i, w := range present.Words() {
		s.present[i].Store(w)
	}
	s.bound.Store(uint32(n))
	s.begin(h, s, l, n, present.Count())
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

// record takes the sums of pages that are in the file.
func (s *lazy) record(sums []cache.PageSum) error {
	_, err := s.h.dir.Hydrated(sums)
	switch {
	case errors.Is(err, cache.ErrSums):
		err = fmt.Errorf("%w: database %s: %w", ErrCorrupt, s.h.name, err)
		s.h.broken(err) // before those who wait in Hydrated are told: they find the handle ended
		s.fail(err)
		return err
	case err != nil: // known in memory; a later process fetches these pages again
		s.h.o.Logger.Debug("hydrated pages not recorded", "database", s.h.name, "error", err)
	}
	fault("hydrate:recorded")
	return nil
}

// put writes neighbouring pages, those that are still absent, into the file.
func (s *lazy) put(l *locator, first uint32, b []byte, _ []cache.PageSum) error {
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
			return s.h.noRoom(fmt.Errorf("write pages %d to %d: %w", p, p+uint32(n/size)-1, err))
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

// owed tells whether a page is to be fetched.
func (s *lazy) owed(l *locator, p uint32) bool {
	_, known := s.h.dir.Sum(p)
	return !known || !l.newest && s.isAbsent(p)
}

// settled tells whether every page is in the file and its sum known.
func (s *lazy) settled() bool { return s.left() == 0 && s.h.dir.Unknown() == 0 }

// finish lets go of what the state that the file began with is in: maps, and deltas of all the tail. Who looks for a page loads the locator first, and then looks whether the page is here.
func (s *lazy) finish() {
	l := &locator{h: s.h, pageSize: s.size}
	l.ready.Store(&located{deltas: layout.NewDeltas(nil)})
	s.loc.Store(l)
}

// broken: the remote does not hold what its log says. What is here must not reach the log, and the handle cannot go on.
func (h *handle) broken(err error) {
	h.mu.Lock()
	h.damage = err
	h.mu.Unlock()
	h.end(err, "") // first: who is about to take COMMITs again sees it (quiesce, Reopen)
	if _, vdb := h.current(); vdb != nil {
		vdb.Refuse(err)
	}
	h.o.Logger.Error("database corrupt", "event", "corrupt", "database", h.name, "error", err)
}

// source is what brings absent pages, nil when all are here.
func (h *handle) source() *lazy {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lazy
}
