package tonbo_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
)

// smallDisk mounts a file system of a few MiB.
func smallDisk(t testing.TB, options string) string {
	t.Helper()
	d := t.TempDir()
	if err := syscall.Mount("tmpfs", d, "tmpfs", 0, options+",mode=700"); err != nil {
		t.Skipf("mounting a small file system needs privileges: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return d
}

// fill takes all room that is left, and returns how to give it back.
func fill(t testing.TB, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
}

func TestFullDisk(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	o := a.machine()
	o.Dir = smallDisk(t, "size=24m")
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(n INTEGER PRIMARY KEY, v BLOB)")
	exec(t, db, "INSERT INTO t VALUES(0, randomblob(5000))")
	synced(t, db)
	exec(t, db, "INSERT INTO t VALUES(1, randomblob(5000))")
	free := fill(t, o.Dir)
	// A commit finds no room, and leaves nothing.
	for i := range 3 {
		_, err := db.Exec("INSERT INTO t VALUES(?, randomblob(300000))", 100+i)
		if !errors.Is(err, sqlite3.FULL) {
			t.Errorf("COMMIT on a full disk: %v", err)
		}
	}
	if got := rows(t, db, "SELECT n FROM t"); got != "0 1" {
		t.Errorf("rows %q", got)
	}
	// What is committed can be shipped all the same: small entries need no room here.
	synced(t, db)
	free()
	exec(t, db, "INSERT INTO t VALUES(2, randomblob(300000))")
	exec(t, db, "INSERT INTO t VALUES(3, randomblob(5000000))")
	free = fill(t, o.Dir)
	// Large ones do.
	err := db.Synced(t.Context())
	if !errors.Is(err, tonbo.ErrUnsynced) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Synced on a full disk: %v", err)
	}
	contains(t, err, "run", o.Dir, "2 commits", "make room")
	if db.Err() != nil {
		t.Errorf("it is over: %v", db.Err())
	}
	free()
	synced(t, db)
	integrity(t, db)
	other := open(t, "run", a.machine())
	if got := rows(t, other, "SELECT n FROM t"); got != "0 1 2 3" {
		t.Errorf("elsewhere: %q", got)
	}
	integrity(t, other)
	closeDB(t, other)
	closeDB(t, db)
	// A cold start on a full disk.
	o.Dir = filepath.Join(o.Dir, "other")
	if err := os.Mkdir(o.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	free = fill(t, o.Dir)
	_, err = tonbo.Open(t.Context(), "run", o)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Open on a full disk: %v", err)
	}
	contains(t, err, "run", o.Dir)
	free()
	db = open(t, "run", o)
	if got := rows(t, db, "SELECT n FROM t"); got != "0 1 2 3" {
		t.Errorf("rows %q", got)
	}
	integrity(t, db)
}

// TestFullDiskWhilePagesAreMissing: a page that cannot be kept is an error that says so, never zeros; what is here can be read, and it goes on when there is room.
func TestFullDiskWhilePagesAreMissing(t *testing.T) {
	a := newAccount(t)
	want := a.grown("run", 8000, true)
	for _, readOnly := range []bool{false, true} {
		for _, h := range []tonbo.Hydration{tonbo.HydrateNone, tonbo.HydrateBackground} {
			o := options(a.machine(), h)
			o.Dir = smallDisk(t, "size=24m")
			interrupted := make(interruptions, 1)
			o.Logger = slog.New(interrupted)
			var free func()
			store := &fullBefore{Store: a.store, key: "/seg/", full: func() { free = fill(t, o.Dir) }}
			o.Remote = store
			openDB := tonbo.Open
			if readOnly {
				openDB = tonbo.OpenReadOnly
			}
			db, err := openDB(t.Context(), "run", o)
			if err != nil {
				t.Fatal(err)
			}
			var k int
			err = db.QueryRow("SELECT sum(k) FROM t").Scan(&k)
			if !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("a query that needs room: %d, %v", k, err)
			} else {
				contains(t, err, "run", "page", "make room", o.Dir)
			}
			if got := rows(t, db, "SELECT count(*) FROM sqlite_schema"); got != "3" { // which came with the base
				t.Errorf("what is here: %q", got)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- db.Hydrated(ctx) }()
			<-interrupted // it waits for room
			cancel()
			if err := <-done; !errors.Is(err, syscall.ENOSPC) || !errors.Is(err, context.Canceled) {
				t.Errorf("Hydrated: %v", err)
			}
			if err := db.Err(); err != nil {
				t.Errorf("it is over: %v", err)
			}
			free()
			if got := digest(t, db); got != want {
				t.Errorf("with room again: got %s, want %s", got, want)
			}
			hydrated(t, db)
			integrity(t, db)
			closeDB(t, db)
			if !readOnly {
				a.sameAsAFullCopy("run", o)
			}
		}
	}
}

