package tonbo_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tonbo-go/tonbo"
)

func TestFrozenDatabaseIsForkedAndReadAndNeverWritten(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	db, points := stepped(t, a, "draft", 5, nil)
	want := rows(t, db, stateQuery)
	closeDB(t, db)
	c := client(t, a)
	d, err := c.Fork(ctx, "draft", "golden", tonbo.ForkOptions{CreateOptions: tonbo.CreateOptions{Frozen: true}, At: tonbo.Label("step-4")})
	if err != nil {
		t.Fatal(err)
	}
	if !d.Frozen || d.Parent == nil || d.Parent.ID != points[4].ID || d.Parent.Slot != points[4].Slot {
		t.Errorf("got %+v, parent %+v, want frozen and %v", d, d.Parent, points[4])
	}
	for range 2 { // an attempt changes nothing
		m := a.machine()
		if _, err := tonbo.Open(ctx, "golden", m); !errors.Is(err, tonbo.ErrFrozen) {
			t.Errorf("Open: %v", err)
		}
		if _, err := c.Rewind(ctx, "golden", d.Head); !errors.Is(err, tonbo.ErrFrozen) {
			t.Errorf("Rewind: %v", err)
		}
	}
	if got, err := c.Get(ctx, "golden"); err != nil || !got.Frozen || got.Head.String() != d.Head.String() {
		t.Errorf("Get: %+v %v", got, err)
	}
	if got := rows(t, readOnly(t, a, "golden", nil), stateQuery); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	fork(t, c, "golden", "work", nil)
	work := open(t, "work", a.machine()) // not frozen
	exec(t, work, "INSERT INTO t(v) VALUES(1)")
	synced(t, work)
	if err := c.Delete(ctx, "golden"); err != nil {
		t.Errorf("Delete: %v", err)
	}
}

func TestFrozenEmptyDatabase(t *testing.T) {
	a := newAccount(t)
	d, err := client(t, a).Create(context.Background(), "golden", tonbo.CreateOptions{Frozen: true})
	if err != nil || !d.Frozen {
		t.Fatalf("%+v %v", d, err)
	}
	if _, err := tonbo.Open(context.Background(), "golden", a.machine()); !errors.Is(err, tonbo.ErrFrozen) {
		t.Errorf("Open: %v", err)
	}
}

func TestClientCountsItsOwnCalls(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	a.create("run")
	c := client(t, a)
	if got := c.Requests(); got != (tonbo.Requests{}) {
		t.Errorf("a new client has sent %+v", got)
	}
	if _, err := c.Fork(ctx, "run", "other", tonbo.ForkOptions{}); err != nil {
		t.Fatal(err)
	}
	fork := c.Requests()
	if fork.Put < 3 || fork.List < 2 || fork.BytesUp == 0 { // record, pin, create; the child's head, the source's
		t.Errorf("a fork costs %+v", fork)
	}
	db, err := c.Open(ctx, "other")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if got := c.Requests(); got != fork {
		t.Errorf("a handle's requests are its own: %+v, want %+v", got, fork)
	}
	for _, err := range c.History(ctx, "other") { // reads through a handle of the client's
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := c.Requests(); got.List <= fork.List {
		t.Errorf("History was not counted: %+v", got)
	}
}

func TestForksLabelsAreItsOwn(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	db, _ := stepped(t, a, "golden", 20, nil)
	if err := db.Compact(ctx, false); err != nil { // the base that the fork begins on lists the source's labels
		t.Fatal(err)
	}
	if b := db.Base(); b == nil || len(b.Labels) != 20 {
		t.Fatalf("the source's base: %+v", b)
	}
	closeDB(t, db)
	c := client(t, a)
	fork(t, c, "golden", "f", nil)
	f := open(t, "f", a.machine())
	want := map[int]string{}
	for i := range 30 { // its slots have the numbers of the source's, below the base's and beyond
		exec(t, f, "INSERT INTO t(v) VALUES(1)")
		if _, err := f.Checkpoint(ctx, fmt.Sprint("own-", i)); err != nil {
			t.Fatal(err)
		}
		want[i] = rows(t, f, stateQuery)
	}
	at := func(label string) (*tonbo.DB, error) {
		o := a.machine()
		o.At = tonbo.Label(label)
		return tonbo.OpenReadOnly(ctx, "f", o)
	}
	for range 2 { // on the source's base; on one of its own
		for i, w := range want {
			ro, err := at(fmt.Sprint("own-", i))
			if err != nil {
				t.Errorf("own-%d: %v", i, err)
				continue
			}
			if got := rows(t, ro, stateQuery); got != w {
				t.Errorf("own-%d: got %s, want %s", i, got, w)
			}
			closeDB(t, ro)
		}
		for _, label := range []string{"step-0", "step-7", "step-19"} {
			ro, err := at(label)
			if err == nil {
				t.Errorf("the source's label %q is the fork's %v", label, ro.Status().Point)
				closeDB(t, ro)
			} else if !errors.Is(err, tonbo.ErrPointGone) {
				t.Errorf("%q: %v", label, err)
			}
		}
		if err := f.Compact(ctx, false); err != nil {
			t.Fatal(err)
		}
	}
}
