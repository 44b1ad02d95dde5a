package gc

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// header is what is kept of an entry's.
type header struct {
	kind    fence.Kind
	id      fence.ID
	gen     uint64
	to      uint64
	base    string
	source  *fence.Source
	size    int64
	etag    string
	label   bool
	whole   bool
	payload bool
}

// begins: R5's kinds.
func (h *header) begins() bool {
	switch h.kind {
	case fence.Create, fence.Claim, fence.Rewind, fence.Delete, fence.Void:
		return true
	}
	return false
}

// points finds out what points of one log stand on.
type points struct {
	*run
	slots map[uint64]remote.Info // log slots by LIST
	bases map[string]bool        // base keys by LIST

	headers map[uint64]*header
	walked  map[uint64]uint64 // slot: how far down its path has been followed
	floors  map[string]floor  // bases in force that were looked at
	refs    map[uint64]bool   // generations whose entries' maps are read for the segments that they name
	read    map[uint64]bool   // slots whose maps were
	lows    []uint64          // lowest slot of each generation that window saw

	needSlot map[uint64]bool
	needKey  map[string]bool
	born     uint64 // of the incarnation whose own objects are told from foreign ones; 0: nobody asks
	foreign  bool   // something was stood on that is not of that incarnation
}

// floor is a base's slot, and whose incarnation's.
type floor struct {
	slot uint64
	id   string
}

func (c *run) newPoints() *points {
	return &points{
		run: c, slots: map[uint64]remote.Info{}, bases: map[string]bool{}, headers: map[uint64]*header{}, walked: map[uint64]uint64{}, floors: map[string]floor{},
		refs: map[uint64]bool{}, read: map[uint64]bool{}, needSlot: map[uint64]bool{}, needKey: map[string]bool{},
	}
}

// listSlots lists the log's slots up to the head. It must come after the head was read.
func (p *points) listSlots(head uint64) error {
	return p.list("db/"+p.name+"/log/", func(i remote.Info) {
		if slot, ok := fence.ParseSlotKey(i.Key); ok && slot <= head {
			p.slots[slot] = i
		}
	})
}

func (p *points) keep(slot uint64, e *fence.Entry) *header {
	h := &header{
		kind: e.Kind, id: e.ID, gen: e.Generation, to: e.To, base: e.Base, source: e.Source, size: e.Size, etag: e.ETag,
		label: e.Label != "", whole: e.Whole, payload: e.PayloadSize > 0,
	}
	p.headers[slot] = h
	return h
}

// header reads a slot's. errAbsent, errMoved.
func (p *points) header(slot uint64) (*header, error) {
	if h := p.headers[slot]; h != nil {
		return h, nil
	}
	e, err := p.log.ReadHeader(p.ctx, slot)
	if errors.Is(err, remote.ErrNotFound) {
		if _, listed := p.slots[slot]; listed {
			return nil, errMoved
		}
		return nil, errAbsent
	}
	if err != nil {
		return nil, err
	}
	return p.keep(slot, e), nil
}

