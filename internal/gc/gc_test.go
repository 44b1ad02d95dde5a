package gc_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/internal/gc"
	"github.com/tonbo-go/tonbo/remote"
)

func (d *db) source() fence.Source {
	return fence.Source{Name: d.name, ID: d.ID(), Slot: d.Slot()}
}

// What was superseded goes once it has been so for the grace's time, and nothing before that.
func TestGarbageStaysForTheGrace(t *testing.T) {
	s := newStore()
	d := created(t, s, "a")
	d.large("")
	d.base()
	claimed(t, s, "a").delete() // an end, long ago or just now
	before := len(s.keys(t, "db/"))
	for _, o := range []gc.Options{{}, at(59 * time.Minute), {Grace: time.Nanosecond, DryRun: true, Now: func() time.Time { return time.Now().Add(-time.Hour) }}} {
		if r := collected(t, s, "a", o); r.Slots+r.Segments+r.Bases != 0 {
			t.Errorf("too early: %+v", r)
		}
	}
	o := at(61 * time.Minute)
	o.DryRun = true
	if r := collected(t, s, "a", o); r.Slots != 2 || r.Segments != 2 || r.Bases != 1 || len(r.Garbage) != 5 || len(s.keys(t, "db/")) != before {
		t.Errorf("dry run: %+v", r)
	}
	if r := collected(t, s, "a", at(61*time.Minute)); r.Slots != 2 || r.Segments != 2 || r.Bases != 1 || r.Bytes == 0 {
		t.Errorf("%+v", r)
	}
	// R5: create, claim and delete stay.
	if got := s.keys(t, "db/"); len(got) != 3 {
		t.Errorf("left: %v", got)
	}
	if r := collected(t, s, "a", at(time.Hour*9)); r.Slots+r.Segments+r.Bases != 0 {
		t.Errorf("again: %+v", r)
	}
}

// No option lets a log slot go before LogFloor; objects follow Grace alone.
func TestLogSlotsStayForTheFloor(t *testing.T) {
	s := newStore()
	d := created(t, s, "a")
	d.large("")
	d.delete()
	if r := collected(t, s, "a", gc.Options{Grace: -1}); r.Slots != 0 || r.Segments != 1 {
		t.Errorf("%+v", r)
	}
	o := at(gc.LogFloor - time.Minute)
	o.Grace = time.Second
	if r := collected(t, s, "a", o); r.Slots != 0 {
		t.Errorf("%+v", r)
	}
	o = at(gc.LogFloor + time.Minute)
	o.Grace = time.Second
	if r := collected(t, s, "a", o); r.Slots != 1 {
		t.Errorf("%+v", r)
	}
}

// A label holds its point however short the grace: also where the log's own grace is longer, so that the point's slot is looked at as none that may go.
func TestLabelledPointStaysWhateverTheGrace(t *testing.T) {
	s := newStore()
	d := created(t, s, "a")
	segment := d.large("step-1")
	d.commit("")
	d = claimed(t, s, "a")
	d.base() // the horizon has passed the point just now
	claimed(t, s, "a")
	for _, grace := range []time.Duration{-1, time.Nanosecond} {
		if r := collected(t, s, "a", gc.Options{Grace: grace}); r.Slots != 0 {
			t.Errorf("%+v", r)
		}
		if !slices.Contains(s.keys(t, "db/a"), segment) {
			t.Fatalf("grace %v: the labelled point's segment is gone", grace)
		}
	}
}

