package tonbo_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// stored lists what is stored under a name.
func stored(t testing.TB, a *account, name string) (objects int, bytes int64) {
	t.Helper()
	for after, more := "", true; more; {
		page, m, err := a.store.List(context.Background(), "db/"+name+"/", remote.ListOptions{After: after})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range page {
			after, objects, bytes = i.Key, objects+1, bytes+i.Size
		}
		more = m
	}
	return objects, bytes
}

func collect(t testing.TB, a *account, name string) *tonbo.CollectReport {
	t.Helper()
	r, err := client(t, a).Collect(context.Background(), name, tonbo.CollectOptions{}.Later(2*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// merged merges the tail: how far the background has come by itself depends on the machine.
func merged(t testing.TB, db *tonbo.DB) {
	t.Helper()
	if err := db.Compact(context.Background(), false); err != nil {
		t.Fatal(err)
	}
}

func TestCollectionKeepsWhatIsNeededAndNothingElse(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	o := a.machine().Tuned(5, time.Hour)
	o.History = time.Nanosecond
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
	exec(t, db, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<3000) INSERT INTO t(v) SELECT randomblob(900) FROM s")
	labelled := ""
	for i := range 120 {
		exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id%40=?", i%40)
		if i == 30 {
			merged(t, db)
			if _, err := db.Checkpoint(context.Background(), "keep"); err != nil {
				t.Fatal(err)
			}
			labelled = rows(t, db, stateQuery+" ")
		} else {
			synced(t, db)
		}
	}
	c := client(t, a)
	merged(t, db)
	fork(t, c, "run", "fork", nil)
	want := rows(t, db, stateQuery)
	before, size := stored(t, a, "run")
	r := collect(t, a, "run") // beside the owner
	after, left := stored(t, a, "run")
	t.Logf("%d objects, %d kB before; %d, %d kB after; %+v", before, size>>10, after, left>>10, *r)
	if r.Slots == 0 || after >= before {
		t.Errorf("nothing was collected: %+v", *r)
	}
	exec(t, db, "INSERT INTO t(v) VALUES('on')")
	synced(t, db)
	closeDB(t, db)
	db = open(t, "run", a.machine()) // cold, and a new generation: the former owner's objects may go
	if got := rows(t, db, "SELECT (count(*)-1)||':'||(max(id)-1)||':'||(sum(length(v))-2) FROM t"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	integrity(t, db)
	exec(t, db, "INSERT INTO t(v) VALUES('on')")
	synced(t, db)
	merged(t, db)
	r = collect(t, a, "run")
	after, left = stored(t, a, "run")
	t.Logf("after the next owner: %d objects, %d kB; %+v", after, left>>10, *r)
	if left > 5*3<<20 { // the head, the labelled point and the fork's point stand on different pages, of 3 MB each; the levels of a base overlap
		t.Errorf("%d kB of %d kB are left of a database of 3 MB", left>>10, size>>10)
	}
	closeDB(t, db)
	for name, at := range map[string]tonbo.At{"run": nil, "fork": nil} {
		ro := readOnly(t, a, name, at)
		if name == "fork" {
			if got := rows(t, ro, stateQuery); got != want {
				t.Errorf("fork: got %s, want %s", got, want)
			}
		}
		integrity(t, ro)
		closeDB(t, ro)
		if v, err := c.Verify(context.Background(), name); err != nil || !v.OK() {
			t.Errorf("%s: %+v %v", name, v, err)
		}
	}
	ro := readOnly(t, a, "run", tonbo.Label("keep"))
	if got := rows(t, ro, stateQuery); got != labelled {
		t.Errorf("the labelled point: %s, want %s", got, labelled)
	}
	closeDB(t, ro)
}

func TestDeletedDatabaseLeavesOnlyWhatForksNeed(t *testing.T) {
	a := newAccount(t)
	db, _ := stepped(t, a, "golden", 12, func(o tonbo.Options) tonbo.Options { return o.Tuned(4, time.Hour) })
	want := rows(t, db, stateQuery)
	closeDB(t, db)
	c := client(t, a)
	fork(t, c, "golden", "f", nil)
	if err := c.Delete(context.Background(), "golden"); err != nil {
		t.Fatal(err)
	}
	collect(t, a, "golden")
	f := open(t, "f", a.machine())
	if got := rows(t, f, stateQuery); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	closeDB(t, f)
	if err := c.Delete(context.Background(), "f"); err != nil {
		t.Fatal(err)
	}
	for range 3 { // chains let go one link a round
		collect(t, a, "f")
		collect(t, a, "golden")
	}
	for _, name := range []string{"golden", "f"} {
		keys, _, err := a.store.List(context.Background(), "db/"+name+"/", remote.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			if k.Size > 600 {
				t.Errorf("%s (%d bytes) is left", k.Key, k.Size)
			}
		}
		t.Log(fmt.Sprint(name, ": ", len(keys), " slots stay for ever (R5)"))
	}
}

// TestSmallDatabaseStaysSmall: a database whose entries carry it whole has no need of bases to be opened, but the horizon rises with them.
func TestSmallDatabaseStaysSmall(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	o := a.machine()
	o.History = time.Nanosecond
	for round := range 3 {
		db := open(t, "run", o)
		exec(t, db, "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v)")
		for i := range 400 {
			exec(t, db, "INSERT OR REPLACE INTO t(id, v) VALUES(?, randomblob(100))", i%50)
			synced(t, db)
		}
		closeDB(t, db)
		collect(t, a, "run")
		objects, bytes := stored(t, a, "run")
		t.Logf("round %d: %d objects, %d kB", round, objects, bytes>>10)
		if objects > 600 || bytes > 2<<20 { // of 2,400 entries
			t.Errorf("%d objects, %d kB are left of a database of 20 kB", objects, bytes>>10)
		}
	}
}

// TestLongLivedOwnerCollectsWhatItSuperseded: segments that large entries named, bases, uploads that failed and compactions that came to nothing go while their owner lives; what a label
// stands on stays, and so does all that the head needs.
func TestLongLivedOwnerCollectsWhatItSuperseded(t *testing.T) {
	ctx := context.Background()
	store := tonbotest.NewStore(mem.New("test"))
	a := newAccount(t)
	a.store = store
	a.create("run")
	o := a.machine().Tuned(1000, time.Hour).Collecting()
	o.History = time.Nanosecond
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
	exec(t, db, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<6000) INSERT INTO t(v) SELECT randomblob(900) FROM s")
	labelled := ""
	var most int64
	for i := range 12 {
		exec(t, db, "UPDATE t SET v=randomblob(900)") // 6 MB in segments
		switch i {
		case 3:
			if _, err := db.Checkpoint(ctx, "keep"); err != nil {
				t.Fatal(err)
			}
			labelled = rows(t, db, "SELECT hex(v) FROM t WHERE id=77")
		case 5: // the second segment, or the entry, is refused; what was uploaded is nobody's
			store.Fail(tonbotest.Match{Op: tonbotest.Create, Key: "/log/"}, 1, remote.ErrQuota)
			if err := db.Synced(ctx); !errors.Is(err, tonbo.ErrQuota) {
				t.Fatal(err)
			}
		case 7:
			synced(t, db)
			store.Fail(tonbotest.Match{Op: tonbotest.Create, Key: "/base/"}, 1, remote.ErrQuota)
			if err := db.Compact(ctx, false); !errors.Is(err, remote.ErrQuota) {
				t.Fatal(err)
			}
		case 9:
			synced(t, db)
			store.Fail(tonbotest.Match{Op: tonbotest.Create, Key: "/log/"}, 1, remote.ErrQuota)
			if err := db.Compact(ctx, false); !errors.Is(err, remote.ErrQuota) {
				t.Fatal(err)
			}
		}
		synced(t, db)
		if err := db.Compact(ctx, false); err != nil {
			t.Fatal(err)
		}
		if err := db.CollectOwn(ctx); err != nil {
			t.Fatal(err)
		}
		_, bytes := stored(t, a, "run")
		most = max(most, bytes)
	}
	if most > 48<<20 { // the labelled point's, the base in force, the one before, what was shipped since, twice; without collection 150 MB
		t.Errorf("%d MiB are stored of a database of 6 MB", most>>20)
	}
	exec(t, db, "UPDATE t SET v=randomblob(10) WHERE id=1")
	for range 3 {
		synced(t, db)
		if err := db.Compact(ctx, false); err != nil {
			t.Fatal(err)
		}
		exec(t, db, "UPDATE t SET v=randomblob(10) WHERE id=1")
	}
	if err := db.CollectOwn(ctx); err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for k := range db.Base().Named() {
		named[k] = true
	}
	page, _, err := store.List(ctx, "db/run/seg/", remote.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	other := 0
	for _, i := range page {
		if !named[i.Key] {
			other++
		}
	}
	t.Logf("at most %d MiB; at the end %d segments, %d of them not in the base", most>>20, len(page), other)
	if other > 3 { // of the labelled point, and of the base before
		t.Errorf("%d segments are left over", other)
	}
	ro := readOnly(t, a, "run", tonbo.Label("keep"))
	if got := rows(t, ro, "SELECT hex(v) FROM t WHERE id=77"); got != labelled {
		t.Error("the labelled point is another")
	}
	closeDB(t, ro)
	closeDB(t, db)
	if v, err := client(t, a).Verify(ctx, "run"); err != nil || !v.OK() {
		t.Errorf("%+v %v", v, err)
	}
}

// TestDeletedDataIsGoneFromTheRemote: once a deleted database is collected, nothing of what was in it is left, however it came there. What does not compress shows where it is.
func TestDeletedDataIsGoneFromTheRemote(t *testing.T) {
	ctx := context.Background()
	secret := make([]byte, 3000)
	rand.Read(secret)
	for how, begin := range map[string]func(c *tonbo.Client, a *account){
		"created": func(c *tonbo.Client, a *account) { a.create("run") },
		"imported": func(c *tonbo.Client, a *account) {
			path := filepath.Join(t.TempDir(), "plain.db")
			f, err := sql.Open("sqlite3", "file:"+path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err = f.Exec("CREATE TABLE t(x)"); err == nil {
				_, err = f.Exec("INSERT INTO t VALUES(?)", secret)
			}
			if err == nil {
				_, err = c.Import(ctx, "run", path, tonbo.CreateOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
		},
		"forked": func(c *tonbo.Client, a *account) {
			a.create("source")
			db := open(t, "source", a.machine())
			exec(t, db, "CREATE TABLE t(x)")
			exec(t, db, "INSERT INTO t VALUES(?)", secret)
			closeDB(t, db)
			fork(t, c, "source", "run", nil)
			if err := c.Delete(ctx, "source"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			a := newAccount(t)
			c := client(t, a)
			begin(c, a)
			for range 2 {
				db := open(t, "run", a.machine())
				exec(t, db, "CREATE TABLE IF NOT EXISTS t(x)")
				exec(t, db, "INSERT INTO t VALUES(?)", secret)
				synced(t, db)
				closeDB(t, db)
			}
			d, err := c.Get(ctx, "run")
			if err == nil {
				_, err = c.Rewind(ctx, "run", tonbo.Slot(d.Head.Slot-1))
			}
			if err == nil {
				err = c.Delete(ctx, "run")
			}
			if err != nil {
				t.Fatal(err)
			}
			for range 3 { // a fork lets go one link a round
				collect(t, a, "run")
				collect(t, a, "source")
			}
			for k, b := range bodies(t, a.store) {
				if len(b) > 1000 {
					t.Errorf("%s (%d bytes) is left", k, len(b))
				}
			}
		})
	}
}
