package tonbo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo/cache"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/layout"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// payloadHeader is what the index and the blocks of an entry's payload are checked against.
func payloadHeader(e *fence.Entry) *segment.Header {
	return &segment.Header{PageSize: e.State.PageSize, PageCount: e.State.PageCount, PayloadSize: e.PayloadSize, PayloadSum: e.PayloadSum}
}

// eachChange decodes an entry's pages, those in segments included: whole is called with those that are, concurrently for different pages, and delta with the others before that.
func eachChange(ctx context.Context, h *handle, name string, e *fence.Entry, whole func(pgno uint32, page []byte) error, delta func(segment.Delta) error) error {
	hd := payloadHeader(e)
	object := fence.SlotKey(name, e.Slot)
	ix, err := segment.DecodeIndex(e.Payload, hd)
	if err != nil {
		return damaged(h, object, err)
	}
	if err := segment.EachChange(hd, ix, e.Payload, whole, delta); err != nil {
		return damaged(h, object, err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(transfers)
	for _, ref := range ix.Refs {
		g.Go(func() error { return h.eachPageOf(ctx, ref, e.State.PageSize, &e.ID, whole) })
	}
	return g.Wait()
}

// eachPageOf reads a whole segment. id, when it is set, is the incarnation that it must be of.
func (h *handle) eachPageOf(ctx context.Context, ref segment.Ref, pageSize uint32, id *fence.ID, fn func(pgno uint32, page []byte) error) error {
	if s, ok := h.pages.(*sharedStore); ok && s.Shared(ref.Key) != nil {
		return h.eachSharedPage(ctx, layout.Remote(s, int(pageSize), ref), fn)
	}
	o, err := h.store.Get(ctx, ref.Key, remote.GetOptions{})
	if errors.Is(err, remote.ErrNotFound) {
		return fmt.Errorf("%w: %w: %s/%s", ErrCorrupt, layout.ErrMissing, h.store, ref.Key)
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

// eachSharedPage reads a segment block by block, for the machine's shared block cache.
func (h *handle) eachSharedPage(ctx context.Context, o *layout.Object, fn func(pgno uint32, page []byte) error) error {
	ix, err := o.Index(ctx)
	for i, j := 0, 0; err == nil && i < len(ix.Blocks); i = j {
		for n := 0; j < len(ix.Blocks) && (j == i || n+ix.Blocks[j].Raw <= hydrateUnit); j++ {
			n += ix.Blocks[j].Raw
		}
		err = o.Blocks(ctx, i, j, nil, fn)
	}
	return h.told(err)
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
	add := func(pgno uint32, sum uint64) error {
		mu.Lock()
		defer mu.Unlock()
		s.Pages = append(s.Pages, cache.PageSum{Page: pgno, Sum: sum})
		return nil
	}
	err := eachChange(ctx, h, h.name, e,
		func(pgno uint32, page []byte) error { return add(pgno, segment.PageSum(pgno, page)) },
		func(d segment.Delta) error { return add(d.Page, d.Sum) })
	slices.SortFunc(s.Pages, func(a, b cache.PageSum) int { return int(int64(a.Page) - int64(b.Page)) })
	return s, err
}
