package fence

import (
	"context"
	"errors"
	"fmt"

	"github.com/tonbo-go/tonbo/remote"
)

// ClaimOptions of Claim. The zero value takes over whatever the name means.
type ClaimOptions struct {
	// Head is what Head returned, to save the first look. However old it is, the claim is safe: R3 finds out.
	Head *Entry
	// ID is the incarnation meant: with another one, or none, live, ErrNoDatabase. Zero: whichever is live.
	ID ID
	// Load reads what the new owner needs, beside the LIST that confirms the claim. Until Claim returns, the Owner tells its position and refuses
	// everything else; after an error, for ever. Load is called again with another Owner, and what it read is to be thrown away, when the LIST shows that the claim is a ghost or has
	// been passed; its ctx ends then. Claim waits for it.
	Load func(ctx context.Context, o *Owner) error
	// Frozen makes the claim carry the flag: from then on only IgnoreFrozen gets past it.
	Frozen bool
	// IgnoreFrozen claims a frozen database too. Without Frozen, the claim thaws it.
	IgnoreFrozen bool
	// IfClosed is the janitor's claim: it follows a close, tries that one slot and gives up with ErrBusy. A frozen database stays frozen.
	IfClosed bool
}

// Claim takes the database over (R3): it is the next generation, and from now on no older owner's Append or Check succeeds. LIST, GET, PUT, LIST.
// ErrNoDatabase, ErrFrozen, ErrBusy. An error that is remote.ErrUnknown: a claim of nobody may be in the log; claim again.
func (l *Log) Claim(ctx context.Context, c ClaimOptions) (*Owner, error) {
	var id *ID
	if c.ID != (ID{}) {
		id = &c.ID
	}
	o, err := l.take(ctx, takeover{kind: Claim, head: c.Head, id: id, load: c.Load, once: c.IfClosed, draft: func(_ context.Context, head, e *Entry) error {
		if c.IfClosed && head.Kind != Close {
			return ErrBusy
		}
		if head.Frozen && !c.IgnoreFrozen && !c.IfClosed {
			return ErrFrozen
		}
		e.Frozen = c.Frozen || head.Frozen && c.IfClosed
		if !c.IfClosed && !c.Frozen && !c.IgnoreFrozen {
			e.Usage.Opens++
		}
		return nil
	}})
	if err != nil {
		return nil, fmt.Errorf("claim %q: %w", l.name, err)
	}
	return o, nil
}

// DeleteOptions of Delete.
type DeleteOptions struct {
	Once   bool           // only right behind Head, as a janitor\'s claim: ErrBusy when another entry is there
	Stored func(e *Entry) // is told the delete, if this call has stored it
	Head   *Entry         // what Head or HeadHeader returned, to save the first look; however old it is (R3)
	Label  string         // why, for the owner that finds the entry behind its own
}

// Delete ends an incarnation (R7): id, or the live one when id is zero. It returns the id that it aimed at. ErrNoDatabase when that was not live at
// the first look; if it ends while Delete runs, whoever ended it, Delete has succeeded. LIST, GET, PUT, LIST; without the first two when the head is given. An error that is
// remote.ErrUnknown: perhaps it is deleted, or will be; delete it again.
func (l *Log) Delete(ctx context.Context, id ID, opts ...DeleteOptions) (ID, error) {
	var d DeleteOptions
	if len(opts) > 0 {
		d = opts[0]
	}
	o, err := l.take(ctx, takeover{kind: Delete, id: &id, head: d.Head, once: d.Once, read: headerOnly, draft: func(_ context.Context, _, e *Entry) error {
		e.Label = d.Label
		return nil
	}})
	if errors.Is(err, errGone) {
		return id, nil
	}
	if err != nil {
		return id, fmt.Errorf("delete %q: %w", l.name, err)
	}
	if d.Stored != nil {
		d.Stored(o.Entry())
	}
	return o.ID(), nil
}

// RewindOptions of Rewind.
type RewindOptions struct {
	ID   ID                                        // the incarnation meant; zero: the live one
	To   uint64                                    // slot of the point to go back to
	Load func(ctx context.Context, o *Owner) error // as ClaimOptions.Load
}