// interruptions is a log handler that takes a value for each hydration that is interrupted, unless there is one already.
type interruptions chan struct{}

func (c interruptions) Enabled(context.Context, slog.Level) bool { return true }
func (c interruptions) WithAttrs([]slog.Attr) slog.Handler       { return c }
func (c interruptions) WithGroup(string) slog.Handler            { return c }

func (c interruptions) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "event" && a.Value.String() == "hydration_interrupted" {
			select {
			case c <- struct{}{}:
			default:
			}
		}
		return true
	})
	return nil
}

// fullBefore fills a disk before the first read of a part of an object.
type fullBefore struct {
	remote.Store
	key  string
	once sync.Once
	full func()
}

func (s *fullBefore) Get(ctx context.Context, key string, o remote.GetOptions) (remote.Object, error) {
	if strings.Contains(key, s.key) && (o.Offset != 0 || o.Length != 0) { // what is read whole are the upper pages, which Open has room for
		s.once.Do(s.full)
	}
	return s.Store.Get(ctx, key, o)
}

// fullAfter fills a disk when the n-th entry has been stored.
type fullAfter struct {
	remote.Store
	n    int
	full func()
}

func (s *fullAfter) Create(ctx context.Context, key string, body []byte) (string, error) {
	etag, err := s.Store.Create(ctx, key, body)
	if strings.Contains(key, "/log/") {
		if s.n--; s.n == 0 {
			s.full()
		}
	}
	return etag, err
}

// The answer has come, and the commit cannot be written here: what is shipped is ahead of the file.
func TestStrictCommitThatFailsHereAfterItWasShipped(t *testing.T) {
	for _, size := range []int{300000, 10} {
		s := &fullAfter{Store: mem.New("test")}
		a := &account{t: t, store: s}
		a.create("run")
		o := a.machine()
		o.Dir, o.Strict = smallDisk(t, "size=8m"), true
		db := open(t, "run", o)
		exec(t, db, "CREATE TABLE t(n INTEGER PRIMARY KEY, v BLOB)")
		exec(t, db, "INSERT INTO t VALUES(0, randomblob(5000))")
		exec(t, db, "PRAGMA wal_checkpoint(TRUNCATE)")
		wal := dbFile(t, db) + "-wal"
		var free func()
		s.n, s.full = 1, func() {
			// The frames before are there already: take their room back, so that the last one finds none.
			if err := os.Truncate(wal, 32); err != nil {
				t.Error(err)
			}
			free = fill(t, o.Dir)
		}
		_, err := db.Exec("INSERT INTO t VALUES(1, randomblob(?))", size)
		if !errors.Is(err, sqlite3.FULL) {
			t.Errorf("COMMIT: %v", err)
		}
		if got := rows(t, db, "SELECT n FROM t"); got != "0" {
			t.Errorf("rows %q", got)
		}
		free()
		_, err = db.Exec("INSERT INTO t VALUES(2, NULL)")
		if !errors.Is(err, tonbo.ErrUnsynced) {
			t.Errorf("the next COMMIT: %v", err)
		}
		contains(t, err, "run", "Reopen")
		if err := db.Synced(t.Context()); !errors.Is(err, tonbo.ErrUnsynced) {
			t.Errorf("Synced: %v", err)
		}
		select {
		case <-db.Done():
		default:
			t.Error("Done is open although nothing can be committed")
		}
		if err := db.Reopen(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := db.Status(); s.Lost != "" {
			t.Errorf("set aside: %s", s.Lost)
		}
		exec(t, db, "INSERT INTO t VALUES(2, NULL)")
		for _, db := range []*tonbo.DB{db, open(t, "run", a.machine())} {
			if got := rows(t, db, "SELECT n FROM t"); got != "0 1 2" {
				t.Errorf("after Reopen: %q", got)
			}
			integrity(t, db)
		}
	}
}

func TestReadOnlyDirectoryIsNamedBeforeAnythingIsClaimed(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	owner := open(t, "run", a.machine())
	o := a.machine()
	o.Dir = smallDisk(t, "size=1m,ro")
	_, err := tonbo.Open(t.Context(), "run", o)
	if !errors.Is(err, syscall.EROFS) {
		t.Errorf("Open: %v", err)
	}
	contains(t, err, "run", o.Dir, "Options.Dir")
	exec(t, owner, "CREATE TABLE t(v)")
	synced(t, owner)
}
