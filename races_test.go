package tonbo_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// slowed is an account on a store that a test can hold up.
func slowed(t testing.TB) (*account, *tonbotest.Store) {
	store := tonbotest.NewStore(mem.New("test"))
	a := newAccount(t)
	a.store = store
	return a, store
}

// besideCompaction makes a database of some MB whose owner is in the middle of a compaction: its request on key waits at the gate.
func besideCompaction(t *testing.T, a *account, store *tonbotest.Store, key string) (db *tonbo.DB, gate *tonbotest.Gate, done chan error) {
	t.Helper()
	a.create("run")
	o := a.machine().Tuned(1000, time.Hour)
	db = open(t, "run", o)
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
	exec(t, db, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<5000) INSERT INTO t(v) SELECT randomblob(900) FROM s")
	synced(t, db)
	if err := db.Compact(context.Background(), false); err != nil {
		t.Fatal(err)
	}
	exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id%3=0")
	synced(t, db)
	gate = store.Block(tonbotest.Match{Op: tonbotest.Create, Key: key})
	done = make(chan error, 1)
	go func() { done <- db.Compact(context.Background(), false) }()
	if err := gate.Wait(context.Background(), 1); err != nil {
		t.Fatal(err)
	}
	return db, gate, done
}

// TestVacuumDuringCompaction: the base holds the pages as of its slot, whatever becomes of the local file meanwhile: VACUUM moves and drops pages, and a checkpoint shortens the file.
func TestVacuumDuringCompaction(t *testing.T) {
	for _, key := range []string{"/seg/", "/base/"} {
		t.Run(key, func(t *testing.T) {
			a, store := slowed(t)
			db, gate, done := besideCompaction(t, a, store, key)
			before := db.Status().Slot
			exec(t, db, "DELETE FROM t WHERE id%4>0")
			exec(t, db, "VACUUM")
			exec(t, db, "PRAGMA wal_checkpoint(TRUNCATE)")
			want := rows(t, db, stateQuery)
			synced(t, db) // nothing waits for the compaction
			exec(t, db, "INSERT INTO t(v) VALUES(zeroblob(100000))")
			exec(t, db, "DELETE FROM t WHERE length(v)=100000")
			gate.Open()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if db.Base().Slot != before {
				t.Errorf("the base is of slot %d, want %d", db.Base().Slot, before)
			}
			synced(t, db)
			if err := db.Compact(context.Background(), false); err != nil {
				t.Fatal(err)
			}
			closeDB(t, db)
			if v, err := client(t, a).Verify(context.Background(), "run"); err != nil || !v.OK() {
				t.Errorf("%+v %v", v, err)
			}
			db = open(t, "run", a.machine())
			if got := rows(t, db, stateQuery); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			integrity(t, db)
		})
	}
}

// TestStaleOwnerCannotPublishABase: an owner that was taken over in the middle of a compaction puts nothing in force, and what it has uploaded is garbage.
func TestStaleOwnerCannotPublishABase(t *testing.T) {
	ctx := context.Background()
	for _, key := range []string{"/seg/", "/base/"} {
		t.Run(key, func(t *testing.T) {
			a, store := slowed(t)
			stale, gate, done := besideCompaction(t, a, store, key)
			inForce := stale.Base()
			db := open(t, "run", a.machine().Unsettled())
			exec(t, db, "UPDATE t SET v='taken over' WHERE id=1")
			synced(t, db)
			gate.Open()
			if err := <-done; !errors.Is(err, tonbo.ErrFenced) {
				t.Errorf("the stale owner's compaction: %v", err)
			}
			if err := stale.Synced(ctx); !errors.Is(err, tonbo.ErrFenced) {
				t.Errorf("the stale owner's Synced: %v", err)
			}
			stale.Close()
			exec(t, db, "UPDATE t SET v='still here' WHERE id=2")
			synced(t, db)
			if got := db.Base(); got.Slot != inForce.Slot {
				t.Errorf("the base in force is of slot %d, want %d", got.Slot, inForce.Slot)
			}
			want := rows(t, db, stateQuery)
			if err := db.Compact(ctx, false); err != nil {
				t.Fatal(err)
			}
			closeDB(t, db)
			db = open(t, "run", a.machine())
			if got := rows(t, db, stateQuery); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			integrity(t, db)
			closeDB(t, db)
			if r := collect(t, a, "run"); r.Segments == 0 {
				t.Errorf("its uploads are left: %+v", r)
			}
			if v, err := client(t, a).Verify(ctx, "run"); err != nil || !v.OK() {
				t.Errorf("%+v %v", v, err)
			}
		})
	}
}

