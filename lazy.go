package tonbo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

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

// source is what brings absent pages, nil when all are here.
func (h *handle) source() *lazy {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lazy
}
