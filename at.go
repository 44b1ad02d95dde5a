package tonbo

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/base"
)

// ErrPointGone is a point that is no longer restorable, or was never there.
var ErrPointGone = errors.New("point is not restorable")

// At picks a point of a database's history: a [Point], [Slot], [Label] or [Time]. nil is the head.
type At interface{ at() }

// Slot picks the point after a slot of the log.
type Slot uint64

// Label picks the newest point that [DB.Checkpoint] gave this label.
type Label string

// Time picks the newest point that was written at or before a time, by its writer's clock.
type Time time.Time

func (Point) at() {}
func (Slot) at()  {}
func (Label) at() {}
func (Time) at()  {}

// String spells a point so that [ParsePoint] reads it: incarnation, slot, generation, time in nanoseconds, label. Points of one incarnation sort by slot.
func (p Point) String() string {
	var ns int64 // 0: no time
	if !p.Time.IsZero() {
		ns = p.Time.UnixNano()
	}
	return fmt.Sprintf("%s.%016x.%x.%x.%s", p.ID, p.Slot, p.Generation, ns, hex.EncodeToString([]byte(p.Label)))
}

// ParsePoint reads what [Point.String] wrote.
func ParsePoint(s string) (Point, error) {
	f := strings.Split(s, ".")
	if len(f) != 5 || len(f[0]) != 32 {
		return Point{}, fmt.Errorf("point %q: want what Point.String wrote", s)
	}
	slot, err1 := strconv.ParseUint(f[1], 16, 64)
	gen, err2 := strconv.ParseUint(f[2], 16, 64)
	ns, err3 := strconv.ParseInt(f[3], 16, 64)
	label, err4 := hex.DecodeString(f[4])
	_, err5 := hex.DecodeString(f[0])
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return Point{}, fmt.Errorf("point %q: %w", s, err)
	}
	p := Point{ID: f[0], Slot: slot, Generation: gen, Label: string(label)}
	if ns != 0 {
		p.Time = time.Unix(0, ns)
	}
	return p, nil
}

// resolve finds the entry of a point, header only, in the live incarnation whose head it returns as well. The payload of an entry that is the head is there.
func (h *handle) resolve(ctx context.Context, at At) (head, e *fence.Entry, err error) {
	for try := 0; ; try++ {
		head, err = h.log.Head(ctx)
		if err != nil {
			return nil, nil, err
		}
		if head == nil || head.Ends() {
			return nil, nil, fence.ErrNoDatabase
		}
		e, err = h.find(ctx, head, at)
		if errors.Is(err, errCollected) && try < 3 { // the horizon has risen since the head was read: what is held now?
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		return head, e, nil
	}
}

// find is resolve for the head that was read.
func (h *handle) find(ctx context.Context, head *fence.Entry, at At) (*fence.Entry, error) {
	var slot uint64
	switch at := at.(type) {
	case nil:
		return head, nil
	case Slot:
		slot = uint64(at)
	case Point:
		if at.ID == "" {
			return nil, invalid("At", "the point is empty")
		}
		if at.ID != head.ID.String() {
			return nil, h.gone(head, fmt.Sprintf("%s is of incarnation %s, which was deleted; the live one is %s", at, at.ID, head.ID))
		}
		slot = at.Slot
	case Label:
		if at == "" {
			return nil, invalid("At", "the label is empty")
		}
		return h.findLabel(ctx, head, string(at))
	case Time:
		return h.findTime(ctx, head, time.Time(at))
	}
	switch {
	case slot == head.Slot:
		return head, nil
	case slot > head.Slot || slot == 0:
		return nil, h.gone(head, fmt.Sprintf("slot %d", slot))
	}
	e, err := h.header(ctx, slot)
	switch {
	case errors.Is(err, errCollected) && slot < head.Horizon:
		return nil, h.gone(head, fmt.Sprintf("slot %d", slot))
	case err != nil:
		return nil, err
	case e.ID != head.ID:
		return nil, h.gone(head, fmt.Sprintf("slot %d is of incarnation %s", slot, e.ID))
	case slot < head.Horizon && e.Label == "":
		return nil, h.gone(head, fmt.Sprintf("slot %d", slot))
	}
	return e, nil
}

func (h *handle) gone(head *fence.Entry, what string) error {
	return &dbError{h.name, "find a point", ErrPointGone, fmt.Errorf("%s: restorable are slots %d to %d and labelled points", what, head.Horizon, head.Slot)}
}

// timeProbes is how many slots are looked at at once to find a time: 4 round trips for 65,000 slots.
const timeProbes = 15

// findTime is the newest entry at or before t. Clocks of several owners may disagree; within that it is found as if they did not.
func (h *handle) findTime(ctx context.Context, head *fence.Entry, t time.Time) (*fence.Entry, error) {
	if !head.Time.After(t) {
		return head, nil
	}
	var found *fence.Entry               // at or before t
	low, high := head.Horizon, head.Slot // it is not below low, and below high
	for found == nil || high-low > 1 {
		var slots []uint64
		if found == nil {
			slots = append(slots, low)
		}
		n := min(timeProbes, high-low-1)
		for i := range n {
			slots = append(slots, low+(high-low)*(i+1)/(n+1))
		}
		entries, err := h.headers(ctx, slots, false)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Time.After(t) {
				high = e.Slot
				break
			}
			found, low = e, e.Slot
		}
		if found == nil {
			return nil, h.gone(head, fmt.Sprintf("%s is before the oldest restorable point, slot %d of %s",
				t.UTC().Format(time.RFC3339Nano), low, entries[0].Time.UTC().Format(time.RFC3339Nano)))
		}
	}
	return found, nil
}

// findLabel is the newest entry with a label: among those above the base, and those that the base's manifest lists.
func (h *handle) findLabel(ctx context.Context, head *fence.Entry, label string) (*fence.Entry, error) {
	m, err := h.manifestOf(ctx, head)
	if err != nil {
		return nil, err
	}
	for e, err := range h.back(ctx, head, labelFloor(m)) {
		if err != nil {
			return nil, err
		}
		if e.Label == label {
			return e, nil
		}
	}
	if m != nil {
		for i := len(m.Labels) - 1; i >= 0; i-- {
			if m.Labels[i].Label == label {
				return h.header(ctx, m.Labels[i].Slot)
			}
		}
	}
	return nil, h.gone(head, fmt.Sprintf("label %q", label))
}

// labelFloor is the slot up to which the base's manifest lists every label.
func labelFloor(m *base.Manifest) uint64 {
	if m == nil {
		return 0
	}
	return m.Slot
}

// manifestOf is the base of its own incarnation that e stands on. A fork that has made none yet stands on its source's, whose slots and labels are not the fork's: nil.
func (h *handle) manifestOf(ctx context.Context, e *fence.Entry) (*base.Manifest, error) {
	if e.Base == "" {
		return nil, nil
	}
	m, err := h.readBase(ctx, e)
	if err != nil || m.ID != e.ID.String() {
		return nil, err
	}
	return m, nil
}
