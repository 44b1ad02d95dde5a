package sim

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/internal/segment"
)

// history is the truth about one name: its log as it would be if nothing were ever collected.
type history struct {
	slots []fact
	ownership
	born   uint64 // slot of the live incarnation's create
	nonces map[nonce]bool
	bornAt int // tick of the last create
	diedAt int // tick of the last end
}

// fact is one slot of it.
type fact struct {
	kind    fence.Kind
	id      fence.ID
	nonce   nonce
	sum     uint64
	horizon uint64
	label   bool
	pages   content
}

// ownership is who owns a name at a moment.
type ownership struct {
	generation uint64
	live       fence.ID // zero: no live incarnation
}

func (h *history) tail() uint64 { return uint64(len(h.slots)) }

func (h *history) at(slot uint64) *fact {
	if slot == 0 || slot > h.tail() {
		return nil
	}
	return &h.slots[slot-1]
}

// has tells whether an entry is in the history.
func (h *history) has(n nonce) bool { return h.nonces[n] }

// filled is told of every object that comes to be, and keeps the truth. What breaks a promise in the log itself shows here.
func (w *world) filled(key string, body []byte) {
	slot, ok := fence.ParseSlotKey(key)
	if !ok {
		return
	}
	name := strings.Split(key, "/")[1]
	h := w.truth[name]
	e, _, err := segment.DecodeHeader(body)
	if err != nil || e.Slot != slot {
		w.violated("not an entry", "%s: %v", key, err)
		return
	}
	kind := fence.Kind(e.Kind)
	if old := h.at(slot); old != nil {
		if old.nonce != e.Nonce {
			w.stats.Ghosts++
			w.tracef("", "a ghost: %v in slot %d", e.Kind, slot)
		}
		return
	}
	if slot != h.tail()+1 {
		w.violated("gap", "slot %d of %s behind %d", slot, name, h.tail())
		return
	}
	ended, prev := true, fact{}
	if p := h.at(slot - 1); p != nil {
		ended, prev = p.kind == fence.Delete || p.kind == fence.Void, *p
	}
	if e.Prev != prev.sum {
		w.violated("chain broken", "slot %d of %s does not follow from the slot before", slot, name)
	}
	begins := kind == fence.Create || kind == fence.Claim || kind == fence.Rewind || kind == fence.Delete || kind == fence.Void
	switch {
	case kind == fence.Create || kind == fence.Void:
		if !ended {
			w.violated("create or void in a live log", "%v in slot %d of %s", e.Kind, slot, name)
		}
	case ended:
		w.violated("entry after the end", "%v in slot %d of %s", e.Kind, slot, name)
	case e.ID != h.live:
		w.violated("incarnations mixed", "%v in slot %d of %s is of %x, live is %x", e.Kind, slot, name, e.ID, h.live)
	case !begins && e.Generation != h.generation:
		w.violated("stale entry in the log", "%v in slot %d of %s has generation %d, the owner's is %d", e.Kind, slot, name, e.Generation, h.generation)
	case e.Horizon < prev.horizon:
		w.violated("horizon fell", "%v in slot %d of %s: %d after %d", e.Kind, slot, name, e.Horizon, prev.horizon)
	}
	if begins && (e.Generation != slot || slot <= h.generation) {
		w.violated("generation reused", "slot %d of %s has generation %d after %d", slot, name, e.Generation, h.generation)
	}
	if w.gone[e.Nonce] {
		w.violated("refused, and stored", "%v in slot %d of %s", e.Kind, slot, name)
	}
	pages := prev.pages
	switch kind {
	case fence.Create:
		if w.never[e.ID] {
			w.violated("created after it was abandoned", "%x in slot %d of %s", e.ID, slot, name)
		}
		if _, ok := w.store.find(recordKey(name, slot, e.ID)); !ok {
			w.violated("live without an index record", "%x in slot %d of %s", e.ID, slot, name)
		}
		h.live, h.born, h.bornAt = e.ID, slot, w.tick
		w.stats.Incarnations++
		w.keyMade(e.ID)
		pages = content{}
		if src := e.Source; src != nil {
			w.stats.Forks++
			from := w.truth[src.Name].at(src.Slot)
			if from == nil || from.id != src.ID {
				w.violated("fork of what never was", "slot %d of %s: slot %d of %s", slot, name, src.Slot, src.Name)
				return
			}
			pages = from.pages
		}
	case fence.Rewind:
		pages = h.at(e.To).pages
	case fence.Delete:
		if !w.asked[e.ID] {
			w.violated("live database deleted", "%x in slot %d of %s", e.ID, slot, name)
		}
		h.live, h.diedAt = fence.ID{}, w.tick
	case fence.Void:
		w.stats.Voids++
	}
	if begins {
		h.generation = slot
	}
	if e.PayloadSize > 0 {
		pages = w.changes[e.PayloadSum].apply(pages)
	}
	h.slots = append(h.slots, fact{kind, e.ID, e.Nonce, e.Sum(), e.Horizon, e.Label != "", pages})
	if h.nonces == nil {
		h.nonces = map[nonce]bool{}
	}
	h.nonces[e.Nonce] = true
	w.tracef("", "[slot %d of %s: %v, generation %d, %v, horizon %d %s %v base %s]", slot, name, e.Kind, e.Generation, short(e.ID), e.Horizon, e.Label, pages, e.Base)
}