// load reads many headers, several at once. Slots that are no longer there are left out.
func (p *points) load(slots []uint64) error {
	for some := range slices.Chunk(slots, 256) {
		entries := make([]*fence.Entry, len(some))
		err := p.each(len(some), func(ctx context.Context, i int) (err error) {
			if p.headers[some[i]] != nil {
				return nil
			}
			if entries[i], err = p.log.ReadHeader(ctx, some[i]); errors.Is(err, remote.ErrNotFound) {
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
		for i, e := range entries {
			if e != nil {
				p.keep(some[i], e)
			}
		}
	}
	return nil
}

// stand adds what a point stands on. errAbsent: there is no such point, or not any more.
func (p *points) stand(slot uint64) error {
	at, err := p.header(slot)
	if err != nil {
		return err
	}
	low, err := p.base(at)
	if err != nil {
		return err
	}
	var path []uint64
	for s := slot; s > low; {
		if done, ok := p.walked[s]; ok && done <= low {
			break
		}
		h, err := p.header(s)
		if err != nil {
			return err
		}
		if h.id != at.id {
			return fmt.Errorf("%w: slot %d is of another incarnation", errAbsent, s)
		}
		p.needSlot[s] = true
		path = append(path, s)
		if h.payload && p.refs[h.gen] {
			if err := p.named(s, h); err != nil {
				return err
			}
		}
		if h.whole {
			break
		}
		if h.kind == fence.Create {
			if err := p.source(h); err != nil {
				return err
			}
			break
		}
		if h.kind == fence.Rewind {
			s = h.to
		} else {
			s--
		}
	}
	for _, s := range path { // only now: a path that could not be followed to its end is followed again
		p.walked[s] = low
	}
	return nil
}

// source: a fork's create stands on its source. Our pin there keeps it; only where the source is an older incarnation of this very name is it in this log.
func (p *points) source(h *header) error {
	if h.source == nil {
		return nil
	}
	if p.born != 0 { // somebody asks about foreign objects: here they are
		p.foreign = p.foreign || h.source.Name != p.name || p.o.broken != ForeignByName
		return nil
	}
	if h.source.Name == p.name {
		return p.stand(h.source.Slot)
	}
	return nil
}

// base adds the base in force and its segments, and returns the slot that it covers: what is below is in it.
func (p *points) base(at *header) (uint64, error) {
	if at.base == "" {
		return 0, nil
	}
	f, ok := p.floors[at.base]
	if !ok {
		var err error
		if f, err = p.manifest(at.base); err != nil {
			return 0, err
		}
		p.floors[at.base] = f
	}
	if f.id != at.id.String() { // a fork's: its source's base, which lies below the create
		return 0, nil
	}
	return f.slot, nil
}

func (p *points) manifest(key string) (floor, error) {
	k, ok := parseObject(key)
	if !ok {
		return floor{}, fmt.Errorf("%w: the log of %q names the base %s", fence.ErrDamaged, p.name, key)
	}
	p.own(k)
	if k.name != p.name { // of a fork's source: pinned there
		return floor{}, nil
	}
	p.needKey[key] = true
	o, err := p.store.Get(p.ctx, key, remote.GetOptions{})
	if errors.Is(err, remote.ErrNotFound) {
		if p.bases[key] {
			return floor{}, errMoved
		}
		return floor{}, errAbsent
	}
	if err != nil {
		return floor{}, err
	}
	m, err := base.Decode(o.Body)
	if err != nil {
		return floor{}, fmt.Errorf("%s/%s: %w", p.store, key, err)
	}
	switch p.o.broken {
	case PacksIgnored:
		m.Packed = nil
	case UpperIgnored:
		m.UpperObject = nil
	}
	for s := range m.Named() {
		p.needKey[s] = true
		if k, ok := parseObject(s); ok {
			p.own(k)
		} else {
			return floor{}, fmt.Errorf("%w: %s/%s names the segment %s", base.ErrFormat, p.store, key, s)
		}
	}
	return floor{m.Slot, m.ID}, nil
}

// own notes an object that is not of the incarnation that began in slot born.
func (p *points) own(k objectKey) {
	if p.born != 0 && (k.name != p.name || k.generation < p.born && p.o.broken != ForeignByName) {
		p.foreign = true
	}
}

// tailGuess is how many bytes from the end of an entry are read at first, to find the segments that it names.
const tailGuess = 16 << 10

// named adds the segments that an entry's map names.
func (p *points) named(slot uint64, h *header) error {
	if p.read[slot] {
		return nil
	}
	key := fence.SlotKey(p.name, slot)
	for n := int64(tailGuess); ; {
		o, err := p.store.Get(p.ctx, key, remote.GetOptions{Offset: -n, IfMatch: h.etag})
		if errors.Is(err, remote.ErrNotFound) || errors.Is(err, remote.ErrChanged) {
			return errMoved
		}
		if err != nil {
			return err
		}
		ix, _, need, err := segment.DecodeIndexTail(o.Body, o.Size)
		if err != nil {
			return fmt.Errorf("%w: %s/%s: %w", fence.ErrDamaged, p.store, key, err)
		}
		if need > 0 {
			n = need
			continue
		}
		for _, r := range ix.Refs {
			p.needKey[r.Key] = true
		}
		p.read[slot] = true
		return nil
	}
}

// window adds what every point from one slot to another stands on. It reads few of them: within a generation the base in force changes only by a base
// entry, never back, and a point's path leads through the one below. So the lowest point under each base stands for the others. It returns the
// incarnations that it saw. tolerant: points that are gone are left out.
func (p *points) window(from, to uint64, tolerant bool) (ids map[fence.ID]bool, err error) {
	ids = map[fence.ID]bool{}
	passable := func(err error) bool { return tolerant && (errors.Is(err, errAbsent) || errors.Is(err, errMoved)) }
	stand := func(s uint64) error {
		if err := p.stand(s); !passable(err) {
			return err
		}
		return nil
	}
	for top := to; top >= from && top > 0; {
		h, err := p.header(top)
		if passable(err) {
			top--
			continue
		}
		if err != nil {
			return nil, err
		}
		low := max(h.gen, from)
		p.lows = append(p.lows, low)
		if h.kind != fence.Void {
			ids[h.id] = true
			if p.refs[h.gen] { // large entries may be among them
				for s := low; s <= top; s++ {
					if err := stand(s); err != nil {
						return nil, err
					}
				}
			} else if err := p.changes(low, top, stand); err != nil && !passable(err) {
				return nil, err
			}
		}
		top = low - 1
	}
	return ids, nil
}

// doubt picks the generations whose entries must be read for the segments that they name: there are candidates that no base needs. It tells whether there are any.
func (p *points) doubt(objects []remote.Info, released map[uint64]bool) bool {
	for _, i := range objects {
		if k, ok := parseObject(i.Key); ok && kindOf(i.Key) == "seg" && !p.needKey[i.Key] && !released[k.generation] {
			p.refs[k.generation] = true
		}
	}
	clear(p.walked)
	return len(p.refs) > 0
}

// releasedNames looks again, now for the segments that entries of these generations name, from every point but those of the generations themselves: their owner
// has vouched for these. Pins and labels are still to come.
func (p *points) releasedNames(generations map[uint64]bool) error {
	if len(generations) == 0 {
		return nil
	}
	clear(p.walked)
	for g := range generations {
		p.refs[g] = true
	}
	for _, low := range p.lows {
		if h := p.headers[low]; h == nil || generations[h.gen] {
			continue
		}
		if err := p.stand(low); err != nil && !errors.Is(err, errAbsent) {
			return err
		}
	}
	return nil
}

// changes calls stand for the lowest slot, and for each one in which the base in force is another than in the slot before.
func (p *points) changes(low, top uint64, stand func(uint64) error) error {
	if err := stand(low); err != nil {
		return err
	}
	var between func(low, top uint64) error
	between = func(low, top uint64) error {
		a, err := p.header(low)
		if err != nil {
			return err
		}
		b, err := p.header(top)
		if err != nil || a.base == b.base {
			return err
		}
		if top == low+1 {
			return stand(top)
		}
		mid := low + (top-low)/2
		if err := between(low, mid); err != nil {
			return err
		}
		return between(mid, top)
	}
	if low == top {
		return nil
	}
	return between(low, top)
}
