package tonbo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/layout"
	"github.com/tonbo-go/tonbo/remote"
)

const (
	readAhead  = 32       // entries read at once; twice as many where there are more than that, which are seldom large
	keptLimit  = 32 << 20 // bytes of payloads kept between finding the entries and applying them
	stepBack   = 32       // slots read at once while the tail is not known
	absentness = 4        // tries before a slot that must be there is taken for gone
)

// tailReader finds and reads the entries that carry the pages of a state: those above the base or the newest whole entry, up to head. Where they end in a fork's create, it
// goes on in the source's log.
type tailReader struct {
	h      *handle
	log    *fence.Log
	head   *fence.Entry
	pseudo bool // head is not in the log: it stands behind the source's point

	source   *tailReader // of a fork whose create is needed, nil else
	sourceAt uint64      // slot of that create

	mu    sync.Mutex
	base  *base.Manifest          // what is below the entries, nil: nothing
	packs *packs                  // of the base, as far as they have been read
	upper *upperCopies            // of the base; nil: not read
	kept  map[uint64]*fence.Entry // read, with their payloads
	bytes int64
	slots []uint64 // ascending, of entries that carry pages
	floor uint64   // slots is complete above it
	known bool

	fresh   bool // the local copy begins with nothing: load reads the upper object, too
	noUpper bool // it cannot be used
}

func (h *handle) newTail(head *fence.Entry) *tailReader {
	t := &tailReader{h: h, log: h.log, head: head, kept: map[uint64]*fence.Entry{}}
	t.keep(head)
	return t
}

// sourceTail reads on behind a fork's create: its Base and Tail are the source's.
func (t *tailReader) sourceTail(create *fence.Entry) *tailReader {
	head := &fence.Entry{
		Kind: fence.Commit, ID: create.Source.ID, Slot: create.Source.Slot + 1, State: create.State, Base: create.Base, Tail: create.Tail,
	}
	log := fence.New(t.h.slots(create.Source.ID), create.Source.Name, fence.Options{Logger: t.h.o.Logger})
	return &tailReader{h: t.h, log: log, head: head, pseudo: true, base: t.base, kept: map[uint64]*fence.Entry{}}
}

// keep remembers an entry's payload while there is room.
func (t *tailReader) keep(e *fence.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.Payload != nil && t.bytes+int64(len(e.Payload)) > keptLimit && e != t.head {
		return
	}
	if t.kept[e.Slot] == nil {
		t.kept[e.Slot] = e
		t.bytes += int64(len(e.Payload))
	}
}

// load finds the entries above floor and reads them, as many as there is room for. It runs beside the LIST that confirms a claim.
func (t *tailReader) load(ctx context.Context, floor uint64) (err error) {
	// The upper object comes beside the rest, and nothing waits for it but the end: it can be done without.
	var upper sync.WaitGroup
	uctx, cancel := context.WithCancel(ctx)
	defer func() {
		if err != nil {
			cancel()
		}
		upper.Wait()
		cancel()
	}()
	g, gctx := errgroup.WithContext(ctx)
	beside := t.head.Base == "" || t.head.Tail != nil || t.base != nil // else the base tells how far down the tail goes
	if t.head.Base != "" && !t.head.Whole && t.base == nil {
		g.Go(func() (err error) {
			if t.base, err = t.h.readBase(gctx, t.head); err != nil {
				return err
			}
			if t.fresh && floor == 0 {
				upper.Go(func() { t.upperOf(uctx) }) // its error is ctx's
			}
			_, err = t.packsAbove(gctx, floor)
			return err
		})
	}
	if beside {
		g.Go(func() error { return t.readAll(gctx, floor) })
		if err := g.Wait(); err != nil {
			return err
		}
	} else {
		if err := g.Wait(); err != nil {
			return err
		}
		if err := t.readAll(ctx, floor); err != nil {
			return err
		}
	}
	return t.loadSource(ctx, floor)
}

// loadSource goes on in the source's log when the entries begin with a fork's create.
func (t *tailReader) loadSource(ctx context.Context, floor uint64) error {
	if t.source != nil || len(t.slots) == 0 || t.slots[0] <= floor {
		return nil
	}
	create, err := t.read(ctx, t.slots[0])
	if err != nil || create.Source == nil {
		return err
	}
	t.keep(create)
	t.source, t.sourceAt = t.sourceTail(create), create.Slot
	return t.source.load(ctx, 0)
}

