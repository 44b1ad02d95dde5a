package tonbo_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
)

func fork(t testing.TB, c *tonbo.Client, source, name string, at tonbo.At) {
	t.Helper()
	if _, err := c.Fork(context.Background(), source, name, tonbo.ForkOptions{At: at}); err != nil {
		t.Fatal(err)
	}
}

func TestForksBeginAtTheirPointAndGoTheirOwnWay(t *testing.T) {
	for _, entries := range []int{1000, 3} { // from the log alone; from bases
		t.Run(fmt.Sprint(entries), func(t *testing.T) {
			a := newAccount(t)
			tune := func(o tonbo.Options) tonbo.Options { return o.Tuned(entries, time.Hour) }
			db, points := stepped(t, a, "golden", 20, tune)
			c := client(t, a)
			want := map[int]string{}
			for i := range points {
				if i%3 == 1 {
					ro := readOnly(t, a, "golden", points[i])
					want[i] = rows(t, ro, stateQuery)
					closeDB(t, ro)
					fork(t, c, "golden", fmt.Sprint("f-", i), tonbo.Label(fmt.Sprint("step-", i)))
				}
			}
			golden := rows(t, db, stateQuery)
			for i, w := range want {
				name := fmt.Sprint("f-", i)
				m := tune(a.machine())
				f := open(t, name, m)
				if got := rows(t, f, stateQuery); got != w {
					t.Errorf("%s: got %s, want %s", name, got, w)
				}
				for j := range 8 {
					exec(t, f, "INSERT INTO t(v) VALUES(?)", fmt.Sprint(name, j))
					exec(t, f, "UPDATE t SET v=randomblob(50) WHERE id%4=1")
					synced(t, f)
				}
				w = rows(t, f, stateQuery)
				closeDB(t, f)
				f = open(t, name, m) // warm
				if got := rows(t, f, stateQuery); got != w {
					t.Errorf("%s warm: got %s, want %s", name, got, w)
				}
				closeDB(t, f)
				f = open(t, name, a.machine()) // cold
				if got := rows(t, f, stateQuery); got != w {
					t.Errorf("%s cold: got %s, want %s", name, got, w)
				}
				integrity(t, f)
				fork(t, c, name, name+"-again", nil) // a fork of a fork
				closeDB(t, f)
				g := open(t, name+"-again", a.machine())
				if got := rows(t, g, stateQuery); got != w {
					t.Errorf("%s-again: got %s, want %s", name, got, w)
				}
				closeDB(t, g)
			}
			synced(t, db)
			if got := rows(t, db, stateQuery); got != golden {
				t.Errorf("the source has changed: %s, want %s", got, golden)
			}
		})
	}
}

