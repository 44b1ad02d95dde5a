package tonbo_test

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/remote/dir"
)

// peak samples the memory that the Go runtime holds from the system while f runs, and returns the largest value, in bytes.
func peak(f func()) uint64 {
	debug.FreeOSMemory() // what came before and is free is not f's
	var top atomic.Uint64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
		for {
			metrics.Read(s)
			top.Store(max(top.Load(), s[0].Value.Uint64()-s[1].Value.Uint64()))
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	f()
	close(stop)
	<-done
	return top.Load()
}

// TestMemoryOfALargeDatabase ships and opens a database of 1 GiB. It takes minutes, so $TONBO_TEST_LARGE turns it on.
func TestMemoryOfALargeDatabase(t *testing.T) {
	if os.Getenv("TONBO_TEST_LARGE") == "" {
		t.Skip("set TONBO_TEST_LARGE=1: 1 GiB, a few minutes, 5 GiB of disk")
	}
	store, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	a := &account{t: t, store: store}
	a.create("large")
	db := open(t, "large", a.machine())
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
	write := peak(func() {
		for range 4 {
			exec(t, db, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<67000) INSERT INTO t(v) SELECT randomblob(1500)||zeroblob(2500) FROM s")
		}
	})
	ship := peak(func() { synced(t, db) })
	pages := db.Status().Pages
	const byKey = "SELECT hex(substr(CAST(v AS BLOB),1,64)) FROM t WHERE id=200000"
	want := rows(t, db, byKey)
	closeDB(t, db)
	var start time.Time
	var row time.Duration
	opening := peak(func() {
		start = time.Now()
		db = open(t, "large", a.machine())
		if got := rows(t, db, byKey); got != want {
			t.Errorf("row: %q, want %q", got, want)
		}
		row = time.Since(start)
		hydrated(t, db)
	})
	took := time.Since(start)
	const limit = 128 << 20
	t.Logf("%d MiB; peak while writing it (the driver's own and our maps) %d MiB, while shipping %d MiB, while opening cold and hydrating %d MiB; first row after %s, all after %s", pages>>8, write>>20, ship>>20, opening>>20, row, took)
	for what, n := range map[string]uint64{"shipping": ship, "opening": opening} {
		if n > limit {
			t.Errorf("%s took %d MiB, want at most %d MiB", what, n>>20, limit>>20)
		}
	}
	if got := rows(t, db, "SELECT count(*) FROM t"); got != "268000" {
		t.Errorf("%s rows", got)
	}
}
