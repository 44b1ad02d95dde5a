package tonbo_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// reading opens a read-only handle that fetches nothing on its own.
func (a *account) reading(name string, change func(*tonbo.Options)) *tonbo.DB {
	a.t.Helper()
	o := a.lazyMachine()
	if change != nil {
		change(&o)
	}
	db, err := tonbo.OpenReadOnly(context.Background(), name, o)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { db.Close() })
	return db
}

func TestReadOnlyCostsTheSameAtAnySize(t *testing.T) {
	first := map[string]int{}
	for _, mib := range []int{10, 100} {
		store := &chained{Store: mem.New("test")}
		a := &account{t: t, store: store}
		a.sized("run", mib, true)
		db := open(t, "run", a.lazyMachine())
		exec(t, db, "UPDATE t SET k=0 WHERE id=2")
		p, err := db.Checkpoint(context.Background(), "here")
		if err != nil {
			t.Fatal(err)
		}
		exec(t, db, "UPDATE t SET k=0 WHERE id=3")
		synced(t, db)
		closeDB(t, db)
		store.delay = 5 * time.Millisecond
		for name, at := range map[string]tonbo.At{"head": nil, "label": tonbo.Label("here"), "slot": tonbo.Slot(p.Slot), "time": tonbo.Time(p.Time)} {
			store.reset()
			var dir string
			ro := a.reading("run", func(o *tonbo.Options) { o.At, dir = at, o.Dir })
			open, openChain := store.counts()
			if got := rows(t, ro, fmt.Sprint("SELECT k IS NOT NULL FROM t WHERE id=", mib*700)); got != "1" {
				t.Fatalf("row: %q", got)
			}
			n, chain := store.counts()
			st := ro.Status()
			t.Logf("%d MiB, %s: open %d requests, %d one after the other; first row %d, %d; %d KiB down, %d of %d pages", mib, name, open, openChain, n, chain,
				st.Requests.BytesDown>>10, st.PagesLocal, st.Pages)
			limit := 8
			if raceEnabled { // chains are told by the clock, and what goes on at once may then look as if it did not
				limit = 10
			}
			if chain > limit {
				t.Errorf("%d MiB, %s: %d requests one after the other, want at most %d", mib, name, chain, limit)
			}
			if first[name] == 0 {
				first[name] = n
			} else if n > first[name]+1 && name != "time" { // which is found in the log, and that is longer here
				t.Errorf("%d MiB, %s: %d requests, %d for the small one", mib, name, n, first[name])
			}
			if left, _ := filepath.Glob(filepath.Join(dir, ".readonly-*")); len(left) > 0 && runtime.GOOS != "windows" {
				t.Errorf("a file that a killed process would leave: %v", left)
			}
			closeDB(t, ro)
		}
	}
}

func TestReadOnlyHonoursHydration(t *testing.T) {
	a := newAccount(t)
	want := a.grown("run", 8000, true)
	for _, h := range []tonbo.Hydration{tonbo.HydrateNone, tonbo.HydrateBackground, tonbo.HydrateFull} {
		ro := a.reading("run", func(o *tonbo.Options) { o.Hydration = h })
		st := ro.Status()
		switch {
		case h == tonbo.HydrateFull && st.PagesLocal != st.Pages, h == tonbo.HydrateNone && st.PagesLocal > st.Pages/4:
			t.Errorf("hydration %d: %d of %d pages after OpenReadOnly", h, st.PagesLocal, st.Pages)
		}
		hydrated(t, ro)
		n := ro.Status().Requests
		if got := digest(t, ro); got != want {
			t.Errorf("hydration %d: got %s, want %s", h, got, want)
		}
		if ro.Status().Requests != n {
			t.Errorf("hydration %d: requests once every page is here", h)
		}
		integrity(t, ro)
		closeDB(t, ro)
	}
}

