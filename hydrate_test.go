package tonbo_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/dir"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

func hydrated(t testing.TB, db *tonbo.DB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := db.Hydrated(ctx); err != nil {
		t.Fatal(err)
	}
	if st := db.Status(); st.PagesLocal != st.Pages {
		t.Errorf("hydrated, and %d of %d pages are local", st.PagesLocal, st.Pages)
	}
}

// lazyMachine is a machine that fetches nothing on its own.
func (a *account) lazyMachine() tonbo.Options {
	o := a.machine()
	o.Hydration = tonbo.HydrateNone
	return o
}

func (a *account) fullMachine() tonbo.Options {
	o := a.machine()
	o.Hydration = tonbo.HydrateFull
	return o
}

// grown makes a database of some megabytes, with n rows of about a kilobyte, and returns what its table holds.
func (a *account) grown(name string, n int, compact bool) string {
	a.t.Helper()
	a.create(name)
	db := open(a.t, name, a.machine())
	exec(a.t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, k INT, v BLOB); CREATE INDEX i ON t(k); CREATE TABLE other(id INTEGER PRIMARY KEY, v TEXT)")
	exec(a.t, db, fmt.Sprintf("WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<%d) INSERT INTO t(k,v) SELECT random()%%1000, randomblob(900) FROM s", n))
	synced(a.t, db)
	exec(a.t, db, "INSERT INTO other(v) VALUES('later')")
	synced(a.t, db)
	if compact {
		if err := db.Compact(context.Background(), false); err != nil {
			a.t.Fatal(err)
		}
	}
	got := digest(a.t, db)
	closeDB(a.t, db)
	return got
}

func digest(t testing.TB, db *tonbo.DB) string {
	t.Helper()
	return rows(t, db, "SELECT count(*)||':'||coalesce(sum(length(v)),0)||':'||coalesce(sum(k),0)||':'||coalesce(sum(unicode(hex(substr(v,7,1)))*id),0) FROM t")
}

// sameAsAFullCopy compares the local file of a hydrated and closed database with one that another machine makes of the remote.
func (a *account) sameAsAFullCopy(name string, o tonbo.Options) {
	a.t.Helper()
	full := a.fullMachine()
	closeDB(a.t, open(a.t, name, full))
	if !bytes.Equal(image(a.t, o, name), image(a.t, full, name)) {
		a.t.Error("the local file differs from a full copy")
	}
}

func TestColdStartIsLazy(t *testing.T) {
	for _, compact := range []bool{false, true} {
		t.Run(fmt.Sprintf("compacted=%v", compact), func(t *testing.T) {
			a := newAccount(t)
			want := a.grown("run", 20_000, compact)
			o := a.lazyMachine()
			db := open(t, "run", o)
			if got := rows(t, db, "SELECT k IS NOT NULL FROM t WHERE id=12345"); got != "1" {
				t.Errorf("row: %q", got)
			}
			st := db.Status()
			if !st.ColdStart || st.PagesLocal >= st.Pages/4 {
				t.Errorf("%d of %d pages are local after the first row", st.PagesLocal, st.Pages)
			}
			t.Logf("%d of %d pages, %+v", st.PagesLocal, st.Pages, st.Requests)
			if got := digest(t, db); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			hydrated(t, db)
			integrity(t, db)
			closeDB(t, db)
			a.sameAsAFullCopy("run", o)
		})
	}
}