// check holds the store against the truth: the head is there, and so is whatever the horizon keeps.
func (w *world) check() {
	for _, n := range w.names {
		h := w.truth[n]
		if h.tail() == 0 {
			continue
		}
		from := h.tail()
		if h.live != (fence.ID{}) {
			from = min(from, h.at(from).horizon)
			if _, ok := w.store.find(recordKey(n, h.born, h.live)); !ok {
				w.violated("live without an index record", "%s, %v since slot %d", n, h.live, h.born)
			}
		}
		for s := h.tail(); s >= from; s-- {
			i, ok := w.store.find(fence.SlotKey(n, s))
			if !ok {
				w.violated("lost", "slot %d of %s, head %d, horizon %d", s, n, h.tail(), from)
				return
			}
			if e, _, err := segment.DecodeHeader(w.store[i].body); err != nil || e.Nonce != h.at(s).nonce {
				w.violated("lost", "slot %d of %s holds another entry than was written", s, n)
				return
			}
		}
	}
}

// checkRecords: at the end of a run there is one index record for each live incarnation, and no other.
func (w *world) checkRecords() {
	for _, o := range w.store {
		if !strings.HasPrefix(o.key, "names/") {
			continue
		}
		name, slot, id, ok := parseRecord(o.key)
		if h := w.truth[name]; !ok || h.live != id || h.born != slot {
			w.violated("index record left over", "%s", o.key)
		}
	}
}

// checkLeaks: at the end of a run nothing is there that nothing needs.
func (w *world) checkLeaks() {
	need := map[string]bool{}
	needOf := map[fence.ID]map[string]bool{}
	for _, n := range w.names {
		h := w.truth[n]
		if h.live == (fence.ID{}) {
			continue
		}
		own := map[string]bool{}
		for s := h.born; s <= h.tail(); s++ {
			if s >= h.at(h.tail()).horizon || h.at(s).label {
				_, _ = w.point(n, s, false, own)
			}
		}
		for k := range own {
			need[k] = true
		}
		needOf[h.live] = own
	}
	pinned := map[fence.ID]bool{} // incarnations with pins on them
	for _, o := range w.store {
		if _, ok := fence.ParsePinKey(o.key); ok {
			pin, err := fence.DecodePin(o.key, o.body)
			must(err)
			pinned[pin.Source.ID] = true
			own := needOf[pin.Source.ID]
			if own == nil {
				own = map[string]bool{}
			}
			_, _ = w.point(pin.Source.Name, pin.Source.Slot, false, own)
			for k := range own {
				need[k] = true
			}
		}
	}
	for _, o := range w.store {
		p := strings.Split(o.key, "/")
		if p[0] != "db" {
			continue
		}
		h := w.truth[p[1]]
		switch p[2] {
		case "pin":
			pin, _ := fence.ParsePinKey(o.key)
			if pinned[pin.Child.ID] {
				continue
			}
			foreign := false
			for k := range needOf[pin.Child.ID] {
				foreign = foreign || isForeign(k, pin.Child)
			}
			if !foreign {
				w.violated("pin left over", "%s", o.key)
			}
		case "log":
			slot, _ := fence.ParseSlotKey(o.key)
			switch kindOf(o) {
			case fence.Commit, fence.Base, fence.Close:
				if !need[o.key] && slot != h.tail() {
					w.violated("log slot left over", "slot %d of %s", slot, p[1])
				}
			}
		default:
			t := strings.Split(p[3], "-")
			generation, err := strconv.ParseUint(t[len(t)-2], 16, 64)
			must(err)
			if !need[o.key] && (generation < h.generation || h.live == (fence.ID{})) {
				w.violated("object left over", "%s, generation %d", o.key, h.generation)
			}
		}
	}
}

