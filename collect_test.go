package tonbo_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
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
			if _, err := db.Checkpoint(context.Background(), "keep"); err != nil {
				t.Fatal(err)
			}
			labelled = rows(t, db, stateQuery+" ")
		} else {
			synced(t, db)
		}
	}
	c := client(t, a)
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
	r = collect(t, a, "run")
	after, left = stored(t, a, "run")
	t.Logf("after the next owner: %d objects, %d kB; %+v", after, left>>10, *r)
	if left > size/4 { // the head, the labelled point and the fork's point stand on different pages
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
