package tonbo_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote/mem"
)

// events is a slog.Handler that keeps the values of the attribute "event".
type events struct {
	mu   sync.Mutex
	seen []string
}

func (e *events) Enabled(context.Context, slog.Level) bool { return true }
func (e *events) WithAttrs([]slog.Attr) slog.Handler       { return e }
func (e *events) WithGroup(string) slog.Handler            { return e }
func (e *events) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "event" {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.seen = append(e.seen, a.Value.String())
		}
		return true
	})
	return nil
}

func (e *events) has(event string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Contains(" "+strings.Join(e.seen, " ")+" ", " "+event+" ")
}

// copyDir copies a directory tree.
func copyDir(t testing.TB, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
}

// readLost opens a file that was set aside, with any SQLite.
func readLost(t testing.TB, path, query string) string {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+filepath.ToSlash(path)+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if got := rows(t, db, "PRAGMA integrity_check"); got != "ok" {
		t.Errorf("%s: %s", path, got)
	}
	return rows(t, db, query)
}

func TestOneHandlePerDirectory(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	o := a.machine()
	db := open(t, "run", o)
	g := db.Status().Generation
	_, err := tonbo.Open(t.Context(), "run", o)
	var le *tonbo.LockedError
	if !errors.Is(err, tonbo.ErrLocked) || !errors.As(err, &le) || le.PID != os.Getpid() {
		t.Errorf("second Open: %v", err)
	}
	contains(t, err, "run", o.Dir, strconv.Itoa(os.Getpid()), "Dir")
	exec(t, db, "CREATE TABLE t(v)")
	synced(t, db) // nothing was claimed by it
	if s := db.Status(); s.Generation != g {
		t.Errorf("generation %d, was %d", s.Generation, g)
	}
	closeDB(t, db)
	closeDB(t, open(t, "run", o))
}

