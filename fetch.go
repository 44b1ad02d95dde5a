package tonbo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tonbo-go/tonbo/cache"
	"github.com/tonbo-go/tonbo/internal/layout"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// partial is a local copy that lacks pages: an owner's file (lazy), or a point's (snapshot).
type partial interface {
	// isAbsent tells whether a page has to be fetched before it is read.
	isAbsent(p uint32) bool
	// left is the number of absent pages.
	left() int
	// owed tells whether the hydration is to fetch a page.
	owed(l *locator, p uint32) bool
	// put takes neighbouring pages, those that are still absent, and their checksums.
	put(l *locator, first uint32, pages []byte, sums []cache.PageSum) error
	// record is called after the pages of a fetch were put: all of them, those that were not absent included.
	record(sums []cache.PageSum) error
	// settled tells whether nothing is left to do.
	settled() bool
	// finish is called when that has come to be so.
	finish()
	// relocate is called when an object that the locator names is missing. again: there is a newer locator. err, if not nil, is what to report.
	relocate(ctx context.Context, old *locator) (again bool, err error)
}

// fetcher brings pages into a local copy: those that SQLite waits for at once, the rest in the background (hydrate.go).
type fetcher struct {
	h    *handle
	to   partial
	size int // of a page, bytes
	lock uint32
	loc  atomic.Pointer[locator]
	ctx  context.Context // ends with the use of the copy
	stop context.CancelFunc
	bg   context.Context // of the hydration
	halt context.CancelFunc

	waiting atomic.Int32 // reads of SQLite that wait for a page
	ahead   readAheads
	meter   *progressMeter
	gates   gates

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

// begin makes a fetcher ready, for a copy of n pages of which some are there.
func (s *fetcher) begin(h *handle, to partial, l *locator, n, there int) {
	s.h, s.to, s.size, s.lock, s.done = h, to, l.pageSize, segment.LockPage(l.pageSize), make(chan struct{})
	s.loc.Store(l)
	s.ctx, s.stop = context.WithCancel(h.life)
	s.bg, s.halt = context.WithCancel(s.ctx)
	s.gates.m = map[gateKey]*gate{}
	s.meter = h.progress("hydrate", int64(n)*int64(s.size))
	s.meter.add(int64(there) * int64(s.size))
}

// tries of a read whose outcome the store did not tell.
const foregroundTries = 4

// need brings a page that SQLite reads.
func (s *fetcher) need(ctx context.Context, p uint32) error {
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	var b remote.Backoff
	for try := 1; ; try++ {
		l := s.loc.Load()
		if !s.to.isAbsent(p) { // somebody else has brought it, and perhaps it was the last one: l is of no use any more
			return nil
		}
		err := s.fetchPage(ctx, l, p)
		switch {
		case err == nil:
			s.settle()
			return nil
		case ctx.Err() != nil:
		case errors.Is(err, layout.ErrMissing):
			again, why := s.to.relocate(ctx, l)
			if again {
				continue
			}
			if why != nil {
				return fmt.Errorf("page %d of database %s: %w", p, s.h.name, why)
			}
		case errors.Is(err, remote.ErrUnknown) && try < foregroundTries:
			if b.Wait(ctx, err) == nil {
				continue
			}
		}
		return s.h.told(fmt.Errorf("page %d of database %s: %w", p, s.h.name, err))
	}
}

// fetchPage fetches the block of a page, and the following ones of a scan. Of concurrent callers for one block one fetches.
func (s *fetcher) fetchPage(ctx context.Context, l *locator, p uint32) error {
	o, i, w, err := l.find(ctx, p)
	if err != nil {
		return err
	}
	unlock, err := s.gates.lock(ctx, gateKey{o, i})
	if err != nil {
		return err
	}
	defer unlock()
	if !s.to.isAbsent(p) {
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
	if s.to.isAbsent(p) {
		return fmt.Errorf("%w: page %d of a snapshot older than slot %d", layout.ErrMissing, p, l.slot)
	}
	s.ahead.end(next, window)
	return nil
}

func (s *fetcher) anyAbsent(b *segment.Block) bool {
	for _, r := range b.Runs {
		for n := range r.Count {
			if s.to.isAbsent(r.First + n) {
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
func (s *fetcher) fetch(ctx context.Context, l *locator, o *layout.Object, i, j int, w *layout.Window) (next uint32, err error) {
	blocks := o.Known().Blocks[i:j]
	first := blocks[0].Runs[0].First
	runs := blocks[len(blocks)-1].Runs
	last := runs[len(runs)-1].First + runs[len(runs)-1].Count - 1
	places := l.places(first, last)
	at := l.ready.Load()
	ours := func(p uint32) bool { // no newer object has it whole
		k := places[p-first].object
		return p <= l.pageCount && k >= 0 && at.objects[k] == o
	}
	buf := batches.Get().(*[]byte)
	defer batches.Put(buf)
	var start uint32
	b := (*buf)[:0]
	var sums []cache.PageSum
	flush := func() error {
		err := s.to.put(l, start, b, sums[len(sums)-len(b)/s.size:])
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
		page = b[len(b)-s.size:]
		if err := at.deltas.Apply(p, int(places[p-first].object), page); err != nil {
			return err
		}
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
	return last + 1, s.to.record(sums)
}