// TestRefreshFetchesOnlyWhatChanged: pages that are the same at both points are not fetched again.
func TestRefreshFetchesOnlyWhatChanged(t *testing.T) {
	a := newAccount(t)
	a.grown("run", 20_000, true)
	db := open(t, "run", a.machine())
	ro := a.reading("run", nil)
	hydrated(t, ro)
	for i := range 8 {
		exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id=?", 777+i*1000)
		synced(t, db)
		if i == 5 {
			if err := db.Compact(context.Background(), false); err != nil {
				t.Fatal(err)
			}
		}
		before := ro.Status().Requests.BytesDown
		if err := ro.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
		hydrated(t, ro)
		if got, want := digest(t, ro), digest(t, db); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
		if n := ro.Status().Requests.BytesDown - before; n > 300_000 {
			t.Errorf("round %d: %d bytes for one row", i, n)
		}
	}
	integrity(t, ro)
}

// TestTransactionKeepsItsPointAcrossRefreshes: pages that it fetches afterwards are of its point all the same.
func TestTransactionKeepsItsPointAcrossRefreshes(t *testing.T) {
	a := newAccount(t)
	want := a.grown("run", 8000, true)
	db := open(t, "run", a.machine())
	ro := a.reading("run", nil)
	ctx := context.Background()
	tx, err := ro.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	for i := range 5 {
		exec(t, db, "UPDATE t SET v=randomblob(300), k=k+1 WHERE id%5=?", i)
		if i == 3 {
			exec(t, db, "DELETE FROM t WHERE id%3=0; VACUUM")
		}
		synced(t, db)
		if i%2 == 0 {
			if err := db.Compact(ctx, false); err != nil {
				t.Fatal(err)
			}
		}
		if err := ro.Refresh(ctx); err != nil {
			t.Fatal(err)
		}
		if got, want := digest(t, ro), digest(t, db); got != want {
			t.Errorf("round %d, a new connection: got %s, want %s", i, got, want)
		}
		var n int
		if err := tx.QueryRow("SELECT count(*) FROM t WHERE id<=?", (i+1)*1000).Scan(&n); err != nil || n != (i+1)*1000 {
			t.Errorf("round %d, the transaction: %d rows, %v", i, n, err)
		}
	}
	var got string
	if err := tx.QueryRow("SELECT count(*)||':'||coalesce(sum(length(v)),0)||':'||coalesce(sum(k),0)||':'||coalesce(sum(unicode(hex(substr(v,7,1)))*id),0) FROM t").Scan(&got); err != nil || got != want {
		t.Errorf("the transaction: got %s %v, want %s", got, err, want)
	}
	hydrated(t, ro)
	integrity(t, ro)
}

// TestReaderBesideAThousandCommitsReadsPrefixes: every transaction of a reader sees exactly the first n commits, and n never falls.
func TestReaderBesideAThousandCommitsReadsPrefixes(t *testing.T) {
	commits := 1000
	if testing.Short() {
		commits = 200
	}
	a := newAccount(t)
	a.grown("run", 6000, true)
	db := open(t, "run", a.machine().Tuned(16, time.Hour))
	exec(t, db, "CREATE TABLE log(n INTEGER PRIMARY KEY); CREATE TABLE total(n INT, s INT); INSERT INTO total VALUES(0,0)")
	synced(t, db)
	ctx := context.Background()
	done := make(chan struct{})
	var readers sync.WaitGroup
	for i := range 3 {
		ro := a.reading("run", func(o *tonbo.Options) {
			if i == 0 {
				o.Follow = time.Millisecond
			}
			if i == 2 {
				o.Hydration = tonbo.HydrateBackground
			}
		})
		readers.Go(func() {
			last, seen := -1, 0
			for end := false; !end; {
				select {
				case <-done:
					end = true
				default:
				}
				if i > 0 || end {
					if err := ro.Refresh(ctx); err != nil {
						t.Error(err)
						return
					}
				}
				n, err := prefix(ctx, ro)
				if err != nil || n < last {
					t.Errorf("reader %d: %d after %d: %v", i, n, last, err)
					return
				}
				if n > last {
					seen++
				}
				last = n
			}
			if last != commits {
				t.Errorf("reader %d ended at commit %d", i, last)
			}
			t.Logf("reader %d saw %d states", i, seen)
		})
	}
	for n := 1; n <= commits; n++ {
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		tx.Exec("INSERT INTO log VALUES(?)", n)
		tx.Exec("UPDATE t SET k=?, v=randomblob(200+?%700) WHERE id IN (?, 1+?*7%6000)", n, n, n, n)
		tx.Exec("UPDATE total SET n=n+1, s=s+?", n)
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if n%5 == 0 || n == commits {
			synced(t, db)
		}
	}
	close(done)
	readers.Wait()
}

