package tonbo_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
)

// TestSuspendLeavesTheDatabaseToTheRemoteAlone: everything committed is there, nothing here, and the next Open is cold.
func TestSuspendLeavesTheDatabaseToTheRemoteAlone(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	a.create("run")
	o := a.machine()
	for i := range 3 {
		db := open(t, "run", o)
		if i == 0 {
			exec(t, db, "CREATE TABLE t(x)")
		} else if !db.Status().ColdStart {
			t.Error("not a cold start")
		}
		exec(t, db, "INSERT INTO t VALUES(?)", i)
		if err := db.Suspend(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(o.Dir, "run")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the local copy: %v", err)
		}
		if _, err := db.Exec("INSERT INTO t VALUES('late')"); !isClosed(err) {
			t.Errorf("Exec: %v", err)
		}
		wantIs(t, "Synced", db.Synced(ctx), tonbo.ErrClosed)
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
	db := open(t, "run", o)
	if got := rows(t, db, "SELECT x FROM t"); got != "0 1 2" {
		t.Errorf("got %s", got)
	}
}

// TestSuspendThatIsNotAcknowledgedRemovesNothing, and the database goes on.
func TestSuspendThatIsNotAcknowledgedRemovesNothing(t *testing.T) {
	a, store := faultyAccount(t)
	a.create("run")
	o := a.machine()
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(x)")
	synced(t, db)
	exec(t, db, "INSERT INTO t VALUES(1)")
	store.Partition(true)
	short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	wantIs(t, "Suspend", db.Suspend(short), tonbo.ErrUnsynced)
	exec(t, db, "INSERT INTO t VALUES(2)")
	store.Partition(false)
	other := open(t, "run", a.machine())
	exec(t, other, "INSERT INTO t VALUES('of the other')")
	synced(t, other)
	err := db.Suspend(context.Background())
	var fenced *tonbo.FencedError
	if !errors.As(err, &fenced) || fenced.Lost == "" {
		t.Errorf("Suspend of a fenced one: %v", err)
	}
	if _, err := os.Stat(fenced.Lost); err != nil {
		t.Error(err)
	}
	if _, err := db.Exec("INSERT INTO t VALUES(3)"); !errors.Is(err, tonbo.ErrFenced) {
		t.Errorf("Exec: %v", err)
	}
	if got := rows(t, db, "SELECT x FROM t"); got != "1 2" {
		t.Errorf("got %s", got)
	}
}

// TestSuspendBesideWritersLosesNoCommit: each COMMIT that returned nil is in the remote when Suspend has returned nil.
func TestSuspendBesideWritersLosesNoCommit(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	o := a.machine()
	want := 0
	for round := range 10 {
		db := open(t, "run", o)
		exec(t, db, "CREATE TABLE IF NOT EXISTS t(x)")
		var wg sync.WaitGroup
		var mu sync.Mutex
		begun := make(chan struct{}, 100)
		for range 4 {
			wg.Go(func() {
				for {
					_, err := db.Exec("INSERT INTO t VALUES(?)", round)
					if err != nil {
						if !isClosed(err) {
							t.Error(err)
						}
						return
					}
					mu.Lock()
					want++
					mu.Unlock()
					select {
					case begun <- struct{}{}:
					default:
					}
				}
			})
		}
		for range 8 {
			<-begun
		}
		if err := db.Suspend(context.Background()); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
	}
	if got := count(t, open(t, "run", o).DB, "t"); got != want {
		t.Errorf("%d rows, want %d", got, want)
	}
}

// TestSuspendOfASharedHandle: the others go on, and the copy goes with the last of them.
func TestSuspendOfASharedHandle(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	dbs := leases(t, a, 2)
	exec(t, dbs[0], "CREATE TABLE t(x)")
	path := dbs[0].LocalFile()
	if err := dbs[0].Suspend(ctx); err != nil {
		t.Fatal(err)
	}
	wantIs(t, "Suspend of a closed one", dbs[0].Suspend(ctx), tonbo.ErrClosed)
	exec(t, dbs[1], "INSERT INTO t VALUES(1)")
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	closeDB(t, dbs[1])
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the local copy: %v", err)
	}
	db := open(t, "k", a.machine())
	if got := count(t, db.DB, "t"); got != 1 {
		t.Errorf("%d rows", got)
	}
	ro, err := tonbo.OpenReadOnly(ctx, "k", a.machine())
	if err != nil {
		t.Fatal(err)
	}
	defer ro.Close()
	wantIs(t, "Suspend of a reader", ro.Suspend(ctx), tonbo.ErrReadOnly)
}

// TestSuspendsAtTheSameTimeTellWhetherTheCopyIsGone.
func TestSuspendsAtTheSameTimeTellWhetherTheCopyIsGone(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	o := a.machine()
	for range 30 {
		db := open(t, "run", o)
		path := db.LocalFile()
		exec(t, db, "CREATE TABLE IF NOT EXISTS t(x)")
		exec(t, db, "INSERT INTO t VALUES(zeroblob(100000))")
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				err := db.Suspend(context.Background())
				_, serr := os.Stat(path)
				if err == nil && serr == nil {
					t.Error("Suspend returned nil and the copy is there")
				}
			})
		}
		wg.Wait()
	}
}

// TestSuspendWithoutADeadlineEnds after Options.SyncTimeout, also when it waits for a Reopen.
func TestSuspendWithoutADeadlineEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, store := faultyAccount(t)
		a.create("run")
		o := a.machine()
		o.SyncTimeout = time.Second
		db := open(t, "run", o)
		exec(t, db, "CREATE TABLE IF NOT EXISTS t(x)")
		synced(t, db)
		gate := store.Block(logEntries)
		reopened := make(chan error, 1)
		ctx, cancel := context.WithCancel(context.Background())
		go func() { reopened <- db.Reopen(ctx) }()
		if err := gate.Wait(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		suspended := make(chan error, 1)
		go func() { suspended <- db.Suspend(context.Background()) }()
		select {
		case err := <-suspended:
			if took := time.Since(start); err == nil || took > 2*time.Second {
				t.Errorf("after %v: %v", took, err)
			}
		case <-time.After(10 * time.Minute):
			t.Error("it waits for longer than SyncTimeout")
		}
		cancel()
		gate.Open()
		<-reopened
	})
}
