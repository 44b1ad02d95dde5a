package tonbo

import (
	"context"
	"errors"
	"fmt"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/disk"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/vfs"
)

// syncRound is one round trip: it ships what has been committed, or asks whether we are still the owner. nil acknowledges every commit
// that returned before it began.
func (h *handle) syncRound(ctx context.Context) error {
	if err := h.lockRound(ctx); err != nil {
		return err
	}
	defer h.unlockRound()
	defer h.rest()
	return h.ship(ctx, fence.Commit, "")
}

// ship is the way of a commit to the log. label, when it is set, names the point. The caller holds the round.
func (h *handle) ship(ctx context.Context, kind fence.Kind, label string) error {
	if err := h.ended(); err != nil {
		return err
	}
	ctx = withRound(ctx)
	owner, vdb := h.current()
	// (0) Not after it has expired.
	if err := h.checkExpiry(ctx); err != nil {
		return err
	}
	// (1) What is pending first, with the same bytes (R2).
	looked, err := h.settle(ctx)
	if err != nil {
		return err
	}
	// (2) Everything committed up to now.
	whole := h.wantWhole(vdb, kind)
	take := vdb.Take
	if whole {
		take = vdb.TakeAll
	}
	if err := h.prepare(ctx, vdb); err != nil {
		return err
	}
	changes, err := take(ctx)
	if err != nil {
		return err
	}
	if changes == nil && kind == fence.Commit && label == "" {
		if looked || h.tune.broken == idleIsAcked { // R4's look at the next slot was this call's own round trip
			return nil
		}
		fault("ship:idle")
		return h.check(ctx, owner) // R6
	}
	if changes == nil {
		_, err := owner.Append(ctx, fence.Draft{Kind: kind, Label: label, Since: h.since(nil)})
		return h.appendError(err, nil)
	}
	// (3) Pages to bytes. Checkpoints wait until they are read.
	fault("ship:taken")
	h.dir.Captured(owner.Slot() + 1)
	sh, err := h.encode(ctx, changes, owner)
	changes.Release()
	fault("ship:encoded")
	// (4) Large ones go first, as segments: the entry names them (R8).
	if err == nil {
		err = h.upload(ctx, sh)
	}
	if err != nil {
		sh.discard()
		h.giveBack(sh)
		return h.localError(err)
	}
	// (5) The entry: one conditional PUT.
	sh.draft.Kind, sh.draft.Whole, sh.draft.Label, sh.draft.Since = kind, whole, label, h.since(sh)
	fault("ship:uploaded")
	_, err = owner.Append(ctx, sh.draft)
	fault("ship:appended")
	return h.appendError(err, sh)
}

// check asks whether we are still the owner: the next slot is absent.
func (h *handle) check(ctx context.Context, owner *fence.Owner) error {
	err := owner.Check(ctx)
	var fe *fence.FencedError
	if errors.As(err, &fe) {
		return h.fenced(fe)
	}
	return err
}

// settle brings an append of unknown outcome to its end. looked: that was a round trip which found us still the owner.
func (h *handle) settle(ctx context.Context) (looked bool, err error) {
	if h.behind != nil {
		return false, h.behind
	}
	owner, _ := h.current()
	if !owner.Pending() {
		return false, nil
	}
	sh := h.inflight
	e, looked, err := owner.Settle(ctx)
	if err == nil && e == nil { // refused for good: nothing of it is stored
		h.inflight = nil
		if sh != nil {
			h.giveBack(sh)
		}
		if next := h.compactor.next; next != nil {
			h.compactor.next = nil
			h.release(owner.Slot(), append(next.fresh, next.key)...)
		}
		return looked, nil
	}
	return looked, h.appendError(err, sh)
}

// appendError draws the consequences of an append's outcome. sh is what it carried, nil for nothing.
func (h *handle) appendError(err error, sh *shipment) error {
	owner, _ := h.current()
	var fe *fence.FencedError
	switch {
	case err == nil:
		h.inflight = nil
		h.adopt(owner)
		h.noteLabel(owner.Last())
		if sh != nil {
			h.stored(sh, owner.Last())
		}
		if e := owner.Last(); sh != nil || e.Label != "" {
			h.afterShip()
		}
		return h.behind
	case errors.As(err, &fe):
		h.inflight = nil
		if sh != nil && fe.Stored { // in the history, so not lost
			h.stored(sh, &fence.Entry{Slot: sh.slot, State: sh.state, PayloadSize: sh.size})
		} else if sh != nil {
			h.giveBack(sh)
		}
		return h.fenced(fe)
	case owner.Pending():
		h.inflight = sh
		if h.tune.broken == unknownIsAcked {
			return nil
		}
		return err
	default: // a definite refusal
		h.inflight = nil
		if sh != nil {
			h.giveBack(sh)
		}
		return err
	}
}

// stored: the entry is in the log.
func (h *handle) stored(sh *shipment, e *fence.Entry) {
	h.count(sh)
	if sh.changes == nil { // a strict COMMIT that failed because its outcome was not known
		h.behind = &dbError{h.name, "commit", ErrUnsynced, fmt.Errorf("a transaction whose COMMIT timed out is in the remote (slot %d), but was rolled back here: Reopen brings it back", e.Slot)}
		_, vdb := h.current()
		vdb.Refuse(h.behind)
		h.end(h.behind, "")
		return
	}
	if err := h.dir.Shipped(e.Slot, sh.state.PageCount, sh.state.Checksum, sh.pages); err != nil {
		// The state in memory is right. On disk it is behind, which the next Open finds out from the log.
		h.o.Logger.Warn("state not written", "event", "state_not_written", "database", h.name, "error", err)
	}
	fault("ship:recorded")
	sh.changes.Shipped()
	if s := h.source(); s != nil {
		s.settle()
	}
	h.push(e, sh.draft.Payload, sh.draft.Whole)
}