func TestForeignFileIsKept(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	o := a.machine()
	path := filepath.Join(o.Dir, "run", "db")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	mine, err := sql.Open("sqlite3", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mine.Exec("CREATE TABLE mine(v); INSERT INTO mine VALUES(1)"); err != nil {
		t.Fatal(err)
	}
	mine.Close()
	want, _ := os.ReadFile(path)
	before := objects(t, a.store)
	_, err = tonbo.Open(t.Context(), "run", o)
	if !errors.Is(err, tonbo.ErrForeignFile) {
		t.Fatalf("Open: %v", err)
	}
	contains(t, err, "run", path, "move it away")
	if got, _ := os.ReadFile(path); !bytes.Equal(got, want) {
		t.Error("the file was touched")
	}
	if after := objects(t, a.store); len(after) != len(before) {
		t.Errorf("an Open that cannot be served wrote to the store: %v", after)
	}
}

func TestUnusableDirectoryIsNamedBeforeAnythingIsClaimed(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	o := a.machine()
	o.Dir = filepath.Join(o.Dir, "file")
	if err := os.WriteFile(o.Dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := tonbo.Open(t.Context(), "run", o)
	contains(t, err, "run", o.Dir, "Options.Dir", "TONBO_DIR")
	exec(t, db, "CREATE TABLE t(v)")
	synced(t, db)
}

func TestLocalCopyOfAnotherDatabase(t *testing.T) {
	a := newAccount(t)
	a.create("one")
	a.create("two")
	o := a.machine()
	db := open(t, "one", o)
	exec(t, db, "CREATE TABLE t(v); INSERT INTO t VALUES('one')")
	closeDB(t, db)
	copyDir(t, filepath.Join(o.Dir, "one"), filepath.Join(o.Dir, "two"))
	db = open(t, "two", o)
	if got := rows(t, db, "SELECT count(*) FROM sqlite_schema"); got != "0" || !db.Status().ColdStart {
		t.Errorf("the database holds %s tables of another one", got)
	}
	closeDB(t, db)
}

func TestLocalCopyOfAnotherRemote(t *testing.T) {
	for _, unshipped := range []bool{false, true} {
		a := newAccount(t)
		a.create("run")
		o := a.machine()
		db := open(t, "run", o)
		exec(t, db, "CREATE TABLE t(v); INSERT INTO t VALUES('here')")
		synced(t, db)
		if unshipped {
			exec(t, db, "INSERT INTO t VALUES('unshipped')")
		}
		crash := t.TempDir()
		copyDir(t, o.Dir, crash)
		closeDB(t, db)
		b := &account{t: t, store: mem.New("elsewhere")}
		b.create("run")
		owner := open(t, "run", b.machine())
		ob := b.machine()
		ob.Dir = crash
		db, err := tonbo.Open(t.Context(), "run", ob)
		if !unshipped {
			if err != nil {
				t.Fatal(err)
			}
			if got := rows(t, db, "SELECT count(*) FROM sqlite_schema"); got != "0" {
				t.Errorf("%s tables of another remote", got)
			}
			closeDB(t, db)
			continue
		}
		if !errors.Is(err, tonbo.ErrForeignFile) {
			t.Fatalf("Open: %v", err)
		}
		contains(t, err, "run", "mem://test", "never shipped", crash)
		// Nobody was fenced for an Open that cannot be served, and the commits are still there for their own remote.
		synced(t, owner)
		oa := a.machine()
		oa.Dir = crash
		db, err = tonbo.Open(t.Context(), "run", oa)
		if err != nil {
			t.Fatal(err)
		}
		closeDB(t, db)
	}
}

func TestLocalCopyOfAnEarlierIncarnation(t *testing.T) {
	for _, unshipped := range []bool{false, true} {
		a := newAccount(t)
		a.create("run")
		o := a.machine()
		db := open(t, "run", o)
		exec(t, db, "CREATE TABLE t(v); INSERT INTO t VALUES('first')")
		synced(t, db)
		if unshipped {
			exec(t, db, "INSERT INTO t VALUES('unshipped')")
		}
		o.Dir = t.TempDir()
		copyDir(t, filepath.Dir(filepath.Dir(dbFile(t, db))), o.Dir)
		if err := tonbo.Delete(t.Context(), "run", o); err != nil {
			t.Fatal(err)
		}
		a.create("run")
		db2 := open(t, "run", o)
		if got := rows(t, db2, "SELECT count(*) FROM sqlite_schema"); got != "0" {
			t.Errorf("%s tables of an earlier incarnation", got)
		}
		lost := db2.Status().Lost
		if unshipped != (lost != "") {
			t.Fatalf("unshipped %v, set aside in %q", unshipped, lost)
		}
		if unshipped {
			if got := readLost(t, lost, "SELECT v FROM t"); got != "first unshipped" {
				t.Errorf("set aside: %q", got)
			}
		}
		db.Close()
	}
}

// dbFile is the path of the local copy.
func dbFile(t testing.TB, db *tonbo.DB) string {
	t.Helper()
	var seq int
	var name, file string
	if err := db.QueryRow("PRAGMA database_list").Scan(&seq, &name, &file); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestRemoteThatWentBackIsRefused(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	o := a.machine()
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(v)")
	synced(t, db)
	exec(t, db, "INSERT INTO t VALUES(1)")
	synced(t, db)
	closeDB(t, db)
	// The bucket is restored from an older backup: its newest entries are gone.
	for range 2 {
		var head string
		for k := range objects(t, a.store) {
			if strings.Contains(k, "/log/") && (head == "" || k < head) {
				head = k
			}
		}
		if err := a.store.Delete(t.Context(), head); err != nil {
			t.Fatal(err)
		}
	}
	before, tree := objects(t, a.store), files(t, o.Dir)
	_, err := tonbo.Open(t.Context(), "run", o)
	if !errors.Is(err, tonbo.ErrRemoteLost) {
		t.Fatalf("Open: %v", err)
	}
	contains(t, err, "run", "mem://test", "slot", o.Dir, "restore it")
	if after := objects(t, a.store); len(after) != len(before) {
		t.Error("it was claimed all the same")
	}
	for f, n := range tree {
		if after := files(t, o.Dir); after[f] != n {
			t.Errorf("%s was touched", f)
		}
	}
}

// A local copy behind the remote never ships anything older (libsql#687).
func TestStaleLocalCopyCatchesUp(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	o := a.machine()
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(v); INSERT INTO t VALUES(0)")
	closeDB(t, db)
	other := open(t, "run", a.machine())
	for i := range 5 {
		exec(t, other, "INSERT INTO t VALUES(?)", i+1)
		synced(t, other)
	}
	closeDB(t, other)
	entries := func() (n int) {
		for k := range objects(t, a.store) {
			if strings.Contains(k, "/log/") {
				n++
			}
		}
		return n
	}
	before := entries()
	db = open(t, "run", o)
	if got := rows(t, db, "SELECT v FROM t"); got != "0 1 2 3 4 5" {
		t.Errorf("got %q", got)
	}
	synced(t, db)
	if n := entries(); n != before+1 {
		t.Errorf("%d entries were written, want the claim alone", n-before)
	}
	integrity(t, db)
}

func TestUnshippedCommitsOfAFencedOwnerAreSetAsideAtOpen(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	o := a.machine()
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(v); INSERT INTO t VALUES('shipped')")
	synced(t, db)
	exec(t, db, "INSERT INTO t VALUES('unshipped')")
	crash := t.TempDir()
	copyDir(t, o.Dir, crash)
	other := open(t, "run", a.machine())
	exec(t, other, "INSERT INTO t VALUES('other')")
	closeDB(t, other)
	var log events
	o.Dir, o.Logger = crash, slog.New(&log)
	again := open(t, "run", o)
	if got := rows(t, again, "SELECT v FROM t"); got != "shipped other" {
		t.Errorf("got %q", got)
	}
	lost := again.Status().Lost
	if lost == "" || !log.has("lost") {
		t.Fatalf("set aside in %q, events %v", lost, log.seen)
	}
	if got := readLost(t, lost, "SELECT v FROM t"); got != "shipped unshipped" {
		t.Errorf("set aside: %q", got)
	}
}
