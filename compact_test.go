package tonbo_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/base"
)

// image reads the local file of a closed database.
func image(t testing.TB, o tonbo.Options, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(o.Dir + "/" + name + "/db")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBasesHoldEveryPageWhateverTheWorkload(t *testing.T) {
	rounds := 120
	if testing.Short() {
		rounds = 40
	}
	for seed := range int64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			a := newAccount(t)
			a.create("run")
			rng := rand.New(rand.NewSource(seed))
			o := a.machine().Tuned([]int{3, 1, 1000}[seed], time.Hour)
			db := open(t, "run", o)
			exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, k INT, v BLOB); CREATE INDEX i ON t(k)")
			bases := 0
			for i := range rounds {
				switch rng.Intn(9) {
				case 0:
					exec(t, db, fmt.Sprintf("WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<%d) INSERT INTO t(k,v) SELECT random()%%1000, randomblob(900) FROM s", 1+rng.Intn(1500)))
				case 1:
					exec(t, db, "UPDATE t SET v=randomblob(400) WHERE k%50=?", rng.Intn(50))
				case 2:
					exec(t, db, "DELETE FROM t WHERE id%4=?", rng.Intn(4))
				case 3:
					exec(t, db, "VACUUM")
				case 4:
					exec(t, db, "PRAGMA wal_checkpoint(RESTART)")
				default:
					exec(t, db, "INSERT INTO t(k,v) VALUES(?,randomblob(300))", rng.Intn(1000))
				}
				synced(t, db)
				if i%7 == 6 && seed == 2 {
					if err := db.Compact(context.Background(), rng.Intn(2) == 0); err != nil {
						t.Fatal(err)
					}
				}
				if i%20 == 19 { // elsewhere, from bases and tail alone; it takes over
					if db.Base() != nil {
						bases++
					}
					want := rows(t, db, "SELECT count(*)||':'||coalesce(sum(length(v)),0)||':'||coalesce(sum(k),0) FROM t")
					if rng.Intn(2) == 0 {
						closeDB(t, db)
					}
					if rng.Intn(2) == 0 { // cold
						o = a.machine().Tuned([]int{3, 1, 1000}[seed], time.Hour)
					} else {
						db.Close()
					}
					db = open(t, "run", o)
					if got := rows(t, db, "SELECT count(*)||':'||coalesce(sum(length(v)),0)||':'||coalesce(sum(k),0) FROM t"); got != want {
						t.Fatalf("round %d: got %s, want %s", i, got, want)
					}
					integrity(t, db)
				}
			}
			if bases == 0 {
				t.Error("no base was made")
			}
			hydrated(t, db)
			closeDB(t, db)
			o2 := a.machine()
			o2.Hydration = tonbo.HydrateFull
			closeDB(t, open(t, "run", o2))
			if !bytes.Equal(image(t, o, "run"), image(t, o2, "run")) {
				t.Error("the rebuilt file differs from the owner's")
			}
		})
	}
}

func TestOpeningCostsFewRequestsAfterManySyncs(t *testing.T) {
	n := 3000
	if testing.Short() {
		n = 600
	}
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
	exec(t, db, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<10000) INSERT INTO t(v) SELECT randomblob(900) FROM s")
	synced(t, db)
	before := db.Status().Requests
	for i := range n {
		exec(t, db, "INSERT INTO t(v) VALUES(randomblob(200))")
		synced(t, db)
		_ = i
	}
	closeDB(t, db)
	up := db.Status().Requests
	db = open(t, "run", a.lazyMachine()) // nothing is fetched beside it
	r := db.Status().Requests
	t.Logf("%d syncs: %d puts, %d kB up; cold open %+v; base %d levels", n, up.Put-before.Put, (up.BytesUp-before.BytesUp)/1000, r, levels(db.Base()))
	if total := r.Put + r.Get + r.List + r.Head; total > 12 {
		t.Errorf("the cold open took %d requests, want at most 12", total)
	}
}

func levels(m *base.Manifest) int {
	if m == nil {
		return 0
	}
	return len(m.Levels)
}

// Close compacts, and a Synced that ends at that moment may begin a compaction as well: of two that were planned on one base only the first is published.
func TestCompactionsAtOnceLoseNothing(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine().Tuned(3, time.Hour))
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
	exec(t, db, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<2000) INSERT INTO t(v) SELECT randomblob(900) FROM s")
	var wg sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	for range 3 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := db.Compact(ctx, false); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	rounds := 150
	if testing.Short() {
		rounds = 60
	}
	for i := range rounds {
		exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id%50=?", i%50)
		synced(t, db)
	}
	stop()
	wg.Wait()
	want := rows(t, db, stateQuery)
	closeDB(t, db)
	o := a.machine()
	o.Hydration = tonbo.HydrateFull // compares every page with the checksum
	cold := open(t, "run", o)
	if got := rows(t, cold, stateQuery); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if v, err := client(t, a).Verify(context.Background(), "run"); err != nil || !v.OK() {
		t.Errorf("%+v, %v", v, err)
	}
}