// prefix checks in one transaction that the commits 1 to n are there and nothing of others, and returns n.
func prefix(ctx context.Context, db *tonbo.DB) (n int, err error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	var last, count, sum, again, missing int
	if err := tx.QueryRow("SELECT n, s FROM total").Scan(&n, &sum); err != nil {
		return 0, err
	}
	if err := tx.QueryRow("SELECT count(*), coalesce(max(n),0) FROM log").Scan(&count, &last); err != nil {
		return 0, err
	}
	if err := tx.QueryRow("SELECT count(*) FROM log JOIN t ON t.id=log.n WHERE t.k<log.n").Scan(&missing); err != nil {
		return 0, err
	}
	if err := tx.QueryRow("SELECT n FROM total").Scan(&again); err != nil {
		return 0, err
	}
	if last != n || count != n || sum != n*(n+1)/2 || again != n || missing != 0 {
		return n, fmt.Errorf("not a prefix: total %d, then %d; %d in the log up to %d, sum %d, %d rows without their change", n, again, count, last, sum, missing)
	}
	return n, nil
}

// collect deletes the segments that the base in force does not name.
func (a *account) collect(db *tonbo.DB, inner remote.Store) {
	a.t.Helper()
	named := map[string]bool{}
	for k := range db.Base().Named() {
		named[k] = true
	}
	for _, k := range segments(a.t, inner) {
		if !named[k] {
			if err := inner.Delete(context.Background(), k); err != nil {
				a.t.Fatal(err)
			}
		}
	}
}

func TestReaderWhosePointWasCollectedMovesOn(t *testing.T) {
	inner := mem.New("test")
	a := &account{t: t, store: inner}
	a.grown("run", 8000, true)
	db := open(t, "run", a.machine())
	ctx := context.Background()
	ro, idle := a.reading("run", nil), a.reading("run", nil)
	rows(t, idle, "SELECT count(*) FROM other")
	tx, err := ro.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	var n int
	if err := tx.QueryRow("SELECT count(*) FROM other").Scan(&n); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	at := ro.Status().Slot
	exec(t, db, "UPDATE t SET v=randomblob(500), k=k+1")
	exec(t, db, "INSERT INTO other(v) VALUES('new')")
	synced(t, db)
	if err := db.Compact(ctx, false); err != nil {
		t.Fatal(err)
	}
	a.collect(db, inner)
	want := digest(t, db)
	// Outside of a transaction nobody notices.
	if got := digest(t, idle); got != want {
		t.Errorf("a handle that was idle: got %s, want %s", got, want)
	}
	if err := idle.QueryRow("SELECT count(*) FROM other").Scan(&n); err != nil || n != 2 {
		t.Errorf("a handle that was idle: %d, %v", n, err)
	}
	// What the transaction reads is gone: an error, never a page of the newer point.
	if err := tx.QueryRow("SELECT sum(k) FROM t").Scan(&n); !errors.Is(err, tonbo.ErrPointGone) || errors.Is(err, tonbo.ErrCorrupt) {
		t.Errorf("a transaction at a point that was collected: %d, %v", n, err)
	} else {
		contains(t, err, "run", "run the query again")
	}
	if err := tx.QueryRow("SELECT count(*) FROM other").Scan(&n); err != nil || n != 1 {
		t.Errorf("what is here of its point: %d, %v", n, err)
	}
	if now := ro.Status().Slot; now <= at {
		t.Errorf("the handle is still at slot %d", now)
	}
	if got := digest(t, ro); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	hydrated(t, ro)
	integrity(t, ro)
}

