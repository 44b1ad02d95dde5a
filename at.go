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
	"github.com/tonbo-go/tonbo/remote"
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
	return fmt.Sprintf("%s.%016x.%x.%x.%s", p.ID, p.Slot, p.Generation, p.Time.UnixNano(), hex.EncodeToString([]byte(p.Label)))
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
	return Point{ID: f[0], Slot: slot, Generation: gen, Time: time.Unix(0, ns), Label: string(label)}, nil
}

// resolve finds the entry of a point, header only, in the live incarnation whose head it returns as well. The payload of an entry that is the head is there.
func (h *handle) resolve(ctx context.Context, at At) (head, e *fence.Entry, err error) {
	head, err = h.log.Head(ctx)
	if err != nil {
		return nil, nil, err
	}
	if head == nil || head.Ends() {
		return nil, nil, fence.ErrNoDatabase
	}
	var slot uint64
	switch at := at.(type) {
	case nil:
		return head, head, nil
	case Slot:
		slot = uint64(at)
	case Point:
		if at.ID != head.ID.String() {
			return nil, nil, h.gone(head, fmt.Sprintf("%s is of incarnation %s, which was deleted; the live one is %s", at, at.ID, head.ID))
		}
		slot = at.Slot
	case Label:
		if e, err = h.findLabel(ctx, head, string(at)); err != nil {
			return nil, nil, err
		}
		return head, e, nil
	case Time:
		if slot, err = h.findTime(ctx, head, time.Time(at)); err != nil {
			return nil, nil, err
		}
	}
	if slot == head.Slot {
		return head, head, nil
	}
	if slot > head.Slot || slot == 0 {
		return nil, nil, h.gone(head, fmt.Sprintf("slot %d", slot))
	}
	if slot < head.Horizon {
		if e, err := h.labelled(ctx, head, slot); err != nil || e != nil {
			return head, e, err
		}
		return nil, nil, h.gone(head, fmt.Sprintf("slot %d", slot))
	}
	e, err = h.header(ctx, slot)
	if err == nil && e.ID != head.ID {
		return nil, nil, h.gone(head, fmt.Sprintf("slot %d is of incarnation %s", slot, e.ID))
	}
	return head, e, err
}

func (h *handle) gone(head *fence.Entry, what string) error {
	return &dbError{h.name, "find a point", ErrPointGone, fmt.Errorf("%s: restorable are slots %d to %d and labelled points", what, head.Horizon, head.Slot)}
}

// header reads the header of a slot that is in the log.
func (h *handle) header(ctx context.Context, slot uint64) (*fence.Entry, error) {
	e, err := h.log.ReadHeader(ctx, slot)
	if errors.Is(err, remote.ErrNotFound) {
		return nil, &dbError{h.name, "read the log", ErrPointGone, fmt.Errorf("slot %d was collected", slot)}
	}
	return e, err
}

// findTime is the newest slot at or before t. Clocks of several owners may disagree; within that it is found by halving.
func (h *handle) findTime(ctx context.Context, head *fence.Entry, t time.Time) (uint64, error) {
	if !head.Time.After(t) {
		return head.Slot, nil
	}
	lo, hi := head.Horizon, head.Slot // lo: to be checked; hi: too late
	first, err := h.header(ctx, lo)
	if err != nil {
		return 0, err
	}
	if first.Time.After(t) {
		return 0, h.gone(head, fmt.Sprintf("%s is before the oldest restorable point, slot %d of %s", t.UTC().Format(time.RFC3339Nano), lo, first.Time.UTC().Format(time.RFC3339Nano)))
	}
	for hi-lo > 1 {
		mid := lo + (hi-lo)/2
		e, err := h.header(ctx, mid)
		if err != nil {
			return 0, err
		}
		if e.Time.After(t) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return lo, nil
}

// findLabel is the newest entry with a label: among those above the base, and those that the base's manifest lists.
func (h *handle) findLabel(ctx context.Context, head *fence.Entry, label string) (*fence.Entry, error) {
	m, err := h.manifestOf(ctx, head)
	if err != nil {
		return nil, err
	}
	for e, err := range h.back(ctx, head, h.labelFloor(head, m)) {
		if err != nil {
			return nil, err
		}
		if e.Label == label && e.ID == head.ID {
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

// labelled is the entry in a slot below the horizon, if it is kept for its label.
func (h *handle) labelled(ctx context.Context, head *fence.Entry, slot uint64) (*fence.Entry, error) {
	e, err := h.log.ReadHeader(ctx, slot)
	if errors.Is(err, remote.ErrNotFound) {
		return nil, nil
	}
	if err != nil || e.Label == "" || e.ID != head.ID {
		return nil, err
	}
	return e, nil
}

// labelFloor is the slot up to which the base's manifest lists the labels.
func (h *handle) labelFloor(head *fence.Entry, m *base.Manifest) uint64 {
	if m == nil {
		return head.Horizon - 1
	}
	return max(m.Slot, 1) - 1
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