// TestHalfHydratedDatabaseIsTheSame works on a database of which pages are missing, in every way, and compares it with a full copy.
func TestHalfHydratedDatabaseIsTheSame(t *testing.T) {
	seeds, rounds := int64(4), 40
	if testing.Short() {
		seeds, rounds = 2, 25
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			store := tonbotest.NewStore(mem.New("test"))
			a := &account{t: t, store: store}
			a.grown("run", 6000, seed > 1)
			rng := rand.New(rand.NewSource(seed))
			machine := func() tonbo.Options {
				o := a.lazyMachine().Tuned([]int{4, 1000}[seed%2], time.Hour)
				if rng.Intn(3) == 0 {
					o.Hydration = tonbo.HydrateBackground
				}
				return o
			}
			if seed == 3 {
				store.Delay(tonbotest.Match{Op: tonbotest.Get}, -1, time.Millisecond)
			}
			o := machine()
			db := open(t, "run", o)
			for i := range rounds {
				switch rng.Intn(12) {
				case 0:
					exec(t, db, fmt.Sprintf("WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<%d) INSERT INTO t(k,v) SELECT random()%%1000, randomblob(900) FROM s", 1+rng.Intn(1500)))
				case 1:
					exec(t, db, "UPDATE t SET v=randomblob(400) WHERE k%50=?", rng.Intn(50))
				case 2:
					exec(t, db, "DELETE FROM t WHERE id%5=?", rng.Intn(5))
				case 3:
					exec(t, db, "VACUUM")
				case 4:
					exec(t, db, "PRAGMA wal_checkpoint(TRUNCATE)")
				case 5:
					exec(t, db, "DELETE FROM t WHERE id>(SELECT max(id)/2 FROM t)") // pages that nobody reads become free ...
					exec(t, db, "VACUUM")
					exec(t, db, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<1500) INSERT INTO t(k,v) SELECT random()%1000, randomblob(900) FROM s")
				case 6:
					exec(t, db, "PRAGMA wal_checkpoint(PASSIVE)")
				case 7:
					if seed%2 == 0 { // it compacts on its own
						break
					}
					if err := db.Compact(context.Background(), rng.Intn(2) == 0); err != nil && !errors.Is(err, context.Canceled) {
						t.Fatal(err)
					}
				default:
					exec(t, db, "UPDATE t SET k=k+1 WHERE id=?", rng.Intn(6000))
				}
				if rng.Intn(3) > 0 {
					synced(t, db)
				}
				switch rng.Intn(10) {
				case 0: // elsewhere, cold
					want := digest(t, db)
					synced(t, db)
					o = machine()
					db = open(t, "run", o)
					if got := digest(t, db); got != want {
						t.Fatalf("round %d: got %s, want %s", i, got, want)
					}
				case 1: // here again
					want := digest(t, db)
					closeDB(t, db)
					db = open(t, "run", o)
					if got := digest(t, db); got != want {
						t.Fatalf("round %d: got %s, want %s", i, got, want)
					}
				case 2: // others have changed it meanwhile
					closeDB(t, db)
					other := open(t, "run", machine())
					exec(t, other, "UPDATE t SET v=randomblob(300) WHERE id%97=?", rng.Intn(97))
					if rng.Intn(2) == 0 {
						exec(t, other, "VACUUM")
					}
					want := digest(t, other)
					closeDB(t, other)
					db = open(t, "run", o)
					if got := digest(t, db); got != want {
						t.Fatalf("round %d: got %s, want %s", i, got, want)
					}
				}
			}
			want := digest(t, db)
			hydrated(t, db)
			integrity(t, db)
			if got := digest(t, db); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			closeDB(t, db)
			a.sameAsAFullCopy("run", o)
		})
	}
}

func TestOneBlockIsFetchedOnceForAllWhoWantIt(t *testing.T) {
	store := tonbotest.NewStore(mem.New("test"))
	a := &account{t: t, store: store}
	a.grown("run", 8000, true)
	db := open(t, "run", a.lazyMachine())
	db.SetMaxOpenConns(50)
	db.SetMaxIdleConns(50)
	ctx := context.Background()
	var ready sync.WaitGroup
	begin := make(chan struct{})
	for range 50 {
		c, err := db.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var n int
		if err := c.QueryRowContext(ctx, "SELECT count(*) FROM other").Scan(&n); err != nil {
			t.Fatal(err)
		}
		ready.Go(func() {
			<-begin
			var k int
			if err := c.QueryRowContext(ctx, "SELECT k FROM t WHERE id=4321").Scan(&k); err != nil {
				t.Error(err)
			}
		})
	}
	gate := store.Block(tonbotest.Match{Op: tonbotest.Get, Key: "/seg/"})
	store.ResetCalls()
	close(begin)
	if err := gate.Wait(ctx, 1); err != nil {
		t.Fatal(err)
	}
	gate.Open()
	ready.Wait()
	gets := 0
	for _, c := range store.Calls() {
		if c.Op == tonbotest.Get {
			gets++
		}
	}
	if gets > 6 { // an interior page and a leaf: a map and a block each, and a guess
		t.Errorf("50 readers of one row took %d GETs", gets)
	}
}

