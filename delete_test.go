package tonbo_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// TestWriterNeedsNoPermissionToDelete: a key with Get, Put and List is enough for a writer, and nothing but an index record is asked to be deleted: collecting is
// somebody else's (R5, R9, R10).
func TestWriterNeedsNoPermissionToDelete(t *testing.T) {
	store := tonbotest.NewStore(mem.New("test"))
	store.Fail(tonbotest.Match{Op: tonbotest.Delete}, 1000, remote.ErrDenied)
	a := newAccount(t)
	a.store = store
	a.create("run")
	if _, err := tonbo.Create(context.Background(), "run", a.machine()); !errors.Is(err, tonbo.ErrExists) {
		t.Errorf("second Create: %v", err)
	}
	for i := range 3 {
		db := open(t, "run", a.machine())
		exec(t, db, "CREATE TABLE IF NOT EXISTS t(v)")
		for range 20 { // enough for entries that carry the whole database
			exec(t, db, "INSERT INTO t VALUES(randomblob(100))")
			synced(t, db)
		}
		exec(t, db, "INSERT INTO t VALUES(zeroblob(5000000))") // in segments
		synced(t, db)
		if i == 1 {
			continue // the next one takes it over
		}
		closeDB(t, db)
	}
	if err := tonbo.Delete(context.Background(), "run", a.machine()); err != nil {
		t.Errorf("Delete: %v", err)
	}
	a.create("run")
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(v)")
	synced(t, db)
	asked := 0
	for _, c := range store.Calls() {
		if c.Op != tonbotest.Delete {
			continue
		}
		if asked++; !strings.HasPrefix(c.Key, "names/") {
			t.Errorf("asked to delete %s", c.Key)
		}
	}
	if asked == 0 {
		t.Error("no index record was asked to be deleted: does this test see the calls?")
	}
	if !slices.ContainsFunc(store.Calls(), func(c tonbotest.Call) bool { return strings.Contains(c.Key, "/seg/") }) {
		t.Error("no segment was written")
	}
}
