package tonbo_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	sqlitedriver "github.com/ncruces/go-sqlite3/driver"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/remote/mem"
)

// largeFile makes a SQLite file of about 3 MB.
func largeFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "large.db")
	db, err := sqlitedriver.Open("file:" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB); WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<3000) INSERT INTO t(v) SELECT randomblob(900) FROM s"); err != nil {
		t.Fatal(err)
	}
	return path
}

// bottomOf lists the objects of the lowest level of the base in force.
func bottomOf(t testing.TB, db *tonbo.DB) (keys []string) {
	t.Helper()
	m := db.Base()
	if m == nil {
		t.Fatal("there is no base")
	}
	for _, s := range m.Bottom() {
		keys = append(keys, s.Key)
	}
	return keys
}

// What an import has put is the bottom of the first base as it is, of its forks' as well, and goes when none of them stands on it.
func TestImportedPagesAreThePagesOfTheFirstBase(t *testing.T) {
	ctx := context.Background()
	store := weigh(mem.New("test"))
	a := newAccount(t)
	a.store = store
	c := client(t, a)
	if _, err := c.Import(ctx, "run", largeFile(t), tonbo.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	imported := segments(t, a.store)
	o := a.machine().Tuned(1000, time.Hour).Collecting()
	o.History = time.Nanosecond
	work := func(db *tonbo.DB) {
		t.Helper()
		for i := range 20 {
			exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id%150=?", i)
			synced(t, db)
		}
		merged(t, db)
	}
	cold := func(name, want string) {
		t.Helper()
		o := a.machine()
		o.Hydration = tonbo.HydrateFull // compares every page with the checksum
		db := open(t, name, o)
		if got := rows(t, db, stateQuery); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
		integrity(t, db)
		closeDB(t, db)
		if v, err := c.Verify(ctx, name); err != nil || !v.OK() {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
	// A fork of what nobody has opened.
	fork(t, c, "run", "fork", nil)
	child := open(t, "fork", o)
	work(child)
	if got := bottomOf(t, child); !slices.Equal(got, imported) {
		t.Errorf("the fork's bottom is %v, imported was %v", got, imported)
	}
	forked := rows(t, child, stateQuery)
	closeDB(t, child)
	cold("fork", forked)
	// Its owner.
	db := open(t, "run", o)
	_, before := store.sofar()
	work(db)
	if _, after := store.sofar(); after-before > 1<<20 {
		t.Errorf("the first base put %d kB for 400 rows", (after-before)>>10)
	}
	if got := bottomOf(t, db); !slices.Equal(got, imported) {
		t.Errorf("the bottom is %v, imported was %v", got, imported)
	}
	want := rows(t, db, stateQuery)
	collect(t, a, "run")
	closeDB(t, db)
	cold("run", want)
	// Merged into the bottom, it is needed by the fork alone.
	db = open(t, "run", o)
	exec(t, db, "UPDATE t SET v=randomblob(900)")
	synced(t, db)
	merged(t, db)
	if got := bottomOf(t, db); slices.ContainsFunc(got, func(k string) bool { return slices.Contains(imported, k) }) {
		t.Errorf("the bottom still has what was imported: %v", got)
	}
	for range 2 { // the horizon rises to what the base before covered, and that stands on the one before it
		exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id=1")
		synced(t, db)
		merged(t, db)
	}
	want = rows(t, db, stateQuery)
	collect(t, a, "run")
	if there := segments(t, a.store); !slices.Contains(there, imported[0]) {
		t.Error("what the fork stands on has been collected")
	}
	closeDB(t, db)
	cold("fork", forked)
	if err := c.Delete(ctx, "fork"); err != nil {
		t.Fatal(err)
	}
	collect(t, a, "fork")
	collect(t, a, "run")
	if there := segments(t, a.store); slices.Contains(there, imported[0]) {
		t.Errorf("nobody needs %s any more: %v", imported[0], there)
	}
	cold("run", want)
}

// A commit that holds the whole database, as a VACUUM's, is the bottom as it is, whatever was below.
func TestPagesOfAVacuumAreThePagesOfTheNextBase(t *testing.T) {
	store := weigh(mem.New("test"))
	a := newAccount(t)
	a.store = store
	a.create("run")
	o := a.machine().Tuned(1000, time.Hour).Collecting()
	o.History = time.Nanosecond
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
	exec(t, db, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<7000) INSERT INTO t(v) SELECT randomblob(900) FROM s")
	synced(t, db)
	merged(t, db)
	exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id%7=0")
	synced(t, db)
	merged(t, db)
	exec(t, db, "DELETE FROM t WHERE id%3=0")
	exec(t, db, "VACUUM")
	synced(t, db)
	exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id%100=1")
	synced(t, db)
	_, before := store.sofar()
	merged(t, db)
	if _, after := store.sofar(); after-before > 2<<20 {
		t.Errorf("the base after a VACUUM put %d kB for 80 rows", (after-before)>>10)
	}
	if m := db.Base(); len(m.Levels) != 2 || int64(base.Pages(m.Bottom())) < db.Status().Pages-1 {
		t.Errorf("levels %v of a database of %d pages", m.Levels, db.Status().Pages)
	}
	collect(t, a, "run")
	exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id%2=1") // down into the bottom
	synced(t, db)
	merged(t, db)
	exec(t, db, "UPDATE t SET v=randomblob(900)")
	synced(t, db)
	merged(t, db)
	want := rows(t, db, stateQuery)
	collect(t, a, "run")
	closeDB(t, db)
	o = a.machine()
	o.Hydration = tonbo.HydrateFull
	db = open(t, "run", o)
	if got := rows(t, db, stateQuery); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	integrity(t, db)
	closeDB(t, db)
	if v, err := client(t, a).Verify(context.Background(), "run"); err != nil || !v.OK() {
		t.Errorf("%+v, %v", v, err)
	}
}