func TestForkCostsTheSameAtAnySize(t *testing.T) {
	costs := map[int]tonbo.Requests{}
	for _, n := range []int{10, 20_000} {
		a := newAccount(t)
		a.create("golden")
		db := open(t, "golden", a.machine())
		exec(t, db, "CREATE TABLE t(v)")
		exec(t, db, fmt.Sprintf("WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<%d) INSERT INTO t SELECT randomblob(1000) FROM s", n))
		closeDB(t, db)
		var counter remote.Counter
		c, err := tonbo.NewClient(tonbo.Options{Remote: remote.Counted(a.store, &counter), Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		before := counter.Counts()
		fork(t, c, "golden", "f", nil)
		after := counter.Counts()
		costs[n] = tonbo.Requests{Put: after.Put - before.Put, Get: after.Get - before.Get, List: after.List - before.List, BytesUp: after.BytesUp, BytesDown: after.BytesDown}
	}
	for n, r := range costs {
		if total := r.Put + r.Get + r.List; total > 8+1 || r.BytesUp+r.BytesDown > 16<<10 { // one for the account's first use by this client
			t.Errorf("%d rows: %+v", n, r)
		}
	}
	if costs[10].Put+costs[10].Get+costs[10].List != costs[20_000].Put+costs[20_000].Get+costs[20_000].List {
		t.Errorf("it depends on the size: %+v", costs)
	}
}

func TestForkOutlivesItsSource(t *testing.T) {
	a := newAccount(t)
	db, _ := stepped(t, a, "golden", 10, func(o tonbo.Options) tonbo.Options { return o.Tuned(3, time.Hour) })
	want := rows(t, db, stateQuery)
	c := client(t, a)
	fork(t, c, "golden", "mid", nil)
	fork(t, c, "mid", "leaf", nil)
	closeDB(t, db)
	for _, name := range []string{"mid", "golden"} {
		if err := c.Delete(context.Background(), name); err != nil {
			t.Fatal(err)
		}
	}
	leaf := open(t, "leaf", a.machine())
	if got := rows(t, leaf, stateQuery); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, err := c.Fork(context.Background(), "golden", "late", tonbo.ForkOptions{}); !errors.Is(err, tonbo.ErrNotFound) {
		t.Errorf("fork of a deleted database: %v", err)
	}
	if _, err := c.Fork(context.Background(), "leaf", "leaf", tonbo.ForkOptions{}); !errors.Is(err, tonbo.ErrExists) {
		t.Errorf("fork onto itself: %v", err)
	}
}

// TestForkRewoundIsOpenedWhereItWas: the local copy is of no use then, and what the fork has of its source counts again.
func TestForkRewoundIsOpenedWhereItWas(t *testing.T) {
	for _, n := range []int{10, 1300} { // whole at once, and lazily
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			ctx := context.Background()
			a := newAccount(t)
			a.grown("golden", n, true)
			db := open(t, "golden", a.machine().Unsettled())
			for i := range 3 {
				exec(t, db, "UPDATE t SET v=randomblob(900), k=k+1 WHERE id%3=0")
				exec(t, db, fmt.Sprintf("CREATE TABLE more%d(v)", i)) // page 1, which travels with the base, changes too
				synced(t, db)
			}
			want := digest(t, db)
			c := client(t, a)
			fork(t, c, "golden", "run", nil)
			o := a.machine().Unsettled()
			db = open(t, "run", o)
			exec(t, db, "INSERT INTO other(v) VALUES('the fork is own')")
			synced(t, db)
			p := db.Status().Point
			for range 3 {
				exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id=7")
				synced(t, db)
			}
			closeDB(t, db)
			if _, err := c.Rewind(ctx, "run", p); err != nil {
				t.Fatal(err)
			}
			db = open(t, "run", o)
			if got := digest(t, db); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if got := rows(t, db, "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'more%'"); got != "3" {
				t.Errorf("%s tables of the source's tail", got)
			}
			hydrated(t, db)
			integrity(t, db)
		})
	}
}

// TestForkWhoseSourceWasCollectedGoesOnFromItsOwnBase: slots of two logs say nothing of which base is newer.
func TestForkWhoseSourceWasCollectedGoesOnFromItsOwnBase(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	a.grown("golden", 3000, true)
	db := open(t, "golden", a.machine().Unsettled())
	for range 8 {
		exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id=7")
		synced(t, db)
	}
	if err := db.Compact(ctx, false); err != nil {
		t.Fatal(err)
	}
	source := db.Base().Slot
	closeDB(t, db)
	fork(t, client(t, a), "golden", "run", nil)
	o := a.lazyMachine().Unsettled()
	o.SharedCache = -1 // which would have what has gone
	db = open(t, "run", o)
	for id := 2500; id > 0; id -= 250 { // against the direction in which a scan is read ahead
		exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id>? AND id<=?", id-250, id)
	}
	synced(t, db)
	if err := db.Compact(ctx, false); err != nil {
		t.Fatal(err)
	}
	m := db.Base()
	for key := range m.Named() {
		if !strings.HasPrefix(key, "db/run/") {
			t.Fatalf("the fork's base still names %s", key)
		}
	}
	if m.Slot >= source {
		t.Fatalf("the fork's base is of slot %d, its source's of %d", m.Slot, source)
	}
	if s := db.Status(); s.PagesLocal == s.Pages {
		t.Fatal("no page is left to be fetched")
	}
	want := digest(t, a.reading("run", nil))
	page, _, err := a.store.List(ctx, "db/golden/", remote.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range page {
		if err := a.store.Delete(ctx, i.Key); err != nil {
			t.Fatal(err)
		}
	}
	if got := digest(t, db); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	hydrated(t, db)
	integrity(t, db)
}
