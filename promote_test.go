package tonbo_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/tonbotest"
)

func diff(t testing.TB, a, b tonbo.Source) *tonbo.ChangeSet {
	t.Helper()
	cs, err := tonbo.Diff(context.Background(), a, b)
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

// stock is a database with a few rows, and a fork of it.
func stock(t testing.TB, a *account) (golden, scratch *tonbo.DB, c *tonbo.Client) {
	t.Helper()
	a.create("golden")
	golden = open(t, "golden", a.machine())
	exec(t, golden, "CREATE TABLE stock(id INTEGER PRIMARY KEY, name TEXT, n INTEGER)")
	exec(t, golden, "CREATE TABLE log(what)")
	exec(t, golden, "CREATE TRIGGER logged AFTER UPDATE ON stock BEGIN INSERT INTO log VALUES(old.name || ' ' || old.n || ' to ' || new.n); END")
	exec(t, golden, "INSERT INTO stock(name, n) VALUES('pears', 10), ('plums', 20), ('figs', 30)")
	synced(t, golden)
	c = client(t, a)
	fork(t, c, "golden", "scratch", nil)
	return golden, open(t, "scratch", a.machine()), c
}

const stockQuery = "SELECT name || '=' || n FROM stock ORDER BY id"

func TestPromoteBringsAForksWorkBackToItsSource(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	golden, scratch, c := stock(t, a)
	exec(t, scratch, "UPDATE stock SET n = 11 WHERE name = 'pears'")
	exec(t, scratch, "INSERT INTO stock(id, name, n) VALUES(9, 'limes', 5)")
	exec(t, scratch, "DELETE FROM stock WHERE name = 'figs'")
	// What was committed and not shipped is part of it, through the handle alone.
	cs := diff(t, tonbo.Ref{Client: c, Name: "golden"}, scratch)
	if !cs.To.Unshipped || cs.From.Unshipped || cs.From.Name != "golden" || cs.To.Name != "scratch" || cs.From.Slot == 0 {
		t.Errorf("from %+v to %+v", cs.From, cs.To)
	}
	if p, err := tonbo.ParsePoint(cs.From.Point); err != nil || p.Slot != cs.From.Slot {
		t.Errorf("point %q: %+v, %v", cs.From.Point, p, err)
	}
	if n, u, d := cs.Count(); n != 2 || u != 1 || d != 1 { // and the trigger's row
		t.Errorf("%d inserted, %d updated, %d deleted\n%s", n, u, d, cs)
	}
	if shipped := diff(t, tonbo.Ref{Client: c, Name: "golden"}, tonbo.Ref{Client: c, Name: "scratch"}); !shipped.Empty() {
		t.Errorf("nothing was shipped yet:\n%s", shipped)
	}
	// The source goes on, with another row.
	exec(t, golden, "UPDATE stock SET n = 21 WHERE name = 'plums'")
	asked := 0
	p, err := tonbo.Promote(ctx, golden, cs, tonbo.PromoteOptions{Approve: func(got *tonbo.ChangeSet) error {
		if asked++; got != cs {
			t.Error("asked about another change set")
		}
		return nil
	}})
	if err != nil || asked != 1 || p.Slot == 0 || golden.Status().PendingCommits != 0 {
		t.Fatalf("%v, asked %d times, %v", p, asked, err)
	}
	if got := rows(t, golden, stockQuery); got != "pears=11 plums=21 limes=5" {
		t.Errorf("got %s", got)
	}
	if got := rows(t, golden, "SELECT what FROM log ORDER BY rowid"); got != "plums 20 to 21 pears 10 to 11" { // the fork's trigger, not once more
		t.Errorf("log: %s", got)
	}
	// Once more: nothing is left to do, and it says so by the same point or a later one.
	again, err := tonbo.Promote(ctx, golden, cs, tonbo.PromoteOptions{})
	if err != nil || again.Slot < p.Slot || rows(t, golden, stockQuery) != "pears=11 plums=21 limes=5" || count(t, golden.DB, "log") != 2 {
		t.Errorf("again: %v, %v", again, err)
	}
	// Another machine has it, and the trigger fires as before.
	elsewhere := open(t, "golden", a.machine())
	if got := rows(t, elsewhere, stockQuery); got != "pears=11 plums=21 limes=5" {
		t.Errorf("elsewhere: %s", got)
	}
	exec(t, elsewhere, "UPDATE stock SET n = 0 WHERE name = 'limes'")
	if n := count(t, elsewhere.DB, "log"); n != 3 {
		t.Errorf("%d rows in log", n)
	}
	if _, err := tonbo.Promote(ctx, golden, cs, tonbo.PromoteOptions{}); !errors.Is(err, tonbo.ErrFenced) {
		t.Errorf("promotion of a fenced owner, which has nothing to do: %v", err)
	}
}

func TestPromoteFailsWhereTheTargetChangedTheSameRows(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	golden, scratch, c := stock(t, a)
	exec(t, scratch, "UPDATE stock SET n = n + 1")
	exec(t, scratch, "INSERT INTO stock(id, name, n) VALUES(9, 'limes', 5)")
	exec(t, scratch, "PRAGMA user_version = 7")
	cs := diff(t, tonbo.Ref{Client: c, Name: "golden"}, scratch)
	exec(t, golden, "UPDATE stock SET n = 100 WHERE name = 'pears'")
	exec(t, golden, "UPDATE stock SET n = 21 WHERE name = 'plums'") // as the fork did
	exec(t, golden, "INSERT INTO stock(id, name, n) VALUES(9, 'lemons', 5)")
	before, log := rows(t, golden, stockQuery), rows(t, golden, "SELECT what FROM log")
	pending := golden.Status().PendingCommits

	_, err := tonbo.Promote(ctx, golden, cs, tonbo.PromoteOptions{})
	var ce *tonbo.ConflictError
	if !errors.Is(err, tonbo.ErrConflict) || !errors.As(err, &ce) || len(ce.Rows) != 2 {
		t.Fatalf("got %v", err)
	}
	pears, limes := ce.Rows[0], ce.Rows[1]
	if pears.Table != "stock" || pears.Op != "update" || !slices.Equal(pears.Key, []any{int64(1)}) || pears.Expected[2] != int64(10) || pears.Found[2] != int64(100) || pears.Wanted[2] != int64(11) {
		t.Errorf("%+v", pears)
	}
	if limes.Op != "insert" || limes.Expected != nil || limes.Found[1] != "lemons" || limes.Wanted[1] != "limes" {
		t.Errorf("%+v", limes)
	}
	for _, want := range []string{"golden", "stock", "(1)", "pears", "100"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %s", err, want)
		}
	}
	if got := rows(t, golden, stockQuery); got != before || rows(t, golden, "SELECT what FROM log") != log || rows(t, golden, "PRAGMA user_version") != "0" || golden.Status().PendingCommits != pending {
		t.Errorf("something has changed: %s", got)
	}
	// The target's rows stay; or they go.
	fork(t, c, "golden", "second", nil)
	synced(t, golden)
	fork(t, c, "golden", "third", nil)
	third := open(t, "third", a.machine())
	if _, err := tonbo.Promote(ctx, third, cs, tonbo.PromoteOptions{OnConflict: tonbo.SkipOnConflict}); err != nil {
		t.Fatal(err)
	}
	if got := rows(t, third, stockQuery); got != "pears=100 plums=21 figs=31 lemons=5" {
		t.Errorf("skip: %s", got)
	}
	if _, err := tonbo.Promote(ctx, golden, cs, tonbo.PromoteOptions{OnConflict: tonbo.OverwriteOnConflict}); err != nil {
		t.Fatal(err)
	}
	if got := rows(t, golden, stockQuery); got != "pears=11 plums=21 figs=31 limes=5" {
		t.Errorf("overwrite: %s", got)
	}
}

