package tonbo_test

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"

	"github.com/tonbo-go/tonbo"
)

// usage of name in a's account.
func usage(t *testing.T, a *account, name string) *tonbo.Usage {
	t.Helper()
	c, err := tonbo.NewClient(a.machine())
	if err != nil {
		t.Fatal(err)
	}
	u, err := c.Usage(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestUsageCountsWhatARunDid(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	if u := usage(t, a, "run"); u.Creates != 1 || u.Opens != 0 || u.Commits != 0 || u.WriteUnits != 1 || u.StoredBytes == 0 {
		t.Errorf("created: %+v", u)
	}
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, b BLOB)") // commit 1
	synced(t, db)
	for range 5 { // commits 2 to 6 in one shipment of a few KiB
		exec(t, db, "INSERT INTO t(b) VALUES(randomblob(100))")
	}
	synced(t, db)
	synced(t, db) // nothing to ship
	if u := usage(t, a, "run"); u.Opens != 1 || u.Commits != 6 || u.WriteUnits != 1+1+6 || u.Requests.Put != int64(db.Status().Requests.Put) {
		t.Errorf("after six small commits: %+v, handle's %+v", u, db.Status().Requests)
	}
	noise := make([]byte, 100<<10) // about 10 units
	rand.Read(noise)
	before := db.Status().Requests.BytesUp
	exec(t, db, "INSERT INTO t(b) VALUES(?)", noise)
	synced(t, db)
	shipped := db.Status().Requests.BytesUp - before
	u := usage(t, a, "run")
	if want := 8 + (shipped-600+tonbo.UnitBytes-1)/tonbo.UnitBytes; u.Commits != 7 || u.WriteUnits < want || u.WriteUnits > want+1 { // the header of an entry, up to 600 bytes, is not in it
		t.Errorf("%d bytes shipped: %d units, want %d or one more", shipped, u.WriteUnits, want)
	}
	closeDB(t, db)

	// Another machine: the totals go on.
	again := open(t, "run", a.machine())
	exec(t, again, "DELETE FROM t")
	synced(t, again)
	got := usage(t, a, "run")
	if got.Opens != 2 || got.Commits != 8 || got.Creates != 1 || got.BytesShipped <= u.BytesShipped || got.Requests.Get <= u.Requests.Get || got.StorageByteDays <= u.StorageByteDays {
		t.Errorf("on the next machine: %+v, before it %+v", got, u)
	}
	// Taken back in the same process: nothing is counted twice.
	open(t, "run", a.machine())
	if err := again.Synced(context.Background()); !errors.Is(err, tonbo.ErrFenced) {
		t.Fatal(err)
	}
	if err := again.Reopen(context.Background()); err != nil {
		t.Fatal(err)
	}
	exec(t, again, "INSERT INTO t(b) VALUES(1)")
	synced(t, again)
	if u := usage(t, a, "run"); u.Opens != 4 || u.Commits != 9 || u.Requests.Put != int64(again.Status().Requests.Put)+int64(db.Status().Requests.Put) {
		t.Errorf("after Reopen: %+v, handles' puts %d and %d", u, db.Status().Requests.Put, again.Status().Requests.Put)
	}
	closeDB(t, again)
}

func TestUsageOfARewoundDatabaseGoesOn(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY)")
	p, err := db.Checkpoint(context.Background(), "made")
	if err != nil {
		t.Fatal(err)
	}
	exec(t, db, "INSERT INTO t VALUES(1)")
	synced(t, db)
	closeDB(t, db)
	before := usage(t, a, "run")
	c, err := tonbo.NewClient(a.machine())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Rewind(context.Background(), "run", p); err != nil {
		t.Fatal(err)
	}
	if u := usage(t, a, "run"); u.Commits != before.Commits || u.Opens != before.Opens || u.BytesShipped != before.BytesShipped {
		t.Errorf("rewound: %+v, before %+v", u, before)
	}
}

func TestUsageOfTheAccountOutlivesItsDatabases(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	for _, name := range []string{"a", "b", "c"} {
		a.create(name)
		db := open(t, name, a.machine())
		exec(t, db, "CREATE TABLE t(x)")
		exec(t, db, "INSERT INTO t VALUES(1)")
		closeDB(t, db)
	}
	before := usage(t, a, "")
	if before.Databases != 3 || before.Creates != 3 || before.Opens != 3 || before.Commits != 6 || before.WriteUnits != 3+3+6 || before.Requests.Put == 0 || before.StoredBytes == 0 {
		t.Errorf("three databases: %+v", before)
	}
	c := a.client()
	for _, name := range []string{"a", "b"} {
		if err := c.Delete(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	a.create("a") // the name is used again
	after := usage(t, a, "")
	if after.Databases != 2 || after.Creates != 4 || after.Opens != 3 || after.Commits != 6 || after.WriteUnits != 4+3+6 || after.Requests != before.Requests {
		t.Errorf("two deleted, one made: %+v, before %+v", after, before)
	}
}

func TestUsageOfWhatIsNotThere(t *testing.T) {
	c, err := tonbo.NewClient(newAccount(t).machine())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Usage(context.Background(), "nobody"); !errors.Is(err, tonbo.ErrNotFound) {
		t.Error(err)
	}
}
