package fence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// Owner is one generation: who may append. Safe for concurrent use; one append is in flight at a time (R1), others wait.
//
// Once it is fenced or deleted it stays so: every later call returns the same *FencedError and sends nothing.
type Owner struct {
	l         *Log
	claim     *Entry
	confirmed atomic.Bool   // R3's second LIST has answered
	turn      chan struct{} // R1: holds a token while a call that sends requests runs

	mu       sync.Mutex // guards what follows; all but prev is written only with the token
	prev     *Entry
	last     *Entry // newest entry known to be stored, without payload
	pend     *attempt
	fenced   *FencedError
	closed   bool
	pace     pace     // used with the token alone
	own      []uint64 // newest slots since the claim that carry pages, at most maxTail ...
	ownAbove uint64   // ... and every such slot above this one is among them
}

var errUnconfirmed = errors.New("the claim is not confirmed yet")

func newOwner(l *Log, claim, prev *Entry) *Owner {
	o := &Owner{l: l, claim: claim, prev: prev, turn: make(chan struct{}, 1), ownAbove: claim.Slot}
	if claim.Carries() {
		o.own, o.ownAbove = []uint64{claim.Slot}, claim.Slot-1
	}
	o.last = withoutPayload(claim)
	return o
}

func withoutPayload(e *Entry) *Entry {
	c := *e
	c.Payload = nil
	return &c
}

// Entry returns the create, claim or rewind that began the generation.
func (o *Owner) Entry() *Entry { return o.claim }

// Prev returns the entry that the claim followed, payload included unless Forget was called; nil for a create in slot 1.
func (o *Owner) Prev() *Entry {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.prev
}

// Forget lets go of Prev's payload once it has been read: an owner may live long, and that payload may be a few MiB.
func (o *Owner) Forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.prev != nil {
		o.prev = withoutPayload(o.prev)
	}
}

// Generation returns the slot of Entry.
func (o *Owner) Generation() uint64 { return o.claim.Slot }

// ID returns the incarnation.
func (o *Owner) ID() ID { return o.claim.ID }

// Last returns the newest entry known to be stored, without its payload.
func (o *Owner) Last() *Entry {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

// Slot returns the position: the last slot known to be stored.
func (o *Owner) Slot() uint64 { return o.Last().Slot }

// Horizon returns the oldest restorable slot as of the position.
func (o *Owner) Horizon() uint64 { return o.Last().Horizon }

// Base returns the key of the base in force at the position, or "".
func (o *Owner) Base() string { return o.Last().Base }

// State returns the database's state as of the position.
func (o *Owner) State() State { return o.Last().State }

// Pending tells whether an append's outcome, or whether we still owned the database when it was stored, is not known yet.
func (o *Owner) Pending() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pend != nil
}

// Err returns the *FencedError once the owner is known to be fenced or deleted, else nil.
func (o *Owner) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fenced != nil {
		return o.fenced
	}
	return nil
}

