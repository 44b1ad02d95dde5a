package tonbo_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// soon is a context for what is expected to fail by waiting.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestReopenOfAnOwnerKeepsWhatIsUnshipped(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(v); INSERT INTO t VALUES(1)")
	g := db.Status().Generation
	if err := db.Reopen(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := db.Status()
	if s.Generation <= g || s.ColdStart || s.Lost != "" || s.PendingCommits == 0 || db.Err() != nil {
		t.Errorf("after Reopen: %+v", s)
	}
	exec(t, db, "INSERT INTO t VALUES(2)")
	synced(t, db)
	other := open(t, "run", a.machine())
	if got := rows(t, other, "SELECT v FROM t"); got != "1 2" {
		t.Errorf("elsewhere: %q", got)
	}
}

func TestReopenWithConnectionsInUseChangesNothing(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(v); INSERT INTO t VALUES(1),(2)")
	r, err := db.Query("SELECT v FROM t")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.Next()
	err = db.Reopen(soon(t))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Reopen: %v", err)
	}
	contains(t, err, "run", "1 connections are in use", "close rows")
	exec(t, db, "INSERT INTO t VALUES(3)")
	synced(t, db)
	r.Close()
	if err := db.Reopen(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := rows(t, db, "SELECT v FROM t"); got != "1 2 3" {
		t.Errorf("got %q", got)
	}
}

