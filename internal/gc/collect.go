package gc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
)

// Collect deletes a name's garbage: see the package's documentation for what that is. It may be called at any time, by anyone whose key may list, read and delete, beside owners, forks and
// other collectors. A key that may not delete gets a Report that says so, and no error.
//
// Requests: LIST and GET of the head; a LIST each of pins, slots, segments and bases (one per 1,000); a GET per pin, per slot below the horizon (what begins a generation stays there for ever), per base in force and
// per generation from the horizon on, and a few for each change of the base; the entries of a generation are read one by one only while segments of it are candidates. A DELETE per object.
// Memory: some 200 bytes for each slot below the horizon and each key listed.
func Collect(ctx context.Context, s remote.Store, name string, o Options) (*Report, error) {
	c := newRun(ctx, s, name, o)
	err := c.collect()
	if errors.Is(err, errMoved) || errors.Is(err, errAbsent) {
		c.r.Moved, err = true, nil
	}
	if err != nil {
		err = fmt.Errorf("collect %q: %w", name, err)
	}
	return c.r, err
}

// bound is the horizon and the generation by which something is garbage.
type bound struct{ horizon, generation uint64 }

func end(slot uint64) bound { return bound{slot + 1, slot + 1} }

func (c *run) collect() error {
	p := c.newPoints()
	var pins []string
	listPins := func() error {
		return c.list(fence.PinPrefix(c.name), func(i remote.Info) { pins = append(pins, i.Key) })
	}
	if c.o.broken == PinsBeforeHead {
		if err := listPins(); err != nil {
			return err
		}
	}
	// 1. The head.
	head, err := c.log.HeadHeader(c.ctx)
	if err != nil || head == nil {
		return err
	}
	c.r.Head = head.Slot
	p.keep(head.Slot, head)
	// 2. Then the pins. A fork whose pin is not among them has yet to read the head: it will not find held what this head does not hold.
	if c.o.broken != PinsBeforeHead {
		if err := listPins(); err != nil {
			return err
		}
	}
	// 3. What there is.
	if err := p.listSlots(head.Slot); err != nil {
		return err
	}
	var objects []remote.Info
	for _, kind := range []string{"seg", "base"} {
		if err := c.list("db/"+c.name+"/"+kind+"/", func(i remote.Info) { objects = append(objects, i) }); err != nil {
			return err
		}
	}
	// 4. As of when.
	now := c.o.Now() // the same for both: what follows rests on the log's bound being no newer than the objects'
	objectBound, err := c.asOf(p, head, now.Add(-c.o.Grace))
	if err != nil {
		return err
	}
	logBound, err := c.asOf(p, head, now.Add(-c.o.logGrace()))
	if err != nil {
		return err
	}
	c.r.Horizon, c.r.Generation = logBound.horizon, objectBound.generation
	objects, released := c.candidates(p, objects, objectBound)
	var slots, labels []uint64 // that may go; that may be labelled points below a horizon
	for s := range p.slots {
		if s < logBound.horizon {
			slots = append(slots, s)
		}
		if s < objectBound.horizon {
			labels = append(labels, s)
		}
	}
	slices.Sort(slots)
	slices.Sort(labels)
	if len(objects) == 0 && len(slots) == 0 {
		return nil
	}
	// 5. What is needed: by each point from the horizon to the head. Those between the horizon as of then and today's are needed for the grace's sake alone.
	today := head.Horizon
	if head.Ends() {
		today = head.Slot + 1
	}
	today = max(today, objectBound.horizon)
	var live, then map[fence.ID]bool
	windows := func() (err error) {
		if live, err = p.window(today, head.Slot, false); err == nil {
			then, err = p.window(objectBound.horizon, today-1, true)
		}
		return err
	}
	if err := windows(); err != nil {
		return err
	}
	// Segments that no base names may be named by entries: those of their generation are read.
	if p.doubt(objects, released) {
		if err := windows(); err != nil {
			return err
		}
	}
	if err := p.releasedNames(released); err != nil {
		return err
	}
	// 6. By each pin.
	if err := c.pinned(p, pins); err != nil {
		return err
	}
	// 7. By each label. Slots below the horizon are read here to know what they are.
	if err := p.load(labels); err != nil {
		return err
	}
	for _, s := range labels {
		h := p.headers[s]
		if h == nil || !h.label || c.o.broken == LabelsIgnored {
			continue
		}
		switch {
		case live[h.id]:
			err = p.stand(s)
		case then[h.id]:
			if err = p.stand(s); errors.Is(err, errAbsent) {
				err = nil
			}
		}
		if err != nil {
			return err
		}
	}
	needObject := p.needKey
	// 8. By points that keep log slots alone: those which have not been garbage for the log's grace.
	if logBound.horizon < objectBound.horizon {
		needObject = make(map[string]bool, len(p.needKey))
		for k := range p.needKey {
			needObject[k] = true
		}
		if _, err := p.window(logBound.horizon, objectBound.horizon-1, true); err != nil {
			return err
		}
	}
	// 9. Delete the rest: bases before the segments that they name.
	slices.SortFunc(objects, func(a, b remote.Info) int { return strings.Compare(a.Key, b.Key) })
	var bases, segments, entries []remote.Info
	for _, i := range objects {
		switch {
		case needObject[i.Key]:
		case kindOf(i.Key) == "base":
			bases = append(bases, i)
		default:
			segments = append(segments, i)
		}
	}
	for _, s := range slots {
		if h := p.headers[s]; h != nil && !p.needSlot[s] && !c.keepsSlot(h) && s != head.Slot {
			entries = append(entries, p.slots[s])
		}
	}
	for _, d := range []struct {
		objects []remote.Info
		n       *int
	}{{bases, &c.r.Bases}, {segments, &c.r.Segments}, {entries, &c.r.Slots}} {
		if err := c.deleteAll(d.objects, d.n); err != nil {
			return err
		}
	}
	return nil
}

