package tonbo_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
)

func TestMain(m *testing.M) {
	if job := os.Getenv(jobEnv); job != "" {
		os.Exit(childMain(job))
	}
	if job := os.Getenv(forksEnv); job != "" {
		os.Exit(forksMain(job))
	}
	if job := os.Getenv(controlEnv); job != "" {
		os.Exit(controlMain(job))
	}
	goleak.VerifyTestMain(m)
}

// account is one remote, seen from several machines.
type account struct {
	t     testing.TB
	store remote.Store
	o     tonbo.Options
}

func newAccount(t testing.TB) *account { return &account{t: t, store: mem.New("test")} }

// machine returns options with a local directory of its own.
func (a *account) machine() tonbo.Options {
	o := a.o
	o.Remote, o.Dir = a.store, a.t.TempDir()
	return o
}

func (a *account) create(name string) {
	a.t.Helper()
	if _, err := tonbo.Create(context.Background(), name, a.machine()); err != nil {
		a.t.Fatal(err)
	}
}

func open(t testing.TB, name string, o tonbo.Options) *tonbo.DB {
	t.Helper()
	db, err := tonbo.Open(context.Background(), name, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func exec(t testing.TB, db *tonbo.DB, q string, args ...any) {
	t.Helper()
	if _, err := db.Exec(q, args...); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
}

func synced(t testing.TB, db *tonbo.DB) {
	t.Helper()
	if err := db.Synced(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func closeDB(t testing.TB, db *tonbo.DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// rows returns the first column of a query.
func rows(t testing.TB, db interface {
	Query(string, ...any) (*sql.Rows, error)
}, q string) string {
	t.Helper()
	r, err := db.Query(q)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out []string
	for r.Next() {
		var s string
		if err := r.Scan(&s); err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, " ")
}

func integrity(t testing.TB, db *tonbo.DB) {
	t.Helper()
	if got := rows(t, db, "PRAGMA integrity_check"); got != "ok" {
		t.Fatalf("integrity_check: %s", got)
	}
}

func TestAcknowledgedCommitsSurviveTheMachine(t *testing.T) {
	a := newAccount(t)
	a.create("run-42")
	db := open(t, "run-42", a.machine())
	exec(t, db, "CREATE TABLE steps(id INTEGER PRIMARY KEY, body TEXT)")
	for i := range 5 {
		exec(t, db, "INSERT INTO steps(body) VALUES(?)", fmt.Sprint("step-", i))
		synced(t, db)
	}
	exec(t, db, "INSERT INTO steps(body) VALUES('not acknowledged')")
	// The machine is lost: nothing is closed.
	db2 := open(t, "run-42", a.machine())
	if got, want := rows(t, db2, "SELECT body FROM steps ORDER BY id"), "step-0 step-1 step-2 step-3 step-4"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	integrity(t, db2)
	if !db2.Status().ColdStart {
		t.Error("not a cold start")
	}
	// And the former owner is refused.
	err := db.Synced(context.Background())
	var fe *tonbo.FencedError
	if !errors.Is(err, tonbo.ErrFenced) || !errors.As(err, &fe) || fe.Lost == "" {
		t.Fatalf("Synced of the former owner: %v", err)
	}
	if _, err := db.Exec("INSERT INTO steps(body) VALUES('late')"); !errors.Is(err, tonbo.ErrFenced) {
		t.Errorf("Exec: %v", err)
	}
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	tx.Exec("INSERT INTO steps(body) VALUES('late')")
	if err := tx.Commit(); !errors.Is(err, tonbo.ErrFenced) {
		t.Errorf("Tx.Commit: %v", err)
	}
	st, err := db.Prepare("INSERT INTO steps(body) VALUES('late') RETURNING id")
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	var id int
	if err := st.QueryRow().Scan(&id); !errors.Is(err, tonbo.ErrFenced) {
		t.Errorf("RETURNING: %v", err)
	}
	if got := rows(t, db, "SELECT count(*) FROM steps"); got != "6" {
		t.Errorf("reads must go on: %s rows", got)
	}
	select {
	case <-db.Done():
	default:
		t.Error("Done is not closed")
	}
	lost, err := sql.Open("sqlite3", fe.Lost)
	if err != nil {
		t.Fatal(err)
	}
	defer lost.Close()
	if got := rows(t, lost, "SELECT body FROM steps WHERE id=6"); got != "not acknowledged" {
		t.Errorf("the file set aside has %q", got)
	}
	// It can take it back.
	st.Close()
	if err := db.Reopen(context.Background()); err != nil {
		t.Fatal(err)
	}
	exec(t, db, "INSERT INTO steps(body) VALUES('back')")
	synced(t, db)
	if err := db2.Synced(context.Background()); !errors.Is(err, tonbo.ErrFenced) {
		t.Errorf("Synced of the second: %v", err)
	}
}

func TestWarmStartKeepsUnshippedCommits(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	m := a.machine()
	db := open(t, "run", m)
	exec(t, db, "CREATE TABLE t(v)")
	closeDB(t, db)
	for i := range 4 {
		db = open(t, "run", m)
		if db.Status().ColdStart {
			t.Errorf("round %d: cold", i)
		}
		exec(t, db, "INSERT INTO t VALUES(?)", i)
		closeDB(t, db)
	}
	db = open(t, "run", a.machine())
	if got := rows(t, db, "SELECT v FROM t"); got != "0 1 2 3" {
		t.Errorf("got %s", got)
	}
	if r := db.Status().Requests; r.Put+r.Get+r.List > 8 {
		t.Errorf("a cold start of a small database took %+v", r)
	}
}

func TestCostOfSynced(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
	synced(t, db)
	cost := func(f func()) tonbo.Requests {
		before := db.Status().Requests
		f()
		r := db.Status().Requests
		return tonbo.Requests{Put: r.Put - before.Put, Get: r.Get - before.Get, Head: r.Head - before.Head, List: r.List - before.List, Delete: r.Delete - before.Delete, BytesUp: r.BytesUp - before.BytesUp}
	}
	one := cost(func() { exec(t, db, "INSERT INTO t(v) VALUES(randomblob(1000))"); synced(t, db) })
	if one.Put != 1 || one.Get+one.Head+one.List+one.Delete != 0 || one.BytesUp > 6000 {
		t.Errorf("one commit: %+v", one)
	}
	many := cost(func() {
		for range 1000 {
			exec(t, db, "INSERT INTO t(v) VALUES('x')")
		}
		synced(t, db)
	})
	if many.Put != 1 || many.Get+many.Head+many.List+many.Delete != 0 {
		t.Errorf("1000 commits: %+v", many)
	}
	idle := cost(func() { synced(t, db) })
	if idle.Put != 0 || idle.List != 0 || idle.Get+idle.Head != 1 {
		t.Errorf("idle: %+v", idle)
	}
}

func TestConcurrentSyncedShareRoundTrips(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(v)")
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if _, err := db.Exec("INSERT INTO t VALUES(?)", i); err != nil {
				t.Error(err)
			}
			if err := db.Synced(context.Background()); err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	db2 := open(t, "run", a.machine())
	if got := rows(t, db2, "SELECT count(*) FROM t"); got != "32" {
		t.Errorf("%s rows", got)
	}
}

func TestStrictCommitIsRemoteOrNotAtAll(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	o := a.machine()
	o.Strict = true
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(v)")
	exec(t, db, "INSERT INTO t VALUES(1)")
	db2 := open(t, "run", a.machine())
	if got := rows(t, db2, "SELECT v FROM t"); got != "1" {
		t.Errorf("got %q", got)
	}
	if _, err := db.Exec("INSERT INTO t VALUES(2)"); !errors.Is(err, tonbo.ErrFenced) {
		t.Errorf("COMMIT of the former owner: %v", err)
	}
	if got := rows(t, db, "SELECT v FROM t"); got != "1" {
		t.Errorf("a refused COMMIT left %q", got)
	}
}

func TestLargeCommitTravelsInSegments(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(v)")
	exec(t, db, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<40) INSERT INTO t SELECT randomblob(1000000) FROM s")
	synced(t, db)
	db2 := open(t, "run", a.machine())
	if got := rows(t, db2, "SELECT sum(length(v)) FROM t"); got != "40000000" {
		t.Errorf("got %q", got)
	}
	integrity(t, db2)
}

func TestSQLOpenAndFrom(t *testing.T) {
	dir := t.TempDir()
	remoteURL := "file://" + dir + "/remote"
	if _, err := tonbo.Create(context.Background(), "run-1", tonbo.Options{URL: remoteURL, Dir: dir + "/a"}); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("tonbo", "tonbo:run-1?dir="+dir+"/a b&url="+remoteURL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE t(v); INSERT INTO t VALUES(7)"); err != nil {
		t.Fatal(err)
	}
	if err := tonbo.From(db).Synced(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir + "/a b"); err != nil {
		t.Error(err)
	}
	other := open(t, "run-1", tonbo.Options{URL: remoteURL, Dir: dir + "/c"})
	if got := rows(t, other, "SELECT v FROM t"); got != "7" {
		t.Errorf("got %q", got)
	}
	if tonbo.From(other.DB) == nil {
		t.Error("From does not know a pool of Open's")
	}
}

func TestDeletedDatabaseEndsItsOwner(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(v)")
	if err := tonbo.Delete(context.Background(), "run", a.machine()); err != nil {
		t.Fatal(err)
	}
	if err := db.Synced(context.Background()); !errors.Is(err, tonbo.ErrDeleted) {
		t.Errorf("Synced: %v", err)
	}
	if _, err := db.Exec("INSERT INTO t VALUES(1)"); !errors.Is(err, tonbo.ErrDeleted) {
		t.Errorf("Exec: %v", err)
	}
	if _, err := tonbo.Open(context.Background(), "run", a.machine()); !errors.Is(err, tonbo.ErrNotFound) {
		t.Errorf("Open: %v", err)
	}
	a.create("run")
	db2 := open(t, "run", a.machine())
	if got := rows(t, db2, "SELECT count(*) FROM sqlite_schema"); got != "0" {
		t.Errorf("the new incarnation has %s tables", got)
	}
}
