package fence

import (
	"context"
	"errors"
	"fmt"

	"github.com/tonbo-go/tonbo/remote"
)

// fork is a fork's part of R11: its hold on the source.
type fork struct {
	l     *Log // the source's
	of    Source
	pin   Pin
	first *Entry // the source's head at the first look; nil: the caller named the point
	point *Entry // header of the point, once it is known to be held
}

// look completes the point: the live incarnation, its head.
func (f *fork) look(ctx context.Context) error {
	if f.of.ID != (ID{}) && f.of.Slot != 0 {
		return nil
	}
	head, err := f.l.HeadHeader(ctx)
	switch {
	case err != nil:
		return err
	case head == nil || head.Ends():
		return fmt.Errorf("source %q: %w", f.of.Name, ErrNoDatabase)
	case f.of.ID != (ID{}) && f.of.ID != head.ID:
		return fmt.Errorf("source %q is another incarnation by now: %w", f.of.Name, ErrPointGone)
	}
	f.of.ID = head.ID
	if f.of.Slot == 0 {
		f.of.Slot = head.Slot
	}
	f.first = head
	return nil
}

// hold is (2): the pin. From here on a collector that reads the source's head keeps the point.
func (f *fork) hold(ctx context.Context) error {
	if err := f.l.putPin(ctx, f.pin); err != nil {
		return fmt.Errorf("pin the source: %w", err)
	}
	return nil
}

// check is (3). A collector that listed the pins before ours was put had read the head before that: so what the head read here still keeps, that collector
// keeps too. The head must be read after the pin was put, never before.
func (f *fork) check(ctx context.Context) error {
	gone := func(why string, args ...any) error {
		return fmt.Errorf("%w: slot %d of %q: %s", ErrPointGone, f.of.Slot, f.of.Name, fmt.Sprintf(why, args...))
	}
	// The head. A LIST tells whether it is still the one of the first look.
	head, err := f.first, error(nil)
	if head != nil {
		slot, etag, err := f.l.top(ctx)
		if err != nil {
			return fmt.Errorf("read the source's head: %w", err)
		}
		if slot != head.Slot || etag != head.ETag {
			head = nil
		}
	}
	if head == nil {
		if head, err = f.l.HeadHeader(ctx); err != nil {
			return err
		}
	}
	switch {
	case f.l.broken == endIsNoHorizon && head != nil && head.ID == f.of.ID: // the end of an incarnation does not let its points go
	case head == nil || head.Ends() || head.ID != f.of.ID:
		return gone("that database has been deleted")
	}
	if f.of.Slot > head.Slot {
		return gone("the head is slot %d", head.Slot)
	}
	// The point. Below the horizon a label keeps it, while the incarnation lives.
	point := head
	switch {
	case f.of.Slot == head.Slot:
	case f.of.Slot >= head.Horizon && f.first != nil && f.first.Slot == f.of.Slot:
		point = f.first
	default:
		point, err = f.l.ReadHeader(ctx, f.of.Slot)
		if errors.Is(err, remote.ErrNotFound) {
			return gone("it has been collected")
		}
		if err != nil {
			return err
		}
	}
	switch {
	case point.ID != f.of.ID || point.Ends():
		return gone("it is no point of that database")
	case f.of.Slot < head.Horizon && point.Label == "":
		return gone("the horizon is slot %d", head.Horizon)
	}
	f.point = point
	return nil
}

// unchecked breaks (3): the point is read, and whether it is held is not asked.
func (f *fork) unchecked(ctx context.Context) (err error) {
	f.point, err = f.l.ReadHeader(ctx, f.of.Slot)
	return err
}

// begin fills in a fork's create: the source's state, and where its pages are. See Entry.Source.
func (f *fork) begin(e *Entry) {
	of := f.of
	e.Source, e.State, e.Base, e.Tail = &of, f.point.State, f.point.Base, tailBehind(f.point)
}

// letGo removes the pin of an attempt that came to nothing. Best effort: what stays, a janitor ends.
func (f *fork) letGo(ctx context.Context) {
	if err := f.l.store.Delete(ctx, f.pin.Key()); err != nil {
		f.l.o.Logger.Debug("pin left behind", "pin", f.pin.Key(), "error", err)
	}
}