// TestForkOfAPointThatIsJustPassingTheHorizon: the pin comes first, and the fork lives, or the horizon does, and there is no fork and nothing is left of it.
func TestForkOfAPointThatIsJustPassingTheHorizon(t *testing.T) {
	ctx := context.Background()
	for _, held := range []string{"/pin/", "db/child/log/"} {
		t.Run(held, func(t *testing.T) {
			a, store := slowed(t)
			a.create("run")
			o := a.machine().Tuned(1000, time.Hour).Collecting()
			o.History = time.Nanosecond
			db := open(t, "run", o)
			exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
			exec(t, db, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<3000) INSERT INTO t(v) SELECT randomblob(900) FROM s")
			synced(t, db)
			at, want := db.Status().Point, rows(t, db, stateQuery)
			gate := store.Block(tonbotest.Match{Op: tonbotest.Create, Key: held})
			done := make(chan error, 1)
			go func() {
				_, err := client(t, a).Fork(ctx, "run", "child", tonbo.ForkOptions{At: at})
				done <- err
			}()
			if err := gate.Wait(ctx, 1); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				exec(t, db, "UPDATE t SET v=randomblob(900)")
				synced(t, db)
				if err := db.Compact(ctx, false); err != nil {
					t.Fatal(err)
				}
			}
			if err := db.CollectOwn(ctx); err != nil { // a janitor would end the creation that is under way
				t.Fatal(err)
			}
			gate.Open()
			err := <-done
			collect(t, a, "run")
			if held == "/pin/" { // the horizon was there first
				if !errors.Is(err, tonbo.ErrPointGone) {
					t.Errorf("Fork: %v", err)
				}
				if _, err := client(t, a).Get(ctx, "child"); !errors.Is(err, tonbo.ErrNotFound) {
					t.Errorf("there is a child: %v", err)
				}
				for k := range objects(t, store) {
					if strings.Contains(k, "/pin/") || strings.HasPrefix(k, "names/child/") {
						t.Errorf("%s is left", k)
					}
				}
				return
			}
			if err != nil {
				t.Fatalf("Fork: %v", err)
			}
			child := open(t, "child", a.machine())
			if got := rows(t, child, stateQuery); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			integrity(t, child)
		})
	}
}

// TestCollectorsAtOnce: several collectors, beside an owner that writes, compacts and collects by itself, and forks that come and go, take nothing that is needed.
func TestCollectorsAtOnce(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	a.create("run")
	o := a.machine().Tuned(5, time.Hour).Collecting()
	o.History = time.Nanosecond
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
	exec(t, db, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<2000) INSERT INTO t(v) SELECT randomblob(900) FROM s")
	if _, err := db.Checkpoint(ctx, "begin"); err != nil {
		t.Fatal(err)
	}
	begin := rows(t, db, stateQuery)
	c := client(t, a)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var deleted sync.Map
	for i := range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for _, name := range []string{"run", "child"} {
					r, err := c.Collect(ctx, name, tonbo.CollectOptions{}.Later(2*time.Hour))
					if err != nil && !errors.Is(err, remote.ErrNotFound) {
						t.Errorf("Collect %s: %v", name, err)
						return
					}
					if err == nil && r.Slots+r.Segments+r.Bases > 0 {
						deleted.Store(i, true)
					}
				}
			}
		})
	}
	forked := ""
	for i := range 60 {
		exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id%20=?", i%20)
		synced(t, db)
		switch i % 20 {
		case 3:
			fork(t, c, "run", "child", nil)
			forked = rows(t, db, stateQuery)
		case 15:
			ro := readOnly(t, a, "child", nil)
			if got := rows(t, ro, stateQuery); got != forked {
				t.Errorf("child: got %s, want %s", got, forked)
			}
			closeDB(t, ro)
			if err := c.Delete(ctx, "child"); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	wg.Wait()
	n := 0
	deleted.Range(func(any, any) bool { n++; return true })
	want := rows(t, db, stateQuery)
	closeDB(t, db)
	collect(t, a, "run")
	if v, err := c.Verify(ctx, "run"); err != nil || !v.OK() {
		t.Errorf("%+v %v", v, err)
	}
	ro := readOnly(t, a, "run", tonbo.Label("begin"))
	if got := rows(t, ro, stateQuery); got != begin {
		t.Errorf("the labelled point: got %s, want %s", got, begin)
	}
	closeDB(t, ro)
	db = open(t, "run", a.machine())
	if got := rows(t, db, stateQuery); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	integrity(t, db)
	_, bytes := stored(t, a, "run")
	t.Logf("%d collectors deleted something; %d kB are left of a database of 2 MB and a labelled point", n, bytes>>10)
}
