package tonbo

import (
	"context"
	"iter"
	"math"
	"slices"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/base"
)

// HistoryEntry is one entry of a database's log.
type HistoryEntry struct {
	Point
	Kind      string // create, claim, commit, base, rewind, close
	By        string // who wrote it
	Pages     int64  // size of the database after it, in pages
	Bytes     int64  // of the entry in the remote, without segments that it names
	RewoundTo uint64 // rewind: the slot
}

var kindNames = map[fence.Kind]string{
	fence.Create: "create", fence.Claim: "claim", fence.Commit: "commit", fence.Base: "base", fence.Rewind: "rewind", fence.Close: "close", fence.Delete: "delete", fence.Void: "void",
}

// History yields a database's restorable entries, the newest first: all within the history window, and labelled ones from before it. An error ends it.
func (c *Client) History(ctx context.Context, name string) iter.Seq2[HistoryEntry, error] {
	return c.HistoryBefore(ctx, name, math.MaxUint64)
}

// HistoryBefore yields what [Client.History] does, but for the entries from a slot on: a listing in pages goes on before the last slot that it has. What it leaves out costs nothing.
func (c *Client) HistoryBefore(ctx context.Context, name string, slot uint64) iter.Seq2[HistoryEntry, error] {
	return func(yield func(HistoryEntry, error) bool) {
		h, err := c.handle(name)
		if err != nil {
			yield(HistoryEntry{}, err)
			return
		}
		defer h.stop()
		head, err := h.log.HeadHeader(ctx)
		if err == nil && (head == nil || head.Ends()) {
			err = fence.ErrNoDatabase
		}
		if err != nil {
			yield(HistoryEntry{}, wrap(name, "history", err))
			return
		}
		m, err := h.manifestOf(ctx, head)
		if err != nil {
			yield(HistoryEntry{}, wrap(name, "history", err))
			return
		}
		for e, err := range h.restorable(ctx, head, m, slot) {
			if err != nil {
				yield(HistoryEntry{}, wrap(name, "history", err))
				return
			}
			he := HistoryEntry{Point: pointOf(e), Kind: kindNames[e.Kind], By: e.Owner, Pages: int64(e.State.PageCount), Bytes: e.Size, RewoundTo: e.To}
			if !yield(he, nil) {
				return
			}
		}
	}
}

// restorable yields the entries before a slot that are points, newest first: all from the horizon on, and labelled ones below it.
func (h *handle) restorable(ctx context.Context, head *fence.Entry, m *base.Manifest, before uint64) iter.Seq2[*fence.Entry, error] {
	return func(yield func(*fence.Entry, error) bool) {
		floor := min(labelFloor(m), head.Horizon-1)
		for e, err := range h.backBefore(ctx, head, before, floor) {
			if err == nil && e.Slot < head.Horizon && e.Label == "" {
				continue
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
		if m == nil {
			return
		}
		var slots []uint64
		for _, l := range slices.Backward(m.Labels) {
			if l.Slot <= floor && l.Slot < before {
				slots = append(slots, l.Slot)
			}
		}
		for some := range slices.Chunk(slots, headersAtOnce) {
			entries, err := h.headers(ctx, some, false)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// Rewind takes a database back to an earlier point: its state is that point's from now on. The owner is fenced. The history stays, so a rewind can itself be
// undone: rewind to before, the point that the head was. [ErrPointGone] when at is not restorable.
func (c *Client) Rewind(ctx context.Context, name string, at At) (before Point, err error) {
	h, err := c.handle(name)
	if err != nil {
		return Point{}, err
	}
	defer h.stop()
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	if at == nil {
		return Point{}, wrap(name, "rewind", invalid("at", "to which point? It is nil"))
	}
	head, e, err := h.resolve(ctx, at)
	if err != nil {
		return Point{}, wrap(name, "rewind", err)
	}
	owner, err := h.log.Rewind(ctx, fence.RewindOptions{ID: head.ID, To: e.Slot})
	if err != nil {
		return Point{}, wrap(name, "rewind", err)
	}
	before = pointOf(owner.Prev())
	if _, err := owner.Append(ctx, fence.Draft{Kind: fence.Close}); err != nil { // a janitor may not compact it until its next owner has closed it: no harm
		c.o.Logger.Debug("rewound, not closed", "database", name, "error", err)
	}
	return before, nil
}

// handle returns one that only reads: without a local copy.
func (c *Client) handle(name string) (*handle, error) {
	if err := ValidateName(name); err != nil {
		return nil, err
	}
	return newHandle(name, c.o, c.store), nil
}