// keepsSlot is R5.
func (c *run) keepsSlot(h *header) bool {
	collected := map[fence.Kind]rule{
		fence.Claim: ClaimCollected, fence.Delete: DeleteCollected, fence.Rewind: RewindCollected, fence.Create: CreateCollected, fence.Void: VoidCollected,
	}
	return h.begins() && (c.o.broken == "" || c.o.broken != collected[h.kind])
}

// asOf is the horizon and the generation by which what is garbage has been so since before a time: those of the newest slot that the store has had since then, but
// never above the head's.
func (c *run) asOf(p *points, head *fence.Entry, before time.Time) (bound, error) {
	last := bound{head.Horizon, head.Generation}
	if head.Ends() {
		last = end(head.Slot)
		if c.o.broken == EndBeyondAll {
			return bound{1 << 62, 1 << 62}, nil
		}
	}
	if c.o.broken == HorizonNotInLog && head.Base != "" && !head.Ends() {
		last.horizon = head.Slot
		return last, nil
	}
	slot, ok := p.aged(head.Slot, before)
	if !ok {
		return bound{}, nil
	}
	if slot == head.Slot {
		return last, nil
	}
	h, err := c.log.ReadHeader(c.ctx, slot)
	if errors.Is(err, remote.ErrNotFound) {
		return bound{}, errMoved
	}
	if err != nil {
		return bound{}, err
	}
	b := bound{h.Horizon, h.Generation}
	if h.Ends() {
		b = end(slot)
	}
	return bound{min(b.horizon, last.horizon), min(b.generation, last.generation)}, nil
}

// aged returns the newest slot that the store has had since before a time.
func (p *points) aged(head uint64, before time.Time) (slot uint64, ok bool) {
	for s, i := range p.slots {
		if s <= head && s > slot && !i.Time.IsZero() && !i.Time.After(before) {
			slot, ok = s, true
		}
	}
	return slot, ok
}

// candidates are the segments and bases that may go unless they are needed (R9), and the generations of those that may go by their owner's word.
func (c *run) candidates(p *points, objects []remote.Info, b bound) (may []remote.Info, released map[uint64]bool) {
	released = map[uint64]bool{}
	for _, i := range objects {
		k, ok := parseObject(i.Key)
		if !ok {
			continue
		}
		isBase := kindOf(i.Key) == "base"
		if isBase {
			p.bases[i.Key] = true
		}
		old := k.generation < b.generation || c.o.broken == NewestNotKept || isBase && c.o.broken == NewestBaseNotKept
		if !old && c.o.Released != nil {
			slot, is := c.o.Released(i.Key)
			if !is || slot > b.horizon {
				continue
			}
			old, released[k.generation] = true, true
		}
		if old {
			may = append(may, i)
		}
	}
	return may, released
}

// pinned adds what the points of pins stand on. A pin of nothing, as a fork that came too late leaves it behind, holds nothing.
func (c *run) pinned(p *points, keys []string) error {
	if c.o.broken == PinsIgnored {
		return nil
	}
	pins := make([]fence.Pin, len(keys))
	read := func(ctx context.Context, i int) (err error) {
		if _, ok := fence.ParsePinKey(keys[i]); !ok {
			return fmt.Errorf("%w: %s/%s is not a pin: move it away", fence.ErrDamaged, c.store, keys[i])
		}
		o, err := c.store.Get(ctx, keys[i], remote.GetOptions{})
		if errors.Is(err, remote.ErrNotFound) {
			return nil // let go of since
		}
		if err == nil {
			pins[i], err = fence.DecodePin(keys[i], o.Body)
		}
		return err
	}
	if err := c.each(len(keys), read); err != nil {
		return err
	}
	for _, pin := range pins {
		if pin.Source.Slot == 0 {
			continue
		}
		if err := p.stand(pin.Source.Slot); err != nil && !errors.Is(err, errAbsent) {
			return err
		}
	}
	return nil
}

// each runs f for 0 to n-1, several at once.
func (c *run) each(n int, f func(ctx context.Context, i int) error) error {
	if c.o.Parallel == 1 {
		for i := range n {
			if err := f(c.ctx, i); err != nil {
				return err
			}
		}
		return nil
	}
	g, ctx := errgroup.WithContext(c.ctx)
	g.SetLimit(c.o.Parallel)
	for i := range n {
		g.Go(func() error { return f(ctx, i) })
	}
	return g.Wait()
}
