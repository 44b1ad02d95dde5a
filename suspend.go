package tonbo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
)

// Suspend is [DB.Synced] and [DB.Close], and then the local copy is removed: what the database holds is in the remote alone, and its next Open is a cold start. COMMITs are refused ([ErrClosed]) as soon as no other Synced is under way; those before are shipped.
//
// When it cannot be acknowledged, the error is Synced's, nothing is closed or removed, and the DB goes on as before, unless it is over. An error after that is Close's, or that of the removal (the copy is void
// then, and what is left of it goes with the next Open), or tells that the copy stays, since another call closed the DB, or another process took the database over, at that moment: the DB is closed. Files with commits that were set aside stay. A ctx without a deadline gets Options.SyncTimeout.
//
// A DB of Ensure closes for itself, and the copy goes with the last Close of those that share the handle, if the remote has everything then. A read-only handle: [ErrReadOnly].
func (db *DB) Suspend(ctx context.Context) error {
	h := db.h
	if h.ro != nil {
		return wrap(h.name, "suspend", ErrReadOnly)
	}
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.o.SyncTimeout)
		defer cancel()
	}
	if db.lease != nil {
		if err := db.Synced(ctx); err != nil {
			return err
		}
	} else if err := db.quiesce(ctx, true); err != nil {
		return err
	}
	h.mu.Lock()
	h.drop = true
	h.mu.Unlock()
	if err := db.Close(); err != nil || db.lease != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.dropped { // closed by another call meanwhile, or fenced
		return wrap(h.name, "suspend", fmt.Errorf("all of it is in the remote, but the local copy was not removed: %w", cmp.Or(h.err, ErrClosed)))
	}
	return nil
}

// quiesce refuses COMMITs from here on, and has the remote hold all those before, for whoever closes the DB next. When it fails, COMMITs are taken as before. asks: it makes the round trip of Synced also when there is nothing to ship.
func (db *DB) quiesce(ctx context.Context, asks bool) (err error) {
	h := db.h
	// (1) No new commits. With the round held nobody draws the handle's end, or reopens it.
	if err := h.lockRound(ctx); err != nil {
		return h.unsynced("sync", err)
	}
	err = h.ended()
	if err == nil {
		_, vdb := h.current()
		vdb.Refuse(fmt.Errorf("database %s is being closed: %w", h.name, ErrClosed))
	}
	h.unlockRound()
	if err != nil {
		return err
	}
	// (2) Those before are acknowledged.
	if commits, _ := h.pending(); commits > 0 || asks {
		err = db.Synced(ctx)
	}
	if err == nil {
		return nil
	}
	// (3) If not, all is as before.
	if lerr := h.lockRound(h.life); lerr != nil { // closed meanwhile
		return errors.Join(err, h.ended())
	}
	defer h.unlockRound()
	h.accept()
	return err
}

// accept takes COMMITs again, unless there is a reason not to. The caller holds the round.
func (h *handle) accept() {
	_, vdb := h.current()
	for { // it may end, or be closed, without the round
		why := h.refusal()
		vdb.Refuse(why)
		if why != nil || h.refusal() == nil {
			return
		}
	}
}

// refusal is why COMMITs are refused; nil: they are not.
func (h *handle) refusal() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil && h.closed {
		return fmt.Errorf("database %s: %w", h.name, ErrClosed)
	}
	return h.err
}
