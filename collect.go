package tonbo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
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

func (c *CollectReport) add(r *gc.Report) {
	c.Slots += r.Slots
	c.Segments += r.Segments
	c.Bases += r.Bases
	c.Pins += r.Pins
	c.Records += r.Records
	c.Bytes += r.Bytes
	c.Denied += r.Denied
	c.Keys = append(c.Keys, r.Garbage...)
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
	report := new(CollectReport)
	report.add(r)
	return report, nil
}

// released is this owner's word on objects of its own generation that nothing stands on from a slot of the log on, nor ever will: of the newest generation only the owner knows
// that they are no upload that waits for its entry (R9). Guarded by the round.
type released map[string]uint64

// release gives the word for objects. slot is that of the entry that took their place, or, where none has named them and none will, of any. The caller holds the round.
func (h *handle) release(slot uint64, keys ...string) {
	c := &h.compactor
	if c.released == nil {
		c.released = released{}
	}
	owner, _ := h.current()
	for _, k := range keys {
		// What a former owner uploaded is older than the head's generation: it needs no word of ours.
		if strings.HasPrefix(k, segmentPrefix(h.name, owner.Generation())) || strings.HasPrefix(k, basePrefix(h.name)) {
			c.released[k] = slot
		}
	}
}

// replaced releases what the base in force before had and the new one has not, and what the entries named that the new one covers.
func (h *handle) replaced(old *base.Manifest, oldKey string, m *base.Manifest, slot uint64) {
	kept := map[string]bool{}
	for k := range m.Named() {
		kept[k] = true
	}
	gone := slices.Collect(old.Named())
	if old != nil && old.Generation == m.Generation && old.ID == m.ID {
		h.release(slot, oldKey)
	}
	for _, e := range h.tail.entries {
		if e.slot <= m.Slot {
			gone = append(gone, e.segments()...)
		}
	}
	for _, k := range gone {
		if !kept[k] {
			h.release(slot, k)
		}
	}
}

// segments lists the segments that an entry names, as far as that is known.
func (e *tailEntry) segments() (keys []string) {
	if ix := e.object.Known(); ix != nil {
		for _, r := range ix.Refs {
			keys = append(keys, r.Key)
		}
	}
	return keys
}

// collect is the owner's own collection, in the background after a compaction. What it may not delete is left to others.
func (h *handle) collect(ctx context.Context) error {
	if err := h.lockRound(ctx); err != nil {
		return err
	}
	c := &h.compactor
	owner, _ := h.current()
	now := h.tune.now()
	due := now.Sub(c.collected) >= h.tune.collect && owner.Horizon() > 1 && h.ended() == nil
	words := maps.Clone(c.released)
	if due {
		c.collected = now
	}
	h.unlockRound()
	if !due {
		return nil
	}
	there := map[string]bool{} // of our words
	r, err := gc.Collect(ctx, h.store, h.name, gc.Options{Now: h.tune.now, Released: func(key string) (uint64, bool) {
		slot, ok := words[key]
		if ok {
			there[key] = true
		}
		return slot, ok
	}})
	if err != nil {
		return fmt.Errorf("collect: %w", err)
	}
	if err := h.lockRound(ctx); err != nil {
		return err
	}
	if !r.Moved {
		for k := range words {
			if !there[k] {
				delete(c.released, k)
			}
		}
	}
	h.account.collected += r.Bytes
	h.unlockRound()
	if r.Denied > 0 {
		h.o.Logger.Info("this key may not delete; another one has to collect", "event", "collect_denied", "database", h.name, "error", r.Refusal)
	}
	return nil
}
