package fence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
)

// records are index records as the catalog keeps them: put before the create, taken back when it is certain that there is none.
type records map[string]bool

func (r records) options() fence.CreateOptions {
	return fence.CreateOptions{
		Before: func(_ context.Context, c fence.Creation) error {
			r[fmt.Sprintf("%d.%v", c.Slot, c.ID)] = true
			return nil
		},
		Undo: func(_ context.Context, c fence.Creation) { delete(r, fmt.Sprintf("%d.%v", c.Slot, c.ID)) },
	}
}

func (r records) want(t *testing.T, o *fence.Owner) {
	t.Helper()
	if len(r) != 1 || !r[fmt.Sprintf("%d.%v", o.Generation(), o.ID())] {
		t.Errorf("records %v, want that of %d.%v", r, o.Generation(), o.ID())
	}
}

func TestCreateOfATakenName(t *testing.T) {
	s, l, o := created(t)
	r := records{}
	_, err := l.Create(t.Context(), r.options())
	wantErr(t, err, fence.ErrTaken)
	s.asked(t, "LIST, GET 1")
	if _, err := l.Delete(t.Context(), o.ID()); err != nil {
		t.Fatal(err)
	}
	// Another create comes between.
	s.hook("PUT 3", func() {
		s.forget()
		if _, err := l.Create(t.Context(), fence.CreateOptions{}); err != nil {
			t.Error(err)
		}
	})
	_, err = l.Create(t.Context(), r.options())
	wantErr(t, err, fence.ErrTaken)
	if len(r) != 0 {
		t.Errorf("records left: %v", r)
	}
}

