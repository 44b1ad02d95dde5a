package tonbo_test

import (
	"runtime"
	"testing"
)

// TestSyncedAllocatesLittle bounds what a commit of 1 kB and its Synced allocate. The store is in memory, so what HTTP takes is not among it.
func TestSyncedAllocatesLittle(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine().Unsettled())
	db.SetMaxOpenConns(1)
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)")
	st, err := db.Prepare("INSERT INTO t(v) VALUES(randomblob(1000))")
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	commit := func() {
		if _, err := st.Exec(); err != nil {
			t.Fatal(err)
		}
	}
	both := func() { commit(); synced(t, db) }
	for _, c := range []struct {
		name          string
		do            func()
		allocs, bytes uint64
	}{
		{"a commit and its Synced", both, 200, 40 << 10},
		{"a commit", commit, 40, 8 << 10},
	} {
		const n = 100
		for range 20 { // buffers
			c.do()
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range n {
			c.do()
		}
		runtime.ReadMemStats(&after)
		allocs, bytes := (after.Mallocs-before.Mallocs)/n, (after.TotalAlloc-before.TotalAlloc)/n
		t.Logf("%s: %d allocations, %d bytes in all", c.name, allocs, bytes)
		if allocs > c.allocs || bytes > c.bytes {
			t.Errorf("%s: %d allocations, %d bytes; at most %d and %d are expected", c.name, allocs, bytes, c.allocs, c.bytes)
		}
	}
}