func TestReaderOfAFixedPointThatWasCollectedSaysSo(t *testing.T) {
	inner := mem.New("test")
	a := &account{t: t, store: inner}
	a.grown("run", 8000, true)
	o := a.machine()
	o.History = time.Nanosecond
	db := open(t, "run", o)
	ctx := context.Background()
	at := db.Status().Point.Slot
	ro := a.reading("run", func(o *tonbo.Options) { o.At = tonbo.Slot(at) })
	still := a.reading("run", func(o *tonbo.Options) { o.At = tonbo.Slot(at) })
	exec(t, db, "UPDATE t SET v=randomblob(500), k=k+1")
	synced(t, db)
	if err := db.Compact(ctx, false); err != nil {
		t.Fatal(err)
	}
	for i := range 3 { // until the horizon has passed the point
		exec(t, db, "INSERT INTO other(v) VALUES(?)", i)
		synced(t, db)
		if err := db.Compact(ctx, false); err != nil {
			t.Fatal(err)
		}
	}
	a.collect(db, inner)
	var n int
	if err := ro.QueryRow("SELECT sum(k) FROM t").Scan(&n); !errors.Is(err, tonbo.ErrPointGone) {
		t.Errorf("a query at a point that was collected: %d, %v", n, err)
	}
	if err := still.Hydrated(ctx); !errors.Is(err, tonbo.ErrPointGone) {
		t.Errorf("Hydrated at a point that was collected: %v", err)
	}
	if err := ro.Err(); err != nil {
		t.Errorf("the handle ended: %v", err)
	}
}

func TestReaderWithAMissingObjectNamesIt(t *testing.T) {
	store := tonbotest.NewStore(mem.New("test"))
	a := &account{t: t, store: store}
	want := a.grown("run", 8000, true)
	for _, at := range []tonbo.At{nil, tonbo.Slot(headSlot(t, a, "run"))} {
		ro := a.reading("run", func(o *tonbo.Options) { o.At = at })
		store.Fail(tonbotest.Match{Op: tonbotest.Get, Key: "/seg/"}, -1, remote.ErrNotFound)
		var k int
		err := ro.QueryRow("SELECT k FROM t WHERE id=4321").Scan(&k)
		if !errors.Is(err, tonbo.ErrCorrupt) || !strings.Contains(err.Error(), "/seg/") {
			t.Errorf("at %v: a missing object: %v", at, err)
		}
		store.Heal()
		if got := digest(t, ro); got != want {
			t.Errorf("at %v: afterwards %s, want %s", at, got, want)
		}
		closeDB(t, ro)
	}
}

func headSlot(t testing.TB, a *account, name string) uint64 {
	t.Helper()
	d, err := client(t, a).Get(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	return d.Head.Slot
}

// TestForkUsedAgainKeepsItsOwnPages: what a fork has changed itself is newer than what its source's base holds, whatever slots the source counts.
func TestForkUsedAgainKeepsItsOwnPages(t *testing.T) {
	a := newAccount(t)
	a.grown("golden", 4000, true)
	source := open(t, "golden", a.machine())
	for range 30 { // its slots are higher than the fork's
		exec(t, source, "UPDATE other SET v=v||'.'")
		synced(t, source)
	}
	if err := source.Compact(context.Background(), false); err != nil {
		t.Fatal(err)
	}
	closeDB(t, source)
	fork(t, client(t, a), "golden", "work", nil)
	o := a.lazyMachine()
	db := open(t, "work", o)
	exec(t, db, "CREATE TABLE mine(v)") // page 1, which comes with the base as well
	exec(t, db, "UPDATE t SET k=k+1 WHERE id%100=0")
	synced(t, db)
	ro := a.reading("work", nil)
	closeDB(t, db)
	other := open(t, "work", a.lazyMachine())
	exec(t, other, "INSERT INTO other(v) VALUES('elsewhere')")
	want := digest(t, other)
	closeDB(t, other)
	db = open(t, "work", o)
	if err := ro.Refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	for name, db := range map[string]*tonbo.DB{"owner": db, "reader": ro} {
		if got := rows(t, db, "SELECT count(*) FROM mine"); got != "0" {
			t.Errorf("%s: the fork's own table: %q", name, got)
		}
		if got := digest(t, db); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
		hydrated(t, db)
		integrity(t, db)
	}
}
