package tonbo_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
)

// farForks makes a golden database of about so many MiB and two forks of it, in each of which n rows have changed, all over the table.
func farForks(t testing.TB, a *account, mib, n int) {
	t.Helper()
	a.create("golden")
	db := open(t, "golden", a.machine())
	exec(t, db, "CREATE TABLE docs(id INTEGER PRIMARY KEY, title TEXT, body BLOB)")
	exec(t, db, "CREATE TABLE tags(doc INTEGER, tag TEXT, PRIMARY KEY(doc, tag)) WITHOUT ROWID")
	for range mib {
		exec(t, db, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<960) INSERT INTO docs(title, body) SELECT 'title ' || n, randomblob(400) || zeroblob(600) FROM s")
	}
	exec(t, db, "INSERT INTO tags SELECT id, 'tag ' || id % 7 FROM docs WHERE id % 5 = 0")
	exec(t, db, "CREATE INDEX title ON docs(title)")
	closeDB(t, db)
	c := client(t, a)
	r := rand.New(rand.NewPCG(1, 1))
	for _, name := range []string{"one", "two"} {
		fork(t, c, "golden", name, nil)
		o := a.machine()
		o.Hydration = tonbo.HydrateNone
		f := open(t, name, o)
		for range n {
			exec(t, f, "UPDATE docs SET title = ? WHERE id = ?", "changed in "+name, 1+r.IntN(mib*960))
		}
		exec(t, f, "INSERT INTO tags VALUES(?, ?)", r.IntN(mib*960), "new in "+name)
		closeDB(t, f)
	}
}

// cost compares the forks through fresh handles over a store whose requests take a while.
func cost(t testing.TB, a *account, delay time.Duration) (cs *tonbo.ChangeSet, r tonbo.Requests, chain int, took time.Duration) {
	t.Helper()
	slow := &chained{Store: a.store, delay: delay}
	far := &account{t: t, store: slow}
	start := time.Now()
	var handles []*tonbo.DB
	for _, name := range []string{"one", "two"} {
		o := far.machine()
		o.Hydration = tonbo.HydrateNone
		db, err := tonbo.OpenReadOnly(context.Background(), name, o)
		if err != nil {
			t.Fatal(err)
		}
		handles = append(handles, db)
	}
	cs = diff(t, handles[0], handles[1])
	took = time.Since(start)
	for _, db := range handles {
		q := db.Status().Requests
		r.Get, r.List, r.BytesDown = r.Get+q.Get, r.List+q.List, r.BytesDown+q.BytesDown
		closeDB(t, db)
	}
	_, chain = slow.counts()
	return cs, r, chain, took
}

func TestDiffOfForksCostsWhatTheChangeDoes(t *testing.T) {
	a := newAccount(t)
	const mib, n = 100, 50
	farForks(t, a, mib, n)
	cs, r, chain, took := cost(t, a, 2*time.Millisecond)
	inserted, updated, deleted := cs.Count()
	t.Logf("%d MiB: %d inserted, %d updated, %d deleted; %d GETs, %d LISTs, %d one after the other, %d KiB, %s", mib, inserted, updated, deleted, r.Get, r.List, chain, r.BytesDown>>10, took)
	if updated < 2*n-5 || inserted != 1 || deleted != 1 {
		t.Errorf("%d inserted, %d updated, %d deleted", inserted, updated, deleted)
	}
	// For each row two leaves, in two blocks each, and what leads to them; a block has 64 KiB.
	if most := int64(4*2*n + 40); r.Get > most {
		t.Errorf("%d GETs, want at most %d", r.Get, most)
	}
	if most := int64(mib << 20 / 4); r.BytesDown > most {
		t.Errorf("%d bytes, want at most %d", r.BytesDown, most)
	}
}

// TestDiffOfForksOfALargeDatabase has 1 GiB, and requests of 20 ms.
func TestDiffOfForksOfALargeDatabase(t *testing.T) {
	if os.Getenv("TONBO_TEST_LARGE") == "" {
		t.Skip("set TONBO_TEST_LARGE=1: 1 GiB of memory, a few minutes")
	}
	a := newAccount(t)
	farForks(t, a, 1024, 50)
	for range 3 {
		cs, r, chain, took := cost(t, a, 20*time.Millisecond)
		inserted, updated, deleted := cs.Count()
		t.Logf("1 GiB: %d inserted, %d updated, %d deleted; %d GETs, %d LISTs, %d one after the other, %d KiB, %s", inserted, updated, deleted, r.Get, r.List, chain, r.BytesDown>>10, took)
		if updated < 90 || r.Get > 500 || r.BytesDown > 64<<20 {
			t.Errorf("%d rows, %d GETs, %d bytes", updated, r.Get, r.BytesDown)
		}
	}
}

func BenchmarkDiffOfForks(b *testing.B) {
	for _, mib := range []int{10, 100} {
		b.Run(fmt.Sprint(mib, "MiB"), func(b *testing.B) {
			a := newAccount(b)
			farForks(b, a, mib, 50)
			for b.Loop() {
				_, r, chain, _ := cost(b, a, 20*time.Millisecond)
				b.ReportMetric(float64(r.Get), "GETs")
				b.ReportMetric(float64(chain), "chain")
				b.ReportMetric(float64(r.BytesDown), "bytes")
			}
		})
	}
}
