package tonbo_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// golden makes a database with rows 1 to 100 and freezes it.
func golden(t *testing.T, a *account) *tonbo.Client {
	t.Helper()
	a.create("golden")
	db := open(t, "golden", a.machine())
	exec(t, db, "CREATE TABLE t(x INTEGER PRIMARY KEY)")
	exec(t, db, "INSERT INTO t SELECT value FROM generate_series(1, 100)")
	closeDB(t, db)
	c := a.client()
	if err := c.Freeze(context.Background(), "golden"); err != nil {
		t.Fatal(err)
	}
	return c
}

// alone checks that nothing but these databases is in the account.
func alone(t *testing.T, c *tonbo.Client, want ...string) {
	t.Helper()
	var got []string
	for d, err := range c.List(context.Background(), tonbo.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, d.Name)
	}
	slices.Sort(got)
	slices.Sort(want)
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("databases %v, want %v", got, want)
	}
}

func goldenRows(t *testing.T, a *account) {
	t.Helper()
	db, err := tonbo.OpenReadOnly(context.Background(), "golden", a.machine())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if n := count(t, db.DB, "t"); n != 100 {
		t.Errorf("the golden database has %d rows", n)
	}
}

func TestScratchLeavesNothingWhateverBecomesOfIt(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	c := golden(t, a)
	mine := errors.New("the model gave up")
	work := func(then func(context.Context, *tonbo.DB) error) func(context.Context, *tonbo.DB) error {
		return func(ctx context.Context, db *tonbo.DB) error {
			var fork *tonbo.Database
			for d, err := range c.List(ctx, tonbo.Filter{Metadata: map[string]string{tonbo.MetadataKind: tonbo.ScratchKind, tonbo.MetadataTask: "task-7"}}) {
				if err != nil {
					t.Error(err)
				}
				fork = d
			}
			if fork == nil || fork.ExpiresAt.IsZero() || fork.Metadata[tonbo.MetadataGolden] != "golden" {
				t.Errorf("the scratch database is %+v", fork)
			}
			exec(t, db, "DELETE FROM t")
			if n := count(t, db.DB, "t"); n != 0 {
				t.Errorf("%d rows", n)
			}
			return then(ctx, db)
		}
	}
	for name, then := range map[string]func(context.Context, *tonbo.DB) error{
		"returns": func(context.Context, *tonbo.DB) error { return nil },
		"syncs":   func(ctx context.Context, db *tonbo.DB) error { return db.Synced(ctx) },
		"fails":   func(context.Context, *tonbo.DB) error { return mine },
		"closes":  func(ctx context.Context, db *tonbo.DB) error { return db.Close() },
		"panics":  func(context.Context, *tonbo.DB) error { panic("boom") },
	} {
		func() {
			defer func() {
				if r := recover(); (r != nil) != (name == "panics") {
					t.Errorf("%s: recovered %v", name, r)
				}
			}()
			if err := tonbo.Scratch(ctx, c, "golden", "task-7", work(then)); (name == "fails") != errors.Is(err, mine) || name != "fails" && err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}()
		alone(t, c, "golden")
	}
	cancelled, cancel := context.WithCancel(ctx)
	if err := tonbo.Scratch(cancelled, c, "golden", "task-7", func(ctx context.Context, db *tonbo.DB) error { cancel(); return ctx.Err() }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	alone(t, c, "golden")
	goldenRows(t, a)
	if err := tonbo.Scratch(ctx, c, "nobody", "task-7", work(func(context.Context, *tonbo.DB) error { return nil })); !errors.Is(err, tonbo.ErrNotFound) {
		t.Errorf("no golden database: %v", err)
	}
}

func TestScratchLeavesNoFiles(t *testing.T) {
	a := newAccount(t)
	golden(t, a)
	o := a.machine()
	c := newClient(t, o)
	if err := tonbo.Scratch(context.Background(), c, "golden", "files", func(ctx context.Context, db *tonbo.DB) error {
		exec(t, db, "DELETE FROM t")
		return db.Close()
	}); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(o.Dir, "golden*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left in the cache directory: %v (%v)", left, err)
	}
	if _, err := os.Stat(o.Dir); err != nil {
		t.Error(err)
	}
}