func TestReopenOfADeletedDatabase(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(v); INSERT INTO t VALUES(1)")
	if err := tonbo.Delete(t.Context(), "run", a.machine()); err != nil {
		t.Fatal(err)
	}
	err := db.Reopen(t.Context())
	if !errors.Is(err, tonbo.ErrNotFound) {
		t.Errorf("Reopen: %v", err)
	}
	contains(t, err, "run")
	err = db.Synced(t.Context())
	var fe *tonbo.FencedError
	if !errors.As(err, &fe) || !errors.Is(err, tonbo.ErrDeleted) || fe.Lost == "" {
		t.Fatalf("Synced: %v", err)
	}
	contains(t, err, "deleted", fe.Lost)
	if err := db.Reopen(t.Context()); !errors.Is(err, tonbo.ErrNotFound) {
		t.Errorf("Reopen: %v", err)
	}
	if _, err := db.Exec("INSERT INTO t VALUES(2)"); !errors.Is(err, tonbo.ErrDeleted) {
		t.Errorf("Exec: %v", err)
	}
	// The name is used again: it is another database.
	a.create("run")
	if err := db.Reopen(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := rows(t, db, "SELECT count(*) FROM sqlite_schema"); got != "0" {
		t.Errorf("the new incarnation has %s tables", got)
	}
	lost, err := sql.Open("sqlite3", fe.Lost)
	if err != nil {
		t.Fatal(err)
	}
	defer lost.Close()
	if got := rows(t, lost, "SELECT v FROM t"); got != "1" {
		t.Errorf("set aside: %q", got)
	}
}

func TestReopenThatFailsCanBeRepeated(t *testing.T) {
	for _, fenced := range []bool{false, true} {
		t.Run(fmt.Sprint("fenced ", fenced), func(t *testing.T) {
			a, s := faulty(t)
			a.create("run")
			db := open(t, "run", a.machine())
			exec(t, db, "CREATE TABLE t(v); INSERT INTO t VALUES(1)")
			synced(t, db)
			if fenced {
				other := open(t, "run", a.machine())
				exec(t, other, "INSERT INTO t VALUES(2)")
				closeDB(t, other)
				if err := db.Synced(t.Context()); !errors.Is(err, tonbo.ErrFenced) {
					t.Fatal(err)
				}
			}
			s.Lose(logCreates, -1)
			err := db.Reopen(soon(t))
			if err == nil {
				t.Fatal("Reopen succeeded without a store")
			}
			contains(t, err, "run")
			// Nothing of this handle may reach a file that nobody observes.
			if _, err := db.Exec("INSERT INTO t VALUES('unobserved')"); err == nil {
				t.Error("COMMIT after a failed Reopen")
			} else {
				contains(t, err, "run", "Reopen")
			}
			if err := db.Synced(t.Context()); err == nil {
				t.Error("Synced after a failed Reopen")
			}
			s.Heal()
			if err := db.Reopen(t.Context()); err != nil {
				t.Fatal(err)
			}
			exec(t, db, "INSERT INTO t VALUES('back')")
			synced(t, db)
			want := "1 back"
			if fenced {
				want = "1 2 back"
			}
			other := open(t, "run", a.machine())
			if got := rows(t, other, "SELECT v FROM t"); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestReopenBesideWritersAndReaders(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(v)")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	acked := 0
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				select {
				case <-stop:
					return
				default:
				}
				_, err := db.Exec("INSERT INTO t VALUES(1)")
				if err != nil {
					continue // while it is being reopened
				}
				if db.Synced(context.Background()) == nil {
					mu.Lock()
					acked++
					mu.Unlock()
				}
			}
		}()
	}
	for range 5 {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if err := db.Reopen(ctx); err != nil {
			t.Error(err)
		}
		cancel()
	}
	close(stop)
	wg.Wait()
	other := open(t, "run", a.machine())
	var n int
	if err := other.QueryRow("SELECT count(*) FROM t").Scan(&n); err != nil || n < acked {
		t.Errorf("%d rows, %d were acknowledged: %v", n, acked, err)
	}
}

func TestCloseWithoutAStoreKeepsWhatIsUnshipped(t *testing.T) {
	a, s := faulty(t)
	a.create("run")
	o := a.machine()
	o.SyncTimeout = 100 * time.Millisecond
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(v)")
	exec(t, db, "INSERT INTO t VALUES(1)")
	s.Partition(true)
	err := db.Close()
	if !errors.Is(err, tonbo.ErrUnsynced) {
		t.Fatalf("Close: %v", err)
	}
	contains(t, err, "run", "2 commits", "next Open", o.Dir)
	if err := db.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if err := db.Synced(t.Context()); !errors.Is(err, tonbo.ErrClosed) {
		t.Errorf("Synced: %v", err)
	}
	if !errors.Is(db.Err(), tonbo.ErrClosed) {
		t.Errorf("Err: %v", db.Err())
	}
	<-db.Done()
	s.Heal()
	db = open(t, "run", o)
	if st := db.Status(); st.ColdStart || st.PendingCommits == 0 {
		t.Errorf("%+v", st)
	}
	synced(t, db)
	other := open(t, "run", a.machine())
	if got := rows(t, other, "SELECT v FROM t"); got != "1" {
		t.Errorf("elsewhere: %q", got)
	}
}

func TestCloseWithNothingUnshippedNeedsNoStore(t *testing.T) {
	a, s := faulty(t)
	a.create("run")
	o := a.machine()
	o.SyncTimeout = 100 * time.Millisecond
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(v)")
	synced(t, db)
	s.Partition(true)
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

func TestCloseByAFencedOwnerNamesWhatItSetAside(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(v)")
	open(t, "run", a.machine())
	err := db.Close()
	var fe *tonbo.FencedError
	if !errors.As(err, &fe) || fe.Lost == "" {
		t.Fatalf("Close: %v", err)
	}
	contains(t, err, "run", fe.Lost)
}

// Rows that are still open when the DB is closed keep a SQLite connection. The next handle must not mind.
func TestCloseWithConnectionsInUse(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	o := a.machine()
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(v)")
	exec(t, db, "INSERT INTO t VALUES(1),(2),(3)")
	r, err := db.Query("SELECT v FROM t")
	if err != nil {
		t.Fatal(err)
	}
	r.Next()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("INSERT INTO t VALUES('not committed')"); err != nil {
		t.Fatal(err)
	}
	closeDB(t, db)
	if err := tx.Commit(); err == nil {
		t.Error("COMMIT after Close")
	} else if !errors.Is(err, tonbo.ErrClosed) {
		t.Errorf("COMMIT after Close: %v", err)
	}
	db2 := open(t, "run", o)
	exec(t, db2, "INSERT INTO t SELECT randomblob(1000) FROM t, t a, t b")
	exec(t, db2, "PRAGMA wal_checkpoint(TRUNCATE)")
	exec(t, db2, "INSERT INTO t VALUES(4)")
	db2.SetMaxIdleConns(-1) // no connection of the new handle is open now
	r.Close()
	synced(t, db2)
	want := rows(t, db2, "SELECT hex(v) FROM t")
	integrity(t, db2)
	closeDB(t, db2)
	for _, o := range []tonbo.Options{o, a.machine()} {
		db := open(t, "run", o)
		if got := rows(t, db, "SELECT hex(v) FROM t"); got != want {
			t.Errorf("got %d bytes of rows, want %d", len(got), len(want))
		}
		integrity(t, db)
		closeDB(t, db)
	}
}

func TestEverythingAtOnce(t *testing.T) {
	a, s := faulty(t)
	a.create("run")
	s.Delay(tonbotest.Match{Key: "/log/"}, -1, time.Millisecond)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			o := a.machine()
			o.SyncEvery = time.Millisecond
			o.SyncTimeout = 5 * time.Second
			for range 6 {
				db, err := tonbo.Open(context.Background(), "run", o)
				if err != nil {
					t.Error(err)
					return
				}
				var in sync.WaitGroup
				for range 3 {
					in.Add(1)
					go func() {
						defer in.Done()
						db.Exec("CREATE TABLE IF NOT EXISTS t(v)")
						db.Exec("INSERT INTO t VALUES(?)", i)
						db.Status()
						db.Synced(context.Background())
						db.Err()
						if i%2 == 0 {
							db.Close()
						}
					}()
				}
				if i == 1 {
					db.Reopen(context.Background())
				}
				in.Wait()
				db.Close()
			}
		}()
	}
	wg.Wait()
	db := open(t, "run", a.machine())
	integrity(t, db)
}
