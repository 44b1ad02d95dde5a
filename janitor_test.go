package tonbo_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// unsettled makes a closed database of some MB with a tail of n entries, and returns its state.
func unsettled(t testing.TB, a *account, name string, n int) string {
	t.Helper()
	a.create(name)
	db := open(t, name, a.machine().Unsettled())
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
	exec(t, db, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<3000) INSERT INTO t(v) SELECT randomblob(900) FROM s")
	for i := range n {
		exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id%40=?", i%40)
		if _, err := db.Checkpoint(context.Background(), fmt.Sprint("step-", i)); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, db, "DELETE FROM t WHERE id>2500; VACUUM")
	state := rows(t, db, stateQuery)
	closeDB(t, db)
	return state
}

func kindsOf(t testing.TB, c *tonbo.Client, name string) (kinds []string) {
	t.Helper()
	for e, err := range c.History(context.Background(), name) {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func TestClosedDatabaseIsCompacted(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	c := client(t, a)
	state := unsettled(t, a, "run", 30)
	r, err := c.Compact(ctx, "run")
	if err != nil || !r.Compacted || r.Entries < 30 || r.Segments == 0 || r.Bytes < 1<<20 {
		t.Fatalf("%+v %v", r, err)
	}
	if got := fmt.Sprint(kindsOf(t, c, "run")[:3]); got != "[close base claim]" {
		t.Errorf("the log ends in %s", got)
	}
	if r, err := c.Compact(ctx, "run"); err != nil || r.Compacted {
		t.Errorf("again: %+v %v", r, err)
	}
	if v, err := c.Verify(ctx, "run"); err != nil || !v.OK() || v.Bases != 1 {
		t.Errorf("%+v %v", v, err)
	}
	db := open(t, "run", a.lazyMachine())
	if n := db.Status().Requests; n.Get+n.List+n.Put > 12 {
		t.Errorf("opened with %+v", n)
	}
	if got := rows(t, db, stateQuery); got != state {
		t.Errorf("got %s, want %s", got, state)
	}
	integrity(t, db)
	if _, err := c.Compact(ctx, "run"); !errors.Is(err, tonbo.ErrBusy) {
		t.Errorf("of an open database: %v", err)
	}
	exec(t, db, "INSERT INTO t(v) VALUES(1)")
	synced(t, db) // it was not disturbed
	closeDB(t, db)
	for i := range 30 { // what was labelled is found
		ro := readOnly(t, a, "run", tonbo.Label(fmt.Sprint("step-", i)))
		integrity(t, ro)
		closeDB(t, ro)
	}
	if _, err := c.Compact(ctx, "nope"); !errors.Is(err, tonbo.ErrNotFound) {
		t.Errorf("of none: %v", err)
	}
	// A fork of it is compacted over its source's segments.
	fork(t, c, "run", "child", nil)
	db = open(t, "child", a.machine().Unsettled())
	for i := range 6 {
		exec(t, db, "UPDATE t SET v=randomblob(10) WHERE id=?", i)
		synced(t, db)
	}
	state = rows(t, db, stateQuery)
	closeDB(t, db)
	if r, err := c.Compact(ctx, "child"); err != nil || !r.Compacted || r.Bytes > 300<<10 {
		t.Errorf("the fork: %+v %v", r, err)
	}
	db = open(t, "child", a.machine())
	if got := rows(t, db, stateQuery); got != state {
		t.Errorf("got %s, want %s", got, state)
	}
	integrity(t, db)
	closeDB(t, db)
}

func TestJanitorKeepsTheOwnersHistoryWindow(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	c := client(t, a) // its own window is a day
	a.create("run")
	sessions := func(history time.Duration) {
		t.Helper()
		for range 4 {
			o := a.machine().Unsettled()
			o.History = history
			db := open(t, "run", o)
			exec(t, db, "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v BLOB)")
			for range 40 {
				exec(t, db, "INSERT OR REPLACE INTO t VALUES(1, randomblob(100))")
				synced(t, db)
			}
			closeDB(t, db)
		}
	}
	sessions(30 * 24 * time.Hour)
	r, err := c.Compact(ctx, "run") // a base with the owner's window is there
	if err != nil || r.Horizon != 1 {
		t.Fatalf("%+v %v", r, err)
	}
	head := kindsOf(t, c, "run")
	sessions(30 * 24 * time.Hour)
	if r, err := c.CompactLater(ctx, "run", 10*24*time.Hour); err != nil || r.Horizon != 1 {
		t.Errorf("after ten days of a window of thirty: %+v %v", r, err)
	}
	sessions(30 * 24 * time.Hour)
	if len(kindsOf(t, c, "run")) <= len(head) {
		t.Error("history was lost")
	}
	if r, err := c.CompactLater(ctx, "run", 31*24*time.Hour); err != nil || !r.Compacted || r.Horizon < 300 {
		t.Errorf("after thirty-one days: %+v %v", r, err)
	}
	if got := kindsOf(t, c, "run"); len(got) > 4 {
		t.Errorf("left: %s", got)
	}
	// Nothing to do any more, ever.
	if r, err := c.CompactLater(ctx, "run", 100*24*time.Hour); err != nil || r.Compacted {
		t.Errorf("%+v %v", r, err)
	}
	db := open(t, "run", a.machine())
	integrity(t, db)
}

func TestOwnerThatOpensDuringTheJanitorsCompactionWins(t *testing.T) {
	ctx := context.Background()
	for _, at := range []string{"/seg/", "/base/", "/log/"} {
		t.Run(at, func(t *testing.T) {
			store := tonbotest.NewStore(mem.New("test"))
			a := newAccount(t)
			a.store = store
			state := unsettled(t, a, "run", 10)
			m := tonbotest.Match{Op: tonbotest.Create, Key: at}
			if at == "/log/" {
				m.Skip = 1 // the claim; then the base's entry
			}
			gate := store.Block(m)
			c := client(t, a)
			done := make(chan error, 1)
			go func() { _, err := c.Compact(ctx, "run"); done <- err }()
			if err := gate.Wait(ctx, 1); err != nil {
				t.Fatal(err)
			}
			var db *tonbo.DB
			if at == "/log/" { // the gate stops everybody's entries
				opened := make(chan *tonbo.DB, 1)
				go func() {
					db, err := tonbo.Open(ctx, "run", a.machine())
					if err != nil {
						t.Error(err)
					}
					opened <- db
				}()
				if err := gate.Wait(ctx, 2); err != nil {
					t.Fatal(err)
				}
				gate.Open()
				if db = <-opened; db == nil {
					t.FailNow()
				}
				defer db.Close()
				<-done // whoever came first, the owner is the owner
			} else {
				db = open(t, "run", a.machine())
				gate.Open()
				if err := <-done; !errors.Is(err, tonbo.ErrBusy) {
					t.Errorf("Compact: %v", err)
				}
			}
			exec(t, db, "INSERT INTO t(v) VALUES('on')")
			synced(t, db)
			if got := rows(t, db, "SELECT (count(*)-1)||':'||(max(id)-1)||':'||(sum(length(v))-2) FROM t"); got != state {
				t.Errorf("got %s, want %s", got, state)
			}
			integrity(t, db)
			closeDB(t, db)
			if v, err := client(t, a).Verify(ctx, "run"); err != nil || !v.OK() {
				t.Errorf("%+v %v", v, err)
			}
		})
	}
}

func TestFailedJanitorLeavesTheDatabaseClosed(t *testing.T) {
	ctx := context.Background()
	store := tonbotest.NewStore(mem.New("test"))
	a := newAccount(t)
	a.store = store
	unsettled(t, a, "run", 10)
	c := client(t, a)
	for _, m := range []tonbotest.Match{{Op: tonbotest.Create, Key: "/seg/"}, {Op: tonbotest.Create, Key: "/base/"}, {Op: tonbotest.Create, Key: "/log/", Skip: 1}} {
		store.Fail(m, 1, remote.ErrQuota)
		if _, err := c.Compact(ctx, "run"); !errors.Is(err, tonbo.ErrQuota) {
			t.Errorf("%v: %v", m, err)
		}
		if k := kindsOf(t, c, "run"); k[0] != "close" {
			t.Errorf("%v: the log ends in a %s", m, k[0])
		}
	}
	if err := c.Delete(ctx, "run"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Compact(ctx, "run"); !errors.Is(err, tonbo.ErrNotFound) {
		t.Errorf("deleted: %v", err)
	}
}

func TestFrozenDatabaseIsThawedAndCompactedButNotOpened(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	c := client(t, a)
	unsettled(t, a, "run", 10)
	db := open(t, "run", a.machine())
	exec(t, db, "INSERT INTO t(v) VALUES('unshipped')")
	if err := c.Thaw(ctx, "run"); err != nil { // it is not frozen: its owner goes on
		t.Fatal(err)
	}
	if err := db.Synced(ctx); err != nil {
		t.Fatal(err)
	}
	state := rows(t, db, stateQuery)
	exec(t, db, "INSERT INTO t(v) VALUES('lost')")
	for range 2 {
		if err := c.Freeze(ctx, "run"); err != nil {
			t.Fatal(err)
		}
	}
	var fenced *tonbo.FencedError
	if err := db.Synced(ctx); !errors.As(err, &fenced) || fenced.Lost == "" {
		t.Errorf("the owner: %v", err)
	}
	if err := db.Reopen(ctx); !errors.Is(err, tonbo.ErrFrozen) {
		t.Errorf("Reopen: %v", err)
	}
	db.Close()
	frozen := func(when string) {
		t.Helper()
		if _, err := tonbo.Open(ctx, "run", a.machine()); !errors.Is(err, tonbo.ErrFrozen) {
			t.Errorf("%s: Open: %v", when, err)
		}
		if _, err := c.Rewind(ctx, "run", tonbo.Label("step-3")); !errors.Is(err, tonbo.ErrFrozen) {
			t.Errorf("%s: Rewind: %v", when, err)
		}
		if d, err := c.Get(ctx, "run"); err != nil || !d.Frozen {
			t.Errorf("%s: %+v %v", when, d, err)
		}
		ro := readOnly(t, a, "run", nil)
		if got := rows(t, ro, stateQuery); got != state {
			t.Errorf("%s: got %s, want %s", when, got, state)
		}
		closeDB(t, ro)
	}
	frozen("frozen")
	if r, err := c.Compact(ctx, "run"); err != nil || !r.Compacted {
		t.Errorf("Compact: %+v %v", r, err)
	}
	frozen("compacted")
	fork(t, c, "run", "child", nil)
	closeDB(t, open(t, "child", a.machine()))
	for range 2 {
		if err := c.Thaw(ctx, "run"); err != nil {
			t.Fatal(err)
		}
	}
	db = open(t, "run", a.machine())
	if got := rows(t, db, stateQuery); got != state {
		t.Errorf("thawed: got %s, want %s", got, state)
	}
	closeDB(t, db)
	for _, err := range []error{c.Freeze(ctx, "nope"), c.Thaw(ctx, "nope")} {
		if !errors.Is(err, tonbo.ErrNotFound) {
			t.Errorf("of none: %v", err)
		}
	}
}
