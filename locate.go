package tonbo

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/layout"
)

// locator finds the pages of one state of the database in the objects that hold them: the entries above the base, the segments that these name, the packs and the levels of the
// base. Maps of objects are read when they are needed. Safe for concurrent use.
type locator struct {
	h         *handle
	slot      uint64
	pageCount uint32
	pageSize  int
	newest    bool // it was made of a base of ours, after the state that the local copy began with: see lazy.relocate

	tail   tail
	base   *base.Manifest
	packs  atomic.Pointer[packs]     // of the base; nil: not read yet
	upper  *layout.Object            // copies of pages of the base's levels, in memory; nil: none
	older  *packs                    // of an earlier locator's base
	known  map[string]*layout.Object // by key: objects whose maps an earlier locator has read
	turn   chan struct{}             // held by who reads the maps of entries
	ready  atomic.Pointer[located]
	guides atomic.Int32 // guesses made
}

// located are the objects that hold the pages, newest first, once the maps of the entries among them are known, and what their deltas make of them.
type located struct {
	objects []*layout.Object
	deltas  *layout.Deltas
}

const (
	mapReaders  = 16        // maps read at once
	guesses     = 8         // of a locator: they are for its first pages, when every map is still unknown
	guessWindow = 256 << 10 // bytes of one
	none        = int32(-1) // in no object
	unseen      = int32(-2) // perhaps in an object whose map is not known
)

func (h *handle) newLocator(tl tail, m *base.Manifest, slot uint64, pageSize int, pageCount uint32) *locator {
	return &locator{h: h, slot: slot, pageSize: pageSize, pageCount: pageCount, tail: tl, base: m, turn: make(chan struct{}, 1)}
}

// objects lists the objects, newest first. The first call reads the maps of entries that have not been read: they name segments.
func (l *locator) objects(ctx context.Context) ([]*layout.Object, error) {
	if r := l.ready.Load(); r != nil {
		return r.objects, nil
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if r := l.ready.Load(); r != nil {
		return r.objects, nil
	}
	var entries []*layout.Object
	for i := range l.tail.entries {
		e := &l.tail.entries[i]
		e.object = l.read(e.object)
		entries = append(entries, e.object)
	}
	if err := readMaps(ctx, entries); err != nil {
		return nil, err
	}
	r, err := l.tail.objects(ctx, l.h, l.pageSize)
	if err != nil {
		return nil, err
	}
	if l.base != nil && l.h.tune.broken == pagesOfTheBase {
		r = nil
	}
	if l.base != nil && l.base.Packed != nil {
		p := l.packs.Load()
		if p == nil {
			if p, err = l.h.readPacks(ctx, l.base, 0, l.older); err != nil {
				return nil, err
			}
			l.packs.Store(p)
		}
		r = append(r, p.objects()...)
	}
	if l.upper != nil {
		r = append(r, l.upper)
	}
	if l.base != nil {
		for _, level := range l.base.Levels {
			for _, s := range level {
				r = append(r, layout.Remote(l.h.pages, l.pageSize, s.Ref()))
			}
		}
	}
	for i, o := range r {
		r[i] = l.read(o)
	}
	l.known, l.older = nil, nil
	l.ready.Store(&located{r, layout.NewDeltas(r)})
	return r, nil
}

// reuse makes use of the maps that an earlier locator of the same incarnation has read. Keys stand for content: a slot that was filled anew after its collection is
// told by its ETag.
func (l *locator) reuse(earlier *locator) {
	l.known, l.older = map[string]*layout.Object{}, earlier.packs.Load()
	if r := earlier.ready.Load(); r != nil {
		for _, o := range r.objects {
			if o.Known() != nil {
				l.known[o.Key] = o
			}
		}
	}
}

// read is the object whose map has been read, if there is one.
func (l *locator) read(o *layout.Object) *layout.Object {
	if k := l.known[o.Key]; k != nil && o.Known() == nil {
		return k
	}
	return o
}

// readMaps reads the maps of objects that are not known, several at once.
func readMaps(ctx context.Context, objects []*layout.Object) error {
	return readMapsBy(ctx, objects, mapReaders)
}

// readMapsBy reads at most n at once.
func readMapsBy(ctx context.Context, objects []*layout.Object, n int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(n)
	for _, o := range objects {
		if o.Known() == nil {
			g.Go(func() error { _, err := o.Index(ctx); return err })
		}
	}
	return g.Wait()
}

// readMapsOf reads the maps of all objects that may hold pages from first to last.
func (l *locator) readMapsOf(ctx context.Context, first, last uint32) error {
	objects, err := l.objects(ctx)
	if err != nil {
		return err
	}
	var of []*layout.Object
	for _, o := range objects {
		if o.First <= last && first <= o.Last {
			of = append(of, o)
		}
	}
	return readMaps(ctx, of)
}

// place is where a page is whole: the number of an object and of a block in it. Deltas of newer objects are against it.
type place struct{ object, block int32 }

// places tells where the pages from first to last are, as far as maps are known. After objects has succeeded.
func (l *locator) places(first, last uint32) []place {
	r := make([]place, last-first+1)
	for i := range r {
		r[i].object = none
	}
	for k, o := range l.ready.Load().objects {
		if o.Last < first || last < o.First {
			continue
		}
		put := func(block int, a, b uint32) {
			for p := a; p <= b; p++ {
				if at := &r[p-first]; at.object == none {
					*at = place{int32(k), int32(block)}
				}
			}
		}
		if ix := o.Known(); ix != nil {
			layout.PagesIn(ix, first, last, put)
		} else {
			for p := max(first, o.First); p <= min(last, o.Last); p++ {
				if at := &r[p-first]; at.object == none {
					at.object = unseen
				}
			}
		}
	}
	return r
}

// find returns the newest object and the block that hold a page whole. w, when it is not nil, may have the block already.
func (l *locator) find(ctx context.Context, p uint32) (o *layout.Object, block int, w *layout.Window, err error) {
	objects, err := l.objects(ctx)
	if err != nil {
		return nil, 0, nil, err
	}
	for {
		var unknown []*layout.Object
		for _, o := range objects {
			if p < o.First || o.Last < p {
				continue
			}
			ix := o.Known()
			if ix == nil {
				unknown = append(unknown, o)
				continue
			}
			if i := ix.Search(p); i >= 0 {
				if len(unknown) == 0 {
					return o, i, w, nil
				}
				break
			}
		}
		if len(unknown) == 0 {
			return nil, 0, nil, fmt.Errorf("%w: page %d as of slot %d is in no object", ErrCorrupt, p, l.slot)
		}
		// All maps at once, and beside them what the oldest one most likely holds the page in: two round trips become one.
		g, gctx := errgroup.WithContext(ctx)
		g.Go(func() error { return readMaps(gctx, unknown) })
		done := func() {}
		if l.guides.Add(1) <= guesses {
			g.Go(func() (err error) {
				w, done, err = unknown[len(unknown)-1].Guess(gctx, p, guessWindow)
				return err
			})
		}
		err := g.Wait()
		done() // the map is here: nobody else need guess
		if err != nil {
			return nil, 0, nil, err
		}
	}
}
