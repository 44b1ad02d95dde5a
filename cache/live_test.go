package cache_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/tonbo-go/tonbo/cache"
	"github.com/tonbo-go/tonbo/internal/pageset"
	"github.com/tonbo-go/tonbo/internal/segment"
)

const dbOf = "run"

// live is a database in a cache directory, with a real SQLite writing to it through the plain OS VFS.
type live struct {
	t        testing.TB
	root     string
	pageSize int
	dir      *cache.Dir
	conn     *sqlite3.Conn
	slot     uint64
	shipped  []uint64 // as the remote has it
	entries  []cache.Shipped
}

// newLive makes a database of one table, records it as shipped at slot 1, and opens it.
func newLive(t testing.TB, pageSize int) *live {
	t.Helper()
	l := &live{t: t, root: t.TempDir(), pageSize: pageSize, slot: 1}
	d, err := cache.Open(l.root, dbOf, cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l.dir = d
	c := openSQLite(t, d.Path())
	execSQL(t, c, fmt.Sprintf("PRAGMA page_size=%d; PRAGMA journal_mode=wal; CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB); CREATE TABLE u(id INTEGER PRIMARY KEY, v BLOB)", pageSize))
	execSQL(t, c, insert("t", 1, 200, 300))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	l.shipped = sumsOf(b, pageSize)
	if err := d.Begin(cache.State{Name: dbOf, Store: "mem://x", ID: [16]byte{1}, Generation: 1, Slot: 1, PageSize: uint32(pageSize), Checksum: xor(l.shipped), Sums: pageset.SumsOf(l.shipped)}); err != nil {
		t.Fatal(err)
	}
	d.FollowLog(l.logPosition)
	l.conn = openSQLite(t, d.Path())
	execSQL(t, l.conn, "PRAGMA wal_autocheckpoint=0; PRAGMA synchronous=OFF")
	t.Cleanup(func() {
		l.conn.Close()
		d.Close()
	})
	return l
}

func openSQLite(t testing.TB, path string) *sqlite3.Conn {
	t.Helper()
	c, err := openPath(path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func openPath(path string) (*sqlite3.Conn, error) {
	return sqlite3.Open("file:" + filepath.ToSlash(path) + "?vfs=os")
}

func execSQL(t testing.TB, c *sqlite3.Conn, sql string) {
	t.Helper()
	if err := c.Exec(sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// insert is the statement that inserts rows from to to (inclusive) of size bytes.
func insert(table string, from, to, size int) string {
	return fmt.Sprintf("WITH RECURSIVE s(n) AS (SELECT %d UNION ALL SELECT n+1 FROM s WHERE n < %d) INSERT OR REPLACE INTO %s SELECT n, randomblob(%d) FROM s", from, to, table, size)
}

func (l *live) exec(sql string) {
	l.t.Helper()
	execSQL(l.t, l.conn, sql)
}

// image is the database as SQLite itself sees it: its own recovery and checkpoint of a copy.
func (l *live) image() []byte {
	l.t.Helper()
	return recovered(l.t, filepath.Join(l.root, dbOf))
}

// recovered is what SQLite makes of db and db-wal in from.
func recovered(t testing.TB, from string) []byte {
	t.Helper()
	to := t.TempDir()
	copyFile(t, filepath.Join(from, "db"), filepath.Join(to, "db"))
	if _, err := os.Stat(filepath.Join(from, "db-wal")); err == nil {
		copyFile(t, filepath.Join(from, "db-wal"), filepath.Join(to, "db-wal"))
	}
	c := openSQLite(t, filepath.Join(to, "db"))
	execSQL(t, c, "PRAGMA wal_checkpoint(TRUNCATE)")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(to, "db"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// logPosition asks SQLite's own index of the write-ahead log (https://sqlite.org/walformat.html#the_wal_index_header).
func (l *live) logPosition() (salts [8]byte, end int64) {
	h, err := os.ReadFile(l.dir.ShmPath())
	if err != nil || len(h) < 48 {
		return salts, 0
	}
	if frames := binary.NativeEndian.Uint32(h[16:]); frames > 0 {
		end = 32 + int64(frames)*int64(24+l.pageSize)
	}
	return [8]byte(h[32:40]), end
}

// ship records what is committed as shipped at the next slot.
func (l *live) ship() {
	l.t.Helper()
	e := l.entry()
	l.dir.Captured(e.Slot)
	if err := l.dir.Shipped(e.Slot, e.PageCount, e.Checksum, e.Pages); err != nil {
		l.t.Fatal(err)
	}
}

// entry is what ship would record: it counts as shipped.
func (l *live) entry() cache.Shipped {
	l.t.Helper()
	now := sumsOf(l.image(), l.pageSize)
	l.slot++
	e := cache.Shipped{Slot: l.slot, PageCount: uint32(len(now)), Checksum: xor(now)}
	for _, p := range differing(l.shipped, now) {
		e.Pages = append(e.Pages, cache.PageSum{Page: p, Sum: now[p-1]})
	}
	l.shipped = now
	l.entries = append(l.entries, e)
	return e
}

// spill records what is committed and not shipped, as one must before the WAL is reset.
func (l *live) spill() {
	l.t.Helper()
	now := sumsOf(l.image(), l.pageSize)
	var pages []cache.PageSum
	for _, p := range differing(l.shipped, now) {
		pages = append(pages, cache.PageSum{Page: p, Sum: now[p-1]})
	}
	if err := l.dir.Spilled(pages); err != nil {
		l.t.Fatal(err)
	}
	if len(now) < len(l.shipped) {
		if err := l.dir.Shrunk(uint32(len(now))); err != nil {
			l.t.Fatal(err)
		}
	}
}

// crash copies the directory as it is while everything is open: what a killed process leaves.
func (l *live) crash() string {
	l.t.Helper()
	root := l.t.TempDir()
	to := filepath.Join(root, dbOf)
	if err := os.Mkdir(to, 0o700); err != nil {
		l.t.Fatal(err)
	}
	for _, n := range []string{"state", "db", "db-wal", "db-shm"} {
		if _, err := os.Stat(filepath.Join(l.root, dbOf, n)); err == nil {
			copyFile(l.t, filepath.Join(l.root, dbOf, n), filepath.Join(to, n))
		}
	}
	return root
}

func open(t testing.TB, root string) *cache.Dir {
	t.Helper()
	d, err := cache.Open(root, dbOf, cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// recoverDir opens root and recovers.
func recoverDir(t testing.TB, root string, newer ...cache.Shipped) (*cache.Dir, *cache.Recovery) {
	t.Helper()
	d := open(t, root)
	rec, err := d.Recover(context.Background(), newer)
	if err != nil {
		t.Fatal(err)
	}
	return d, rec
}

// mustRecover recovers root and compares all with SQLite's own recovery of the same files: the file byte for byte, its sums, and the unshipped
// pages with those that differ from shipped.
func mustRecover(t testing.TB, root string, pageSize int, shipped []uint64, newer ...cache.Shipped) (*cache.Dir, *cache.Recovery) {
	t.Helper()
	want := recovered(t, filepath.Join(root, dbOf))
	d := open(t, root)
	var copied bytes.Buffer
	if err := d.CopyTo(context.Background(), &copied, nil); err != nil || !bytes.Equal(copied.Bytes(), want) {
		t.Fatalf("CopyTo gives another database (%v)", err)
	}
	rec, err := d.Recover(context.Background(), newer)
	if err != nil {
		t.Fatal(err)
	}
	if len(rec.Damaged) > 0 {
		t.Fatalf("damaged: pages %v: %s", rec.Damaged, rec.Reason)
	}
	got, err := os.ReadFile(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("the recovered file (%d bytes) is not what SQLite's recovery gives (%d bytes)", len(got), len(want))
	}
	sums := sumsOf(want, pageSize)
	if !slices.Equal(rec.Sums.Slice(), sums) || rec.Checksum != xor(sums) || rec.PageCount != uint32(len(sums)) {
		t.Fatalf("sums, checksum or size are not the file's")
	}
	if unshipped := differing(shipped, sums); !slices.Equal(rec.Unshipped, unshipped) {
		t.Fatalf("unshipped: got %v, want %v", rec.Unshipped, unshipped)
	}
	for _, p := range []string{d.WALPath(), d.ShmPath()} {
		if _, err := os.Stat(p); err == nil {
			t.Fatalf("%s is left", p)
		}
	}
	return d, rec
}

func sumsOf(b []byte, pageSize int) []uint64 {
	s := make([]uint64, len(b)/pageSize)
	for i := range s {
		if p := uint32(i + 1); p != segment.LockPage(pageSize) {
			s[i] = segment.PageSum(p, b[i*pageSize:][:pageSize])
		}
	}
	return s
}

func xor(s []uint64) (x uint64) {
	for _, v := range s {
		x ^= v
	}
	return x
}

// differing lists the pages of now that are not as in old.
func differing(old, now []uint64) (pages []uint32) {
	for i, v := range now {
		if i >= len(old) || old[i] != v {
			pages = append(pages, uint32(i+1))
		}
	}
	return pages
}

// copyFile copies a file, or makes a directory where there is one: with the driver's build tag sqlite3_dotlk -shm is an empty one.
func copyFile(t testing.TB, from, to string) {
	t.Helper()
	if fi, err := os.Stat(from); err == nil && fi.IsDir() {
		if err := os.Mkdir(to, 0o700); err != nil {
			t.Fatal(err)
		}
		return
	}
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
