package tonbo

import (
	"context"
	"errors"
	"fmt"

	"github.com/tonbo-go/tonbo/changeset"
)

// OnConflict says what Promote makes of rows that the target has changed as well.
type OnConflict = changeset.OnConflict

// What differs in the schema is always a conflict that fails, and so is a row that a constraint does not let in.
const (
	FailOnConflict      = changeset.Fail      // nothing is changed: a [*ConflictError] lists the rows
	SkipOnConflict      = changeset.Skip      // the target's row stays
	OverwriteOnConflict = changeset.Overwrite // the row becomes what the change set says
)

// PromoteOptions of Promote. The zero value promotes without asking, and fails at a conflict.
type PromoteOptions struct {
	// Approve is asked first, with what is going to be done: a person, or a rule. Its error is returned as it is, and nothing was touched then. nil: approved.
	Approve    func(*ChangeSet) error
	OnConflict OnConflict
}

// Promote makes the changes of a [Diff] to dst: after approval, in one transaction, acknowledged by the remote before it returns. dst may have gone on since it was compared: each row
// must be as it was then, or already as it is to be. So work that was done on a fork comes back to its source when nobody has changed the same rows, and otherwise a
// [*ConflictError] ([ErrConflict]) lists these and nothing is changed. The same change set again is done already: after a crash, or an error that left open what happened, promote it again.
//
// A row without a primary key must be there in as many copies as when it was compared. Triggers do not fire: what they did is part of the change set. Foreign keys are checked
// before the COMMIT, where dst enforces them (Options.Pragmas; the default is on). See [changeset.Set.Apply].
//
// The point returned holds the promotion. Errors, for errors.Is: [ErrConflict]; [ErrReadOnly]; COMMIT's and Synced's, [ErrFenced] among them. One of Synced says that the promotion is committed here, and
// not acknowledged.
func Promote(ctx context.Context, dst *DB, cs *ChangeSet, o PromoteOptions) (Point, error) {
	if err := notNil("dst", dst == nil, "cs", cs == nil); err != nil {
		return Point{}, fmt.Errorf("promote: %w", err)
	}
	h := dst.h
	if o.OnConflict < FailOnConflict || o.OnConflict > OverwriteOnConflict {
		return Point{}, wrap(h.name, "promote", invalid("OnConflict", "%d is none of FailOnConflict, SkipOnConflict, OverwriteOnConflict", o.OnConflict))
	}
	if h.ro != nil {
		return Point{}, wrap(h.name, "promote", ErrReadOnly)
	}
	if err := dst.live(); err != nil {
		return Point{}, wrap(h.name, "promote", err)
	}
	// (1) Somebody has seen what is going to be done.
	if o.Approve != nil {
		if err := o.Approve(cs); err != nil {
			return Point{}, err
		}
	}
	// (2) One transaction.
	epoch, err := h.promote(ctx, cs, o)
	if err != nil {
		if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return Point{}, wrap(h.name, "promote", err)
	}
	fault("promote:committed")
	// (3) The remote has it.
	if err := dst.syncedSince(ctx, epoch); err != nil {
		return Point{}, fmt.Errorf("the promotion is committed here, and not acknowledged: %w", err)
	}
	owner, _ := h.current()
	return pointOf(owner.Last()), nil
}

// promote is the transaction, on a connection of its own, since it runs without triggers and foreign keys.
func (h *handle) promote(ctx context.Context, cs *ChangeSet, o PromoteOptions) (epoch int64, err error) {
	dc, err := (&connector{h: h}).Connect(ctx)
	if err != nil {
		return 0, err
	}
	defer dc.Close()
	return dc.(*conn).epoch, h.reason(cs.Apply(ctx, dc.(*conn).Raw(), changeset.ApplyOptions{OnConflict: o.OnConflict, BeforeCommit: func() error {
		fault("promote:before-commit")
		return nil
	}}))
}
