package sim

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/segment"
)

// history is the truth about one name: its log as it would be if nothing were ever collected.
type history struct {
	slots []fact
	ownership
	born   uint64 // slot of the live incarnation's create
	bornAt int    // tick of the last create
	diedAt int    // tick of the last end
}

// fact is one slot of it.
type fact struct {
	kind    fence.Kind
	id      fence.ID
	nonce   [16]byte
	sum     uint64
	horizon uint64
	label   string
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

// labelled tells whether the commit with this label is in the history.
func (h *history) labelled(label string) bool {
	for i := len(h.slots) - 1; i >= 0; i-- {
		if h.slots[i].label == label {
			return true
		}
	}
	return false
}

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
	if w.gone[e.Label] {
		w.violated("refused, and stored", "%s in slot %d of %s", e.Label, slot, name)
	}
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
	h.slots = append(h.slots, fact{kind, e.ID, e.Nonce, e.Sum(), e.Horizon, e.Label})
	w.tracef("", "[slot %d of %s: %v, generation %d, %v, horizon %d %s]", slot, name, e.Kind, e.Generation, short(e.ID), e.Horizon, e.Label)
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

func recordKey(name string, slot uint64, id fence.ID) string {
	return "names/" + name + "/" + itoa(slot) + "." + id.String()
}

func parseRecord(key string) (name string, slot uint64, id fence.ID, ok bool) {
	p := strings.Split(key, "/")
	if len(p) != 3 {
		return
	}
	s, x, _ := strings.Cut(p[2], ".")
	slot, err := strconv.ParseUint(s, 10, 64)
	var raw []byte
	n, err2 := fmt.Sscanf(x, "%x", &raw)
	copy(id[:], raw)
	return p[1], slot, id, err == nil && err2 == nil && n == 1 && len(raw) == 16
}

// short is how traces name an incarnation.
func short(id [16]byte) string { return fmt.Sprintf("%x", id[:3]) }

func itoa(n uint64) string { return strconv.FormatUint(n, 10) }

func describe(o object) string {
	h, _, err := segment.DecodeHeader(o.body)
	if err != nil {
		return o.key
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
	name  string
	label string // of the commit that is pending, or that was appended last
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
	if o.label != "" && !h.labelled(o.label) {
		w.violated("acknowledged, not in the log", "%s: %s of %s", what, o.label, o.name)
	}
}

func (a *actor) inLog(o *own, e *fence.Entry, what string) {
	if f := a.w.truth[o.name].at(e.Slot); f == nil || f.nonce != e.Nonce {
		a.w.violated("acknowledged, not in the log", "%s: kind %d in slot %d of %s", what, e.Kind, e.Slot, o.name)
	}
}
