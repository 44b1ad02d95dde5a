package tonbo

import (
	"context"
	"fmt"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/remote"
)

// setFrozen freezes or thaws a database: a claim and a close that carry the flag, or do not. An owner is fenced by it. Nothing is written when it is so already.
// only is the incarnation meant; zero: whichever is live.
func (c *Client) setFrozen(ctx context.Context, name string, frozen bool, only fence.ID) error {
	h, err := c.handle(name)
	if err != nil {
		return err
	}
	defer h.stop()
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	doing := "thaw"
	if frozen {
		doing = "freeze"
	}
	// (1) What is it? A claim that freezes and was not followed by its close is finished.
	head, err := h.log.HeadHeader(ctx)
	if err == nil && (head == nil || head.Ends() || only != (fence.ID{}) && head.ID != only) {
		err = fence.ErrNoDatabase
	}
	if err != nil {
		return wrap(name, doing, err)
	}
	if head.Frozen == frozen && !(frozen && head.Kind == fence.Claim) {
		c.noteFrozen(ctx, name, head, frozen)
		return nil
	}
	if err := remote.ProbeOnce(ctx, h.store); err != nil {
		return wrap(name, doing, err)
	}
	// (2) The claim: from here on it is.
	owner, err := h.log.Claim(ctx, fence.ClaimOptions{ID: only, Frozen: frozen, IgnoreFrozen: true})
	if isUnknown(err) {
		return &dbError{name, doing, ErrUnsynced, fmt.Errorf("run it again: %w", err)}
	}
	if err != nil {
		return wrap(name, doing, err)
	}
	fault("freeze:claimed")
	// (3) Nobody owns it. Without this entry a janitor leaves it alone, no more.
	h.owner = owner
	h.leave(ctx, owner)
	fault("freeze:closed")
	// (4) For listing alone: the log decides.
	c.noteFrozen(ctx, name, owner.Entry(), frozen)
	return nil
}

// noteFrozen writes into the index record whether the database is frozen. Best effort.
func (c *Client) noteFrozen(ctx context.Context, name string, e *fence.Entry, frozen bool) {
	r, err := recordOf(ctx, c.store, name, e)
	if err == nil && r != nil {
		_, err = catalog.Change(ctx, c.store, r, func(r *catalog.Record) error { r.Frozen = frozen; return nil })
	}
	if err != nil {
		c.o.Logger.Debug("index record does not say whether it is frozen", "database", name, "error", err)
	}
}

// Freeze makes a database unchangeable, until [Client.Thaw]: Open and Rewind refuse it ([ErrFrozen]); it can be forked, read, exported and deleted. Its owner, if there is one, is fenced. It
// is no error if it is frozen already. Seven requests. Errors, for errors.Is: [ErrNotFound], [ErrUnsynced] when the outcome is not known (run it again).
func (c *Client) Freeze(ctx context.Context, name string) error {
	return c.setFrozen(ctx, name, true, fence.ID{})
}

// Thaw ends a Freeze. It is no error if the database is not frozen: then nothing happens, and its owner goes on.
func (c *Client) Thaw(ctx context.Context, name string) error {
	return c.setFrozen(ctx, name, false, fence.ID{})
}
