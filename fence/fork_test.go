package fence_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
)

// fork forks of into name, one request after the other.
func fork(t *testing.T, s *store, name string, of fence.Source) (*fence.Owner, error) {
	t.Helper()
	l := fence.New(s, name, instant("forker"))
	fence.Serial(l)
	return l.Create(t.Context(), fence.CreateOptions{Source: &of})
}

func forked(t *testing.T, s *store, name string, of fence.Source) *fence.Owner {
	t.Helper()
	o, err := fork(t, s, name, of)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// pins lists the keys of a name's pins.
func pins(s *store, name string) (keys []string) {
	for k := range s.m {
		if strings.HasPrefix(k, fence.PinPrefix(name)) {
			keys = append(keys, k)
		}
	}
	return keys
}

// R11: a fork is a pin and a create, whatever the source's size.
func TestForkNamesTheSourcesPages(t *testing.T) {
	s, _, o := created(t)
	must(t, o, commit())
	must(t, o, commit())
	must(t, o, fence.Draft{Kind: fence.Base, Base: "db/db1/base/2", BaseSlot: 2, Horizon: 1})
	point := must(t, o, commit())
	must(t, o, commit())
	s.forget()

	c := forked(t, s, "child", fence.Source{Name: "db1", ID: o.ID(), Slot: point.Slot})
	e := c.Entry()
	pin := fence.Pin{Source: *e.Source, Child: fence.Source{Name: "child", ID: c.ID(), Slot: 1}}
	s.asked(t, "LIST, PUT "+pin.Key()+", LIST, GET 6, GET 5, PUT 1")
	if *e.Source != (fence.Source{Name: "db1", ID: o.ID(), Slot: 5}) || e.Base != point.Base || e.State != point.State || !slices.Equal(e.Tail, []uint64{3, 5}) {
		t.Errorf("create %+v of point %+v", e, point)
	}
	if got, err := fence.DecodePin(pin.Key(), s.m[pin.Key()]); err != nil || got != pin {
		t.Errorf("pin %+v, %v, want %+v", got, err, pin)
	}

	// What stands on it names the create as a slot that carries pages, and the source's base until there is one of its own.
	first := must(t, c, commit())
	if !slices.Equal(first.Tail, []uint64{1}) || first.Base != point.Base {
		t.Errorf("the first commit has tail %v and base %s", first.Tail, first.Base)
	}
	back, err := fence.New(s, "child", instant("x")).Read(t.Context(), 1)
	if err != nil || *back.Source != *e.Source || !slices.Equal(back.Tail, e.Tail) || !back.Carries() {
		t.Errorf("read back %+v, %v", back, err)
	}
	// A fork of the fork, at the fork's own create, and at a commit.
	for slot, tail := range map[uint64][]uint64{1: {1}, 2: {1, 2}} {
		g := forked(t, s, "grandchild"+string(rune('0'+slot)), fence.Source{Name: "child", ID: c.ID(), Slot: slot}).Entry()
		if !slices.Equal(g.Tail, tail) || g.Base != point.Base || g.Source.Name != "child" {
			t.Errorf("fork of the fork at slot %d: %+v", slot, g)
		}
	}
	// A base of its own covers the create.
	b := must(t, c, fence.Draft{Kind: fence.Base, Base: "db/child/base/1", BaseSlot: 2, Horizon: 3})
	if len(b.Tail) != 0 || b.Tail == nil {
		t.Errorf("tail %v above the first base", b.Tail)
	}
}

func TestForkOfTheHead(t *testing.T) {
	s, _, o := created(t)
	must(t, o, commit())
	s.forget()
	c := forked(t, s, "child", fence.Source{Name: "db1"})
	s.asked(t, "LIST, LIST, GET 2, PUT "+pins(s, "db1")[0]+", LIST, PUT 1")
	if c.Entry().Source.Slot != 2 {
		t.Errorf("forked at slot %d", c.Entry().Source.Slot)
	}
	// The head moves in between: the point is the one of the first look.
	s.forget()
	c2 := fence.New(s, "child2", instant("x"))
	fence.Serial(c2)
	d, err := c2.Create(t.Context(), fence.CreateOptions{Source: &fence.Source{Name: "db1"}, Before: func(context.Context, fence.Creation) error {
		must(t, o, commit())
		return nil
	}})
	if err != nil || d.Entry().Source.Slot != 2 {
		t.Errorf("%+v, %v", d, err)
	}
}

// R11: what was not held when the source's head was read after the pin is gone, and the pin goes with it.
func TestForkOfAPointThatIsGone(t *testing.T) {
	for what, between := range map[string]func(t *testing.T, o *fence.Owner, l *fence.Log){
		"horizon": func(t *testing.T, o *fence.Owner, l *fence.Log) { must(t, o, base(o)) },
		"deleted": func(t *testing.T, o *fence.Owner, l *fence.Log) {
			if _, err := l.Delete(t.Context(), o.ID()); err != nil {
				t.Error(err)
			}
		},
		"created again": func(t *testing.T, o *fence.Owner, l *fence.Log) {
			if _, err := l.Delete(t.Context(), o.ID()); err != nil {
				t.Error(err)
			}
			if _, err := l.Create(t.Context(), fence.CreateOptions{}); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			s, l, o := created(t)
			must(t, o, commit())
			undone, c := 0, fence.New(s, "child", instant("x"))
			_, err := c.Create(t.Context(), fence.CreateOptions{
				Source: &fence.Source{Name: "db1"},
				Before: func(context.Context, fence.Creation) error { between(t, o, l); return nil },
				Undo:   func(context.Context, fence.Creation) { undone++ },
			})
			wantErr(t, err, fence.ErrPointGone)
			if p := pins(s, "db1"); len(p) != 0 || undone != 1 {
				t.Errorf("pins %v left, Undo ran %d times", p, undone)
			}
			if head, err := c.Head(t.Context()); head != nil || err != nil {
				t.Errorf("child has head %+v, %v", head, err)
			}
		})
	}
}