// Time passes while a collection runs: an entry that comes of age between two looks at the clock does not part a labelled point from the slots below it.
func TestClockIsReadOnceACollection(t *testing.T) {
	s := newStore()
	d := created(t, s, "a")
	d.base()
	below := d.commit("")
	point := d.commit("step-1")
	d.m.Slot = d.Slot()
	b, err := d.m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	key := fmt.Sprintf("db/a/base/%016x-%016x-%032x", d.Slot(), d.Generation(), 0)
	d.put(key, b)
	e := d.append(fence.Draft{Kind: fence.Base, Base: key, BaseSlot: d.Slot(), Horizon: point.Slot})
	d = claimed(t, s, "a")
	d.base() // the horizon has passed the point
	claimed(t, s, "a")
	page, _, err := s.List(t.Context(), fence.SlotKey("a", e.Slot), remote.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o := gc.ForTest(gc.Options{Grace: time.Hour}, "", 0)
	calls := time.Duration(0)
	o.Now = func() time.Time { calls++; return page[0].Time.Add(time.Hour - 2 + calls) } // it comes of age at the second look
	collected(t, s, "a", o)
	for _, slot := range []uint64{below.Slot, point.Slot} {
		if !slices.Contains(s.keys(t, "/log/"), fence.SlotKey("a", slot)) {
			t.Errorf("slot %d is gone", slot)
		}
	}
}

// R9: what an owner uploaded and has not published stays, however old. R10: what points, labels and pins stand on stays.
func TestWhatIsNeededStays(t *testing.T) {
	s := newStore()
	d := created(t, s, "a")
	labelled := d.large("step-1")
	d.commit("")
	pinned := d.large("")
	child := forked(t, s, "b", d.source())
	old := d.base()
	d.commit("")
	d = claimed(t, s, "a")
	d.base() // what the generation before published is garbage
	unpublished := d.segment()
	child.commit("")

	r := collected(t, s, "a", at(2*time.Hour))
	if r.Bases != 1 || r.Segments != 1 || r.Slots != 3 { // the first base and its segment; its entry, the commit behind it, and the claim stays
		t.Logf("left: %q", s.keys(t, "db/a"))
	}
	keys := s.keys(t, "db/a")
	for _, k := range []string{labelled, pinned, unpublished.Key, fence.SlotKey("a", 2), fence.SlotKey("a", 3), fence.SlotKey("a", 4), d.Base()} {
		if !slices.Contains(keys, k) {
			t.Errorf("%s is gone", k)
		}
	}
	if slices.Contains(keys, old) {
		t.Errorf("%s is left over", old)
	}
	// The child has a base of its own and lets go; the labelled point remains while the database lives.
	child.base()
	if n := let(t, s, "a", at(2*time.Hour)); n != 1 {
		t.Errorf("%d pins removed", n)
	}
	collected(t, s, "a", at(2*time.Hour))
	keys = s.keys(t, "db/a")
	if slices.Contains(keys, pinned) || !slices.Contains(keys, labelled) {
		t.Errorf("after the pin: %q", keys)
	}
	d.delete()
	collected(t, s, "a", at(2*time.Hour))
	if keys := s.keys(t, "db/a"); len(keys) != 3 {
		t.Errorf("after the end: %q", keys)
	}
}

// A long-lived owner collects what it has superseded itself; R9 keeps the rest of its generation.
func TestOwnerReleasesItsOwn(t *testing.T) {
	s := newStore()
	d := created(t, s, "a")
	large := d.large("")
	under := d.base()
	kept := d.large("step") // stands on the base under it
	first := d.base()
	second := d.base()
	if r := collected(t, s, "a", now()); r.Bases+r.Segments != 0 {
		t.Errorf("R9: %+v", r)
	}
	o := now()
	released := map[string]uint64{large: 3, under: 5, kept: 5, first: 6, d.m.Levels[0][0].Key: 99, second: 99}
	o.Released = func(key string) (uint64, bool) { slot, ok := released[key]; return slot, ok }
	if r := collected(t, s, "a", o); r.Bases != 1 || r.Segments != 1 {
		t.Errorf("%+v", r)
	}
	keys := s.keys(t, "db/a")
	if slices.Contains(keys, large) || slices.Contains(keys, first) || !slices.Contains(keys, under) || !slices.Contains(keys, kept) || !slices.Contains(keys, second) {
		t.Errorf("left: %q", keys)
	}
}

// A key that may not delete is told so, once for each kind of object, and nothing fails.
func TestRefusedDeletes(t *testing.T) {
	s := newStore()
	d := created(t, s, "a")
	for range 5 {
		d.large("")
	}
	d.delete()
	s.denied = "/"
	s.calls = map[string]int{}
	r := collected(t, s, "a", now())
	if r.Denied != 10 || !errors.Is(r.Refusal, remote.ErrDenied) || r.Slots+r.Segments != 0 || s.calls["DELETE"] != 2 {
		t.Errorf("%+v, %d DELETEs", r, s.calls["DELETE"])
	}
	s.denied = "/log/"
	if r := collected(t, s, "a", now()); r.Denied != 5 || r.Segments != 5 {
		t.Errorf("%+v", r)
	}
}

// Of the history that stays, a collector reads the ends of each generation, and what it takes to find where the base changes: nothing else.
func TestCollectorReadsLittleOfTheHistory(t *testing.T) {
	s := newStore()
	d := created(t, s, "a")
	for range 100 {
		d.large("") // garbage, once the next generation has a base
	}
	d = claimed(t, s, "a")
	d.base()
	for range 3 {
		for range 200 {
			d.commit("")
		}
		d.m.Slot = d.Slot()
		b, err := d.m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprintf("db/a/base/%016x-%016x-%032x", d.Slot(), d.Generation(), 0)
		d.put(key, b)
		d.append(fence.Draft{Kind: fence.Base, Base: key, BaseSlot: d.Slot(), Horizon: d.Horizon()})
	}
	claimed(t, s, "a")
	s.calls = map[string]int{}
	r := collected(t, s, "a", now())
	if r.Slots != 100 || r.Segments != 100 || r.Bases != 0 {
		t.Errorf("%+v", r)
	}
	below := 102 // each slot below the horizon is read, once
	if n := s.calls["GET"] - below; n > 50 {
		t.Errorf("%d GETs for a history of 604 entries and 4 bases", n)
	}
}

// The history of a fork of a fork outlives the middle, and goes when the last one lets go.
func TestDeletedMiddleKeepsItsSourceWhileItIsForked(t *testing.T) {
	s := newStore()
	a := created(t, s, "a")
	segment := a.large("")
	b := forked(t, s, "b", a.source())
	c := forked(t, s, "c", b.source())
	a.delete()
	b.delete()
	if n := let(t, s, "a", now()) + let(t, s, "b", now()); n != 0 {
		t.Errorf("%d pins removed too early", n)
	}
	collected(t, s, "a", now())
	collected(t, s, "b", now())
	if !slices.Contains(s.keys(t, "db/a"), segment) {
		t.Fatal("the grandchild's pages are gone")
	}
	c.base()
	if n := let(t, s, "b", at(2*time.Hour)); n != 1 {
		t.Errorf("%d pins on the middle removed", n)
	}
	if n := let(t, s, "a", at(2*time.Hour)); n != 1 {
		t.Errorf("%d pins on the source removed", n)
	}
	collected(t, s, "a", now())
	if slices.Contains(s.keys(t, "db/a"), segment) {
		t.Error("left over")
	}
}

// "Foreign" means not of this incarnation, whatever the name: a is forked to b, deleted, and forked back from b. All pages are under a's name. A collector of the first a has
// read its head and fallen asleep before its LIST of the pins.
func TestForeignIsByIncarnation(t *testing.T) {
	for _, broken := range []string{"", gc.ForeignByName} {
		s := newStore()
		a := created(t, s, "a")
		a.commit("")
		a.base()
		old := a.m.Levels
		b := forked(t, s, "b", a.source())
		a.delete()
		o := gc.ForTest(gc.Options{Grace: -1}, broken, 0)
		var back *db
		s.on = func(op, key string) {
			if op != "LIST" || key != fence.PinPrefix("a") {
				return
			}
			s.on = nil
			back = forked(t, s, "a", b.source())
			back.base(old...)
			b.delete()
			for range 3 {
				let(t, s, "b", o)
				let(t, s, "a", o)
			}
		}
		collected(t, s, "a", o)
		lost := !slices.Contains(s.keys(t, "db/a"), old[0][0].Key)
		if lost != (broken != "") {
			t.Errorf("broken %q: a segment of the live base lost: %v", broken, lost)
		}
	}
}

// A record, or a pin, of a creation that never was is ended: first the void, then the removal. One of a live database stays.
func TestHalfMadeCreationsAreEnded(t *testing.T) {
	s := newStore()
	a := created(t, s, "a")
	a.commit("")
	id := fence.ID{7}
	d := &db{t: t, s: s}
	d.put(catalog.RecordKey("b", 1, id), nil)
	d.put(catalog.RecordKey("a", 1, a.ID()), nil)
	if r, err := gc.Records(t.Context(), s, "b", gc.Options{}); err != nil || r.Records != 0 {
		t.Errorf("it may still be under way: %+v, %v", r, err)
	}
	for _, name := range []string{"a", "b"} {
		r, err := gc.Sweep(t.Context(), s, name, at(2*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if want := map[string]int{"a": 0, "b": 1}[name]; r.Records != want {
			t.Errorf("%s: %+v", name, r)
		}
	}
	head, err := fence.New(s, "b", fence.Options{}).Head(t.Context())
	if err != nil || head == nil || head.Kind != fence.Void {
		t.Errorf("head %+v, %v", head, err)
	}
	a.delete()
	if r, err := gc.Records(t.Context(), s, "a", at(2*time.Hour)); err != nil || r.Records != 1 {
		t.Errorf("ended: %+v, %v", r, err)
	}
}

func TestCollectOfNothing(t *testing.T) {
	s := newStore()
	if r := collected(t, s, "a", gc.Options{}); r.Head != 0 || r.Moved {
		t.Errorf("%+v", r)
	}
}
