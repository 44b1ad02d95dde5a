package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/gc"
	"github.com/tonbo-go/tonbo/internal/segment"
)

// Rules that owners break here: the packages leave them to their caller.
const (
	EntryBeforeSegments = "R8 entry before its uploads"
	BaseBeforeUploads   = "R8 base entry before its uploads"
	ReleasedTooEarly    = "R9 released while an entry names it"
	ReleasedUnknown     = "R9 released while its entry is unknown"
)

// OwnerRules names all of them.
var OwnerRules = []string{EntryBeforeSegments, BaseBeforeUploads, ReleasedTooEarly, ReleasedUnknown}

// prepared is a base.
type prepared struct {
	key    string
	body   []byte
	covers uint64
	m      *base.Manifest
	fresh  map[string][]byte // what must be uploaded before its entry
}

func newOwn(o *fence.Owner, name string) *own {
	return &own{Owner: o, name: name, large: map[string]uint64{}, lapsed: map[string]uint64{}}
}

// took moves on to the state after the entry that was stored.
func (o *own) took() {
	if o.draft != nil {
		o.pages, o.draft = *o.draft, nil
	}
	if b := o.going; b != nil && o.Base() == b.key {
		at := o.Slot()
		if o.based != nil {
			kept := map[string]bool{}
			for key := range b.m.Named() {
				kept[key] = true
			}
			o.lapse(o.based.key, at)
			for key := range o.based.m.Named() {
				if !kept[key] {
					o.lapse(key, at)
				}
			}
		}
		for key, slot := range o.large {
			if slot <= b.covers {
				o.lapse(key, at)
			}
		}
		o.based, o.going = b, nil
	}
	if o.whole { // nothing from here on stands on what is below
		for key, slot := range o.large {
			if slot < o.Slot() {
				o.lapse(key, o.Slot())
			}
		}
	}
	o.naming, o.whole = nil, false
}

// refused: what was pending is not in the log, and never will be.
func (o *own) refused() {
	for _, key := range o.naming {
		delete(o.large, key)
		o.lapse(key, o.Slot())
	}
	o.sent, o.draft, o.going, o.naming, o.whole = nonce{}, nil, nil, nil, false
}

func (o *own) lapse(key string, slot uint64) {
	if strings.Contains(key, fmt.Sprintf("%016x-", o.Generation())) {
		o.lapsed[key] = slot
	}
}

// open loads the pages as of the claim.
func (a *actor) open(o *own) *own {
	if o == nil {
		return nil
	}
	a.pause(none)
	st, err := a.w.point(o.name, o.Slot(), true, nil)
	if err != nil {
		if a.w.truth[o.name].is(o) {
			a.w.violated("dangling", "open of generation %d of %s: %v", o.Generation(), o.name, err)
		}
		return nil
	}
	o.pages = st.pages
	return o
}

// large commits a page that goes up as a segment first.
func (a *actor) large(o *own) bool {
	if o.Pending() {
		return a.synced(o, fence.Draft{})
	}
	w := a.w
	x := w.write(o)
	key, body, s := w.segment(o, x)
	upload := func() (err error) {
		a.call(func(ctx context.Context) { err = a.put(ctx, key, body) })
		return err
	}
	if w.c.Owners != EntryBeforeSegments && upload() != nil {
		o.lapse(key, o.Slot()) // nothing names it, nor ever will
		return true
	}
	payload, sum := w.pack(content{}, []segment.Ref{{Key: key, First: s.First, Last: s.Last, Pages: s.Pages, Size: s.Size}}, change{pages: x})
	o.large[key], o.naming = o.Slot()+1, []string{key}
	d := fence.Draft{Kind: fence.Commit, Payload: payload, PayloadSum: sum, State: &fence.State{PageSize: pageSize, PageCount: numPages, Checksum: uint64(w.version)}}
	more := a.synced(o, d)
	if w.c.Owners == EntryBeforeSegments {
		_ = upload()
	}
	return more
}

