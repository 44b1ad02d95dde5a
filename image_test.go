package tonbo_test

import (
	"context"
	"os"
	"strconv"
	"testing"

	"github.com/tonbo-go/tonbo/tonbotest"
)

// A database that shrinks and grows again before it is shipped, with several resets of the write-ahead log in between and writes behind the last: a crash
// then loses nothing on a disk that is kept.
func TestCrashAfterShrinkAndRegrowthLosesNothing(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	m := a.machine()
	db := open(t, "run", m)
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
	grow := insert(30)
	exec(t, db, grow)
	synced(t, db)
	exec(t, db, "DELETE FROM t WHERE id > 5")
	exec(t, db, "VACUUM")
	exec(t, db, grow)
	for i := range 3 {
		exec(t, db, "PRAGMA wal_checkpoint(TRUNCATE)")
		exec(t, db, "UPDATE t SET v = zeroblob(3000) WHERE id = ?", 10+i)
	}
	exec(t, db, "UPDATE t SET v = zeroblob(2900) WHERE id > 20")
	want := rows(t, db, "SELECT id || hex(substr(v, 1, 8)) FROM t")

	// The disk as a crash would leave it.
	crashed := m
	crashed.Dir = t.TempDir()
	if err := os.CopyFS(crashed.Dir, os.DirFS(m.Dir)); err != nil {
		t.Fatal(err)
	}
	db2 := open(t, "run", crashed)
	if st := db2.Status(); st.ColdStart || st.Lost != "" {
		t.Errorf("cold start %t, set aside %q", st.ColdStart, st.Lost)
	}
	if got := rows(t, db2, "SELECT id || hex(substr(v, 1, 8)) FROM t"); got != want {
		t.Errorf("got %.200s, want %.200s", got, want)
	}
	integrity(t, db2)
}

// The same while a shipment is on its way that is stored, and whose answer the process does not live to see: what shrinks then is what that shipment holds,
// not what was known to be shipped.
func TestCrashAfterShrinkBesideAShipmentLosesNothing(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	s := tonbotest.NewStore(a.store)
	m := a.machine()
	m.Remote = s
	db := open(t, "run", m)
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
	synced(t, db) // a few pages
	exec(t, db, insert(40))

	// Many pages, stored; the answer is lost, and no later request ends.
	log := tonbotest.Match{Op: tonbotest.Create, Key: "/log/"}
	s.DropAnswer(log, 1)
	gate := s.Block(tonbotest.Match{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error)
	go func() { done <- db.Synced(ctx) }()
	if err := gate.Wait(ctx, 1); err != nil {
		t.Fatal(err)
	}

	exec(t, db, "DELETE FROM t WHERE id > 10")
	exec(t, db, "VACUUM")
	exec(t, db, "PRAGMA wal_checkpoint(TRUNCATE)")
	exec(t, db, insert(15))
	want := rows(t, db, "SELECT id || hex(substr(v, 1, 8)) FROM t")

	crashed := m
	crashed.Remote, crashed.Dir = a.store, t.TempDir()
	if err := os.CopyFS(crashed.Dir, os.DirFS(m.Dir)); err != nil {
		t.Fatal(err)
	}
	db2 := open(t, "run", crashed)
	if st := db2.Status(); st.ColdStart || st.Lost != "" {
		t.Errorf("cold start %t, set aside %q", st.ColdStart, st.Lost)
	}
	if got := rows(t, db2, "SELECT id || hex(substr(v, 1, 8)) FROM t"); got != want {
		t.Errorf("got %.200s, want %.200s", got, want)
	}
	integrity(t, db2)
	cancel()
	if err := <-done; err == nil {
		t.Error("Synced without an answer returned nil")
	}
	s.Heal()
}

// insert is a statement that inserts n rows of most of a page.
func insert(n int) string {
	return "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n < " + strconv.Itoa(n) + ") INSERT INTO t(v) SELECT randomblob(3000) FROM s"
}