// TestBlockedFetchEndsWithItsQuery: the store does not answer before the queries have returned, so nothing but the end of their context ends them.
func TestBlockedFetchEndsWithItsQuery(t *testing.T) {
	store := tonbotest.NewStore(mem.New("test"))
	a := &account{t: t, store: store}
	a.grown("run", 8000, true)
	for name, db := range map[string]*tonbo.DB{"owner": open(t, "run", a.lazyMachine()), "reader": a.reading("run", nil)} {
		gate := store.Block(tonbotest.Match{Op: tonbotest.Get, Key: "/seg/"})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 2)
		for range 2 { // one fetches, one waits for it
			go func() {
				var k int
				done <- db.QueryRowContext(ctx, "SELECT k FROM t WHERE id=4321").Scan(&k)
			}()
		}
		if err := gate.Wait(context.Background(), 1); err != nil {
			t.Fatal(err)
		}
		cancel()
		for range 2 {
			if err := <-done; !errors.Is(err, context.Canceled) && (err == nil || !strings.Contains(err.Error(), "interrupt")) {
				t.Errorf("%s: got %v", name, err)
			}
		}
		gate.Open()
		store.Heal()
		if got := rows(t, db, "SELECT k IS NOT NULL FROM t WHERE id=4321"); got != "1" {
			t.Errorf("%s: afterwards %q", name, got)
		}
	}
}

func TestPageThatCannotBeFetchedIsAnErrorThatNamesTheObject(t *testing.T) {
	store := tonbotest.NewStore(mem.New("test"))
	a := &account{t: t, store: store}
	want := a.grown("run", 8000, true)
	db := open(t, "run", a.lazyMachine())
	store.Fail(tonbotest.Match{Op: tonbotest.Get, Key: "/seg/"}, -1, remote.ErrNotFound)
	var k int
	err := db.QueryRow("SELECT k FROM t WHERE id=4321").Scan(&k)
	if !errors.Is(err, tonbo.ErrCorrupt) || !strings.Contains(err.Error(), "/seg/") {
		t.Errorf("a missing object: %v", err)
	}
	if err := db.Hydrated(context.Background()); !errors.Is(err, tonbo.ErrCorrupt) || !strings.Contains(err.Error(), "/seg/") {
		t.Errorf("Hydrated with a missing object: %v", err)
	}
	store.Heal()
	store.Fail(tonbotest.Match{Op: tonbotest.Get, Key: "/seg/"}, -1, remote.ErrDenied)
	if err := db.QueryRow("SELECT k FROM t WHERE id=4321").Scan(&k); !errors.Is(err, remote.ErrDenied) {
		t.Errorf("a denied object: %v", err)
	}
	store.Heal()
	if got := digest(t, db); got != want {
		t.Errorf("afterwards %s, want %s", got, want)
	}
}

func TestHydrationOutlivesAStoreThatFails(t *testing.T) {
	store := tonbotest.NewStore(mem.New("test"))
	a := &account{t: t, store: store}
	a.grown("run", 20_000, true)
	o := a.machine()
	var last atomic.Int64
	o.Progress = func(p tonbo.Progress) {
		if p.Doing == "hydrate" {
			last.Store(p.Done * 100 / p.Total)
		}
	}
	for range 3 {
		store.Lose(tonbotest.Match{Op: tonbotest.Get, Key: "/seg/", Skip: 2}, 2)
	}
	db := open(t, "run", o)
	hydrated(t, db)
	if last.Load() != 100 {
		t.Errorf("progress ended at %d %%", last.Load())
	}
	closeDB(t, db)
	a.sameAsAFullCopy("run", o)

	// One that does not answer is reported by Hydrated.
	store.Partition(false)
	store.Fail(tonbotest.Match{Op: tonbotest.Get, Key: "/seg/"}, -1, remote.ErrUnknown)
	db = open(t, "run", a.machine())
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if err := db.Hydrated(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, remote.ErrUnknown) {
		t.Errorf("got %v", err)
	}
	store.Heal()
	hydrated(t, db)
}

func TestHydrationIsResumed(t *testing.T) {
	a := newAccount(t)
	want := a.grown("run", 20_000, true)
	o := a.lazyMachine()
	db := open(t, "run", o)
	rows(t, db, "SELECT sum(length(v)) FROM t WHERE id<10000")
	had := db.Status().PagesLocal
	closeDB(t, db)
	db = open(t, "run", o)
	st := db.Status()
	if st.ColdStart || st.PagesLocal < had || st.PagesLocal == st.Pages {
		t.Errorf("resumed with %d of %d pages, %d were there; cold start: %v", st.PagesLocal, st.Pages, had, st.ColdStart)
	}
	before := st.Requests.BytesDown
	rows(t, db, "SELECT sum(length(v)) FROM t WHERE id<10000")
	if n := db.Status().Requests.BytesDown - before; n > 100_000 {
		t.Errorf("what was there was fetched again: %d bytes", n)
	}
	if got := digest(t, db); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	hydrated(t, db)
	closeDB(t, db)
	a.sameAsAFullCopy("run", o)
	db = open(t, "run", o)
	if st := db.Status(); st.ColdStart || st.PagesLocal != st.Pages {
		t.Errorf("%+v", st)
	}
}