// build makes a base of the position and uploads it: of everything, or of what is not in the base in force, over that one's segments (of its source's, for a fork).
func (a *actor) build(o *own) {
	w := a.w
	if o.Pending() || o.next != nil || o.Err() != nil {
		return
	}
	st, err := w.point(o.name, o.Slot(), true, nil)
	if err != nil {
		if w.truth[o.name].is(o) {
			w.violated("dangling", "base of generation %d of %s: %v", o.Generation(), o.name, err)
		}
		return
	}
	b := &prepared{covers: o.Slot(), fresh: map[string][]byte{}}
	b.m = &base.Manifest{
		ID: o.ID().String(), Generation: o.Generation(), Slot: b.covers, PageSize: pageSize, PageCount: numPages, Checksum: base.SumString(1),
	}
	top, packed := st.pages, false
	if old := w.at(o.Base()); old != nil && w.chance(2) {
		m := w.parts(old).manifest
		top, b.m.Levels, b.m.Packed = st.above, m.Levels, m.Packed
		packed = m.ID == b.m.ID && m.Slot < b.covers && (m.Packed != nil || w.chance(2)) // a base that packs keeps packs
		if m.Packed != nil && (!packed || len(m.Packed.Packs) == base.MaxPacks) {
			top, packed, b.m.Levels, b.m.Packed = st.pages, false, nil, nil
		} else if packed && top != (content{}) {
			p := base.Packed{PageCount: numPages}
			p.Slot, _ = m.LevelsAt()
			key, body, s := w.segment(o, top) // what is in a pack is no matter here: who reads it, or collects, goes by its name
			b.fresh[key] = body
			p.Packs = append(slices.Clone(m.Packs()), base.Pack{Key: key, From: b.covers, Slot: b.covers, Entries: 1, Pages: s.Pages, Size: s.Size})
			b.m.Packed = &p
		}
	}
	if top != (content{}) && !packed {
		key, body, s := w.segment(o, top)
		b.fresh[key] = body
		b.m.Levels = append([][]base.Segment{{s}}, b.m.Levels...)
	}
	w.upper(o, b)
	b.key = fmt.Sprintf("db/%s/base/%016x-%016x-%x", o.name, b.covers, o.Generation(), w.nonce())
	b.body, err = b.m.Encode()
	must(err)
	if w.c.Owners != BaseBeforeUploads && !a.upload(b) {
		for _, key := range b.keys() {
			o.lapse(key, o.Slot())
		}
		return
	}
	o.next = b
}

// upper gives a base, in one world of four, an upper object: the one of the base in force (of its source's, for a fork), one of its own, or none. What is in it is no matter here.
func (w *world) upper(o *own, b *prepared) {
	if w.c.Seed%4 != 3 {
		return
	}
	if old := w.at(o.Base()); old != nil && len(b.m.Levels) > 0 && w.chance(2) {
		if m := w.parts(old).manifest; m.UpperObject != nil && (b.m.Packed != nil || len(m.Levels) > 0) {
			b.m.UpperObject = m.UpperObject
			return
		}
	}
	if w.chance(3) {
		key, body, s := w.segment(o, content{1})
		b.fresh[key] = body
		b.m.UpperObject = &base.UpperObject{Key: key, Pages: 1, Size: s.Size, Sum: base.SumString(1), Slot: b.covers}
	}
}

// keys of what a base is the first to name, and of itself.
func (b *prepared) keys() []string {
	keys := []string{b.key}
	for key := range b.fresh {
		keys = append(keys, key)
	}
	return keys
}

func (a *actor) upload(b *prepared) bool {
	var err error
	a.call(func(ctx context.Context) {
		for key := range b.m.Named() {
			if body := b.fresh[key]; body != nil && err == nil {
				err = a.put(ctx, key, body)
			}
		}
		if err == nil {
			err = a.put(ctx, b.key, b.body)
		}
	})
	return err == nil
}

// publish puts the base that is uploaded in force, and raises the horizon. false: the owner is no more.
func (a *actor) publish(o *own) bool {
	w := a.w
	if o.Pending() {
		return a.synced(o, fence.Draft{})
	}
	if w.c.Mix.Wide { // there uploads take no time
		a.build(o)
	}
	b := o.next
	if b == nil {
		return true
	}
	last := o.Last()
	d := fence.Draft{Kind: fence.Base, Base: b.key, BaseSlot: b.covers, Horizon: last.Slot + 1}
	if !w.calm && w.chance(2) {
		d.Horizon = last.Horizon + w.rnd.Uint64N(last.Slot+2-last.Horizon)
	}
	if w.c.Prepare != nil && !w.calm && w.chance(8) {
		d.Horizon = 1 + w.rnd.Uint64N(last.Slot) // fence refuses one that falls
	}
	o.naming = b.keys()
	more := a.synced(o, d)
	if w.c.Owners == BaseBeforeUploads {
		a.upload(b)
	}
	return more
}

// fork makes a database of some point of another.
func (a *actor) fork(source string, head *fence.Entry) {
	w := a.w
	of := fence.Source{Name: source, ID: head.ID, Slot: w.somePoint(source, head)}
	switch w.rnd.IntN(4) {
	case 0:
		of.Slot = 0
	case 1:
		of.ID, of.Slot = fence.ID{}, 0
	}
	name, free := w.free()
	if !free || w.chance(12) {
		name = a.anyName()
	}
	o := a.create(name, &of)
	for o != nil && (w.chance(2) || w.c.Mix.Home && w.chance(2)) && a.step(o) {
	}
}