func TestPromotionThatIsNotApprovedTouchesNothing(t *testing.T) {
	a := newAccount(t)
	golden, scratch, c := stock(t, a)
	exec(t, scratch, "DELETE FROM stock")
	cs := diff(t, tonbo.Ref{Client: c, Name: "golden"}, scratch)
	before, st := rows(t, golden, stockQuery), golden.Status()
	no := errors.New("three rows are too many")
	if _, err := tonbo.Promote(context.Background(), golden, cs, tonbo.PromoteOptions{Approve: func(*tonbo.ChangeSet) error { return no }}); err != no {
		t.Errorf("got %v", err)
	}
	func() {
		defer func() { recover() }()
		tonbo.Promote(context.Background(), golden, cs, tonbo.PromoteOptions{Approve: func(*tonbo.ChangeSet) error { panic("no") }})
	}()
	if now := golden.Status(); now.Requests != st.Requests || now.PendingCommits != 0 || rows(t, golden, stockQuery) != before {
		t.Errorf("was %+v, is %+v", st, now)
	}
	ro := readOnly(t, a, "golden", nil)
	if _, err := tonbo.Promote(context.Background(), ro, cs, tonbo.PromoteOptions{}); !errors.Is(err, tonbo.ErrReadOnly) {
		t.Errorf("a read-only target: %v", err)
	}
}