// Rewind takes the database over as Claim does, with an earlier point's state. ErrPointGone when that point is below the horizon without a label, or is none
// of this incarnation's. The Owner's Prev has no payload. LIST, GET, GET of the point, PUT, LIST.
func (l *Log) Rewind(ctx context.Context, r RewindOptions) (*Owner, error) {
	checked := false
	o, err := l.take(ctx, takeover{kind: Rewind, id: &r.ID, read: headerOnly, load: r.Load, draft: func(ctx context.Context, head, e *Entry) error {
		if head.Frozen {
			return ErrFrozen
		}
		// R10: no pin holds the point, so each try asks the very head that it follows. Below the horizon a label keeps it, while the incarnation lives.
		if r.To > head.Slot {
			return ErrPointGone
		}
		point, err := l.ReadHeader(ctx, r.To)
		if errors.Is(err, remote.ErrNotFound) && r.To >= head.Horizon {
			return errLookAgain // the horizon has moved since
		}
		if errors.Is(err, remote.ErrNotFound) {
			return ErrPointGone
		}
		if err != nil {
			return err
		}
		kept := r.To >= head.Horizon || point.Label != "" || checked && l.broken == rewindChecksOnce
		if point.ID != head.ID || !kept {
			return ErrPointGone
		}
		checked = true
		e.To, e.Base, e.State, e.Tail = r.To, point.Base, point.State, tailBehind(point)
		return nil
	}})
	if err != nil {
		return nil, fmt.Errorf("rewind %q to slot %d: %w", l.name, r.To, err)
	}
	return o, nil
}

var (
	errLookAgain = errors.New("look again")
	errGone      = fmt.Errorf("%w any more", ErrNoDatabase) // it was there at the first look
)

// takeover is a claim, a delete or a rewind.
type takeover struct {
	kind  Kind
	head  *Entry
	read  remote.GetOptions // how much of the head the new owner needs
	id    *ID               // the incarnation meant; zero until the first look; nil: claim whichever is live
	once  bool
	load  func(context.Context, *Owner) error
	draft func(ctx context.Context, head, e *Entry) error // fills in e, or refuses; errLookAgain
}

// take is R3.
func (l *Log) take(ctx context.Context, t takeover) (*Owner, error) {
	head := t.head
	if head != nil && (head.Ends() || head.Frozen && t.kind != Delete) {
		head = nil // it may be alive again, or thawed
	}
	for try := 0; ; try++ {
		// 1. Read the head.
		if head == nil || try > 0 {
			var err error
			if head, err = l.head(ctx, t.read, nil); err != nil {
				return nil, err
			}
		}
		// 2. There must be a live incarnation. Delete and rewind fix which one at the first look: another one, or an end, later on means that it
		// is gone already.
		gone := head == nil || head.Ends()
		if t.id != nil && !gone && l.broken != deleteByName {
			if *t.id == (ID{}) {
				*t.id = head.ID
			}
			gone = head.ID != *t.id
		}
		if gone {
			if try > 0 {
				return nil, errGone
			}
			return nil, ErrNoDatabase
		}
		// 3. Create at head+1. Taken: look again.
		e, err := l.follow(head, t.kind)
		if err == nil && t.draft != nil {
			err = t.draft(ctx, head, e)
		}
		if errors.Is(err, errLookAgain) {
			if err := l.wait(ctx, min(try, 4), nil); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		a, err := newAttempt(e)
		if err != nil {
			return nil, err
		}
		by, err := l.put(ctx, a)
		if err != nil {
			return nil, err
		}
		if by != nil {
			if t.once {
				return nil, ErrBusy
			}
			continue
		}
		// 4. LIST again, beside what the caller loads: if a higher slot exists, ours is a ghost in a collected slot, or passed: start over.
		o := newOwner(l, e, head)
		first, err := l.confirm(ctx, o, t.load)
		if err != nil {
			return nil, err
		}
		if first {
			return o, nil
		}
		if t.once {
			return nil, ErrBusy
		}
	}
}

// confirm is the second LIST of R3, with load beside it. It tells whether o's entry is the head.
func (l *Log) confirm(ctx context.Context, o *Owner, load func(context.Context, *Owner) error) (bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	loaded := make(chan error, 1)
	if load == nil {
		loaded <- nil
	} else {
		go func() { loaded <- load(ctx, o) }()
	}
	top, err := o.claim.Slot, error(nil)
	switch k := o.claim.Kind; {
	case l.broken == noSecondList, k == Claim && l.broken == claimNoList, k == Delete && l.broken == deleteNoList, k == Rewind && l.broken == rewindNoList:
	default:
		top, _, err = l.top(ctx)
	}
	if err != nil || top != o.claim.Slot {
		cancel()
		<-loaded
		return false, err
	}
	if err := <-loaded; err != nil {
		return false, err
	}
	o.confirmed.Store(true)
	return true, nil
}
