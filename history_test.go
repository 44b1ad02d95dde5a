package tonbo_test

import (
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
)

// TestHistoryGoesOnFromAnySlot: a page that begins before a slot shows what the whole shows from there, whatever is there: points within the window, labelled ones from before it, a rewind, what was collected, another incarnation.
func TestHistoryGoesOnFromAnySlot(t *testing.T) {
	for name, o := range map[string]struct {
		history time.Duration
		perBase int
	}{"window": {time.Hour, 4}, "labels alone": {time.Nanosecond, 4}, "log": {time.Hour, 1000}} {
		t.Run(name, func(t *testing.T) {
			a := newAccount(t)
			tune := func(m tonbo.Options) tonbo.Options {
				m.History = o.history
				return m.Tuned(o.perBase, o.history)
			}
			first, _ := stepped(t, a, "run", 2, tune) // another incarnation, before this one
			closeDB(t, first)
			if err := client(t, a).Delete(t.Context(), "run"); err != nil {
				t.Fatal(err)
			}
			db, points := stepped(t, a, "run", 12, tune)
			for range 5 {
				exec(t, db, "INSERT INTO t(v) VALUES(1)")
				synced(t, db)
			}
			closeDB(t, db)
			c := client(t, a)
			if _, err := c.Rewind(t.Context(), "run", points[10]); err != nil {
				t.Fatal(err)
			}
			told := func(all iter.Seq2[tonbo.HistoryEntry, error], before uint64) string {
				var b strings.Builder
				for e, err := range all {
					if err != nil {
						t.Fatal(err)
					}
					if e.Slot < before {
						fmt.Fprintf(&b, "%d %s %s %s\n", e.Slot, e.Kind, e.Label, e.ID)
					}
				}
				return b.String()
			}
			var head uint64
			for e := range c.History(t.Context(), "run") {
				head = e.Slot
				break
			}
			for before := uint64(0); before <= head+2; before++ {
				want := told(c.History(t.Context(), "run"), before)
				if got := told(c.HistoryBefore(t.Context(), "run", before), before+1); got != want {
					t.Errorf("before slot %d:\n%swant:\n%s", before, got, want)
				}
			}
		})
	}
}

// TestPageOfHistoryCostsWhatItShows, however far back it is.
func TestPageOfHistoryCostsWhatItShows(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine().Tuned(10000, time.Hour))
	exec(t, db, "CREATE TABLE t(v)")
	for range 400 {
		exec(t, db, "INSERT INTO t VALUES(1)")
		synced(t, db)
	}
	closeDB(t, db)
	c := client(t, a)
	for _, before := range []uint64{400, 200, 20} {
		was := c.Requests()
		n := 0
		for _, err := range c.HistoryBefore(t.Context(), "run", before) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n == 10 {
				break
			}
		}
		if now := c.Requests(); now.Get-was.Get > 25 || now.List-was.List > 1 {
			t.Errorf("10 entries before slot %d: %d GETs, %d LISTs", before, now.Get-was.Get, now.List-was.List)
		}
	}
}
