package fence

import "context"

// rule names one rule, or a part of one, that the model test switches off to see that the model finds out. Nothing but a test sets Log.broken.
type rule int

const (
	none               rule = iota
	twoInFlight             // R1: the next append does not wait for the one before
	unknownIsStored         // R2
	existsIsStored          // R2
	existsIsTaken           // R2
	newBytes                // R2: another entry for the same slot after an unknown try
	noSecondList            // R3, all three
	claimNoList             // R3
	deleteNoList            // R3
	rewindNoList            // R3
	headNotCompared         // reading the head: the GET may return another object than the LIST saw
	listedHeadGone          // reading the head: listed, then collected, means that there is no database
	noLook                  // R4
	noLookForCreate         // R4
	noCheck                 // R6
	deleteByName            // R7
	slotNotFixed            // R11
	unknownIsFailed         // R11
	recordAfter             // R11: the index record is put after the create
	voidNotReadBack         // R11
	janitorWithoutVoid      // R11: an absent slot is taken for a creation that will not happen
	checkBeforePin          // R11: a fork looks at its source's head before it puts its pin
	noCheckAfterPin         // R11: a fork does not look at its source's head
	endIsNoHorizon          // R10: a fork of an incarnation that has ended
	horizonFalls            // R10: a base may lower the horizon
	rewindChecksOnce        // R10: a rewind looks at the horizon at its first try alone
)

// putAnywhere is put with R11's fixed slot broken: taken, the create goes to wherever the end is by then.
func (l *Log) putAnywhere(ctx context.Context, a *attempt) (*Entry, error) {
	for {
		by, err := l.put(ctx, a)
		if err != nil || by == nil {
			return by, err
		}
		head, err := l.Head(ctx)
		if err != nil || head == nil || !head.Ends() {
			return by, err
		}
		e := a.entry
		e.Slot, e.Generation, e.Horizon, e.Prev = head.Slot+1, head.Slot+1, head.Slot+1, head.Sum
		if a.body, err = encode(e); err != nil {
			return nil, err
		}
	}
}

// otherBytes breaks R2's "with the same bytes".
func (l *Log) otherBytes(a *attempt) (err error) {
	if a.entry.Nonce, err = l.random(); err == nil {
		a.body, err = encode(a.entry)
	}
	return err
}