// begin waits for the turn (R1) and returns what ends every call early.
func (o *Owner) begin(ctx context.Context) error {
	select {
	case o.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := o.Err()
	if err == nil && !o.confirmed.Load() {
		err = errUnconfirmed
	}
	if err != nil {
		o.end()
	}
	return err
}

func (o *Owner) end() { <-o.turn }

// Append writes the next slot. A nil error says that the entry is stored, and that this owner owned the database when the last request of the call was
// applied. One PUT and nothing else, when that is answered at once; it tries until ctx ends. An owner that appends back to back waits for the length of a few
// appends about once a second at most, or a takeover would never get through.
//
// Errors: *FencedError. ErrPending, when the append before is unknown: Settle first. remote.ErrUnknown: this append is unknown and pending now. Any
// other one (a definite refusal such as remote.ErrDenied, ctx over before the first request, a bad draft, ErrClosed): nothing was stored and nothing is pending.
// The entry returned has no Payload.
func (o *Owner) Append(ctx context.Context, d Draft) (*Entry, error) {
	if err := o.begin(ctx); err != nil {
		return nil, err
	}
	defer o.end()
	if o.pend != nil {
		if o.l.broken != twoInFlight {
			return nil, ErrPending
		}
		o.stored(o.pend.entry)
	}
	if o.closed {
		return nil, ErrClosed
	}
	e, err := o.draft(d)
	if err != nil {
		return nil, fmt.Errorf("append to %q: %w", o.l.name, err)
	}
	a, err := newAttempt(e)
	if err != nil {
		return nil, fmt.Errorf("append to %q: %w", o.l.name, err)
	}
	if gap := o.pace.due(o.l.o.Now()); gap > 0 && d.Kind != Close {
		if err := o.l.o.Sleep(ctx, gap); err != nil {
			return nil, err
		}
	}
	begin := o.l.o.Now()
	o.setPending(a)
	e, _, err = o.settle(ctx)
	o.pace.done(begin, o.l.o.Now())
	if err != nil {
		return nil, wrapFenced(err, "append to %q: %w", o.l.name)
	}
	return e, nil
}

// Settle brings what is pending to its end with the same bytes (R2). It returns the entry that is stored now, or nil when nothing was pending or, with a
// definite refusal of the first try, nothing will be stored. looked says that R4's look at the next slot was made: a round trip, begun in this call, which
// found this owner still the owner. Errors are Append's.
func (o *Owner) Settle(ctx context.Context) (e *Entry, looked bool, err error) {
	if err := o.begin(ctx); err != nil {
		return nil, false, err
	}
	defer o.end()
	if o.pend == nil {
		return nil, false, nil
	}
	e, looked, err = o.settle(ctx)
	if err != nil {
		err = wrapFenced(err, "settle an append to %q: %w", o.l.name)
	}
	return e, looked, err
}

// settle is R2 and R4 for the pending append.
func (o *Owner) settle(ctx context.Context) (_ *Entry, looked bool, err error) {
	a := o.pend
	// 1. Stored, taken or unknown (R2).
	if !a.stored {
		by, err := o.l.put(ctx, a)
		switch {
		case err != nil && !a.unsure: // certainly not stored, now or later
			o.setPending(nil)
			return nil, false, err
		case err != nil:
			return nil, false, err
		case by != nil:
			return nil, false, o.fence(&FencedError{By: by})
		}
	}
	// 2. Unless the first try answered success, somebody may have come behind it before anyone told us that it is stored (R4).
	if a.unsure && o.l.broken != noLook {
		by, err := o.l.next(ctx, a.entry.Slot)
		if err != nil {
			return nil, false, o.l.unknown(a, fmt.Errorf("stored, but whether another writer came behind it is not known: %w", err))
		}
		looked = true
		if by != nil {
			o.stored(a.entry)
			return nil, true, o.fence(&FencedError{By: by, Stored: true})
		}
	}
	// 3. Only now it is the position.
	o.stored(a.entry)
	return o.Last(), looked, nil
}

// Check tells whether this owner still owns the database: nil if the slot behind its position was absent at some time after the call began (R6). One GET.
// *FencedError, ErrPending (Settle says it then), or the read's error: not known.
func (o *Owner) Check(ctx context.Context) error {
	if err := o.begin(ctx); err != nil {
		return err
	}
	defer o.end()
	if o.pend != nil {
		return ErrPending
	}
	if o.l.broken == noCheck {
		return nil
	}
	by, err := o.l.next(ctx, o.last.Slot)
	if err != nil {
		return fmt.Errorf("check the owner of %q: %w", o.l.name, err)
	}
	if by != nil {
		return o.fence(&FencedError{By: by, Stored: true})
	}
	return nil
}

// draft is the entry behind the position, as d asks.
func (o *Owner) draft(d Draft) (*Entry, error) {
	e, err := o.l.follow(o.last, d.Kind)
	if err != nil {
		return nil, err
	}
	if d.State != nil {
		e.State = *d.State
	}
	e.Payload, e.PayloadSum, e.Whole, e.Label = d.Payload, d.PayloadSum, d.Whole, d.Label
	if d.Since != nil {
		e.Usage.Add(&o.claim.Usage, d.Since)
	}
	switch d.Kind {
	case Commit:
	case Close:
		e.Frozen = e.Frozen || d.Frozen
	case Base:
		switch {
		case d.Base == "":
			return nil, errors.New("a base entry without a base")
		case d.BaseSlot < o.claim.Slot || d.BaseSlot > o.last.Slot: // R8
			return nil, fmt.Errorf("a base covers slot %d, outside its owner's %d to %d", d.BaseSlot, o.claim.Slot, o.last.Slot)
		case d.Horizon < o.last.Horizon && o.l.broken != horizonFalls || d.Horizon > e.Slot:
			return nil, fmt.Errorf("horizon %d, outside %d to %d", d.Horizon, o.last.Horizon, e.Slot)
		}
		e.Base, e.Horizon = d.Base, d.Horizon
		e.Tail = o.tailAbove(e.Tail, d.BaseSlot)
	default:
		return nil, fmt.Errorf("an owner does not append entries of kind %d", d.Kind)
	}
	return e, nil
}

// tailAbove is the part of a Tail above a new base. What we appended ourselves is known even where the Tail grew too long.
func (o *Owner) tailAbove(tail []uint64, slot uint64) []uint64 {
	if tail == nil {
		if slot < o.ownAbove {
			return nil
		}
		tail = o.own
	}
	return slices.DeleteFunc(append([]uint64{}, tail...), func(s uint64) bool { return s <= slot })
}

func (o *Owner) setPending(a *attempt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pend = a
}

// stored moves the position to e.
func (o *Owner) stored(e *Entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last, o.pend = withoutPayload(e), nil
	o.closed = e.Kind == Close
	if e.Carries() {
		if len(o.own) == maxTail {
			o.ownAbove, o.own = o.own[0], slices.Delete(o.own, 0, 1)
		}
		o.own = append(o.own, e.Slot)
	}
}

func (o *Owner) fence(err *FencedError) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fenced, o.pend = err, nil
	return err
}

// wrapFenced leaves a *FencedError as it is: every call returns the same one.
func wrapFenced(err error, format, name string) error {
	if _, ok := err.(*FencedError); ok {
		return err
	}
	return fmt.Errorf(format, name, err)
}