// kept tells that a name which is not in use stays so for a fork: there is something to fork.
func (w *world) kept() bool {
	if !w.c.Mix.Forks || w.chance(8) {
		return false
	}
	for _, h := range w.truth {
		if h.live != (fence.ID{}) {
			return true
		}
	}
	return false
}

// forked tells whether there is a pin on an incarnation.
func (w *world) forked(name string, id fence.ID) bool {
	prefix := fence.PinPrefix(name)
	i, _ := w.store.find(prefix)
	for ; i < len(w.store) && strings.HasPrefix(w.store[i].key, prefix); i++ {
		if pin, ok := fence.ParsePinKey(w.store[i].key); ok && pin.Source.ID == id {
			return true
		}
	}
	return false
}

// free picks a name that is not in use.
func (w *world) free() (string, bool) {
	i := w.rnd.IntN(len(w.names))
	for j := range w.names {
		if n := w.names[(i+j)%len(w.names)]; w.truth[n].live == (fence.ID{}) {
			return n, true
		}
	}
	return "", false
}

// somePoint picks a point: often the head, sometimes one that is below the horizon by now, or labelled.
func (w *world) somePoint(name string, head *fence.Entry) uint64 {
	h := w.truth[name]
	switch w.rnd.IntN(6) {
	case 0, 1:
		return head.Slot
	case 2:
		for s := min(head.Slot, h.tail()); s > 0 && h.at(s).id == head.ID; s-- {
			if h.at(s).label && w.chance(2) {
				return s
			}
		}
	case 3:
		return head.Slot - w.rnd.Uint64N(min(head.Slot, 4))
	}
	return head.Horizon + w.rnd.Uint64N(head.Slot-head.Horizon+1)
}

func (a *actor) options() gc.Options {
	return gc.ForTest(gc.Options{
		Grace: a.w.grace, Now: a.w.now, Parallel: 1, Log: a.log,
	}, a.w.c.GC, a.w.floor)
}

func (a *actor) report(what, name string, r *gc.Report, err error) {
	w := a.w
	w.tracef(a.name, "%s %s: %+v, %v", what, name, *r, err)
	w.stats.Collected += r.Slots
	w.stats.Objects += r.Segments + r.Bases
	w.stats.LetGo += r.Pins
}

// collect is gc.Collect, with an owner's word on its own objects.
func (a *actor) collect(name string, o *own) {
	opt := a.options()
	if o != nil {
		opt.Released = func(key string) (uint64, bool) {
			if a.w.c.Owners == ReleasedTooEarly {
				if _, named := o.large[key]; named {
					return 0, true
				}
			}
			if a.w.c.Owners == ReleasedUnknown && o.Pending() && slices.Contains(o.naming, key) {
				return 0, true
			}
			slot, ok := o.lapsed[key]
			return slot, ok
		}
	}
	a.call(func(ctx context.Context) {
		r, err := gc.Collect(ctx, client{a}, name, opt)
		a.report("collect", name, r, err)
	})
}

func (a *actor) collector() {
	for {
		a.pause(none)
		a.collect(a.anyName(), nil)
	}
}

func (a *actor) sweep(name string) {
	a.call(func(ctx context.Context) {
		r, err := gc.Sweep(ctx, client{a}, name, a.options())
		a.report("sweep", name, r, err)
	})
}

func (a *actor) letGoAll(name string) {
	a.call(func(ctx context.Context) {
		r, err := gc.Pins(ctx, client{a}, name, a.options())
		a.report("look at the pins on", name, r, err)
	})
}

// letGo is what a fork's owner does when it has a base of its own.
func (a *actor) letGo(o *own) {
	create := a.w.truth[o.name]
	src := a.w.sourceOf(o.name, create.born)
	if src == nil || create.live != o.ID() {
		return
	}
	a.call(func(ctx context.Context) {
		r, err := gc.LetGo(ctx, client{a}, fence.Pin{Source: *src, Child: fence.Source{Name: o.name, ID: o.ID(), Slot: create.born}}, a.options())
		a.report("let go for", o.name, r, err)
	})
}

func (w *world) sourceOf(name string, born uint64) *fence.Source {
	o := w.at(fence.SlotKey(name, born))
	if o == nil {
		return nil
	}
	s := w.parts(o).h.Source
	if s == nil {
		return nil
	}
	return &fence.Source{Name: s.Name, ID: s.ID, Slot: s.Slot}
}
