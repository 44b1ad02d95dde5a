package gc

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
)

// Pins looks at every pin on a name: creations left half made are ended (R11), and what no longer needs the source lets go (R10). Pins younger than Options.Grace are left alone.
func Pins(ctx context.Context, s remote.Store, name string, o Options) (*Report, error) {
	c := newRun(ctx, s, name, o)
	var pins []remote.Info
	err := c.list(fence.PinPrefix(name), func(i remote.Info) { pins = append(pins, i) })
	if err != nil {
		return c.r, fmt.Errorf("look at the pins on %q: %w", name, err)
	}
	for _, i := range pins {
		pin, ok := fence.ParsePinKey(i.Key)
		if !ok || c.fresh(i) {
			continue
		}
		r, err := letGo(ctx, s, pin, i, o)
		c.r.Add(r)
		if err != nil {
			return c.r, err
		}
	}
	return c.r, nil
}

// fresh: it may be of a creation that is still under way. Its end would cost that another try, nothing else.
func (c *run) fresh(i remote.Info) bool {
	return c.o.Grace > 0 && i.Time.After(c.o.Now().Add(-c.o.Grace))
}

// LetGo removes a pin (of which Source.Slot need not be known) when its child will never be, or is no more, or stands on nothing of its source any longer. It is for the child's owner to call
// some time after it has published a base of its own (Options.Grace counts for the points that it has given up), and for janitors. Report.Pins tells whether it did. GET, LIST, GET at least.
func LetGo(ctx context.Context, s remote.Store, pin fence.Pin, o Options) (*Report, error) {
	return letGo(ctx, s, pin, remote.Info{Key: pin.Key()}, o)
}

func letGo(ctx context.Context, s remote.Store, pin fence.Pin, object remote.Info, o Options) (*Report, error) {
	c := newRun(ctx, s, pin.Child.Name, o)
	may, err := c.mayLetGo(pin.Child)
	switch {
	case errors.Is(err, errMoved) || errors.Is(err, errAbsent):
		c.r.Moved = true
		return c.r, nil
	case err == nil && may:
		err = c.delete(object, &c.r.Pins)
	}
	if err != nil {
		err = fmt.Errorf("let go of %s: %w", object.Key, err)
	}
	return c.r, err
}

// made tells what has become of a creation. made: its create is in its slot. dead: and that incarnation has ended, which p's slots say when they are listed.
func (c *run) made(child fence.Source) (made bool, head *fence.Entry, err error) {
	var early *fence.Entry
	if c.o.broken == HeadBeforeSlot {
		if early, err = c.log.HeadHeader(c.ctx); err != nil {
			return false, nil, err
		}
	}
	// That slot first, the head after: a head read before could be older than the create.
	if c.o.DryRun {
		e, err := c.log.ReadHeader(c.ctx, child.Slot)
		if err != nil && !errors.Is(err, remote.ErrNotFound) {
			return false, nil, err
		}
		if err != nil || e.Kind != fence.Create || e.ID != child.ID {
			return false, nil, nil
		}
	} else if made, err := c.log.Abandon(c.ctx, child.ID, child.Slot); err != nil || !made {
		return false, nil, err
	}
	if c.o.broken == HeadBeforeSlot {
		return true, early, nil
	}
	head, err = c.log.HeadHeader(c.ctx)
	return true, head, err
}

func dead(child fence.Source, head *fence.Entry) bool {
	return head == nil || head.ID != child.ID || head.Ends()
}

// mayLetGo tells whether nothing outside the child's own incarnation is needed for it (R10).
func (c *run) mayLetGo(child fence.Source) (bool, error) {
	// 1. The slot of its create, and then its head.
	made, head, err := c.made(child)
	if err != nil || !made {
		return !made, err
	}
	if head == nil {
		return c.o.broken == HeadBeforeSlot, nil
	}
	// 2. Then the pins on it: a fork of it whose pin is not among them has yet to read its head.
	var own []string
	err = c.list(fence.PinPrefix(child.Name), func(i remote.Info) {
		if p, ok := fence.ParsePinKey(i.Key); ok && (p.Source.ID == child.ID || c.o.broken == OwnPinsByName) {
			own = append(own, i.Key)
		}
	})
	if err != nil {
		return false, err
	}
	p := c.newPoints()
	p.keep(head.Slot, head)
	p.born = child.Slot
	if err := p.listSlots(head.Slot); err != nil {
		return false, err
	}
	before := c.o.Now().Add(-c.o.Grace)
	slot, aged := p.aged(head.Slot, before)
	if !aged || slot < child.Slot {
		return false, nil // it has not been there for the grace's time
	}
	// 3. An ended incarnation stands on nothing itself; but its pin holds what the points that others hold of it stand on.
	if dead(child, head) {
		h, err := p.header(slot)
		if err != nil {
			return false, err
		}
		gone := h.id != child.ID || h.kind == fence.Delete || h.kind == fence.Void // for the grace's time
		return gone && (len(own) == 0 || c.o.broken == MiddleLetsGo), nil
	}
	if c.o.broken == ChildLetsGo {
		_, err := p.base(p.headers[head.Slot])
		return head.Base != "" && !p.foreign, err
	}
	// 4. A live one: each point from the horizon (as of the grace's time) to the head, each labelled one, and each one that is held by a pin.
	b, err := c.asOf(p, head, before)
	if err != nil {
		return false, err
	}
	from := max(b.horizon, child.Slot)
	if _, err := p.window(head.Horizon, head.Slot, false); err != nil || p.foreign {
		return false, err
	}
	if _, err := p.window(from, head.Horizon-1, true); err != nil || p.foreign {
		return false, err
	}
	if c.o.broken != OwnPinsIgnored {
		if err := c.pinned(p, own); err != nil || p.foreign {
			return false, err
		}
	}
	return c.noForeignLabel(p, child, from)
}

func (c *run) noForeignLabel(p *points, child fence.Source, horizon uint64) (bool, error) {
	var slots []uint64
	for s := range p.slots {
		if s >= child.Slot && s < horizon {
			slots = append(slots, s)
		}
	}
	slices.Sort(slots)
	if err := p.load(slots); err != nil {
		return false, err
	}
	for _, s := range slots {
		if h := p.headers[s]; h == nil || !h.label || h.id != child.ID {
			continue
		}
		if err := p.stand(s); err != nil || p.foreign {
			return false, err
		}
	}
	return true, nil
}
