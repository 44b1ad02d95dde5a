package tonbo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo/internal/layout"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

const (
	hydrators   = 12      // requests on the way at once, so that a slow store does not keep the processors waiting
	hydrateUnit = 4 << 20 // bytes of pages that are fetched together
	spanLimit   = 2 << 20 // of these as stored, with one request: memory stays under hydrators times twice that
	gapBlocks   = 2       // blocks that nobody needs and that are fetched rather than asking twice
	yieldEvery  = 2 * time.Millisecond
	yieldLimit  = 100 // times yieldEvery: then a unit goes on although reads are waiting, so that they cannot keep it away for ever
)

// Hydrated waits until every page is in the local copy and the whole has been compared with the database checksum. With HydrateNone it is what starts
// the fetching. [ErrCorrupt]: the remote lacks a page, or the whole is not what its writer shipped. A ctx that ends first leaves the fetching under way; its error
// tells what is in the way.
func (db *DB) Hydrated(ctx context.Context) error {
	if err := db.live(); err != nil {
		return wrap(db.h.name, "hydrate", err)
	}
	return wrap(db.h.name, "hydrate", db.h.hydrated(ctx))
}

func (h *handle) hydrated(ctx context.Context) error {
	if h.ro != nil {
		return h.ro.hydrated(ctx)
	}
	s := h.source()
	if s == nil {
		return nil
	}
	return s.hydrated(ctx)
}

// hydrated waits for the end of the hydration. ErrClosed: it was given up.
func (s *fetcher) hydrated(ctx context.Context) error {
	s.hydrate()
	select {
	case <-s.done:
	default:
		select {
		case <-s.done:
		case <-s.bg.Done():
			return ErrClosed
		case <-ctx.Done():
			s.state.Lock()
			defer s.state.Unlock()
			err := fmt.Errorf("%d pages are not here yet: %w", s.to.left(), ctx.Err())
			if s.state.last != nil {
				err = fmt.Errorf("%w; the last try: %w", err, s.state.last)
			}
			return err
		}
	}
	s.state.Lock()
	defer s.state.Unlock()
	return s.state.err
}

// hydrate starts fetching everything, once.
func (s *fetcher) hydrate() {
	s.once.Do(func() {
		s.h.mu.Lock()
		defer s.h.mu.Unlock()
		if s.bg.Err() != nil {
			return
		}
		s.workers.Add(1)
		go func() {
			defer s.workers.Done()
			s.fetchAll()
		}()
	})
}

// fetchAll fetches every page, again and again until none is left. Passing trouble is waited out; an object that is missing or damaged ends it.
func (s *fetcher) fetchAll() {
	var b remote.Backoff
	for before := s.to.left(); ; {
		s.settle()
		select {
		case <-s.done:
			return
		default:
		}
		l := s.loc.Load()
		err := s.fetchPass(l)
		s.state.Lock()
		s.state.last = err
		s.state.Unlock()
		switch {
		case s.bg.Err() != nil:
			return
		case errors.Is(err, layout.ErrMissing):
			again, why := s.to.relocate(s.bg, l)
			if again {
				break
			}
			if why == nil {
				why = s.h.told(err)
			}
			s.h.o.Logger.Warn("hydration ended", "event", "hydration_failed", "database", s.h.name, "error", why)
			s.fail(why)
			return
		case errors.Is(err, layout.ErrDamaged), errors.Is(err, remote.ErrDamaged), errors.Is(err, ErrCorrupt):
			s.h.o.Logger.Warn("hydration ended", "event", "hydration_failed", "database", s.h.name, "error", err)
			s.fail(s.h.told(err))
			return
		default: // with no error, pages are left that only a checkpoint can bring: their newest version is in the write-ahead log
			if err != nil {
				s.h.o.Logger.Warn("hydration interrupted; it is tried again", "event", "hydration_interrupted", "database", s.h.name, "error", err)
			}
			if s.to.left() > 0 || err != nil {
				if b.Wait(s.bg, err) != nil {
					return
				}
			}
		}
		if left := s.to.left(); left < before {
			before, b = left, remote.Backoff{}
		}
	}
}

// fetchPass fetches what is absent or not known, in the order of pages.
func (s *fetcher) fetchPass(l *locator) error {
	if _, err := l.objects(s.bg); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(s.bg)
	g.SetLimit(hydrators)
	unit := uint32(max(1, hydrateUnit/s.size))
	for first := uint32(1); first <= l.pageCount && ctx.Err() == nil; first += unit {
		last := min(first+unit-1, l.pageCount)
		var pages []uint32
		for p := first; p <= last; p++ {
			if p != s.lock && s.to.owed(l, p) {
				pages = append(pages, p)
			}
		}
		if len(pages) > 0 {
			g.Go(func() error {
				s.yield(ctx)
				return s.fetchPages(ctx, l, pages)
			})
		}
		if last == l.pageCount {
			break
		}
	}
	return g.Wait()
}

// fail ends the hydration with an error.
func (s *fetcher) fail(err error) {
	s.state.Lock()
	defer s.state.Unlock()
	if !s.state.over {
		s.state.err, s.state.over = err, true
		close(s.done)
	}
}

// settle ends the hydration when nothing is left to fetch.
func (s *fetcher) settle() {
	if !s.to.settled() {
		return
	}
	s.state.Lock()
	defer s.state.Unlock()
	if !s.state.over {
		s.state.over = true
		close(s.done)
		s.to.finish()
	}
}

// yield lets reads of SQLite go first.
func (s *fetcher) yield(ctx context.Context) {
	for range yieldLimit {
		if s.waiting.Load() == 0 {
			return
		}
		t := time.NewTimer(yieldEvery)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// span is blocks of one object that are fetched with one request.
type span struct {
	o    *layout.Object
	i, j int
}

// with is how many bytes are stored from the first block of a span to block b.
func (t *span) with(b int) int64 {
	blocks := t.o.Known().Blocks
	return blocks[b].Offset + int64(blocks[b].Length) - blocks[t.i].Offset
}

// fetchPages fetches the blocks of the given pages, which ascend.
func (s *fetcher) fetchPages(ctx context.Context, l *locator, pages []uint32) error {
	unit := uint32(max(1, hydrateUnit/s.size))
	for len(pages) > 0 {
		n := 1
		for n < len(pages) && pages[n]-pages[0] < unit {
			n++
		}
		if err := s.fetchNear(ctx, l, pages[:n]); err != nil {
			return err
		}
		pages = pages[n:]
	}
	return nil
}

// fetchNear fetches pages that are within one unit of each other.
func (s *fetcher) fetchNear(ctx context.Context, l *locator, pages []uint32) error {
	first, last := pages[0], pages[len(pages)-1]
	if err := l.readMapsOf(ctx, first, last); err != nil {
		return err
	}
	places := l.places(first, last)
	objects := l.ready.Load().objects
	open := map[int32]*span{}
	var spans []*span
	for _, p := range pages {
		at := places[p-first]
		if at.object < 0 {
			return fmt.Errorf("%w: page %d as of slot %d is in no object", ErrCorrupt, p, l.slot)
		}
		b := int(at.block)
		t := open[at.object]
		if t == nil || b >= t.j+gapBlocks || (b+1-t.i)*segment.BlockSize > hydrateUnit+segment.BlockSize || t.with(b) > spanLimit {
			t = &span{objects[at.object], b, b}
			open[at.object] = t
			spans = append(spans, t)
		}
		t.j = max(t.j, b+1)
	}
	for _, t := range spans {
		if _, err := s.fetch(ctx, l, t.o, t.i, t.j, nil); err != nil {
			return err
		}
	}
	return nil
}