// isForeign: not of this incarnation: of another name, or of a generation below its create.
func isForeign(key string, child fence.Source) bool {
	p := strings.Split(key, "/")
	if p[1] != child.Name {
		return true
	}
	if p[2] == "log" {
		slot, _ := fence.ParseSlotKey(key)
		return slot < child.Slot
	}
	t := strings.Split(p[3], "-")
	generation, _ := strconv.ParseUint(t[len(t)-2], 16, 64)
	return generation < child.Slot
}

func recordKey(name string, slot uint64, id fence.ID) string {
	return catalog.RecordKey(name, slot, id)
}
func parseRecord(key string) (string, uint64, fence.ID, bool) { return catalog.ParseRecordKey(key) }

// short is how traces name an incarnation.
func short(id [16]byte) string { return fmt.Sprintf("%x", id[:3]) }

func itoa(n uint64) string { return strconv.FormatUint(n, 10) }

// describe is what traces say of an object. It costs nothing where there is no trace.
type describe object

func (d describe) String() string {
	h, _, err := segment.DecodeHeader(d.body)
	if err != nil {
		return d.key
	}
	return fmt.Sprintf("slot %d %v generation %d nonce %.3x", h.Slot, h.Kind, h.Generation, h.Nonce)
}

// sees notes who owned the name of this key just now, when a request of this actor was applied.
func (a *actor) sees(key string) {
	p := strings.SplitN(key, "/", 3)
	if h := a.w.truth[p[1]]; h != nil && p[0] == "db" {
		a.seen[p[1]] = h.ownership
	}
}

// own is an owner as the sim keeps it.
type own struct {
	*fence.Owner
	name string
	sent nonce // of the entry that is pending, or that was appended last

	pages  content           // the database as it is here
	draft  *content          // as it is once what is pending is stored
	next   *prepared         // a base that is uploaded and not published
	going  *prepared         // its entry is pending, or was appended last
	based  *prepared         // the base of this owner that is in force
	large  map[string]uint64 // segments that its entries name, and the slots
	naming []string          // objects that what is pending names first, or what was appended last
	whole  bool              // and whether it carries the whole database
	lapsed map[string]uint64 // its own objects that were published and superseded, and by which slot; or that will never be published
}

// is tells whether o is the owner.
func (h ownership) is(o *own) bool { return h.generation == o.Generation() && h.live == o.ID() }

// acked is asked whenever an owner is told that it owns the database: it did at some time after the call began, and when the last request of the call was
// applied; and everything that it has appended is in the log.
func (a *actor) acked(o *own, what string, atCall ownership) {
	w, h := a.w, a.w.truth[o.name]
	w.stats.Acks++
	if !atCall.is(o) {
		w.violated("stale owner told that it owns", "%s of generation %d of %s; when it was called the owner was %d, live %v", what, o.Generation(), o.name, atCall.generation, short(atCall.live))
	}
	if at := a.seen[o.name]; !at.is(o) {
		w.violated("stale owner told that it owns", "%s of generation %d of %s; at its last request the owner was %d, live %v", what, o.Generation(), o.name, at.generation, short(at.live))
	}
	a.inLog(o, o.Entry(), what)
	a.inLog(o, o.Last(), what)
	if o.sent != (nonce{}) && !h.has(o.sent) {
		w.violated("acknowledged, not in the log", "%s: %.3x of %s", what, o.sent, o.name)
	}
}

func (a *actor) inLog(o *own, e *fence.Entry, what string) {
	if f := a.w.truth[o.name].at(e.Slot); f == nil || f.nonce != e.Nonce {
		a.w.violated("acknowledged, not in the log", "%s: kind %d in slot %d of %s", what, e.Kind, e.Slot, o.name)
	}
}