// fellBehind: a strict COMMIT is in the remote and then failed here (a full disk). package vfs refuses what comes after it.
func (h *handle) fellBehind(cause error) error {
	err := &dbError{h.name, "commit", ErrUnsynced, fmt.Errorf("a transaction that the remote holds could not be written here, and was rolled back: %w; Reopen brings it back", cause)}
	h.end(err, "")
	h.outdated.Store(true)
	h.held.Store(nil)
	return err
}

// localError tells damage of the local file apart: it must not reach the log, and the handle cannot go on.
func (h *handle) localError(err error) error {
	if errors.Is(err, vfs.ErrCorrupt) {
		err = &dbError{h.name, "read back what was committed", ErrCorrupt, fmt.Errorf("%w; close it and open it again: the local copy is then rebuilt", err)}
		_, vdb := h.current()
		vdb.Refuse(err)
		h.end(err, "")
	}
	return err
}

// strictCommit ships a transaction while its COMMIT is held back.
func (h *handle) strictCommit(ctx context.Context, held *vfs.Held) error {
	ctx, cancel := context.WithTimeout(ctx, h.o.SyncTimeout)
	defer cancel()
	if err := h.lockRound(ctx); err != nil {
		return h.unsynced("commit", err)
	}
	defer h.unlockRound()
	if err := h.ended(); err != nil {
		return err
	}
	ctx = withRound(ctx)
	if err := h.checkExpiry(ctx); err != nil {
		return h.unsynced("commit", err)
	}
	if _, err := h.settle(ctx); err != nil {
		return h.unsynced("commit", err)
	}
	owner, _ := h.current()
	changes := held.Take(ctx)
	h.dir.Captured(owner.Slot() + 1)
	sh, err := h.encode(ctx, changes, owner)
	changes.Release()
	if err == nil {
		err = h.upload(ctx, sh)
	}
	if err != nil {
		sh.discard()
		h.release(owner.Slot(), sh.named...)
		return h.unsynced("commit", h.localError(err))
	}
	sh.changes = nil // the outcome that we return settles them
	sh.draft.Since = h.since(sh)
	fault("strict:uploaded")
	_, err = owner.Append(ctx, sh.draft)
	fault("strict:appended")
	if err == nil {
		// Noted in the state when the local file has it: a process that dies in between finds a file that is behind the log, not a damaged one.
		slot := owner.Slot()
		note := func() {
			if err := h.dir.Shipped(slot, sh.state.PageCount, sh.state.Checksum, sh.pages); err != nil {
				h.o.Logger.Warn("state not written", "event", "state_not_written", "database", h.name, "error", err)
			}
			fault("strict:recorded")
		}
		h.held.Store(&note)
		h.count(sh)
		h.push(owner.Last(), sh.draft.Payload, false)
		h.afterShip()
		return nil
	}
	err = h.appendError(err, sh)
	if owner.Pending() && h.tune.broken == strictUnknownIsAcked {
		return nil
	}
	return h.unsynced("commit", err)
}

// ended returns why this handle can no longer ship, nil if it can.
func (h *handle) ended() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// unsynced makes err one that says what is not shipped and what to do.
func (h *handle) unsynced(doing string, err error) error {
	if err == nil {
		return nil
	}
	var fenced *FencedError
	if errors.As(err, &fenced) || errors.Is(err, ErrClosed) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrUnsynced) {
		return err
	}
	_, vdb := h.current()
	commits, bytes := vdb.Pending()
	hint := "they are kept in the local copy; call Synced again"
	again := "call Synced again"
	switch doing {
	case "close":
		again = "Open in " + h.dir.Root() + " ships them"
		hint = "they are kept in the local copy; the next " + again
	case "commit":
		again = "try again"
		hint = again
		if errors.Is(err, remote.ErrUnknown) {
			hint = "whether the remote holds it is not known, and no other one commits before it is: try again, or Reopen"
		}
	}
	switch {
	case errors.Is(err, remote.ErrUnauthorized):
		hint = "renew the credentials, then " + again
	case errors.Is(err, remote.ErrDenied):
		hint = "give the credentials the right to put and get objects, then " + again
	case errors.Is(err, remote.ErrQuota):
		hint = "make room at the store, then " + again
	case disk.Full(err):
		hint = "make room on the local disk, then " + again
	}
	if doing == "commit" {
		return &dbError{h.name, doing, ErrUnsynced, fmt.Errorf("the transaction was rolled back here; %s: %w", hint, wrap(h.name, "ship", err))}
	}
	return &dbError{h.name, doing, ErrUnsynced, fmt.Errorf("%d commits (%d bytes of pages) are not acknowledged; %s: %w", commits, bytes, hint, wrap(h.name, "ship", err))}
}

// closeLog ships the last commits in the entry that says that the owner has gone.
func (h *handle) closeLog(ctx context.Context) error {
	err := h.lockRound(ctx)
	if err == nil {
		defer h.unlockRound()
		err = h.ship(ctx, fence.Close, "")
	}
	_, vdb := h.current()
	certain := err == nil || vdb.Certain(ctx) == nil // what is written and not known to count is not pending, and may be soon
	if commits, _ := vdb.Pending(); err != nil && certain && commits == 0 && !errors.As(err, new(*FencedError)) {
		// Nothing is lost: only the note that we have gone is missing.
		h.o.Logger.Debug("close not recorded in the log", "database", h.name, "error", err)
		return nil
	}
	var fenced *FencedError
	if errors.As(err, &fenced) && fenced.Lost == "" && fenced.aside == nil {
		return nil
	}
	return h.unsynced("close", err)
}