func TestForkOfWhatNeverWas(t *testing.T) {
	s, l, o := created(t)
	for _, of := range []fence.Source{{Name: "other"}, {Name: "db1", ID: fence.ID{1}}, {Name: "db1", ID: o.ID(), Slot: 7}} {
		_, err := fork(t, s, "child", of)
		if !errors.Is(err, fence.ErrPointGone) && !errors.Is(err, fence.ErrNoDatabase) {
			t.Errorf("%+v: %v", of, err)
		}
	}
	_, err := fork(t, s, "db1", fence.Source{Name: "db1"})
	wantErr(t, err, fence.ErrTaken)
	_, err = l.Create(t.Context(), fence.CreateOptions{Source: &fence.Source{Name: "db1"}, Whole: true})
	if err == nil {
		t.Error("a fork with pages of its own was accepted")
	}
	if p := pins(s, "db1"); len(p) != 0 {
		t.Errorf("pins left: %v", p)
	}
}

// A labelled point is kept whatever the horizon, while the incarnation lives: it can be forked and rewound to.
func TestLabelledPointBelowTheHorizon(t *testing.T) {
	s, l, o := created(t)
	d := commit()
	d.Label = "step-1"
	point := must(t, o, d)
	other := must(t, o, commit())
	must(t, o, base(o))
	if got := forked(t, s, "child", fence.Source{Name: "db1", ID: o.ID(), Slot: point.Slot}).Entry().Tail; !slices.Equal(got, []uint64{point.Slot}) {
		t.Errorf("tail %v", got)
	}
	_, err := fork(t, s, "child2", fence.Source{Name: "db1", ID: o.ID(), Slot: other.Slot})
	wantErr(t, err, fence.ErrPointGone)
	_, err = l.Rewind(t.Context(), fence.RewindOptions{To: other.Slot})
	wantErr(t, err, fence.ErrPointGone)
	r, err := l.Rewind(t.Context(), fence.RewindOptions{To: point.Slot})
	if err != nil || r.Entry().To != point.Slot || !slices.Equal(r.Entry().Tail, []uint64{point.Slot}) {
		t.Errorf("rewind: %v", err)
	}
}

// A pin is put until it is known to be there; a store that refuses it ends the fork.
func TestPinIsPutUntilItIsKnown(t *testing.T) {
	s, _, o := created(t)
	must(t, o, commit())
	boom := failure(remote.ErrUnknown, 503)
	s.script("PUT db/db1/pin", lost(boom), answerLost(boom))
	if _, err := fork(t, s, "child", fence.Source{Name: "db1"}); err != nil {
		t.Fatal(err)
	}
	if p := pins(s, "db1"); len(p) != 1 {
		t.Errorf("pins %v", p)
	}
	s.script("PUT db/db1/pin", lost(failure(remote.ErrDenied, 403)))
	_, err := fork(t, s, "child2", fence.Source{Name: "db1"})
	wantErr(t, err, remote.ErrDenied)
}

func TestPinKeys(t *testing.T) {
	p := fence.Pin{Source: fence.Source{Name: "a.b", ID: fence.ID{1}, Slot: 7}, Child: fence.Source{Name: "c", ID: fence.ID{2}, Slot: 0x1f}}
	want := "db/a.b/pin/c/000000000000001f.02000000000000000000000000000000.01000000000000000000000000000000"
	if p.Key() != want {
		t.Errorf("got %s, want %s", p.Key(), want)
	}
	q, ok := fence.ParsePinKey(want)
	if q.Source.Slot = p.Source.Slot; !ok || q != p {
		t.Errorf("parsed %+v", q)
	}
	for _, bad := range []string{"", "db/a/pin/c/1.2.3", want + "0", strings.Replace(want, "pin", "log", 1), strings.Replace(want, "1f.", "1F.", 1)} {
		if _, ok := fence.ParsePinKey(bad); ok {
			t.Errorf("%q taken for a pin's key", bad)
		}
	}
	if _, err := fence.DecodePin(want, []byte(`{"format":2}`)); !errors.Is(err, fence.ErrNewer) {
		t.Errorf("format 2: %v", err)
	}
}
