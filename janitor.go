package tonbo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/remote"
)

// CompactReport says what Compact did.
type CompactReport struct {
	Compacted bool   // false: it was not worth it
	Entries   int    // of the log that were merged
	Segments  int    // put
	Bytes     int64  // put, the manifest's included
	Horizon   uint64 // oldest restorable slot
}

// Compact merges the log of a database that nobody has open, as its owners do while they run: so that it opens with few requests, and its old history can be collected. It
// reads and writes as a stream, without a local copy, in some 50 MiB of memory. A database is compacted only when its last owner has closed it, and only when that is worth it. A frozen
// one stays frozen. Whoever opens the database meanwhile wins. The history window is the one that its owners have used.
//
// Errors, for errors.Is: [ErrNotFound]; [ErrBusy] when the database is open, was not closed (its next owner compacts it) or was opened meanwhile: nothing is to be done; [ErrUnsynced].
func (c *Client) Compact(ctx context.Context, name string) (*CompactReport, error) {
	h, err := c.handle(name)
	if err != nil {
		return nil, err
	}
	defer h.stop()
	r, err := h.compactClosed(ctx)
	var fenced *fence.FencedError
	switch {
	case errors.As(err, &fenced) && errors.Is(err, fence.ErrDeleted):
		return nil, &dbError{name, "compact", ErrNotFound, err}
	case errors.As(err, &fenced):
		return nil, &dbError{name, "compact", ErrBusy, err}
	case isUnknown(err):
		return nil, &dbError{name, "compact", ErrUnsynced, fmt.Errorf("nothing is lost, its next owner goes on from here: %w", err)}
	}
	return r, wrap(name, "compact", err)
}

// closed is a database that nobody has open.
type closed struct {
	head  *fence.Entry
	base  *base.Manifest // that pages come from
	packs *packs         // of it
	tail  tail
	own   *base.Manifest // in force, if it is of this log
}

// readClosed finds out what is above the base.
func (h *handle) readClosed(ctx context.Context, head *fence.Entry) (*closed, error) {
	t := h.newTail(head)
	if err := t.load(ctx, 0); err != nil {
		return nil, err
	}
	tl, err := t.tail(ctx)
	if err != nil {
		return nil, err
	}
	d := &closed{head: head, base: t.base, packs: t.packed(), tail: tl}
	if d.own = t.base; d.own == nil || d.own.ID != head.ID.String() {
		d.own, err = h.manifestOf(ctx, head)
	}
	return d, err
}

// worth tells whether a base is due, or cheap enough for what it spares whoever opens the database next. It costs three slots of the log, of which one stays for ever.
func (d *closed) worth(ctx context.Context, h *handle, c *compaction) (bool, error) {
	s, t := d.head.State, h.tune
	window := d.window()
	old := window > 0 && t.now().Sub(d.head.Time) > window && d.head.Slot >= d.head.Horizon+t.slots // all of its history can go
	if old || d.tail.long(t.entries) || d.head.Slot >= sinceBase(d.head, h.name)+t.slots {
		return true, nil
	}
	if n, _ := d.tail.ours(); int64(s.PageCount)*int64(s.PageSize) <= t.whole/4 || n < t.settle {
		return false, nil
	}
	bottom, err := c.foundation(ctx, &d.tail) // its segments are not put again
	if err != nil {
		return false, err
	}
	if err := c.weigh(ctx, &tail{entries: d.tail.entries[bottom+1:]}); err != nil {
		return false, err
	}
	return c.cheap(), nil
}

// window is what its owners have used, 0: not known.
func (d *closed) window() time.Duration {
	if d.own == nil {
		return 0
	}
	return time.Duration(d.own.Window) * time.Second
}

// compactClosed is Compact.
func (h *handle) compactClosed(ctx context.Context) (r *CompactReport, err error) {
	// (1) Is it closed, and is it worth it? Until here nothing is written.
	head, err := h.log.Head(ctx)
	if err != nil {
		return nil, err
	}
	if head == nil || head.Ends() {
		return nil, fence.ErrNoDatabase
	}
	if head.Kind != fence.Close {
		return nil, fmt.Errorf("%w: the last entry is a %s, of %s", fence.ErrBusy, kindNames[head.Kind], head.Owner)
	}
	d, err := h.readClosed(ctx, head)
	if err != nil {
		return nil, err
	}
	c := newCompaction(h, nil, nil, d.base, head.State.PageSize, closeFactor)
	c.state = head.State
	if worth, err := d.worth(ctx, h, c); err != nil || !worth {
		return &CompactReport{Horizon: head.Horizon}, err
	}
	if err := remote.ProbeOnce(ctx, h.store); err != nil {
		return nil, err
	}
	fault("janitor:read")
	// (2) Claim, right behind the close: one try.
	owner, err := h.log.Claim(ctx, fence.ClaimOptions{Head: head, IfClosed: true})
	if err != nil {
		return nil, err
	}
	h.owner = owner
	fault("janitor:claimed")
	defer func() {
		if err != nil {
			h.leave(ctx, owner)
		}
	}()
	if prev := owner.Prev(); prev.Nonce != head.Nonce { // of a frozen database the claim looks again
		if d, err = h.readClosed(ctx, prev); err != nil {
			return nil, err
		}
	}
	// (3) The base of the claim's state: uploaded first (R8).
	h.compactor = compactor{base: d.base}
	c.owner, c.force, c.old, c.packs, c.slot, c.state = owner, d.base, d.base, d.packs, owner.Slot(), owner.State()
	c.window, c.due = d.window(), true
	if err := c.look(ctx, &d.tail); err != nil {
		return nil, err
	}
	if err := c.merge(ctx, &d.tail, h.compactor.noted()); err != nil {
		return nil, err
	}
	_, key, err := c.upload(ctx)
	if err != nil {
		return nil, err
	}
	// (4) Its entry puts it in force, unless somebody has opened the database meanwhile.
	e, err := owner.Append(ctx, fence.Draft{Kind: fence.Base, Base: key, BaseSlot: c.slot, Horizon: c.raised, Since: h.since(nil)})
	if err != nil {
		return nil, err
	}
	fault("janitor:published")
	// (5) And closed again.
	if _, err := owner.Append(ctx, fence.Draft{Kind: fence.Close, Since: h.since(nil)}); err != nil {
		return nil, err
	}
	fault("janitor:closed")
	return &CompactReport{Compacted: true, Entries: len(d.tail.entries), Segments: len(c.fresh), Bytes: c.bytes, Horizon: e.Horizon}, nil
}

// leave closes a database again after a failure, if that can be done: a janitor leaves alone what is not closed.
func (h *handle) leave(ctx context.Context, owner *fence.Owner) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.o.SyncTimeout)
	defer cancel()
	_, _, err := owner.Settle(ctx)
	if err == nil && owner.Last().Kind != fence.Close {
		_, err = owner.Append(ctx, fence.Draft{Kind: fence.Close, Since: h.since(nil)})
	}
	if err != nil {
		h.o.Logger.Debug("not closed", "database", h.name, "error", err)
	}
}
