package tonbo

import (
	"context"
	"errors"
	"fmt"

	"github.com/tonbo-go/tonbo/cache"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/layout"
	"github.com/tonbo-go/tonbo/remote"
)

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
		_, _, _, err := l.find(ctx, page) // which reads the maps that tell where it is
		if err == nil {
			_, err = l.ready.Load().deltas.Page(ctx, &r, page, buf)
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
	return t.locator(tl, e.Slot, int(st.PageSize), e.State.PageCount), nil
}