// TestPromotedIsWhatTheApproverSaw: a change set that came as JSON, and holds SQL that does something else than it says.
func TestPromotedIsWhatTheApproverSaw(t *testing.T) {
	a := newAccount(t)
	golden, scratch, c := stock(t, a)
	exec(t, scratch, "CREATE TABLE notes(x)")
	raw, err := json.Marshal(diff(t, tonbo.Ref{Client: c, Name: "golden"}, scratch))
	if err != nil {
		t.Fatal(err)
	}
	evil := strings.Replace(string(raw), `"statements":["CREATE TABLE notes(x)"]`, `"statements":["COMMIT; DROP TABLE stock; BEGIN; CREATE TABLE notes(x)"]`, 1)
	for _, test := range []struct {
		json    string
		refused bool
	}{{evil, true}, {string(raw), false}} {
		var cs tonbo.ChangeSet
		if err := json.Unmarshal([]byte(test.json), &cs); err != nil {
			t.Fatal(err)
		}
		before := rows(t, golden, "SELECT name FROM sqlite_schema")
		shown := ""
		_, err := tonbo.Promote(context.Background(), golden, &cs, tonbo.PromoteOptions{Approve: func(cs *tonbo.ChangeSet) error { shown = cs.String(); return nil }})
		if (err != nil) != test.refused || strings.Contains(shown, "DROP TABLE stock") != test.refused {
			t.Errorf("%v, shown\n%s", err, shown)
		}
		if after := rows(t, golden, "SELECT name FROM sqlite_schema"); (after == before) != test.refused || !strings.Contains(after, "stock") {
			t.Errorf("was %s, is %s", before, after)
		}
	}
}

