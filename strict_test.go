package tonbo_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// faulty is an account behind a store that misbehaves on demand.
func faulty(t testing.TB) (*account, *tonbotest.Store) {
	s := tonbotest.NewStore(mem.New("test"))
	return &account{t: t, store: s}, s
}

// contains fails unless err says each of want: what a user must be able to read.
func contains(t testing.TB, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one that says %q", want)
		return
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

var (
	logCreates = tonbotest.Match{Op: tonbotest.Create, Key: "/log/"}
	logReads   = tonbotest.Match{Op: tonbotest.Get, Key: "/log/"}
)

func TestStrictCommitOfUnknownOutcome(t *testing.T) {
	cut := func(s *tonbotest.Store) { s.Lose(logCreates, -1); s.Lose(logReads, -1) }
	for _, c := range []struct {
		name string
		set  func(*tonbotest.Store)
		heal func(*testing.T, *tonbotest.Store)
	}{
		{"stored", func(s *tonbotest.Store) { s.DropAnswer(logCreates, 1); cut(s) }, func(_ *testing.T, s *tonbotest.Store) { s.Heal() }},
		{"not stored", cut, func(_ *testing.T, s *tonbotest.Store) { s.Heal() }},
		{"stored later", func(s *tonbotest.Store) { s.Hold(logCreates, 1); cut(s) }, func(t *testing.T, s *tonbotest.Store) {
			s.Heal()
			held, err := s.Held(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			if err := held[0].Release(t.Context()); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, s := faulty(t)
			a.create("run")
			o := a.machine()
			o.Strict, o.SyncTimeout = true, 300*time.Millisecond
			db := open(t, "run", o)
			exec(t, db, "CREATE TABLE t(v)")
			exec(t, db, "INSERT INTO t VALUES(1)")
			c.set(s)
			_, err := db.Exec("INSERT INTO t VALUES(2)")
			if !errors.Is(err, tonbo.ErrUnsynced) {
				t.Fatalf("COMMIT: %v", err)
			}
			contains(t, err, "run", "log/")
			if got := rows(t, db, "SELECT v FROM t"); got != "1" {
				t.Errorf("a COMMIT that failed left %q", got)
			}
			if _, err := db.Exec("INSERT INTO t VALUES(3)"); !errors.Is(err, tonbo.ErrUnsynced) {
				t.Errorf("COMMIT while the one before is in doubt: %v", err)
			}
			c.heal(t, s)
			// It is in the remote now, or will be: the same bytes are put again (R2). So the local copy is behind.
			_, err = db.Exec("INSERT INTO t VALUES(3)")
			if !errors.Is(err, tonbo.ErrUnsynced) {
				t.Fatalf("COMMIT on a copy that is behind: %v", err)
			}
			contains(t, err, "run", "Reopen")
			if err := db.Synced(t.Context()); !errors.Is(err, tonbo.ErrUnsynced) {
				t.Errorf("Synced of a copy that is behind: %v", err)
			}
			select {
			case <-db.Done():
			default:
				t.Error("Done is open although nothing can be committed")
			}
			if err := db.Reopen(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := rows(t, db, "SELECT v FROM t"); got != "1 2" {
				t.Errorf("after Reopen: %q", got)
			}
			if lost := db.Status().Lost; lost != "" {
				t.Errorf("nothing was lost, and %s was set aside", lost)
			}
			exec(t, db, "INSERT INTO t VALUES(4)")
			other := open(t, "run", a.machine())
			if got := rows(t, other, "SELECT v FROM t"); got != "1 2 4" {
				t.Errorf("elsewhere: %q", got)
			}
			integrity(t, other)
		})
	}
}

func TestStrictCommitRefusedForGoodLeavesNoTrace(t *testing.T) {
	a, s := faulty(t)
	a.create("run")
	o := a.machine()
	o.Strict = true
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(v)")
	for _, c := range []struct{ with, want error }{
		{remote.ErrDenied, tonbo.ErrForbidden}, {remote.ErrUnauthorized, tonbo.ErrUnauthorized}, {remote.ErrQuota, tonbo.ErrQuota},
	} {
		s.Fail(logCreates, 1, c.with)
		_, err := db.Exec("INSERT INTO t VALUES(zeroblob(100000))")
		if !errors.Is(err, c.want) {
			t.Errorf("COMMIT: %v, want %v", err, c.want)
		}
	}
	exec(t, db, "INSERT INTO t VALUES(1)")
	other := open(t, "run", a.machine())
	if got := rows(t, other, "SELECT v FROM t"); got != "1" {
		t.Errorf("elsewhere: %q", got)
	}
}

// A Synced that comes between the answer to a strict COMMIT and its last frame must not ship the state before it.
func TestSyncedBesideStrictCommits(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	o := a.machine()
	o.Strict = true
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for ctx.Err() == nil {
				if err := db.Synced(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		}()
	}
	for range map[bool]int{false: 150, true: 40}[raceEnabled] {
		exec(t, db, "INSERT INTO t(v) VALUES(randomblob(20000))")
	}
	cancel()
	wg.Wait()
	want := rows(t, db, "SELECT hex(v) FROM t")
	other := open(t, "run", a.machine())
	if got := rows(t, other, "SELECT hex(v) FROM t"); got != want {
		t.Error("the remote is not what was committed")
	}
	integrity(t, other)
}

func TestStrictTransactionOfManyConnections(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	o := a.machine()
	o.Strict = true
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(v)")
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for j := range 10 {
				if _, err := db.Exec("INSERT INTO t VALUES(?)", fmt.Sprint(i, "-", j)); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	wg.Wait()
	other := open(t, "run", a.machine())
	if got := rows(t, other, "SELECT count(*) FROM t"); got != "60" {
		t.Errorf("%s rows", got)
	}
}