// readAll finds the entries above floor and reads them, as many as there is room for.
func (t *tailReader) readAll(ctx context.Context, floor uint64) error {
	if err := t.find(ctx, floor); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	if g.SetLimit(readAhead); len(t.slots) > 2*readAhead {
		g.SetLimit(2 * readAhead)
	}
	for _, s := range t.slots {
		if t.has(s) || s <= floor {
			continue
		}
		if t.full() {
			break
		}
		g.Go(func() error {
			e, err := t.readPages(ctx, s)
			if err == nil {
				t.keep(e)
			}
			return err
		})
	}
	return g.Wait()
}

// readBase reads the manifest that an entry stands on.
func (h *handle) readBase(ctx context.Context, e *fence.Entry) (*base.Manifest, error) {
	o, err := h.pages.Get(ctx, e.Base, remote.GetOptions{})
	if errors.Is(err, remote.ErrNotFound) {
		return nil, fmt.Errorf("%w: %w: %s/%s (slot %d stands on it)", ErrCorrupt, layout.ErrMissing, h.store, e.Base, e.Slot)
	}
	if err != nil {
		return nil, err
	}
	m, err := base.Decode(o.Body)
	if errors.Is(err, base.ErrNewer) {
		return nil, fmt.Errorf("%w: %s/%s: %w", ErrUnsupported, h.store, e.Base, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s/%s: %w", ErrCorrupt, h.store, e.Base, err)
	}
	if m.PageSize != e.State.PageSize || m.ID == e.ID.String() && m.Slot > e.Slot { // a fork's source counts its own slots
		return nil, fmt.Errorf("%w: %s/%s is not a base of slot %d", ErrCorrupt, h.store, e.Base, e.Slot)
	}
	return m, nil
}

// bottom is the highest slot of this log whose pages are in the base: none, when the base is a fork's source's.
func (t *tailReader) bottom() uint64 {
	if t.ownBase() {
		return t.base.Slot
	}
	return 0
}

func (t *tailReader) ownBase() bool { return t.base != nil && t.base.ID == t.head.ID.String() }

func (t *tailReader) has(slot uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.kept[slot] != nil
}

func (t *tailReader) full() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytes > keptLimit/2
}

// find makes slots complete above floor: from the head's own list, else by walking down, since slots are contiguous.
func (t *tailReader) find(ctx context.Context, floor uint64) error {
	if t.known && t.floor <= floor {
		return nil
	}
	head := t.head
	t.slots, t.known, t.floor = nil, true, 0
	switch {
	case head.Whole, head.Source != nil: // a fork's create: its Tail is the source's
		t.slots = []uint64{head.Slot}
		return nil
	case head.Tail != nil:
		t.slots = slices.Clone(head.Tail)
		if head.Carries() {
			t.slots = append(t.slots, head.Slot)
		}
		return nil
	}
	floor = max(floor, t.bottom())
	if t.floor = floor; floor == t.bottom() {
		t.floor = 0
	}
	above := head
	if head.Carries() {
		t.slots = []uint64{head.Slot}
	}
	for above.Kind != fence.Create && !above.Whole && above.Slot > floor+1 {
		from := above.Slot
		if above.Kind == fence.Rewind { // what stands on it is the point that it goes back to
			from = above.To + 1
		}
		batch, missing, err := t.below(ctx, from, floor)
		if err != nil {
			return err
		}
		for _, e := range batch {
			if above.Kind != fence.Rewind && !(t.pseudo && above == head) {
				if err := above.Follows(e); err != nil {
					return err
				}
			}
			if above = e; e.Carries() {
				t.slots = append(t.slots, e.Slot)
			}
			t.keep(e)
			if e.Kind == fence.Create || e.Kind == fence.Rewind || e.Whole {
				break
			}
		}
		straight := above.Kind != fence.Create && above.Kind != fence.Rewind && !above.Whole
		if missing != nil && (straight || len(batch) == 0) {
			return missing
		}
		if len(batch) == 0 {
			break
		}
	}
	if above.Kind == fence.Create || above.Whole {
		t.floor = 0
	}
	slices.Reverse(t.slots)
	return nil
}