// TestHydrationThatWasKilledGoesOn: what was recorded before is not fetched again.
func TestHydrationThatWasKilledGoesOn(t *testing.T) {
	url := t.TempDir()
	store, err := dir.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	a := &account{t: t, store: store}
	_, query, want := a.golden(64, 8, 0)
	o := a.lazyMachine()
	j, err := json.Marshal(forksJob{URL: "file://" + filepath.ToSlash(url), Dir: o.Dir, Query: query, Names: []string{"golden"}, Hydrate: true})
	if err != nil {
		t.Fatal(err)
	}
	cmd := osexec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), forksEnv+"="+string(j), "TONBO_FAULT=hydrate:recorded#15")
	cmd.Stdin = strings.NewReader("go\n")
	out, err := cmd.Output()
	said := strings.Fields(string(out))
	if err == nil || len(said) < 2 {
		t.Fatalf("the child was not killed: %q %v", out, err)
	}
	var had int64
	fmt.Sscan(said[len(said)-1], &had) // bytes of pages that were in the file
	db := open(t, "golden", o)
	st := db.Status()
	const underWay = 6 * 4 << 20 // bytes: fetched and not yet recorded
	if kept := st.PagesLocal * 4096; st.ColdStart || kept < had-underWay || kept < 16<<20 {
		t.Errorf("%d bytes of pages are here, there were %d; cold start: %v", kept, had, st.ColdStart)
	}
	t.Logf("%d of %d pages were kept, %d were in the file", st.PagesLocal, st.Pages, had/4096)
	hydrated(t, db)
	if n, limit := db.Status().Requests.BytesDown, (st.Pages-st.PagesLocal)*4096+1<<20; n > limit {
		t.Errorf("%d bytes came down, want at most %d", n, limit)
	}
	if got := rows(t, db, query); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	integrity(t, db)
	closeDB(t, db)
	a.sameAsAFullCopy("golden", o)
}

func TestWarmStartOfAPartialCopyFetchesOnlyWhatChanged(t *testing.T) {
	a := newAccount(t)
	a.grown("run", 20_000, true)
	o := a.machine()
	db := open(t, "run", o)
	hydrated(t, db)
	closeDB(t, db)
	other := open(t, "run", a.lazyMachine())
	exec(t, other, "UPDATE t SET v=randomblob(900) WHERE id=777")
	want := digest(t, other)
	closeDB(t, other)
	db = open(t, "run", o)
	hydrated(t, db)
	if got := digest(t, db); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if n := db.Status().Requests.BytesDown; n > 300_000 {
		t.Errorf("%d bytes for one row", n)
	}
	closeDB(t, db)
	a.sameAsAFullCopy("run", o)
}

func TestFencedWhileHalfHydratedSetsAWholeFileAside(t *testing.T) {
	a := newAccount(t)
	a.grown("run", 8000, true)
	db := open(t, "run", a.lazyMachine())
	exec(t, db, "UPDATE t SET v='not shipped' WHERE id=55")
	closeDB(t, open(t, "run", a.lazyMachine()))
	err := db.Synced(context.Background())
	var fe *tonbo.FencedError
	if !errors.As(err, &fe) || fe.Lost == "" {
		t.Fatalf("got %v", err)
	}
	lost := openFile(t, fe.Lost)
	if got := rows(t, lost, "PRAGMA integrity_check"); got != "ok" {
		t.Errorf("integrity_check of the file set aside: %s", got)
	}
	if got := rows(t, lost, "SELECT count(*)||v FROM t WHERE v='not shipped'"); got != "1not shipped" {
		t.Errorf("in the file set aside: %q", got)
	}
}

func TestUnshippedCommitsInAPartialCopyAreSetAsideWhole(t *testing.T) {
	store := tonbotest.NewStore(mem.New("test"))
	a := &account{t: t, store: store}
	a.grown("run", 8000, true)
	o := a.lazyMachine()
	o.SyncTimeout = 100 * time.Millisecond
	db := open(t, "run", o)
	exec(t, db, "UPDATE t SET v='not shipped' WHERE id=55")
	store.Partition(true)
	if err := db.Close(); err == nil {
		t.Fatal("closed without its commits")
	}
	store.Partition(false)
	other := open(t, "run", a.lazyMachine())
	exec(t, other, "DELETE FROM t WHERE id%2=0")
	closeDB(t, other)
	db = open(t, "run", o)
	st := db.Status()
	if st.Lost == "" {
		t.Fatal("nothing was set aside")
	}
	lost := openFile(t, st.Lost)
	if got := rows(t, lost, "PRAGMA integrity_check"); got != "ok" {
		t.Errorf("integrity_check of the file set aside: %s", got)
	}
	if got := rows(t, lost, "SELECT count(*) FROM t"); got != "8000" {
		t.Errorf("%s rows in the file set aside", got)
	}
}

