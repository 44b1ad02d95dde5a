package fence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tonbo-go/tonbo/remote"
)

// CreateOptions of Create. The zero value creates an empty database.
type CreateOptions struct {
	ID     ID // zero: random. If the first attempt ends in a void, the next one has a random id
	Frozen bool
	// Slot, with ID, makes one attempt and no other: that id in that slot, which is the first one or follows an end. Any number of callers may make the very same attempt, at once or one
	// after the other: at most one create comes of it. Where the slot holds another entry than this call's, the error is a *SlotTakenError. A fork then needs Source.ID and Source.Slot,
	// the same for all. Undo is called, and the pin removed, only when the slot holds something else than that id's create: until then another caller may need them (Abandon decides it).
	Slot uint64
	// Source makes it a fork: the new database begins as the source is at that point. A zero ID means the live incarnation, a zero Slot its head. The point
	// must not be below the horizon, or it must be labelled. State, Payload, PayloadSum and Whole must be zero then: they are the source's.
	Source     *Source
	State      State
	Payload    []byte // pages that are there from the start
	PayloadSum uint64
	Whole      bool
	Stored     int64     // bytes that Before uploads
	Expires    time.Time // zero: never; see segment.Usage

	// Before is called for each attempt, before its create is written: it puts the index record, then uploads what the create names (R11). An error
	// ends Create. A fork's runs beside the PUT of its pin.
	Before func(ctx context.Context, c Creation) error
	// Undo takes back what Before did, once it is certain that this attempt's create is not in the log and never will be. Best effort: what it leaves, a
	// janitor finds.
	Undo func(ctx context.Context, c Creation)
}

// Creation is one attempt of Create: the incarnation that it would begin, whose generation is its slot, and the point that a fork begins with.
type Creation struct {
	ID     ID
	Slot   uint64
	Source *Source // nil: no fork
}

// SlotTakenError is ErrTaken: the slot that CreateOptions.Slot asked for holds another entry than this call's. If that is the create of the very ID, another caller's same attempt
// has succeeded; otherwise this attempt never can.
type SlotTakenError struct{ By *Entry }

func (e *SlotTakenError) Error() string {
	return fmt.Sprintf("%v: slot %d holds an entry of kind %d by %s", ErrTaken, e.By.Slot, e.By.Kind, e.By.Owner)
}

// Is makes errors.Is see ErrTaken.
func (e *SlotTakenError) Is(target error) bool { return target == ErrTaken }

// Made tells whether that entry is the create of id.
func (e *SlotTakenError) Made(id ID) bool { return e.By.Kind == Create && e.By.ID == id }

// Create begins an incarnation and owns it (R11). LIST, Before, PUT; a GET more when the name was used before. A fork of the source's head: LIST, GET, PUT of
// the pin, LIST (and LIST, GET, when the head has moved) more; of another point: PUT, LIST, GET, GET.
//
// Errors: ErrTaken, with CreateOptions.Slot as a *SlotTakenError. ErrNoDatabase: the source. ErrPointGone: its point is not held any more. *FencedError with Stored: created, and taken over or deleted by another process before we knew. remote.ErrUnknown: run it again, the
// database may exist. Any other one: nothing was created.
func (l *Log) Create(ctx context.Context, c CreateOptions) (*Owner, error) {
	for {
		o, again, err := l.create(ctx, c)
		if !again {
			if err != nil {
				err = wrapFenced(err, "create %q: %w", l.name)
			}
			return o, err
		}
		c.ID = ID{}
	}
}