// below reads the entries just below slot, newest first, up to one that is missing. Whether that is needed the entries above it tell: what a rewind has left behind is collected.
func (t *tailReader) below(ctx context.Context, slot, floor uint64) (batch []*fence.Entry, missing, err error) {
	n := min(stepBack, slot-1-floor)
	batch = make([]*fence.Entry, n)
	gone := make([]error, n)
	g, ctx := errgroup.WithContext(ctx)
	for i := range batch {
		g.Go(func() (err error) {
			if batch[i], err = t.read(ctx, slot-1-uint64(i)); errors.Is(err, errMissing) {
				gone[i], err = err, nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	for i, err := range gone {
		if err != nil {
			return batch[:i], err, nil
		}
	}
	return batch, nil, nil
}

// errMissing is a slot that is not in the log, and must be.
var errMissing = fmt.Errorf("%w: %w: a slot of the log", ErrCorrupt, layout.ErrMissing)

// read reads a slot that is in the log. A store may show a fresh object late once: absence is not believed at once.
func (t *tailReader) read(ctx context.Context, slot uint64) (*fence.Entry, error) {
	t.mu.Lock()
	e := t.kept[slot]
	t.mu.Unlock()
	if e != nil {
		return e, nil
	}
	var b remote.Backoff
	for try := 1; ; try++ {
		e, err := t.log.Read(ctx, slot)
		if err == nil && e.ID != t.head.ID {
			return nil, fmt.Errorf("%w: %s is of incarnation %s, the log's head of %s", ErrCorrupt, fence.SlotKey(t.log.Name(), slot), e.ID, t.head.ID)
		}
		if !errors.Is(err, remote.ErrNotFound) {
			return e, err
		}
		if try == absentness {
			return nil, fmt.Errorf("%w: %s/%s", errMissing, t.h.store, fence.SlotKey(t.log.Name(), slot))
		}
		if err := b.Wait(ctx, err); err != nil {
			return nil, err
		}
	}
}

// readPages reads a slot that is known to carry pages. Another entry there is a ghost: a put that was held back, and came when the slot had been collected.
func (t *tailReader) readPages(ctx context.Context, slot uint64) (*fence.Entry, error) {
	e, err := t.read(ctx, slot)
	if err == nil && !e.Carries() {
		return nil, fmt.Errorf("%w: %s/%s holds another entry now, a %s", errMissing, t.h.store, fence.SlotKey(t.log.Name(), slot), kindNames[e.Kind])
	}
	return e, err
}

// above returns the entries above floor that carry pages, ascending. Payloads that were not kept are nil: apply reads them.
func (t *tailReader) above(ctx context.Context, floor uint64) ([]*fence.Entry, error) {
	if err := t.find(ctx, floor); err != nil {
		return nil, err
	}
	var r []*fence.Entry
	for _, s := range t.slots {
		if s <= floor {
			continue
		}
		t.mu.Lock()
		e := t.kept[s]
		t.mu.Unlock()
		if e == nil {
			e = &fence.Entry{Slot: s}
		}
		r = append(r, e)
	}
	return r, nil
}

// piece is an entry to be applied, and the reader that finds its pages.
type piece struct {
	t *tailReader
	e *fence.Entry
}

// pieces lists what carries the pages of the state, above slot floor of this log, oldest first: a fork's source's entries come before its own.
func (t *tailReader) pieces(ctx context.Context, floor uint64) ([]piece, error) {
	entries, err := t.above(ctx, floor)
	if err != nil {
		return nil, err
	}
	var r []piece
	if t.source != nil && floor < t.sourceAt {
		if r, err = t.source.pieces(ctx, 0); err != nil {
			return nil, err
		}
	}
	for _, e := range entries {
		if e.Source == nil {
			r = append(r, piece{t, e})
		}
	}
	return r, nil
}

// complete finds all entries above the base, also those that a floor spared.
func (t *tailReader) complete(ctx context.Context) error {
	if err := t.find(ctx, 0); err != nil {
		return err
	}
	return t.loadSource(ctx, 0)
}

// tail is what was found, for compaction. The source's entries count as the create's.
func (t *tailReader) tail(ctx context.Context) (tail, error) {
	var r tail
	if err := t.complete(ctx); err != nil {
		return r, err
	}
	pieces, err := t.pieces(ctx, 0)
	if err != nil {
		return r, err
	}
	for s := t.source; s != nil; s = s.source {
		r.sources++
	}
	for _, p := range pieces {
		e := p.e
		keep := e.Payload != nil && r.kept+int64(len(e.Payload)) <= tailKept
		if e.State.PageSize == 0 {
			e = &fence.Entry{Slot: e.Slot, ID: p.t.head.ID, State: t.head.State}
		}
		te, err := t.h.tailOf(p.t.log.Name(), e, e.Payload, keep)
		if err != nil {
			return r, err
		}
		if p.t != t {
			te.slot, te.source = t.sourceAt, true
		}
		if keep {
			r.kept += int64(len(e.Payload))
		}
		r.entries = append(r.entries, te)
	}
	return r, nil
}
