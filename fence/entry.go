package fence

import (
	"fmt"
	"slices"
	"time"

	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// maxTail is how many slots an entry's Tail names at most.
const maxTail = 256

// encode fills in e.Sum, PayloadSize and Size and returns the object that a slot holds: the header, then the payload.
func encode(e *Entry) ([]byte, error) {
	e.PayloadSize = int64(len(e.Payload))
	h := segment.Header{
		Kind: segment.Kind(e.Kind), ID: e.ID, Generation: e.Generation, Slot: e.Slot, Nonce: e.Nonce, Time: e.Time.UnixNano(),
		PageSize: e.State.PageSize, PageCount: e.State.PageCount, Checksum: e.State.Checksum,
		Prev: e.Prev, Base: e.Base, Horizon: e.Horizon, To: e.To, Label: e.Label, Owner: e.Owner, Tail: e.Tail,
		PayloadSize: e.PayloadSize, PayloadSum: e.PayloadSum,
	}
	if e.Frozen {
		h.Flags |= segment.FlagFrozen
	}
	if e.Whole {
		h.Flags |= segment.FlagWhole
	}
	if e.Source != nil {
		h.Source = &segment.Source{Name: e.Source.Name, ID: e.Source.ID, Slot: e.Source.Slot}
	}
	if e.Usage != (segment.Usage{}) {
		h.Usage = &e.Usage
	}
	b, err := segment.EncodeHeader(make([]byte, 0, 512+len(e.Payload)), &h)
	if err != nil {
		return nil, fmt.Errorf("encode slot %d: %w", e.Slot, err)
	}
	e.Sum = h.Sum()
	b = append(b, e.Payload...)
	e.Size = int64(len(b))
	return b, nil
}

// decode is encode's inverse. It checks the header and that the object is as long as the header says; what is inside the payload is the caller's
// to check. whole: obj is the whole object, else a beginning of it that holds the header.
func decode(obj remote.Object, slot uint64, whole bool) (*Entry, error) {
	h, n, err := segment.DecodeHeader(obj.Body)
	if err != nil {
		return nil, err
	}
	e := &Entry{
		Kind: Kind(h.Kind), ID: h.ID, Slot: h.Slot, Generation: h.Generation, Nonce: h.Nonce, Sum: h.Sum(), Prev: h.Prev,
		Base: h.Base, Horizon: h.Horizon, To: h.To, Label: h.Label, Owner: h.Owner, Time: time.Unix(0, h.Time), Tail: h.Tail,
		State:  State{PageSize: h.PageSize, PageCount: h.PageCount, Checksum: h.Checksum},
		Frozen: h.Flags&segment.FlagFrozen != 0, Whole: h.Flags&segment.FlagWhole != 0,
		PayloadSum: h.PayloadSum, PayloadSize: h.PayloadSize, ETag: obj.ETag, Size: obj.Size,
	}
	if h.Source != nil {
		e.Source = &Source{Name: h.Source.Name, ID: h.Source.ID, Slot: h.Source.Slot}
	}
	if h.Usage != nil {
		e.Usage = *h.Usage
	}
	switch {
	case e.Kind < Create || e.Kind > Void:
		return nil, fmt.Errorf("kind %d is not an entry's", e.Kind)
	case e.Slot != slot:
		return nil, fmt.Errorf("it says that it is slot %d, its key says %d", e.Slot, slot)
	case e.PayloadSize < 0 || int64(n)+e.PayloadSize != obj.Size || whole && int64(len(obj.Body)) != obj.Size:
		return nil, fmt.Errorf("%d bytes, of %d that its header announces", max(obj.Size, int64(len(obj.Body))), int64(n)+e.PayloadSize)
	case e.Generation > e.Slot || e.begins() && e.Generation != e.Slot:
		return nil, fmt.Errorf("generation %d in slot %d", e.Generation, e.Slot)
	case e.Source != nil && (e.Kind != Create || e.PayloadSize > 0 || e.Source.Name == "" || e.Source.Slot == 0):
		return nil, fmt.Errorf("a source of %q, slot %d, in kind %d with %d bytes of pages", e.Source.Name, e.Source.Slot, e.Kind, e.PayloadSize)
	}
	if whole && e.PayloadSize > 0 {
		e.Payload = obj.Body[n:]
	}
	return e, nil
}

// begins tells whether the entry begins a generation. These are the slots that are never collected (R5).
func (e *Entry) begins() bool {
	switch e.Kind {
	case Create, Claim, Rewind, Delete, Void:
		return true
	}
	return false
}

// follow drafts the entry behind prev (nil: slot 1) with everything that is copied from the entry before.
func (l *Log) follow(prev *Entry, kind Kind) (*Entry, error) {
	nonce, err := l.random()
	if err != nil {
		return nil, err
	}
	e := &Entry{Kind: kind, Nonce: nonce, Slot: 1, Owner: l.o.Owner, Time: l.o.Now()}
	if prev != nil {
		e.Slot, e.Prev = prev.Slot+1, prev.Sum
	}
	switch {
	case kind == Create || kind == Void:
		e.Horizon = e.Slot
		e.Tail = []uint64{}
	default:
		e.ID, e.Base, e.Horizon, e.State, e.Frozen, e.Generation = prev.ID, prev.Base, prev.Horizon, prev.State, prev.Frozen, prev.Generation
		e.Tail = tailBehind(prev)
	}
	switch {
	case kind == Create:
		e.Usage.Begin = e.Slot
	case kind != Void:
		e.Usage = prev.Usage
		e.Usage.ByteSeconds += float64(prev.Usage.Stored) * max(0, e.Time.Sub(prev.Time).Seconds())
	}
	if e.begins() {
		e.Generation = e.Slot
	}
	return e, nil
}

// tailBehind is the Tail of an entry whose state begins with e's: the slots that carry pages, e's included. Nil: too many, or not known.
func tailBehind(e *Entry) []uint64 {
	switch {
	case e.Whole && e.PayloadSize == 0: // no page at all
		return []uint64{}
	case e.Whole, e.Source != nil: // a fork's Tail is of its source's log, and reached through the create
		return []uint64{e.Slot}
	case e.Tail == nil:
		return nil
	case e.PayloadSize == 0:
		return slices.Clone(e.Tail)
	case len(e.Tail) >= maxTail:
		return nil
	}
	return append(slices.Clone(e.Tail), e.Slot)
}
