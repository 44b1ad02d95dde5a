package tonbo_test

import (
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote/mem"
)

// A database that was imported, worked on and closed opens as one that was written here: its Close has left a base, whose upper pages come with it. So it does with packs above that, and with 170 steps behind it.
func TestFirstRowOfAnImportCostsTheSame(t *testing.T) {
	store := &chained{Store: mem.New("test")}
	a := &account{t: t, store: store}
	a.importOf("run", 1280) // 40 MiB, several chunks
	first := func(doing string, requests, serial int) {
		t.Helper()
		store.delay = 20 * time.Millisecond // long enough that what is sent together overlaps on a busy machine
		defer func() { store.delay = 0 }()
		least := 0
		for range 3 { // what is sent at once may look as if it was not, where the machine is busy
			store.reset()
			db := open(t, "run", a.lazyMachine().Unsettled())
			if got := rows(t, db, "SELECT k FROM t WHERE id=700"); got != "700" {
				t.Fatalf("%s: row %q", doing, got)
			}
			n, chain := store.counts()
			closeDB(t, db)
			t.Logf("%s: %d requests, %d one after the other", doing, n, chain)
			if n > requests {
				t.Errorf("%s: %d requests, want at most %d", doing, n, requests)
			}
			if least == 0 || chain < least {
				least = chain
			}
			if least <= serial {
				break
			}
		}
		if least > serial {
			t.Errorf("%s: %d one after the other, want at most %d", doing, least, serial)
		}
	}
	steps := func(o tonbo.Options, n int) {
		t.Helper()
		db := open(t, "run", o)
		for i := range n {
			exec(t, db, "UPDATE t SET k=k+1 WHERE id=?", 1+i)
			synced(t, db)
		}
		closeDB(t, db)
	}
	steps(a.lazyMachine(), 10)
	first("closed", 11, 6)
	packs := a.lazyMachine().Unsettled().Packing(4 << 20)
	db := open(t, "run", packs)
	for i := range 2 {
		exec(t, db, "UPDATE t SET k=k+1 WHERE id=?", 1+200*i)
		synced(t, db)
		if err := db.Compact(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(db.Base().Packs()); n == 0 {
		t.Fatalf("base: %+v", db.Base())
	}
	closeDB(t, db)
	first("packs", 14, 6)
	steps(packs, 170)
	first("packs and 170 steps behind", 14+170, 7)
}