// create is one attempt of R11: one id, one slot. again: a janitor has ended it, another one may succeed.
func (l *Log) create(ctx context.Context, c CreateOptions) (_ *Owner, again bool, _ error) {
	var f *fork
	creation := func(e *Entry) Creation {
		x := Creation{ID: e.ID, Slot: e.Slot}
		if f != nil {
			of := f.of
			x.Source = &of
		}
		return x
	}
	undo := func(e *Entry) {
		if f != nil && f.pin.Child.Slot != 0 {
			f.letGo(ctx)
		}
		if c.Undo != nil {
			c.Undo(ctx, creation(e))
		}
	}
	giveUp := func(e *Entry) { // nothing was stored by this call
		if c.Slot == 0 {
			undo(e)
		}
	}
	before := func(e *Entry) error {
		if c.Before == nil {
			return nil
		}
		return c.Before(ctx, creation(e))
	}
	// (1) The name must be free. The slot is fixed for this attempt.
	look := func() error { return nil }
	if c.Source != nil {
		if c.State != (State{}) || c.Payload != nil || c.PayloadSum != 0 || c.Whole {
			return nil, false, errors.New("a fork begins with its source's pages, not with others")
		}
		f = &fork{l: l.sibling(c.Source.Name), of: *c.Source}
		look = func() error { return f.look(ctx) }
	}
	if c.Slot != 0 && (c.ID == ID{} || c.Source != nil && (c.Source.ID == ID{} || c.Source.Slot == 0)) {
		return nil, false, errors.New("a creation in a given slot needs a given id, and a given point of its source")
	}
	var head *Entry
	err := l.together(func() (err error) { head, err = l.endBefore(ctx, c.Slot); return err }, look)
	if head != nil && !head.Ends() {
		return nil, false, ErrTaken
	}
	if err != nil {
		return nil, false, err
	}
	e, err := l.follow(head, Create)
	if err != nil {
		return nil, false, err
	}
	if e.ID = c.ID; e.ID == (ID{}) {
		if e.ID, err = l.random(); err != nil {
			return nil, false, err
		}
	}
	e.Frozen, e.State, e.Payload, e.PayloadSum, e.Whole = c.Frozen, c.State, c.Payload, c.PayloadSum, c.Whole
	e.Usage.Stored = uint64(c.Stored) + uint64(len(c.Payload))
	if !c.Expires.IsZero() {
		e.Usage.Expires = uint64(c.Expires.Unix())
	}
	record := func() error {
		if l.broken == recordAfter {
			return nil
		}
		return before(e)
	}
	if f == nil {
		// (4) The index record, and then what the create names.
		err = record()
	} else {
		f.pin = Pin{Source: f.of, Child: Source{Name: l.name, ID: e.ID, Slot: e.Slot}}
		if l.broken == checkBeforePin {
			err = f.check(ctx)
		}
		// (2) A fork puts its pin; (4) beside it, the index record.
		if err == nil {
			err = l.together(func() error { return f.hold(ctx) }, record)
		}
		// (3) A fork then reads its source's head: the point must still be held.
		switch {
		case err != nil || l.broken == checkBeforePin:
		case l.broken == noCheckAfterPin:
			err = f.unchecked(ctx)
		default:
			err = f.check(ctx)
		}
		if err == nil {
			f.begin(e)
		}
	}
	if err != nil {
		giveUp(e)
		return nil, false, err
	}
	// (5) The create: this is the acknowledgement.
	a, err := newAttempt(e)
	if err != nil {
		giveUp(e)
		return nil, false, err
	}
	put := l.put
	if l.broken == slotNotFixed {
		put = l.putAnywhere
	}
	by, err := put(ctx, a)
	switch {
	case err != nil && (!a.unsure || l.broken == unknownIsFailed):
		giveUp(e)
		return nil, false, err
	case err != nil:
		return nil, false, fmt.Errorf("run it again: the database may exist: %w", err)
	case by != nil && c.Slot != 0 && by.Kind == Create && by.ID == e.ID: // the same attempt, by another caller
		return nil, false, &SlotTakenError{by}
	case by != nil && c.Slot != 0 && (by.Kind == Create || by.Kind == Void):
		undo(e)
		return nil, false, &SlotTakenError{by}
	case by != nil && by.Kind == Create:
		undo(e)
		return nil, false, ErrTaken
	case by != nil && by.Kind == Void:
		undo(e)
		return nil, true, nil
	case by != nil: // that slot follows an end, so it can hold a create or a void alone
		return nil, false, fmt.Errorf("%w: %s/%s: kind %d behind the end of an incarnation", ErrDamaged, l.store, SlotKey(l.name, by.Slot), by.Kind)
	}
	if l.broken == recordAfter {
		if err := before(e); err != nil {
			return nil, false, err
		}
	}
	// (6) R4: unless the first try answered success, somebody may own it by now.
	if a.unsure && l.broken != noLook && l.broken != noLookForCreate {
		by, err := l.next(ctx, e.Slot)
		if err != nil {
			return nil, false, fmt.Errorf("created, but who owns it is not known, open it: %w", l.unknown(a, err))
		}
		if by != nil {
			return nil, false, &FencedError{By: by, Stored: true}
		}
	}
	o := newOwner(l, e, head)
	o.confirmed.Store(true) // no second LIST: that slot can only ever hold a create or a void
	return o, false, nil
}

// endBefore is what a create follows: the head, or the entry before a given slot, which is never collected (R5). Nil: there is none.
func (l *Log) endBefore(ctx context.Context, slot uint64) (*Entry, error) {
	switch slot {
	case 0:
		return l.HeadHeader(ctx)
	case 1:
		return nil, nil
	}
	return l.ReadHeader(ctx, slot-1)
}

// Abandon ends a creation that was left half made (R11): an index record, or a pin, tells of an id that was to be created in slot. It returns what
// the slot holds: made says that it is that create, so nothing may be removed. Otherwise the creation can never happen any more. GET, and when the slot is
// absent GET, PUT, GET.
func (l *Log) Abandon(ctx context.Context, id ID, slot uint64) (made bool, err error) {
	fail := func(err error) (bool, error) {
		return false, fmt.Errorf("abandon a creation in slot %d of %q: %w", slot, l.name, err)
	}
	// 1. Read that slot. Not the head: the create may have happened, and been deleted, long ago.
	e, err := l.ReadHeader(ctx, slot)
	if err != nil && !errors.Is(err, remote.ErrNotFound) {
		return fail(err)
	}
	if err != nil && l.broken == janitorWithoutVoid {
		return false, nil
	}
	if err != nil {
		// 2. Absent: put a void there. It follows the end that the create would have followed.
		var prev *Entry
		if slot > 1 {
			if prev, err = l.ReadHeader(ctx, slot-1); err != nil {
				return fail(err)
			}
			if !prev.Ends() {
				return fail(fmt.Errorf("slot %d is no end", prev.Slot))
			}
		}
		void, err := l.follow(prev, Void)
		if err != nil {
			return fail(err)
		}
		a, err := newAttempt(void)
		if err != nil {
			return fail(err)
		}
		if _, err := l.put(ctx, a); err != nil {
			return fail(err)
		}
		if l.broken == voidNotReadBack {
			return false, nil
		}
		// 3. Whatever the answer was, what the slot holds decides.
		if e, err = l.ReadHeader(ctx, slot); err != nil {
			return fail(err)
		}
	}
	return e.Kind == Create && e.ID == id, nil
}