// R11: a janitor has ended this attempt. Another one, with another id and slot, succeeds.
func TestCreateStartsOverBehindAVoid(t *testing.T) {
	s := newStore()
	l := fence.New(s, "db1", instant("x"))
	r := records{}
	c := r.options()
	c.ID = fence.ID{1}
	s.hook("PUT 1", func() {
		s.forget()
		if made, err := l.Abandon(t.Context(), c.ID, 1); made || err != nil {
			t.Errorf("abandon: %v, %v", made, err)
		}
		s.asked(t, "GET 1, PUT 1, GET 1")
		s.forget()
	})
	o, err := l.Create(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	s.asked(t, "GET 1, LIST, GET 1, PUT 2")
	if o.Generation() != 2 || o.ID() == c.ID || o.Prev().Kind != fence.Void {
		t.Errorf("got %+v", o.Entry())
	}
	r.want(t, o)
}

func TestAbandonOfWhatWasMade(t *testing.T) {
	s, l, o := created(t)
	if made, err := l.Abandon(t.Context(), o.ID(), 1); !made || err != nil {
		t.Errorf("got %v, %v", made, err)
	}
	s.asked(t, "GET 1")
	if made, err := l.Abandon(t.Context(), fence.ID{1}, 1); made || err != nil {
		t.Errorf("another id: got %v, %v", made, err)
	}
	// A void never stands in a live log, nor behind a hole.
	for _, slot := range []uint64{2, 9} {
		if _, err := l.Abandon(t.Context(), fence.ID{1}, slot); err == nil {
			t.Errorf("slot %d: no error", slot)
		}
	}
	if len(s.m) != 1 {
		t.Errorf("%d objects", len(s.m))
	}
	// A create wins against a void that comes late.
	if _, err := l.Delete(t.Context(), o.ID()); err != nil {
		t.Fatal(err)
	}
	id := fence.ID{7}
	s.hook("PUT 3", func() {
		s.forget()
		if _, err := l.Create(t.Context(), fence.CreateOptions{ID: id}); err != nil {
			t.Error(err)
		}
	})
	if made, err := l.Abandon(t.Context(), id, 3); !made || err != nil {
		t.Errorf("got %v, %v", made, err)
	}
}

// A create whose outcome is not known: it may exist, so its record stays, and the error says what to do.
func TestUnknownCreateSaysRunItAgain(t *testing.T) {
	s := newStore()
	l := fence.New(s, "db1", instant("x"))
	r := records{}
	ctx, cancel := context.WithCancel(t.Context())
	s.on = func(_ context.Context, call string) fault {
		if call != "PUT 1" {
			return ok
		}
		cancel()
		return answerLost(failure(remote.ErrUnknown, 0))
	}
	_, err := l.Create(ctx, r.options())
	wantErr(t, err, remote.ErrUnknown, context.Canceled)
	if err == nil || !strings.Contains(err.Error(), "run it again: the database may exist") {
		t.Errorf("got %v", err)
	}
	if len(r) != 1 {
		t.Errorf("records %v", r)
	}
	s.forget()
	_, err = l.Create(t.Context(), fence.CreateOptions{})
	wantErr(t, err, fence.ErrTaken)
}

func TestLostCreateAnswerIsFoundStored(t *testing.T) {
	s := newStore()
	l := fence.New(s, "db1", instant("x"))
	s.script("PUT", answerLost(failure(remote.ErrUnknown, 0)))
	o, err := l.Create(t.Context(), fence.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.asked(t, "LIST, PUT 1, PUT 1, GET 1, GET 2")
	s.forget()
	must(t, o, commit())
}

// R4 for create.
func TestCreatedButPassedIsFenced(t *testing.T) {
	s := newStore()
	l := fence.New(s, "db1", instant("x"))
	s.on = func(_ context.Context, call string) fault {
		if call != "PUT 1" {
			return ok
		}
		s.hook("GET 1", func() {
			s.forget()
			claimed(t, l)
		})
		return answerLost(failure(remote.ErrExists, 412))
	}
	_, err := l.Create(t.Context(), fence.CreateOptions{})
	var fenced *fence.FencedError
	if !errors.As(err, &fenced) || !fenced.Stored || fenced.By.Generation != 2 {
		t.Errorf("got %v", err)
	}
}

func TestRefusedCreateLeavesNothing(t *testing.T) {
	s := newStore()
	l := fence.New(s, "db1", instant("x"))
	r := records{}
	s.script("PUT", lost(failure(remote.ErrQuota, 402)))
	_, err := l.Create(t.Context(), r.options())
	wantErr(t, err, remote.ErrQuota)
	if len(r) != 0 || len(s.m) != 0 {
		t.Errorf("left: %v, %d objects", r, len(s.m))
	}
	broken := errors.New("broken")
	c := r.options()
	c.Before = func(context.Context, fence.Creation) error { return broken }
	_, err = l.Create(t.Context(), c)
	wantErr(t, err, broken)
	if len(s.m) != 0 {
		t.Error("created without a record")
	}
}

// Generations rise and are never reused, whatever becomes of the incarnations.
func TestGenerationsRise(t *testing.T) {
	s := newStore()
	l := fence.New(s, "db1", instant("x"))
	last := uint64(0)
	next := func(o *fence.Owner, err error) *fence.Owner {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if o.Generation() <= last {
			t.Errorf("generation %d after %d", o.Generation(), last)
		}
		last = o.Generation()
		return o
	}
	for range 3 {
		o := next(l.Create(t.Context(), fence.CreateOptions{}))
		must(t, o, commit())
		for range 3 {
			o = next(l.Claim(t.Context(), fence.ClaimOptions{}))
			must(t, o, fence.Draft{Kind: fence.Close})
		}
		next(l.Claim(t.Context(), fence.ClaimOptions{})) // and crashes
		if _, err := l.Delete(t.Context(), o.ID()); err != nil {
			t.Fatal(err)
		}
	}
}

// Callers that make the same attempt: one create comes of it, and nothing that it needs is taken back.
func TestSameAttemptIsMadeOnce(t *testing.T) {
	s, l, o := created(t)
	if _, err := l.Delete(t.Context(), o.ID()); err != nil {
		t.Fatal(err)
	}
	r := records{}
	same := r.options()
	same.ID, same.Slot = fence.ID{7}, 3
	s.hook("PUT 3", func() {
		s.forget()
		if _, err := fence.New(s, "db1", instant("twin")).Create(t.Context(), same); err != nil {
			t.Error(err)
		}
	})
	_, err := l.Create(t.Context(), same)
	var taken *fence.SlotTakenError
	if !errors.As(err, &taken) || !taken.Made(same.ID) {
		t.Fatalf("Create: %v", err)
	}
	wantErr(t, err, fence.ErrTaken)
	if len(r) != 1 {
		t.Errorf("records %v, the twin's create needs its own", r)
	}
	// Another attempt for that slot: it never can succeed, and what it left is taken back.
	other := r.options()
	other.ID, other.Slot = fence.ID{8}, 3
	_, err = l.Create(t.Context(), other)
	if !errors.As(err, &taken) || taken.Made(other.ID) {
		t.Errorf("Create: %v", err)
	}
	if len(r) != 1 {
		t.Errorf("records %v, want the twin's alone", r)
	}
	// A definite refusal takes nothing back: a twin may be on its way.
	if _, err := l.Delete(t.Context(), same.ID); err != nil {
		t.Fatal(err)
	}
	refused := r.options()
	refused.ID, refused.Slot = fence.ID{9}, 5
	s.on = func(_ context.Context, call string) fault {
		if call == "PUT 5" {
			return lost(failure(remote.ErrDenied, 403))
		}
		return ok
	}
	_, err = l.Create(t.Context(), refused)
	wantErr(t, err, remote.ErrDenied)
	if len(r) != 2 {
		t.Errorf("records %v, want the refused attempt's as well", r)
	}
}
