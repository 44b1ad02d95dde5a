package tonbo

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
)

// headersAtOnce bounds how many headers are read at once: 4 KiB each.
const headersAtOnce = 64

// errCollected is a slot that is not in the log any more.
var errCollected = fmt.Errorf("%w: its slot was collected", ErrPointGone)

// header reads the header of a slot that has been filled. errCollected when it is not there any more.
func (h *handle) header(ctx context.Context, slot uint64) (*fence.Entry, error) {
	e, err := h.log.ReadHeader(ctx, slot)
	if errors.Is(err, remote.ErrNotFound) {
		return nil, &dbError{h.name, "read the log", errCollected, fmt.Errorf("slot %d", slot)}
	}
	return e, err
}

// headers reads many, several at once, in the order of slots. gaps: some may have been collected; these are nil.
func (h *handle) headers(ctx context.Context, slots []uint64, gaps bool) ([]*fence.Entry, error) {
	r := make([]*fence.Entry, len(slots))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(headersAtOnce)
	for i, s := range slots {
		g.Go(func() (err error) {
			if r[i], err = h.header(ctx, s); gaps && errors.Is(err, errCollected) {
				return nil
			}
			return err
		})
	}
	return r, g.Wait()
}

// back yields head and the entries of its incarnation before it, newest first, down to floor, exclusive, without their payloads. From the horizon on every slot is there; below
// it those that something still needs, which takes a LIST.
func (h *handle) back(ctx context.Context, head *fence.Entry, floor uint64) iter.Seq2[*fence.Entry, error] {
	return func(yield func(*fence.Entry, error) bool) {
		if head.Slot > floor && yield(head, nil) {
			h.backFrom(ctx, head, head, floor, yield)
		}
	}
}

// backBefore is back without the entries from a slot on. It costs no more for those that it leaves out.
func (h *handle) backBefore(ctx context.Context, head *fence.Entry, before, floor uint64) iter.Seq2[*fence.Entry, error] {
	if before > head.Slot {
		return h.back(ctx, head, floor)
	}
	return func(yield func(*fence.Entry, error) bool) {
		switch {
		case before <= floor+1:
		case before <= head.Horizon:
			h.backBelow(ctx, head, before, floor, yield)
		default:
			first, err := h.header(ctx, before-1)
			if err != nil {
				yield(nil, err)
				return
			}
			if first.ID == head.ID && yield(first, nil) { // of another incarnation: there is nothing before
				h.backFrom(ctx, head, first, floor, yield)
			}
		}
	}
}

// backFrom goes on behind an entry that was yielded.
func (h *handle) backFrom(ctx context.Context, head, above *fence.Entry, floor uint64, yield func(*fence.Entry, error) bool) {
	for n := uint64(headersAtOnce / 4); above.Kind != fence.Create && above.Slot > max(floor+1, head.Horizon); n = headersAtOnce {
		slots := make([]uint64, min(n, above.Slot-max(floor+1, head.Horizon)))
		for i := range slots {
			slots[i] = above.Slot - 1 - uint64(i)
		}
		entries, err := h.headers(ctx, slots, false)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, e := range entries {
			if err := above.Follows(e); err != nil {
				yield(nil, err)
				return
			}
			if above = e; !yield(e, nil) || e.Kind == fence.Create {
				return
			}
		}
	}
	if above.Kind != fence.Create && above.Slot > floor+1 {
		h.backBelow(ctx, head, above.Slot, floor, yield)
	}
}

// backBelow is back below the horizon.
func (h *handle) backBelow(ctx context.Context, head *fence.Entry, slot, floor uint64, yield func(*fence.Entry, error) bool) {
	for more, after := true, fence.SlotKey(h.name, slot); more; {
		page, m, err := h.store.List(ctx, fence.LogPrefix(h.name), remote.ListOptions{After: after})
		if err != nil {
			yield(nil, err)
			return
		}
		more = m
		var slots []uint64
		for _, i := range page {
			after = i.Key
			if s, ok := fence.ParseSlotKey(i.Key); ok && s > floor {
				slots = append(slots, s)
			} else {
				more = false
			}
		}
		for some := range slices.Chunk(slots, headersAtOnce) {
			entries, err := h.headers(ctx, some, true)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, e := range entries {
				if e == nil {
					continue
				}
				if e.ID != head.ID || !yield(e, nil) || e.Kind == fence.Create {
					return
				}
			}
		}
	}
}