func TestPromotionCommittedAndNotAcknowledgedIsPromotedAgain(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	store := tonbotest.NewStore(a.store)
	a.store = store
	golden, scratch, c := stock(t, a)
	exec(t, scratch, "INSERT INTO log VALUES('twice'), ('twice')")
	cs := diff(t, tonbo.Ref{Client: c, Name: "golden"}, scratch)
	gate := store.Block(tonbotest.Match{Op: tonbotest.Create})
	short, cancel := context.WithCancel(ctx)
	go func() {
		if err := gate.Wait(ctx, 1); err != nil {
			t.Error(err)
		}
		cancel() // while the entry is on its way
	}()
	_, err := tonbo.Promote(short, golden, cs, tonbo.PromoteOptions{})
	if !errors.Is(err, tonbo.ErrUnsynced) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "committed here") {
		t.Errorf("got %v", err)
	}
	gate.Open()
	if n := count(t, golden.DB, "log"); n != 2 {
		t.Errorf("%d rows", n)
	}
	if _, err := tonbo.Promote(ctx, golden, cs, tonbo.PromoteOptions{}); err != nil || count(t, golden.DB, "log") != 2 || golden.Status().PendingCommits != 0 {
		t.Errorf("again: %v, %d rows", err, count(t, golden.DB, "log"))
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := tonbo.Promote(done, golden, cs, tonbo.PromoteOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := tonbo.Diff(done, golden, scratch); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestDiffOfPoints(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	db, points := stepped(t, a, "run", 9, nil)
	c := client(t, a)
	exec(t, db, "INSERT INTO t(v) VALUES('not shipped')")
	source := map[string]tonbo.Source{
		"owner": db, "head": tonbo.Ref{Client: c, Name: "run"}, "label": tonbo.Ref{Client: c, Name: "run", At: tonbo.Label("step-3")},
		"point": tonbo.Ref{Client: c, Name: "run", At: points[3]}, "handle": readOnly(t, a, "run", points[3]),
	}
	for an, sa := range source {
		for bn, sb := range source {
			cs := diff(t, sa, sb)
			n, u, d := cs.Count()
			same := an == bn || an != "owner" && an != "head" && bn != "owner" && bn != "head"
			if same != cs.Empty() || n+u+d == 0 != same {
				t.Errorf("%s to %s: %d inserted, %d updated, %d deleted", an, bn, n, u, d)
			}
			if back := diff(t, sb, sa); !same {
				if n2, u2, d2 := back.Count(); n2 != d || u2 != u || d2 != n {
					t.Errorf("%s to %s: %d, %d, %d, and back %d, %d, %d", an, bn, n, u, d, n2, u2, d2)
				}
			}
		}
	}
	if n, _, _ := diff(t, source["label"], db).Count(); n < 5 {
		t.Errorf("%d rows inserted", n)
	}
	left, err := filepath.Glob(filepath.Join(a.o.Dir, "readonly-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	if err := db.Reopen(ctx); err != nil { // nothing holds it
		t.Fatal(err)
	}
	closeDB(t, db)
	if _, err := tonbo.Diff(ctx, db, source["head"]); !errors.Is(err, tonbo.ErrClosed) {
		t.Errorf("a closed handle: %v", err)
	}
	if _, err := tonbo.Diff(ctx, source["head"], tonbo.Ref{Client: c, Name: "other"}); !errors.Is(err, tonbo.ErrNotFound) {
		t.Errorf("no such database: %v", err)
	}
	if _, err := tonbo.Diff(ctx, source["head"], tonbo.Ref{Name: "run"}); err == nil {
		t.Error("a Ref without a Client")
	}
	if _, err := tonbo.Diff(ctx, source["point"], source["head"], tonbo.DiffOptions{MaxRows: 2}); !errors.Is(err, tonbo.ErrTooLarge) {
		t.Errorf("two rows at most: %v", err)
	}
}

// changesFile is beside the machines' directories.
const changesFile = "changes.json"

// changes writes a change set for the database: what a fork of it has done.
func (w *world) changes(string) {
	w.t.Helper()
	ctx := context.Background()
	c, err := tonbo.NewClient(w.options(w.dir()))
	if err != nil {
		w.t.Fatal(err)
	}
	db, _ := w.open(w.dir())
	exec1(w.t, db, "CREATE TABLE keyed(id INTEGER PRIMARY KEY, v); INSERT INTO keyed VALUES(1, 'one'), (2, 'two'); CREATE TABLE bag(x); INSERT INTO bag VALUES('a'), ('a')")
	synced(w.t, db)
	fork(w.t, c, worldName, "fork", nil)
	f, err := tonbo.Open(ctx, "fork", w.options(w.dir()))
	if err != nil {
		w.t.Fatal(err)
	}
	exec1(w.t, f, "UPDATE keyed SET v = 'other' WHERE id = 1; DELETE FROM keyed WHERE id = 2; INSERT INTO keyed VALUES(3, 'three'); INSERT INTO bag VALUES('a'), ('b'); CREATE TABLE more(x); INSERT INTO more VALUES(1), (1)")
	raw, err := json.Marshal(diff(w.t, db, f))
	if err != nil {
		w.t.Fatal(err)
	}
	closeDB(w.t, f)
	closeDB(w.t, db)
	if err := c.Delete(ctx, "fork"); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.base, changesFile), raw, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// TestPromotedOnceWhateverIsKilled kills a process at each step of a promotion; the next one, with its disk and without, promotes the same change set.
func TestPromotedOnceWhateverIsKilled(t *testing.T) {
	s := scenario{name: "promote", prepare: (*world).changes, job: job{Promote: changesFile, Close: true}}
	names, times := s.failpoints(t)
	if !slices.Contains(names, "promote:committed") {
		t.Errorf("failpoints: %v", names)
	}
	for i, name := range names {
		at := fmt.Sprintf("%s#%d", name, 1+i%times[name])
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			dir := w.dir()
			s.play(w, dir, at)
			if i%2 == 1 {
				dir = w.dir() // the disk is lost
			}
			j := s.job
			j.Dir = dir
			if events := w.start(j, "").wait(); len(said(events, "promoted")) != 1 {
				t.Fatalf("not promoted: %v", events)
			}
			db, _ := w.open(w.dir())
			for q, want := range map[string]string{"SELECT id || v FROM keyed ORDER BY id": "1other 3three", "SELECT x FROM bag ORDER BY x": "a a a b", "SELECT x FROM more": "1 1"} {
				if got := rows(t, db, q); got != want {
					t.Errorf("%s: got %s, want %s", q, got, want)
				}
			}
			closeDB(t, db)
		})
	}
}
