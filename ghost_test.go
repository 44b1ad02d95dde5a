package tonbo_test

import (
	"context"
	"testing"
)

// TestGhostInACollectedSlotIsNeverReadAsThePagesThatWereThere: a claim that was held back lands in the slot of a commit that has been collected since. It is of the same incarnation, and
// carries no pages: whoever still reads the point of that commit must not take the pages below for it. (The model finds such a schedule: fence.TestTrace -broken "an entry is not compared
// with the one meant".)
func TestGhostInACollectedSlotIsNeverReadAsThePagesThatWereThere(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(v)")
	synced(t, db)
	claim, commit := db.Status().Generation, db.Status().Slot
	c := client(t, a)
	for slot, pages := range map[uint64]bool{claim: false, commit: true} {
		if err := c.ReadPagesOf(context.Background(), "run", slot); (err == nil) != pages {
			t.Errorf("slot %d: %v", slot, err)
		}
	}
}
