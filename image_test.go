package tonbo_test

import (
	"os"
	"testing"
)

// A database that shrinks and grows again before it is shipped, with several resets of the write-ahead log in between and writes behind the last: a crash
// then loses nothing on a disk that is kept.
func TestCrashAfterShrinkAndRegrowthLosesNothing(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	m := a.machine()
	db := open(t, "run", m)
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
	grow := "INSERT INTO t(v) SELECT randomblob(3000) FROM json_each('[" + "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30" + "]')"
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
