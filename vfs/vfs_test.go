package vfs_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/ncruces/go-sqlite3/driver"
	"github.com/ncruces/go-sqlite3/ext/fts5"
	"go.uber.org/goleak"

	"github.com/tonbo-go/tonbo/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sum(pgno uint32, page []byte) uint64 {
	d := xxhash.NewWithSeed(uint64(pgno))
	d.Write(page)
	return d.Sum64()
}

// replica is what a reader of the shipped changes would have.
type replica struct {
	pageSize int
	image    []byte
}

func (r *replica) apply(t testing.TB, c *vfs.Changes) {
	t.Helper()
	n := int(c.PageCount) * r.pageSize
	for len(r.image) < n {
		r.image = append(r.image, make([]byte, r.pageSize)...)
	}
	r.image = r.image[:n]
	if err := c.Each(func(pgno uint32, page []byte, s uint64) error {
		if s != sum(pgno, page) {
			t.Errorf("page %d: sum does not fit", pgno)
		}
		copy(r.image[int(pgno-1)*r.pageSize:], page)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

type fixture struct {
	d  *vfs.Database
	db *sql.DB
	r  replica
}

func open(t testing.TB, pageSize int, change func(*vfs.Options)) *fixture {
	t.Helper()
	return openIn(t, t.TempDir(), pageSize, change)
}

func openIn(t testing.TB, dir string, pageSize int, change func(*vfs.Options)) *fixture {
	t.Helper()
	path := filepath.Join(dir, "db")
	img := vfs.EmptyDatabase(pageSize)
	if err := os.WriteFile(path, img, 0o600); err != nil {
		t.Fatal(err)
	}
	o := vfs.Options{PageSize: pageSize, PageCount: 1, Sum: sum}
	if change != nil {
		change(&o)
	}
	d, err := vfs.Attach(path, o)
	if err != nil {
		t.Fatal(err)
	}
	db, err := driver.Open("file:"+d.Path()+"?vfs=tonbo&_pragma=busy_timeout(10000)&_pragma=synchronous(normal)", fts5.Register)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{d, db, replica{pageSize, img}}
	t.Cleanup(func() {
		db.Close()
		if err := d.Detach(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// ship takes, applies and settles.
func (f *fixture) ship(t testing.TB) int {
	t.Helper()
	c, err := f.d.Take(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if c == nil {
		return 0
	}
	f.r.apply(t, c)
	c.Release()
	c.Shipped()
	return c.Len()
}

// check compares the replica with the database, byte for byte.
func (f *fixture) check(t testing.TB) {
	t.Helper()
	var b bytes.Buffer
	if err := f.d.CopyTo(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	got := bytes.Clone(f.r.image)
	copy(got[18:20], []byte{1, 1})
	if !bytes.Equal(got, b.Bytes()) {
		var diff []int
		for p := 0; p*f.r.pageSize < max(len(got), b.Len()); p++ {
			lo, hi := p*f.r.pageSize, (p+1)*f.r.pageSize
			if hi > len(got) || hi > b.Len() || !bytes.Equal(got[lo:hi], b.Bytes()[lo:hi]) {
				diff = append(diff, p+1)
			}
		}
		t.Fatalf("replica has %d bytes, database %d; pages that differ: %v", len(got), b.Len(), diff)
	}
}

func (f *fixture) integrity(t testing.TB) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "copy")
	img := bytes.Clone(f.r.image)
	copy(img[18:20], []byte{1, 1})
	if err := os.WriteFile(path, img, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := driver.Open("file:" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var s string
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&s); err != nil || s != "ok" {
		t.Fatalf("integrity_check: %q %v", s, err)
	}
}

func exec(t testing.TB, db interface {
	Exec(string, ...any) (sql.Result, error)
}, q string, args ...any) {
	t.Helper()
	if _, err := db.Exec(q, args...); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
}

func TestLinkedSQLiteHasTheWALResetFix(t *testing.T) {
	f := open(t, 4096, nil)
	var v string
	if err := f.db.QueryRow("SELECT sqlite_version()").Scan(&v); err != nil {
		t.Fatal(err)
	}
	var a, b, c int
	fmt.Sscanf(v, "%d.%d.%d", &a, &b, &c)
	if a*1e6+b*1e3+c < 3_051_003 {
		t.Errorf("sqlite %s, want >= 3.51.3", v)
	}
}

func TestShippedChangesRebuildTheDatabase(t *testing.T) {
	for _, ps := range []int{512, 1024, 4096, 16384, 65536} {
		t.Run(fmt.Sprint(ps), func(t *testing.T) {
			rounds := 60
			if testing.Short() {
				rounds = 15
			}
			f := open(t, ps, nil)
			rng := rand.New(rand.NewSource(int64(ps)))
			exec(t, f.db, "CREATE TABLE t(id INTEGER PRIMARY KEY, k TEXT, v BLOB); CREATE INDEX i ON t(k); CREATE TABLE w(a, b, PRIMARY KEY(a,b)) WITHOUT ROWID; CREATE VIRTUAL TABLE fts USING fts5(body)")
			blob := func(n int) []byte { b := make([]byte, n); rng.Read(b); return b }
			step := func() {
				switch rng.Intn(14) {
				case 0, 1, 2:
					exec(t, f.db, "INSERT INTO t(k,v) VALUES(?,?)", fmt.Sprint(rng.Int()), blob(rng.Intn(3*ps)))
				case 3:
					exec(t, f.db, "UPDATE t SET v=? WHERE id%7=?", blob(rng.Intn(ps)), rng.Intn(7))
				case 4:
					exec(t, f.db, "DELETE FROM t WHERE id%3=?", rng.Intn(3))
				case 5: // a spill with pages rewritten in place, committed or rolled back, with a savepoint
					conn, err := f.db.Conn(context.Background())
					if err != nil {
						t.Fatal(err)
					}
					for _, q := range []string{"PRAGMA cache_size=5", "BEGIN IMMEDIATE"} {
						if _, err := conn.ExecContext(context.Background(), q); err != nil {
							t.Fatal(err)
						}
					}
					n := 30 + rng.Intn(100)
					for i := range n {
						q := "INSERT INTO t(k,v) VALUES(?,?)"
						if i%3 == 0 {
							q = "UPDATE t SET k=?, v=? WHERE id%5=0"
						}
						if i == n/2 {
							conn.ExecContext(context.Background(), "SAVEPOINT s")
						}
						if i == n-5 && rng.Intn(2) == 0 {
							conn.ExecContext(context.Background(), "ROLLBACK TO s")
						}
						if _, err := conn.ExecContext(context.Background(), q, fmt.Sprint(i), blob(rng.Intn(2*ps))); err != nil {
							t.Fatal(err)
						}
						if i%20 == 19 {
							f.ship(t) // in the middle of a transaction: nothing of it may leave
							f.check(t)
						}
					}
					end := "COMMIT"
					if rng.Intn(3) == 0 {
						end = "ROLLBACK"
					}
					if _, err := conn.ExecContext(context.Background(), end); err != nil {
						t.Fatal(err)
					}
					conn.ExecContext(context.Background(), "PRAGMA cache_size=-2000")
					conn.Close()
				case 6:
					exec(t, f.db, "PRAGMA wal_checkpoint("+[]string{"PASSIVE", "FULL", "RESTART", "TRUNCATE"}[rng.Intn(4)]+")")
				case 7:
					exec(t, f.db, "VACUUM")
				case 8:
					exec(t, f.db, "INSERT OR REPLACE INTO w VALUES(?,?)", rng.Intn(100), blob(20))
				case 9:
					exec(t, f.db, "INSERT INTO fts VALUES(?)", fmt.Sprint("lorem ", rng.Int(), " ipsum ", rng.Int()))
				case 10: // shrink, regrow
					exec(t, f.db, fmt.Sprintf("DELETE FROM t; VACUUM; CREATE TABLE IF NOT EXISTS x(y); INSERT INTO x VALUES(zeroblob(%d)); DROP TABLE x", 30*ps))
				case 11:
					exec(t, f.db, fmt.Sprintf("PRAGMA auto_vacuum=%d; VACUUM; PRAGMA incremental_vacuum(3)", rng.Intn(3)))
				case 12: // the last connection closes: checkpoint, and the write-ahead log is deleted
					f.db.SetMaxIdleConns(0)
					f.db.SetMaxIdleConns(2)
				case 13:
					tx, err := f.db.Begin()
					if err != nil {
						t.Fatal(err)
					}
					for range 40 {
						exec(t, tx, "INSERT INTO t(k,v) VALUES(?,?)", fmt.Sprint(rng.Int()), blob(rng.Intn(200)))
					}
					if err := tx.Commit(); err != nil {
						t.Fatal(err)
					}
				}
			}
			for i := range rounds {
				for range 1 + rng.Intn(4) {
					step()
				}
				if rng.Intn(4) == 0 { // an upload that did not come about
					if c, err := f.d.Take(context.Background()); err != nil {
						t.Fatal(err)
					} else if c != nil {
						c.Release()
						exec(t, f.db, "INSERT INTO t(k,v) VALUES(?,?)", "meanwhile", blob(rng.Intn(ps)))
						c.Return()
					}
				}
				f.ship(t)
				f.check(t)
				if i%10 == 9 {
					f.integrity(t)
				}
			}
			if n := f.ship(t); n != 0 {
				t.Errorf("nothing has changed, yet %d pages were shipped", n)
			}
		})
	}
}

func TestConcurrentReadersAndWritersWhileShipping(t *testing.T) {
	f := open(t, 4096, nil)
	exec(t, f.db, "CREATE TABLE t(id INTEGER PRIMARY KEY, w INT, v BLOB)")
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 100 {
				if _, err := f.db.Exec("INSERT INTO t(w,v) VALUES(?,randomblob(?))", w, 10+i*20); err != nil {
					t.Error(err)
					return
				}
				var n int
				if err := f.db.QueryRow("SELECT count(*) FROM t").Scan(&n); err != nil {
					t.Error(err)
				}
				if i%25 == 0 {
					f.db.Exec("PRAGMA wal_checkpoint(RESTART)")
				}
			}
		}()
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for {
		f.ship(t)
		f.integrity(t)
		select {
		case <-done:
			f.ship(t)
			f.check(t)
			f.integrity(t)
			return
		default:
		}
	}
}

func TestRefusedCommitLeavesNoTrace(t *testing.T) {
	f := open(t, 4096, nil)
	exec(t, f.db, "CREATE TABLE t(v TEXT)")
	exec(t, f.db, "INSERT INTO t VALUES('before')")
	st, err := f.db.Prepare("INSERT INTO t VALUES('TRACE-'||?)")
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	tx, err := f.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	exec(t, tx, "INSERT INTO t VALUES('TRACE-tx')")
	why := errors.New("taken over")
	f.d.Refuse(why)
	if err := tx.Commit(); !errors.Is(err, vfs.CodeRefused) {
		t.Errorf("Tx.Commit: %v", err)
	}
	if _, err := f.db.Exec("INSERT INTO t VALUES('TRACE-exec')"); !errors.Is(err, vfs.CodeRefused) {
		t.Errorf("Exec: %v", err)
	}
	if _, err := st.Exec("stmt"); !errors.Is(err, vfs.CodeRefused) {
		t.Errorf("Stmt.Exec: %v", err)
	}
	if got := f.d.Reason(vfs.CodeRefused); got != why {
		t.Errorf("reason: %v", got)
	}
	var n int
	if err := f.db.QueryRow("SELECT count(*) FROM t").Scan(&n); err != nil || n != 1 {
		t.Errorf("reads must go on: %d rows, %v", n, err)
	}
	for _, suffix := range []string{"", "-wal"} {
		b, _ := os.ReadFile(f.d.Path() + suffix)
		if bytes.Contains(b, []byte("TRACE")) {
			t.Errorf("a trace of a refused commit in %q", suffix)
		}
	}
}

func TestHeldCommitIsShippedFirstOrRefused(t *testing.T) {
	var f *fixture
	var refuse error
	f = open(t, 4096, func(o *vfs.Options) {
		o.BeforeCommit = func(_ context.Context, h *vfs.Held) error {
			c := h.Take(context.Background())
			if refuse == nil {
				f.r.apply(t, c)
			} else if err := c.Each(func(uint32, []byte, uint64) error { return nil }); err != nil {
				t.Error(err)
			}
			return refuse
		}
	})
	exec(t, f.db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
	f.check(t)
	spill := func(end string) error {
		conn, _ := f.db.Conn(context.Background())
		defer conn.Close()
		ctx := context.Background()
		conn.ExecContext(ctx, "PRAGMA cache_size=5")
		conn.ExecContext(ctx, "BEGIN IMMEDIATE")
		for i := range 60 {
			q := "INSERT INTO t(v) VALUES('MARK'||hex(randomblob(900)))"
			if i%2 == 0 {
				q = "UPDATE t SET v='MARK'||hex(randomblob(900))||v WHERE id%5=0"
			}
			if _, err := conn.ExecContext(ctx, q); err != nil {
				t.Fatal(err)
			}
		}
		_, err := conn.ExecContext(ctx, end)
		if err != nil {
			conn.ExecContext(ctx, "ROLLBACK")
		}
		return err
	}
	refuse = errors.New("not now")
	if err := spill("COMMIT"); !errors.Is(err, vfs.CodeRefused) {
		t.Fatalf("COMMIT: %v", err)
	}
	if got := f.d.Reason(vfs.CodeRefused); got != refuse {
		t.Errorf("reason: %v", got)
	}
	f.check(t)
	b, _ := os.ReadFile(f.d.Path() + "-wal")
	if bytes.Contains(b, []byte("MARK")) {
		t.Error("a trace of a refused commit in the write-ahead log")
	}
	refuse = nil
	for range 5 {
		if err := spill("COMMIT"); err != nil {
			t.Fatal(err)
		}
		f.check(t)
		f.integrity(t)
	}
	exec(t, f.db, "DELETE FROM t; VACUUM")
	f.check(t)
	if c, b := f.d.Pending(); c != 0 || b != 0 {
		t.Errorf("pending %d commits, %d bytes; all were shipped before their COMMIT", c, b)
	}
}

func TestWhatCannotBeReplicatedIsRefused(t *testing.T) {
	f := open(t, 4096, nil)
	exec(t, f.db, "CREATE TABLE t(v)")
	for _, q := range []string{
		"PRAGMA journal_mode=delete", "PRAGMA journal_mode=truncate", "PRAGMA journal_mode=persist", "PRAGMA journal_mode='memory'",
		"PRAGMA main.journal_mode=off", "PRAGMA locking_mode=EXCLUSIVE",
	} {
		_, err := f.db.Exec(q)
		if err == nil || !strings.Contains(err.Error(), "not supported on a replicated database") {
			t.Errorf("%s: %v", q, err)
		}
	}
	for _, q := range []string{
		"PRAGMA journal_mode", "PRAGMA journal_mode=WAL", "PRAGMA locking_mode=normal", "PRAGMA mmap_size=100000000", "PRAGMA synchronous=OFF", "PRAGMA wal_autocheckpoint=0",
		"PRAGMA secure_delete=ON", "PRAGMA application_id=7", "PRAGMA user_version=8", "PRAGMA page_size=8192; VACUUM", "PRAGMA auto_vacuum=2; VACUUM", "PRAGMA encoding='UTF-8'",
	} {
		exec(t, f.db, q)
		exec(t, f.db, "INSERT INTO t VALUES(randomblob(5000))")
		f.ship(t)
		f.check(t)
	}
	f.integrity(t)
}

func TestChecksumDatabaseIsRefused(t *testing.T) {
	f := open(t, 4096, nil)
	exec(t, f.db, "CREATE TABLE t(v)")
	conn, err := f.db.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	err = conn.Raw(func(c any) error { return c.(driver.Conn).Raw().EnableChecksums("main") })
	if err == nil {
		t.Fatal("EnableChecksums was let through")
	}
	var v bool
	if err := conn.QueryRowContext(context.Background(), "SELECT count(*)=0 FROM t").Scan(&v); err != nil || !v {
		t.Errorf("after the refusal: %v %v", v, err)
	}
	f.ship(t)
	f.check(t)
}

func TestBackupIntoTheDatabaseIsObserved(t *testing.T) {
	f := open(t, 4096, nil)
	src := filepath.Join(t.TempDir(), "src")
	db, err := driver.Open("file:" + src)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, db, "CREATE TABLE t(v); WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<50) INSERT INTO t SELECT randomblob(3000) FROM s")
	db.Close()
	conn, err := f.db.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	err = conn.Raw(func(c any) error { return c.(driver.Conn).Raw().Restore("main", "file:"+src+"?vfs=os") })
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := conn.QueryRowContext(context.Background(), "SELECT count(*) FROM t").Scan(&n); err != nil || n != 50 {
		t.Fatalf("%d %v", n, err)
	}
	f.ship(t)
	f.check(t)
	f.integrity(t)
}

func TestOtherFilesAreLeftAlone(t *testing.T) {
	f := open(t, 4096, nil)
	f.db.SetMaxOpenConns(1)
	other := filepath.Join(t.TempDir(), "other.db")
	exec(t, f.db, "CREATE TABLE t(v); INSERT INTO t VALUES(1)")
	exec(t, f.db, "ATTACH ? AS o", other)
	exec(t, f.db, "CREATE TABLE o.x(v); BEGIN; INSERT INTO t VALUES(2); INSERT INTO o.x SELECT v FROM t; COMMIT; DETACH o")
	exec(t, f.db, "VACUUM INTO ?", other+".copy")
	f.ship(t)
	f.check(t)
	var n int
	db, _ := driver.Open("file:" + other + ".copy")
	defer db.Close()
	if err := db.QueryRow("SELECT count(*) FROM t").Scan(&n); err != nil || n != 2 {
		t.Errorf("VACUUM INTO: %d rows, %v", n, err)
	}
}

func TestPageChangedUnderneathIsNotShipped(t *testing.T) {
	f := open(t, 4096, nil)
	exec(t, f.db, "CREATE TABLE t(v); INSERT INTO t VALUES(randomblob(9000))")
	b, err := os.ReadFile(f.d.Path() + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-100] ^= 1
	if err := os.WriteFile(f.d.Path()+"-wal", b, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := f.d.Take(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	err = c.Each(func(uint32, []byte, uint64) error { return nil })
	c.Release()
	c.Return()
	if !errors.Is(err, vfs.ErrCorrupt) {
		t.Errorf("got %v", err)
	}
}

// TestCheckpointsDoNotWaitForPagesToBeWorkedOn: whoever has taken changes works on them page by page, and a commit whose own checkpoint waits for that waits, too. What is
// read is nevertheless the state of the Take, although checkpoint and new commits have overwritten it meanwhile.
func TestCheckpointsDoNotWaitForPagesToBeWorkedOn(t *testing.T) {
	f := open(t, 4096, nil)
	exec(t, f.db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
	exec(t, f.db, "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i<400) INSERT INTO t SELECT i, randomblob(3500) FROM n")
	c, err := f.d.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var before bytes.Buffer
	if err := f.d.CopyTo(t.Context(), &before); err != nil {
		t.Fatal(err)
	}
	image := make([]byte, before.Len())
	done := make(chan error, 1)
	free, n := false, 0
	err = c.Each(func(pgno uint32, page []byte, s uint64) error {
		if n++; n == 1 {
			go func() {
				for _, q := range []string{"PRAGMA wal_checkpoint(TRUNCATE)", "UPDATE t SET v=zeroblob(3500)", "PRAGMA wal_checkpoint(TRUNCATE)"} {
					if _, err := f.db.Exec(q); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		if !free {
			select {
			case err := <-done:
				free = true
				if err != nil {
					return err
				}
			case <-time.After(20 * time.Millisecond):
			}
		}
		if s != sum(pgno, page) {
			t.Errorf("page %d: sum does not fit", pgno)
		}
		copy(image[int(pgno-1)*c.PageSize:], page)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Release()
	c.Shipped()
	if !free {
		t.Errorf("the checkpoint waited for all of the %d pages", n)
	}
	copy(image[18:20], before.Bytes()[18:20]) // rollback mode
	if !bytes.Equal(image, before.Bytes()) {
		t.Error("the pages are not those of the Take")
	}
}
