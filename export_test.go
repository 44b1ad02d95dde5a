package tonbo

import (
	"context"
	"time"

	"github.com/tonbo-go/tonbo/internal/base"
)

// Tuned makes compaction start after so many entries in the tail, or when nothing was committed for a while.
func (o Options) Tuned(entries int, after time.Duration) Options {
	o.tune = &tuning{entries: entries, bytes: defaultTuning.bytes, settle: 1, after: after, slots: defaultTuning.slots}
	return o
}

// Compact runs one compaction and returns its error.
func (db *DB) Compact(ctx context.Context, settle bool) error { return db.h.compact(ctx, settle) }

// Base returns the base in force.
func (db *DB) Base() *base.Manifest {
	if db.h.lockRound(context.Background()) != nil {
		return nil
	}
	defer db.h.unlockRound()
	return db.h.compactor.base
}

// Later makes Collect believe that it is d later.
func (o CollectOptions) Later(d time.Duration) CollectOptions {
	o.now = func() time.Time { return time.Now().Add(d) }
	return o
}

// Find looks a point up.
func (c *Client) Find(ctx context.Context, name string, at At) (Point, error) {
	h, err := c.handle(name)
	if err != nil {
		return Point{}, err
	}
	defer h.stop()
	_, e, err := h.resolve(ctx, at)
	if err != nil {
		return Point{}, err
	}
	return pointOf(e), nil
}
