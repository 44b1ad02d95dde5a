package tonbo

import (
	"context"
	"unicode"
	"unicode/utf8"

	"github.com/tonbo-go/tonbo/fence"
)

// Checkpoint is Synced, and the point that it reaches gets a name: [Label] finds it, and it stays restorable whatever Options.History. A label that is given again
// means the newer point. Labels have 1 to 200 bytes of printable text. Errors are Synced's; after [ErrUnsynced] the point may have the label all the same.
func (db *DB) Checkpoint(ctx context.Context, label string) (Point, error) {
	h := db.h
	if h.ro != nil {
		return Point{}, wrap(h.name, "checkpoint", ErrReadOnly)
	}
	if err := checkLabel(label); err != nil {
		return Point{}, wrap(h.name, "checkpoint", err)
	}
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.o.SyncTimeout)
		defer cancel()
	}
	var p Point
	err := db.acknowledge(func() error {
		if err := h.lockRound(ctx); err != nil {
			return h.unsynced("checkpoint", err)
		}
		defer h.unlockRound()
		if err := h.ship(ctx, fence.Commit, label); err != nil {
			return h.unsynced("checkpoint", err)
		}
		owner, _ := h.current()
		p = pointOf(owner.Last())
		return nil
	})
	if err != nil {
		return Point{}, err
	}
	return p, nil
}

func checkLabel(label string) error {
	if label == "" || len(label) > 200 || !utf8.ValidString(label) {
		return invalid("label", "%.40q: want 1 to 200 bytes of text", label)
	}
	for _, r := range label {
		if !unicode.IsPrint(r) {
			return invalid("label", "%.40q: %q is not printable", label, r)
		}
	}
	return nil
}