func TestOwnerWhoseObjectsWereCollectedUsesItsOwnBase(t *testing.T) {
	inner := mem.New("test")
	a := &account{t: t, store: inner}
	a.grown("run", 8000, true)
	o := a.lazyMachine()
	db := open(t, "run", o)
	exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id%3=0")
	synced(t, db)
	want := rows(t, db, "SELECT count(*) FROM other")
	old := segments(t, inner)
	if err := db.Compact(context.Background(), false); err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, level := range db.Base().Levels {
		for _, s := range level {
			named[s.Key] = true
		}
	}
	for _, k := range old {
		if !named[k] {
			if err := inner.Delete(context.Background(), k); err != nil {
				t.Fatal(err)
			}
		}
	}
	hydrated(t, db)
	if got := rows(t, db, "SELECT count(*) FROM other"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	integrity(t, db)
	closeDB(t, db)
	a.sameAsAFullCopy("run", o)
}

func segments(t testing.TB, s remote.Store) (keys []string) {
	t.Helper()
	page, _, err := s.List(context.Background(), "db/run/seg/", remote.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range page {
		keys = append(keys, i.Key)
	}
	return keys
}

func TestWholeDatabaseIsComparedOnceItIsHere(t *testing.T) {
	a := newAccount(t)
	a.grown("run", 8000, true)
	before := open(t, "run", a.lazyMachine())
	var keys []string
	for _, s := range before.Base().Bottom() {
		keys = append(keys, s.Key)
	}
	closeDB(t, before)
	forgePage(t, a.store, keys)
	db := open(t, "run", a.lazyMachine())
	if err := db.Hydrated(context.Background()); !errors.Is(err, tonbo.ErrCorrupt) {
		t.Fatalf("got %v", err)
	}
	if err := db.Err(); !errors.Is(err, tonbo.ErrCorrupt) {
		t.Errorf("the handle goes on: %v", err)
	}
	if _, err := db.Exec("DELETE FROM other"); !errors.Is(err, tonbo.ErrCorrupt) {
		t.Errorf("a COMMIT: %v", err)
	}
}

func TestSmallDatabaseIsWholeAtOnce(t *testing.T) {
	a := newAccount(t)
	a.grown("run", 300, false)
	db := open(t, "run", a.lazyMachine())
	if st := db.Status(); st.PagesLocal != st.Pages {
		t.Errorf("%d of %d pages", st.PagesLocal, st.Pages)
	}
}

// forgePage changes a byte of a page in a segment, whose checksums are right again after it.
func forgePage(t testing.TB, s remote.Store, keys []string) {
	t.Helper()
	ctx := context.Background()
	for _, key := range keys {
		o, err := s.Get(ctx, key, remote.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		hd, ix, payload, err := segment.Decode(o.Body)
		if err != nil {
			t.Fatal(err)
		}
		var b []byte
		for back := 20; back < min(60, ix.Pages()) && len(b) != len(o.Body); back++ { // until it packs as well as the true one
			w := segment.NewWriter(ix.PageSize)
			n := 0
			if err := segment.EachPage(hd, ix, payload, func(pgno uint32, page []byte) error {
				if n++; n == ix.Pages()-back {
					page = bytes.Clone(page)
					page[len(page)-40] ^= 1 // in a random blob
				}
				return w.Add(pgno, page)
			}); err != nil {
				t.Fatal(err)
			}
			forged, sum, err := w.Finish()
			if err != nil {
				t.Fatal(err)
			}
			made := *hd
			made.PayloadSize, made.PayloadSum = int64(len(forged)), sum
			if b, err = segment.EncodeHeader(nil, &made); err != nil {
				t.Fatal(err)
			}
			b = append(b, forged...)
		}
		if len(b) != len(o.Body) {
			continue
		}
		if err := s.Delete(ctx, key); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Create(ctx, key, b); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatal("no segment could be forged")
}

func openFile(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+path+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}
