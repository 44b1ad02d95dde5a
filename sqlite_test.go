package tonbo_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"
	sqlitedriver "github.com/ncruces/go-sqlite3/driver"

	"github.com/tonbo-go/tonbo"
)

// ownFile is the content of a closed DB's local file, which SQLite has checkpointed.
func ownFile(t testing.TB, o tonbo.Options, name string) []byte {
	t.Helper()
	if fi, err := os.Stat(filepath.Join(o.Dir, name, "db-wal")); err == nil && fi.Size() > 0 {
		t.Errorf("the write-ahead log has %d bytes", fi.Size())
	}
	b, err := os.ReadFile(filepath.Join(o.Dir, name, "db"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What a program does to SQLite goes through, and what is rebuilt elsewhere is the owner's file, byte for byte.
func TestRebuiltFileIsTheOwnersByteForByte(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	o := a.machine()
	db := open(t, "run", o)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	do := func(q string, args ...any) {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), q, args...); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	elsewhere := func() {
		t.Helper()
		var want string
		conn.QueryRowContext(t.Context(), "SELECT group_concat(id) FROM docs WHERE docs MATCH 'fence'").Scan(&want)
		conn.Close()
		closeDB(t, db)
		other := a.machine()
		r := open(t, "run", other)
		integrity(t, r)
		var got string
		if err := r.QueryRow("SELECT group_concat(id) FROM docs WHERE docs MATCH 'fence'").Scan(&got); err != nil || got != want || got == "" {
			t.Errorf("full-text search: %q, want %q: %v", got, want, err)
		}
		closeDB(t, r)
		if mine, its := ownFile(t, o, "run"), ownFile(t, other, "run"); !bytes.Equal(mine, its) {
			t.Errorf("the files differ: %d and %d bytes", len(mine), len(its))
		}
		db = open(t, "run", o)
		if conn, err = db.Conn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	do("CREATE TABLE plain(a, b)")
	do("CREATE TABLE keyed(k TEXT PRIMARY KEY, v BLOB) WITHOUT ROWID")
	do("CREATE VIRTUAL TABLE docs USING fts5(id UNINDEXED, body)")
	for i := range 50 {
		do("INSERT INTO plain VALUES(?, randomblob(100))", i)
		do("INSERT INTO docs VALUES(?, ?)", i, fmt.Sprintf("word%d %s", i%7, []string{"fence", "log"}[i%2]))
	}
	elsewhere()
	do("BEGIN")
	for i := range 200 {
		do("INSERT INTO keyed VALUES(?, randomblob(300))", fmt.Sprint("key-", i))
	}
	do("COMMIT")
	do("ALTER TABLE plain ADD COLUMN c DEFAULT 'c'")
	do("ALTER TABLE plain RENAME COLUMN b TO bb")
	do("CREATE INDEX by_bb ON plain(bb)")
	do("DELETE FROM keyed WHERE k LIKE '%7'")
	elsewhere()
	do("PRAGMA cache_size=10") // a spill of 2 MB with rewrites in place
	do("BEGIN")
	for i := range 400 {
		do("INSERT INTO plain(a, bb) VALUES(?, randomblob(5000))", i)
		do("UPDATE keyed SET v=randomblob(310) WHERE k=?", fmt.Sprint("key-", i%200))
	}
	do("SAVEPOINT s")
	do("DELETE FROM plain")
	do("ROLLBACK TO s")
	do("COMMIT")
	elsewhere()
	do("DELETE FROM plain WHERE rowid%2")
	do("VACUUM")
	do("INSERT INTO docs(docs) VALUES('optimize')")
	do("DROP INDEX by_bb")
	do("DROP TABLE plain")
	elsewhere()
	do("PRAGMA auto_vacuum=FULL")
	do("VACUUM")
	do("CREATE TABLE big AS WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<300) SELECT n, randomblob(3000) AS v FROM s")
	elsewhere()
	do("DELETE FROM big WHERE n>20")
	do("PRAGMA user_version=7")
	do("PRAGMA application_id=99")
	do("PRAGMA secure_delete=ON")
	do("DELETE FROM big WHERE n>10")
	elsewhere()
	conn.Close()
}

func TestReturningAndQueriesThatWrite(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)")
	if got := rows(t, db, "INSERT INTO t(v) VALUES('a'),('b') RETURNING id"); got != "1 2" {
		t.Errorf("RETURNING: %q", got)
	}
	var id int
	if err := db.QueryRow("INSERT INTO t(v) VALUES('c') RETURNING id").Scan(&id); err != nil || id != 3 {
		t.Errorf("RETURNING: %d %v", id, err)
	}
	st, err := db.Prepare("UPDATE t SET v=v||'!' WHERE id>? RETURNING v")
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if err := st.QueryRow(2).Scan(new(string)); err != nil {
		t.Fatal(err)
	}
	synced(t, db)
	other := open(t, "run", a.machine())
	if got := rows(t, other, "SELECT v FROM t"); got != "a b c!" {
		t.Errorf("elsewhere: %q", got)
	}
	if err := st.QueryRow(2).Scan(new(string)); err != nil {
		t.Errorf("before it is known: %v", err)
	}
	if err := db.Synced(t.Context()); !errors.Is(err, tonbo.ErrFenced) {
		t.Fatal(err)
	}
	if err := st.QueryRow(2).Scan(new(string)); !errors.Is(err, tonbo.ErrFenced) {
		t.Errorf("RETURNING of a fenced owner: %v", err)
	}
	if _, err := db.Query("INSERT INTO t(v) VALUES('d') RETURNING id"); err == nil {
		if got := rows(t, db, "SELECT count(*) FROM t"); got != "3" {
			t.Errorf("%s rows", got)
		}
	} else if !errors.Is(err, tonbo.ErrFenced) {
		t.Errorf("Query: %v", err)
	}
}

func TestRawConnectionsAreReplicated(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(v)")
	raw := func(db *tonbo.DB, fn func(c *sqlite3.Conn) error) error {
		c, err := db.Conn(context.Background())
		if err != nil {
			return err
		}
		defer c.Close()
		return c.Raw(func(dc any) error { return fn(dc.(sqlitedriver.Conn).Raw()) })
	}
	if err := raw(db, func(c *sqlite3.Conn) error {
		st, _, err := c.Prepare("INSERT INTO t VALUES(?)")
		if err != nil {
			return err
		}
		defer st.Close()
		for i := range 3 {
			st.BindInt(1, i)
			if err := st.Exec(); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	synced(t, db)
	// The backup API, out of the database and into it. https://sqlite.org/backup.html
	file := filepath.Join(t.TempDir(), "copy.db")
	if err := raw(db, func(c *sqlite3.Conn) error { return c.Backup("main", "file:"+filepath.ToSlash(file)) }); err != nil {
		t.Fatal(err)
	}
	if got := readLost(t, file, "SELECT v FROM t"); got != "0 1 2" {
		t.Errorf("backup: %q", got)
	}
	src, err := sql.Open("sqlite3", "file:"+filepath.ToSlash(file))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := src.Exec("PRAGMA journal_mode=wal; INSERT INTO t VALUES('restored'); CREATE TABLE more AS SELECT randomblob(5000) AS v FROM t"); err != nil {
		t.Fatal(err)
	}
	src.Close()
	if err := raw(db, func(c *sqlite3.Conn) error { return c.Restore("main", "file:"+filepath.ToSlash(file)) }); err != nil {
		t.Fatal(err)
	}
	synced(t, db)
	other := open(t, "run", a.machine())
	if got := rows(t, other, "SELECT v FROM t"); got != "0 1 2 restored" {
		t.Errorf("elsewhere: %q", got)
	}
	integrity(t, other)
	if err := db.Synced(t.Context()); !errors.Is(err, tonbo.ErrFenced) {
		t.Fatal(err)
	}
	err = raw(db, func(c *sqlite3.Conn) error { return c.Exec("INSERT INTO t VALUES('late')") })
	if err == nil {
		t.Error("a raw connection of a fenced owner commits")
	}
	if got := rows(t, db, "SELECT count(*) FROM t"); got != "4" {
		t.Errorf("%s rows", got)
	}
}

func TestOtherFilesAreTheUsersOwn(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	dir := t.TempDir()
	exec(t, db, "CREATE TABLE t(v); INSERT INTO t VALUES(1),(2)")
	exec(t, db, "VACUUM INTO ?", filepath.Join(dir, "into.db"))
	if got := readLost(t, filepath.Join(dir, "into.db"), "SELECT v FROM t"); got != "1 2" {
		t.Errorf("VACUUM INTO: %q", got)
	}
	c, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{
		"ATTACH '" + filepath.Join(dir, "side.db") + "' AS side", "CREATE TABLE side.s(v)",
		"BEGIN", "INSERT INTO side.s SELECT v FROM t", "INSERT INTO t VALUES(3)", "COMMIT",
		"CREATE TEMP TABLE x AS SELECT * FROM t", "DETACH side",
	} {
		if _, err := c.ExecContext(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	c.Close()
	if got := readLost(t, filepath.Join(dir, "side.db"), "SELECT v FROM s"); got != "1 2" {
		t.Errorf("attached: %q", got)
	}
	synced(t, db)
	other := open(t, "run", a.machine())
	if got := rows(t, other, "SELECT v FROM t"); got != "1 2 3" {
		t.Errorf("elsewhere: %q", got)
	}
	if got := rows(t, other, "SELECT name FROM sqlite_schema"); got != "t" {
		t.Errorf("elsewhere there are tables %q", got)
	}
}

func TestPragmasThatCannotBeReplicatedAreRefused(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	db.SetMaxOpenConns(1)
	exec(t, db, "CREATE TABLE t(v)")
	for _, q := range []string{
		"PRAGMA journal_mode=delete", "PRAGMA journal_mode=truncate", "PRAGMA journal_mode=persist", "PRAGMA journal_mode=memory", "PRAGMA journal_mode=off",
		"PRAGMA main.journal_mode='DELETE'", "PRAGMA locking_mode=exclusive",
	} {
		_, err := db.Exec(q)
		if !errors.Is(err, tonbo.ErrUnsupported) {
			t.Errorf("%s: %v", q, err)
			continue
		}
		contains(t, err, "run", strings.ToLower(q[len("PRAGMA "):][strings.Index(q[len("PRAGMA "):], ".")+1:][:9]))
		if err := db.QueryRow(q).Scan(new(string)); !errors.Is(err, tonbo.ErrUnsupported) {
			t.Errorf("%s as a query: %v", q, err)
		}
	}
	for _, q := range []string{
		"PRAGMA journal_mode=wal", "PRAGMA journal_mode", "PRAGMA locking_mode=normal", "PRAGMA synchronous=OFF", "PRAGMA wal_autocheckpoint=0", "PRAGMA mmap_size=1000000",
		"PRAGMA page_size=8192", "VACUUM", "PRAGMA encoding='UTF-16'", "PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA cache_spill=OFF", "PRAGMA foreign_keys=ON",
	} {
		if _, err := db.Exec(q); err != nil {
			t.Errorf("%s: %v", q, err)
		}
	}
	exec(t, db, "INSERT INTO t VALUES(1)")
	if got := rows(t, db, "PRAGMA journal_mode") + rows(t, db, "PRAGMA page_size"); got != "wal4096" {
		t.Errorf("got %s", got)
	}
	closeDB(t, db)
	o := a.machine()
	o.Pragmas = map[string]string{"journal_mode": "delete"}
	bad := open(t, "run", o)
	if err := bad.Ping(); !errors.Is(err, tonbo.ErrUnsupported) {
		t.Errorf("Options.Pragmas: %v", err)
	}
}

func TestPageSizes(t *testing.T) {
	for size := 512; size <= 65536; size *= 2 {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			a := newAccount(t)
			if _, err := tonbo.Create(t.Context(), "run", a.machine(), tonbo.CreateOptions{PageSize: size}); err != nil {
				t.Fatal(err)
			}
			o := a.machine()
			want := ""
			for round := range 3 { // cold, warm, warm
				db := open(t, "run", o)
				if db.Status().ColdStart != (round == 0) {
					t.Errorf("round %d: cold %v", round, db.Status().ColdStart)
				}
				if round == 0 {
					exec(t, db, "CREATE TABLE t(v BLOB)")
				} else if got := rows(t, db, "SELECT hex(v) FROM t"); got != want {
					t.Errorf("round %d: other rows", round)
				}
				exec(t, db, "INSERT INTO t VALUES(randomblob(70000)),(randomblob(10))")
				synced(t, db)
				exec(t, db, "INSERT INTO t VALUES(randomblob(100))")
				want = rows(t, db, "SELECT hex(v) FROM t")
				closeDB(t, db)
			}
			other := a.machine()
			db := open(t, "run", other)
			if got := rows(t, db, "SELECT hex(v) FROM t"); got != want {
				t.Error("elsewhere: other rows")
			}
			if got := rows(t, db, "PRAGMA page_size"); got != fmt.Sprint(size) {
				t.Errorf("page size %s", got)
			}
			integrity(t, db)
			closeDB(t, db)
			if !bytes.Equal(ownFile(t, o, "run"), ownFile(t, other, "run")) {
				t.Error("the files differ")
			}
		})
	}
	// Options.Pragmas says it, too.
	a := newAccount(t)
	a.o.Pragmas = map[string]string{"page_size": "1024"}
	a.create("run")
	if got := rows(t, open(t, "run", a.machine()), "PRAGMA page_size"); got != "1024" {
		t.Errorf("page size %s", got)
	}
}

// Eight connections get in each other's way as SQLite's do, and are never told that another process took over (litestream#1140).
func TestPooledWritersGetBusyAndNothingElse(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	o := a.machine()
	o.Pragmas = map[string]string{"busy_timeout": "5"}
	o.SyncEvery = time.Millisecond
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(v)")
	var wg sync.WaitGroup
	var mu sync.Mutex
	committed := 1
	exec(t, db, "INSERT INTO t VALUES(0)")
	for i := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for j := range 40 {
				err := func() error {
					tx, err := db.Begin()
					if err != nil {
						return err
					}
					defer tx.Rollback()
					if _, err := tx.Exec("INSERT INTO t SELECT count(*) FROM t"); err != nil {
						return err
					}
					return tx.Commit()
				}()
				switch {
				case err == nil:
					mu.Lock()
					committed++
					mu.Unlock()
				case !errors.Is(err, sqlite3.BUSY):
					t.Error(err)
				}
				if j%10 == i {
					if err := db.Synced(context.Background()); err != nil {
						t.Error(err)
					}
				}
			}
		}()
	}
	wg.Wait()
	synced(t, db)
	other := open(t, "run", a.machine())
	if got := rows(t, other, "SELECT count(*) FROM t"); got != fmt.Sprint(committed) {
		t.Errorf("%s rows, %d were committed", got, committed)
	}
}

// A long reader keeps the write-ahead log from being reset, as SQLite documents; it stays what SQLite makes it, and goes down afterwards.
func TestWriteAheadLogBesideALongReader(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	const limit = 4 << 20
	o := a.machine().Checkpointing(limit / 16)
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
	exec(t, db, "INSERT INTO t(v) SELECT randomblob(100) FROM (WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<50) SELECT n FROM s)")
	wal := dbFile(t, db) + "-wal"
	reader, err := db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := rows(t, reader, "SELECT count(*) FROM t"); got != "50" {
		t.Fatal(got)
	}
	size := func() int64 {
		fi, err := os.Stat(wal)
		if err != nil {
			t.Fatal(err)
		}
		return fi.Size()
	}
	writes := 1500
	if raceEnabled {
		writes = 300
	}
	for i := range writes {
		exec(t, db, "UPDATE t SET v=randomblob(100) WHERE id=?", i%50+1)
		if i%100 == 0 {
			synced(t, db)
		}
	}
	long := size()
	if most := (int64(writes) + 100) * 4 * 4120; long > most { // a few frames a commit
		t.Errorf("the write-ahead log has %d bytes, want at most %d", long, most)
	}
	if got := rows(t, reader, "SELECT count(*) FROM t"); got != "50" {
		t.Error(got)
	}
	reader.Rollback()
	for range writes { // the log is written from its start again: it does not grow
		exec(t, db, "UPDATE t SET v=randomblob(100) WHERE id=1")
	}
	if now := size(); now > max(long, limit)+(1<<20) {
		t.Errorf("the write-ahead log grew from %d to %d bytes without a reader", long, now)
	}
	synced(t, db)
	want := rows(t, db, "SELECT hex(v) FROM t")
	other := open(t, "run", a.machine())
	if got := rows(t, other, "SELECT hex(v) FROM t"); got != want {
		t.Error("elsewhere: other rows")
	}
}

// However many Synced there were, the directory holds the database, its write-ahead log, and a state of a bounded size.
func TestManySyncedLeaveABoundedDirectory(t *testing.T) {
	n := 2000
	if raceEnabled {
		n = 300
	}
	if os.Getenv("TONBO_TEST_LARGE") != "" {
		n = 10_000
	}
	a := newAccount(t)
	a.create("run")
	o := a.machine().Checkpointing(256 << 10)
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
	exec(t, db, "INSERT INTO t VALUES(1, NULL)")
	st, err := db.Prepare("UPDATE t SET v=randomblob(500)")
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if _, err := st.Exec(); err != nil {
			t.Fatal(err)
		}
		synced(t, db)
	}
	st.Close()
	var sizes []string
	var total int64
	for f, b := range files(t, o.Dir) {
		if b > 0 {
			sizes, total = append(sizes, fmt.Sprint(f, ": ", b)), total+b
		}
	}
	slices.Sort(sizes)
	if limit := int64(8 << 20); total > limit { // a log of at most 16 times that, an index of 64 KiB, a state of 1 MiB and twice its snapshot
		t.Errorf("the directory has %d bytes after %d Synced: %v", total, n, sizes)
	}
	closeDB(t, db)
}

func TestGateRunsTheFunctionThenSyncs(t *testing.T) {
	a, s := faulty(t)
	a.create("run")
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(v)")
	if err := db.Gate(t.Context(), func() error { _, err := db.Exec("INSERT INTO t VALUES(1)"); return err }); err != nil {
		t.Fatal(err)
	}
	if n := db.Status().PendingCommits; n != 0 {
		t.Errorf("%d commits are pending", n)
	}
	boom := errors.New("boom")
	s.ResetCalls()
	if err := db.Gate(t.Context(), func() error { return boom }); err != boom {
		t.Errorf("Gate: %v", err)
	}
	if calls := s.Calls(); len(calls) != 0 {
		t.Errorf("requests after a function that failed: %v", calls)
	}
	s.Partition(true)
	if err := db.Gate(soon(t), func() error { return nil }); err == nil {
		t.Error("Gate opens without a round trip")
	}
	s.Heal()
	open(t, "run", a.machine())
	if err := db.Gate(t.Context(), func() error { return nil }); !errors.Is(err, tonbo.ErrFenced) {
		t.Errorf("Gate of a fenced owner: %v", err)
	}
}

func TestSyncEveryShipsByItself(t *testing.T) {
	a, s := faulty(t)
	a.create("run")
	o := a.machine()
	o.SyncEvery = 5 * time.Millisecond
	db := open(t, "run", o)
	s.Lose(logCreates, 3) // it tries again
	exec(t, db, "CREATE TABLE t(v)")
	for deadline := time.Now().Add(10 * time.Second); db.Status().PendingCommits > 0; {
		if time.Now().After(deadline) {
			t.Fatal("not shipped")
		}
		time.Sleep(time.Millisecond)
	}
	other := open(t, "run", a.machine())
	if got := rows(t, other, "SELECT name FROM sqlite_schema"); got != "t" {
		t.Errorf("elsewhere: %q", got)
	}
	exec(t, db, "INSERT INTO t VALUES(1)")
	select { // and finds out by itself that it is over
	case <-db.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("not fenced")
	}
	if !errors.Is(db.Err(), tonbo.ErrFenced) {
		t.Error(db.Err())
	}
}

// The page at byte 0x40000000 is SQLite's lock page: it is in no object and in no checksum. https://sqlite.org/fileformat2.html#the_lock_byte_page
func TestDatabaseBeyondTheLockPage(t *testing.T) {
	if os.Getenv("TONBO_TEST_LARGE") == "" {
		t.Skip("set TONBO_TEST_LARGE=1: 3 GiB of disk, a minute")
	}
	for _, size := range []int{4096, 65536} {
		a := newAccount(t)
		if _, err := tonbo.Create(t.Context(), "run", a.machine(), tonbo.CreateOptions{PageSize: size}); err != nil {
			t.Fatal(err)
		}
		o := a.machine()
		db := open(t, "run", o)
		exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
		for range 11 {
			exec(t, db, "INSERT INTO t(v) VALUES(zeroblob(100000000))")
			synced(t, db)
		}
		exec(t, db, "INSERT INTO t(v) VALUES(randomblob(100000))")
		closeDB(t, db)
		other := a.machine()
		db = open(t, "run", other)
		if got := rows(t, db, "SELECT sum(length(v)) FROM t"); got != "1100100000" {
			t.Errorf("page size %d: %s bytes", size, got)
		}
		integrity(t, db)
		exec(t, db, "DELETE FROM t WHERE id>5; VACUUM")
		closeDB(t, db)
		db = open(t, "run", o)
		integrity(t, db)
		closeDB(t, db)
		if !bytes.Equal(ownFile(t, o, "run"), ownFile(t, other, "run")) {
			t.Errorf("page size %d: the files differ", size)
		}
	}
}