// TestLocalCopyOfADeadScratchIsRemoved: a copy of a Scratch's folder, made while it runs, is what a process leaves that is killed in it.
func TestLocalCopyOfADeadScratchIsRemoved(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	golden(t, a)
	here, left, opened := a.machine(), a.machine(), a.machine()
	var folder, name string
	err := tonbo.Scratch(ctx, newClient(t, here), "golden", "dies", func(ctx context.Context, db *tonbo.DB) error {
		exec(t, db, "DELETE FROM t")
		name = db.Status().Name
		found, err := filepath.Glob(filepath.Join(here.Dir, "golden.scratch*"))
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		folder = filepath.Base(found[0])
		for _, o := range []tonbo.Options{left, opened} {
			if err := os.CopyFS(filepath.Join(o.Dir, folder), os.DirFS(found[0])); err != nil {
				return err
			}
		}
		// Others in the same directory keep their hands off what is in use.
		r, err := newClient(t, here).Sweep(ctx, tonbo.Janitor{})
		if err != nil || r.Local != 0 || len(r.Failed) > 0 {
			t.Errorf("beside a Scratch: %d removed, %v, %v", r.Local, r.Failed, err)
		}
		if err := tonbo.Scratch(ctx, newClient(t, here), "golden", "beside", func(context.Context, *tonbo.DB) error { return nil }); err != nil {
			t.Error(err)
		}
		if n := count(t, db.DB, "t"); n != 0 {
			t.Errorf("%d rows", n)
		}
		// What is opened by its name is scratch no more, and what it holds that nobody else does stays.
		o := opened
		o.SyncTimeout = time.Nanosecond
		byName, err := tonbo.Open(ctx, name, o)
		if err != nil {
			return err
		}
		exec(t, byName, "CREATE TABLE mine(x)")
		if err := byName.Close(); !errors.Is(err, tonbo.ErrUnsynced) {
			t.Errorf("shipped after all: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	open1 := func(o tonbo.Options) { closeDB(t, open(t, "golden-copy", o)) }
	fork(t, newClient(t, left), "golden", "golden-copy", nil)
	open1(left) // an ordinary one beside it
	for _, dry := range []bool{true, false} {
		r, err := newClient(t, left).Sweep(ctx, tonbo.Janitor{DryRun: dry})
		if err != nil || r.Local != 1 || len(r.Failed) > 0 {
			t.Errorf("dry %v: %d removed, %v, %v", dry, r.Local, r.Failed, err)
		}
		if _, err := os.Stat(filepath.Join(left.Dir, folder)); (err == nil) != dry {
			t.Errorf("dry %v: %v", dry, err)
		}
	}
	if _, err := os.Stat(filepath.Join(left.Dir, "golden-copy", "db")); err != nil {
		t.Error("the ordinary one:", err)
	}
	r, err := newClient(t, opened).Sweep(ctx, tonbo.Janitor{})
	if err != nil || r.Local != 0 {
		t.Errorf("%d removed, %v", r.Local, err)
	}
	if _, err := os.Stat(filepath.Join(opened.Dir, folder, "db")); err != nil {
		t.Error("the one that was opened by its name:", err)
	}
}

func TestScratchThatCannotBeDeletedSaysWhenItExpires(t *testing.T) {
	a := newAccount(t)
	golden(t, a)
	store := tonbotest.NewStore(a.store)
	o := a.machine()
	o.Remote = store
	c := newClient(t, o)
	err := tonbo.Scratch(context.Background(), c, "golden", "stuck", func(ctx context.Context, db *tonbo.DB) error {
		store.Fail(tonbotest.Match{Op: tonbotest.Swap}, -1, errors.New("denied for the test"))
		store.Fail(tonbotest.Match{Op: tonbotest.Create, Key: "/log/"}, -1, errors.New("denied for the test"))
		return nil
	})
	store.Heal()
	if err == nil || !strings.Contains(err.Error(), "it expires at") {
		t.Errorf("got %v", err)
	}
}

func candidates(t *testing.T, n int) (all []tonbo.Candidate) {
	for i := range n {
		all = append(all, tonbo.Candidate{Name: fmt.Sprint("keep ", i), Run: func(ctx context.Context, db *tonbo.DB) error {
			_, err := db.Exec("DELETE FROM t WHERE x > ?", (i*7)%50)
			return err
		}})
	}
	return all
}

func scoreRows(ctx context.Context, db *tonbo.DB) (n float64, err error) {
	err = db.QueryRowContext(ctx, "SELECT count(*) FROM t").Scan(&n)
	return n, err
}

func TestExploreKeepsTheBestAndDeletesTheOthers(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	c := golden(t, a)
	all := candidates(t, 9) // candidate 7 keeps 49 rows
	mine := errors.New("dead end")
	all[2].Run = func(context.Context, *tonbo.DB) error { return mine }
	r, err := tonbo.Explore(ctx, c, "golden", all, tonbo.ExploreOptions{Score: scoreRows, Concurrency: 3, Metadata: map[string]string{"run": "9"}})
	if err != nil || r.Index != 7 || r.Winner == nil || r.Candidates[7].Score != 49 || !errors.Is(r.Candidates[2].Err, mine) || r.Candidates[3].Score != 21 {
		t.Fatalf("%+v, %v", r, err)
	}
	alone(t, c, "golden", r.Winner.Name)
	if !r.Winner.ExpiresAt.IsZero() || r.Winner.Metadata["run"] != "9" {
		t.Errorf("the winner: %+v", r.Winner)
	}
	db := open(t, r.Winner.Name, a.machine())
	if n := count(t, db.DB, "t"); n != 49 {
		t.Errorf("the winner has %d rows", n)
	}
	closeDB(t, db)
	goldenRows(t, a)
}

func TestExploreLeavesNothingWithoutAWinner(t *testing.T) {
	a := newAccount(t)
	c := golden(t, a)
	mine := errors.New("dead end")
	all := candidates(t, 4)
	for i := range all {
		all[i].Run = func(context.Context, *tonbo.DB) error { return mine }
	}
	if r, err := tonbo.Explore(context.Background(), c, "golden", all, tonbo.ExploreOptions{Score: scoreRows}); !errors.Is(err, mine) || r.Winner != nil || r.Index != -1 {
		t.Errorf("all fail: %+v, %v", r, err)
	}
	alone(t, c, "golden")

	all = candidates(t, 4)
	all[3].Run = func(context.Context, *tonbo.DB) error { panic("boom") }
	func() {
		defer func() {
			if r := recover(); r != "boom" {
				t.Errorf("recovered %v", r)
			}
		}()
		tonbo.Explore(context.Background(), c, "golden", all, tonbo.ExploreOptions{Score: scoreRows})
	}()
	alone(t, c, "golden")

	ctx, cancel := context.WithCancel(context.Background())
	all = candidates(t, 4)
	all[1].Run = func(context.Context, *tonbo.DB) error { cancel(); return nil }
	if _, err := tonbo.Explore(ctx, c, "golden", all, tonbo.ExploreOptions{Score: scoreRows}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	alone(t, c, "golden")

	for what, o := range map[string]tonbo.ExploreOptions{"Score": {}} {
		if _, err := tonbo.Explore(context.Background(), c, "golden", candidates(t, 1), o); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("without %s: %v", what, err)
		}
	}
	if _, err := tonbo.Explore(context.Background(), c, "golden", nil, tonbo.ExploreOptions{Score: scoreRows}); err == nil {
		t.Error("no candidates: no error")
	}
}
