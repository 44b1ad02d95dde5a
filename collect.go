package tonbo

import (
	"context"
	"fmt"
	"time"

	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/gc"
)

// CollectOptions of Collect. The zero value works.
type CollectOptions struct {
	DryRun bool          // delete nothing, and say what would go
	Grace  time.Duration // how long garbage stays, so that readers finish; default 1 h. Log slots stay for 10 minutes at least

	now func() time.Time // for tests
}

// CollectReport says what Collect did; with DryRun, what it would do.
type CollectReport struct {
	Slots, Segments, Bases int   // objects deleted, by kind
	Pins, Records          int   // forks' holds that were let go, and index records of databases that are no more
	Bytes                  int64 // of what was deleted
	Denied                 int   // deletions that the store refused: another key's business
	Keys                   []string
}

// Collect deletes what nothing under a name needs any more: what is older than the history window (Options.History of its owners) and has no label, what
// compaction has replaced, and what deleted databases left. It may be called at any time and by anyone whose key may list, read and delete, beside owners, readers,
// forks and other collectors; it never deletes what is needed. A key that may not delete gets a report that says so. Owners collect by themselves, too, as far as
// their keys allow it.
func (c *Client) Collect(ctx context.Context, name string, o CollectOptions) (*CollectReport, error) {
	if err := ValidateName(name); err != nil {
		return nil, err
	}
	r, err := gc.Sweep(ctx, c.store, name, gc.Options{Grace: o.Grace, DryRun: o.DryRun, Now: o.now})
	if err != nil {
		return nil, wrap(name, "collect", err)
	}
	return &CollectReport{
		Slots: r.Slots, Segments: r.Segments, Bases: r.Bases, Pins: r.Pins, Records: r.Records, Bytes: r.Bytes, Denied: r.Denied, Keys: r.Garbage,
	}, nil
}

// collectEvery is how often an owner collects.
const collectEvery = time.Hour

// released remembers which of this owner's published objects a newer base has replaced, and with which slot: they are of the newest generation, so only
// the owner knows that they are no upload that waits for its entry (R9). Guarded by the round.
type released map[string]uint64

// replace notes what the base in force before, under key, had and the new one has not. slot is that of the new base's entry.
func (r released) replace(key string, old, m *base.Manifest, slot uint64) {
	if old == nil {
		return
	}
	kept := map[string]bool{}
	for _, level := range m.Levels {
		for _, s := range level {
			kept[s.Key] = true
		}
	}
	r[key] = slot
	for _, level := range old.Levels {
		for _, s := range level {
			if !kept[s.Key] {
				r[s.Key] = slot
			}
		}
	}
}

// collect is the owner's own collection, in the background after a compaction. What it may not delete is left to others.
func (h *handle) collect(ctx context.Context) error {
	if err := h.lockRound(ctx); err != nil {
		return err
	}
	c := &h.compactor
	owner, _ := h.current()
	due := time.Since(c.collected) >= collectEvery && owner.Horizon() > 1
	words := make(released, len(c.released))
	for k, slot := range c.released {
		words[k] = slot
	}
	if due {
		c.collected = time.Now()
	}
	h.unlockRound()
	if !due {
		return nil
	}
	r, err := gc.Collect(ctx, h.store, h.name, gc.Options{Released: func(key string) (uint64, bool) { slot, ok := words[key]; return slot, ok }})
	if err != nil {
		return fmt.Errorf("collect: %w", err)
	}
	if err := h.lockRound(ctx); err != nil {
		return err
	}
	h.account.collected += r.Bytes
	h.unlockRound()
	if r.Denied > 0 {
		h.o.Logger.Info("this key may not delete; another one has to collect", "event", "collect_denied", "database", h.name, "error", r.Refusal)
	}
	return nil
}
