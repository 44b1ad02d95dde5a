package cache_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/cache"
	"github.com/tonbo-go/tonbo/internal/pageset"
)

// TestDamageIsFoundAndNothingIsChanged: whatever happened to the files outside of us, Recover either gives a state that a prefix of the local commits made, no
// older than what was shipped, or says that it is damaged and touches nothing.
func TestDamageIsFoundAndNothingIsChanged(t *testing.T) {
	const size = 4096
	file := func(root, name string) string { return filepath.Join(root, dbOf, name) }
	// Shipped: slot 1 in the file, slot 2 in the WAL; then an unshipped commit.
	prepare := func(t *testing.T) *live {
		l := newLive(t, size)
		l.exec(insert("t", 1, 100, 280))
		l.ship()
		l.exec(insert("t", 50, 120, 270))
		return l
	}
	cases := []struct {
		name   string
		root   func(t *testing.T) string
		reason string
	}{
		{"torn page 1", func(t *testing.T) string {
			root := prepare(t).crash()
			cutHalf(t, file(root, "db"), 0, size)
			os.Remove(file(root, "db-wal"))
			return root
		}, ""},
		{"WAL cut before what was shipped", func(t *testing.T) string {
			root := prepare(t).crash()
			truncate(t, file(root, "db-wal"), 32+3*(24+size))
			return root
		}, "up to byte"},
		{"WAL gone", func(t *testing.T) string {
			root := prepare(t).crash()
			os.Remove(file(root, "db-wal"))
			return root
		}, "page "},
		{"WAL cut to its first commit, an older version of shipped pages", func(t *testing.T) string {
			l := newLive(t, size)
			l.exec(insert("t", 1, 10, 280))
			end := fileSize(t, l.dir.WALPath())
			l.exec(insert("t", 1, 10, 270))
			l.ship()
			root := l.crash()
			truncate(t, file(root, "db-wal"), end)
			return root
		}, "up to byte"},
		{"the same when it has been checkpointed", func(t *testing.T) string {
			l := newLive(t, size)
			l.exec(insert("t", 1, 10, 280))
			end := fileSize(t, l.dir.WALPath())
			l.exec(insert("t", 1, 10, 270))
			l.ship()
			l.exec("PRAGMA wal_checkpoint(PASSIVE)")
			root := l.crash()
			truncate(t, file(root, "db-wal"), end)
			return root
		}, "up to byte"},
		{"an older file and WAL put back", func(t *testing.T) string {
			l := newLive(t, size)
			l.exec(insert("t", 1, 10, 280))
			old := l.crash()
			l.exec(insert("t", 1, 10, 270))
			l.ship()
			root := l.crash()
			copyFile(t, file(old, "db"), file(root, "db"))
			copyFile(t, file(old, "db-wal"), file(root, "db-wal"))
			return root
		}, "up to byte"},
		{"an older file put back, the WAL reset since", func(t *testing.T) string {
			l := prepare(t)
			old := l.crash()
			l.ship()
			l.exec("PRAGMA wal_checkpoint(TRUNCATE)")
			l.exec("UPDATE t SET v=1 WHERE id=3")
			root := l.crash()
			copyFile(t, file(old, "db"), file(root, "db"))
			return root
		}, "page "},
		{"another database in the file's place", func(t *testing.T) string {
			root, other := prepare(t).crash(), newLive(t, size)
			copyFile(t, file(other.crash(), "db"), file(root, "db"))
			os.Remove(file(root, "db-wal"))
			return root
		}, "page "},
		{"another database and its WAL", func(t *testing.T) string {
			root, other := prepare(t).crash(), prepare(t).crash()
			copyFile(t, file(other, "db"), file(root, "db"))
			copyFile(t, file(other, "db-wal"), file(root, "db-wal"))
			return root
		}, ""},
		{"another database's WAL", func(t *testing.T) string {
			root, other := prepare(t).crash(), prepare(t).crash()
			copyFile(t, file(other, "db-wal"), file(root, "db-wal"))
			return root
		}, ""},
		{"a database of another page size, with its WAL", func(t *testing.T) string {
			root, other := prepare(t).crash(), newLive(t, 8192)
			other.exec(insert("t", 1, 10, 100))
			from := other.crash()
			copyFile(t, file(from, "db"), file(root, "db"))
			copyFile(t, file(from, "db-wal"), file(root, "db-wal"))
			return root
		}, "pages of 8192 bytes"},
		{"no file", func(t *testing.T) string {
			root := prepare(t).crash()
			os.Remove(file(root, "db"))
			return root
		}, "missing"},
		{"an empty file beside a WAL", func(t *testing.T) string {
			root := prepare(t).crash()
			truncate(t, file(root, "db"), 0)
			return root
		}, ""},
		{"a file cut in a page", func(t *testing.T) string {
			root := shippedOnly(t, size)
			truncate(t, file(root, "db"), 5*size+100)
			return root
		}, "no multiple"},
		{"a file cut between pages", func(t *testing.T) string {
			root := shippedOnly(t, size)
			truncate(t, file(root, "db"), 5*size)
			return root
		}, "no commit says so"},
		{"a file grown by zeros", func(t *testing.T) string {
			root := shippedOnly(t, size)
			truncate(t, file(root, "db"), fileSize(t, file(root, "db"))+3*size)
			return root
		}, "no commit says so"},
		{"an older file put back whose content was spilled before the last entry", func(t *testing.T) string {
			l := newLive(t, size)
			l.exec(insert("t", 1, 100, 280))
			l.spill()
			l.exec("PRAGMA wal_checkpoint(TRUNCATE)")
			old := l.crash()
			l.exec(insert("t", 1, 100, 280))
			l.ship()
			l.exec("PRAGMA wal_checkpoint(TRUNCATE)")
			root := l.crash()
			copyFile(t, file(old, "db"), file(root, "db"))
			return root
		}, "page "},
		{"a spilled page lost", func(t *testing.T) string {
			l := newLive(t, size)
			l.exec(insert("t", 1, 100, 280))
			l.spill()
			l.exec("PRAGMA wal_checkpoint(TRUNCATE)")
			root := l.crash()
			flip(t, file(root, "db"), 5*size+77)
			return root
		}, "page 6"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			root := c.root(t)
			if fi, err := os.Stat(file(root, "db-shm")); err == nil && fi.IsDir() && c.reason == "up to byte" {
				t.Skip("built with sqlite3_dotlk: SQLite's index of the log, which says how far it reached, is in no file")
			}
			before := contents(t, root)
			_, rec := recoverDir(t, root)
			if len(rec.Damaged) == 0 {
				t.Fatalf("taken for sound: unshipped %v", rec.Unshipped)
			}
			if rec.Reason == "" || !strings.Contains(rec.Reason, c.reason) {
				t.Errorf("reason: got %q, want %q in it", rec.Reason, c.reason)
			}
			if !slices.IsSorted(rec.Damaged) || rec.Sums.Len() > 0 {
				t.Errorf("damaged %v, %d sums", rec.Damaged, rec.Sums.Len())
			}
			if after := contents(t, root); after != before {
				t.Errorf("files were changed: %s, before %s", after, before)
			}
		})
	}
}

// shippedOnly is a directory without WAL whose file is the shipped state.
func shippedOnly(t *testing.T, pageSize int) string {
	l := newLive(t, pageSize)
	l.exec(insert("t", 1, 100, 280))
	l.ship()
	l.exec("PRAGMA wal_checkpoint(TRUNCATE)")
	return l.crash()
}

func contents(t *testing.T, root string) string {
	t.Helper()
	var s strings.Builder
	for _, n := range []string{"db", "db-wal", "db-shm", "state"} {
		b, err := os.ReadFile(filepath.Join(root, dbOf, n))
		fmt.Fprintf(&s, "%s %d %x %v;", n, len(b), xor(sumsOf(append(b, make([]byte, 512)...), 512)), err != nil)
	}
	return s.String()
}

func truncate(t *testing.T, path string, n int64) {
	t.Helper()
	if err := os.Truncate(path, n); err != nil {
		t.Fatal(err)
	}
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fi.Size()
}

func flip(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x10
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

// cutHalf zeroes the second half of n bytes.
func cutHalf(t *testing.T, path string, at, n int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(make([]byte, n/2), at+n/2); err != nil {
		t.Fatal(err)
	}
}

// TestFlippedByteInTheFileIsDamage: in any page, anywhere in it.
func TestFlippedByteInTheFileIsDamage(t *testing.T) {
	const size = 1024
	root := shippedOnly(t, size)
	path := filepath.Join(root, dbOf, "db")
	rng := rand.New(rand.NewSource(1))
	for page := range fileSize(t, path) / size {
		at := page*size + rng.Int63n(size)
		flip(t, path, at)
		d, rec := recoverDir(t, root)
		if !slices.Equal(rec.Damaged, []uint32{uint32(page + 1)}) {
			t.Errorf("byte %d: damaged %v, want page %d", at, rec.Damaged, page+1)
		}
		d.Close()
		flip(t, path, at)
	}
	mustRecover(t, root, size, sumsOf(recovered(t, filepath.Join(root, dbOf)), size))
}

// TestFlippedByteInTheWALLeavesAPrefix: of the unshipped commits; within what was shipped it is damage, as a prefix would be older than that.
func TestFlippedByteInTheWALLeavesAPrefix(t *testing.T) {
	const size = 1024
	l := newLive(t, size)
	l.exec(insert("t", 1, 10, 280))
	l.ship()
	shipped := fileSize(t, l.dir.WALPath())
	states := [][]uint64{l.shipped}
	for i := range 5 {
		l.exec(insert("t", 5+i, 30+i, 200+i))
		states = append(states, sumsOf(l.image(), size))
	}
	root := l.crash()
	rng := rand.New(rand.NewSource(2))
	wal := fileSize(t, filepath.Join(root, dbOf, "db-wal"))
	var offsets []int64
	for at := int64(32); at < wal; at += 24 + size {
		offsets = append(offsets, at+rng.Int63n(24), at+24+rng.Int63n(size))
	}
	seen := map[int]bool{}
	for _, at := range append(offsets, 2, 9, 17, 25) {
		root := copyRoot(t, root)
		flip(t, filepath.Join(root, dbOf, "db-wal"), at)
		want := recovered(t, filepath.Join(root, dbOf))
		d, rec := recoverDir(t, root)
		if at < shipped {
			if len(rec.Damaged) == 0 {
				t.Errorf("byte %d of the WAL, within what was shipped: taken for sound", at)
			}
			d.Close()
			continue
		}
		i := slices.IndexFunc(states, func(s []uint64) bool { return slices.Equal(s, rec.Sums.Slice()) })
		got, _ := os.ReadFile(d.Path())
		if len(rec.Damaged) > 0 || i < 0 || !bytes.Equal(got, want) {
			t.Errorf("byte %d of the WAL: %v %s, state %d, as SQLite's: %v", at, rec.Damaged, rec.Reason, i, bytes.Equal(got, want))
		}
		seen[i] = true
		d.Close()
	}
	if len(seen) != len(states)-1 {
		t.Errorf("prefixes seen: %v", seen)
	}
}

// TestRolledBackStateFile: an older state file is put right by the entries of the log, and without them what it calls unshipped is still a
// commit that follows it.
func TestRolledBackStateFile(t *testing.T) {
	const size = 2048
	l := newLive(t, size)
	l.exec(insert("t", 1, 10, 280))
	l.ship()
	old := l.crash()
	first := l.shipped
	l.exec(insert("t", 5, 20, 270))
	l.ship()
	l.exec(insert("t", 15, 30, 260))
	l.ship()
	l.exec("UPDATE t SET v=randomblob(20) WHERE id=1")
	root := l.crash()
	copyFile(t, filepath.Join(old, dbOf, "state"), filepath.Join(root, dbOf, "state"))

	again := copyRoot(t, root)
	d, _ := mustRecover(t, root, size, l.shipped, l.entries[1:]...)
	if s := d.State(); s.Slot != 4 || !slices.Equal(s.Sums.Slice(), l.shipped) {
		t.Errorf("the state does not follow the entries: slot %d", s.Slot)
	}
	d.Close()
	d = open(t, root)
	if s := d.State(); s.Slot != 4 || !slices.Equal(s.Sums.Slice(), l.shipped) {
		t.Errorf("the state on disk does not follow the entries: slot %d", s.Slot)
	}
	mustRecover(t, again, size, first)

	// When the WAL has been reset meanwhile, its pages are damage: the caller rebuilds.
	l.exec("PRAGMA wal_checkpoint(TRUNCATE)")
	root = l.crash()
	copyFile(t, filepath.Join(old, dbOf, "state"), filepath.Join(root, dbOf, "state"))
	if _, rec := recoverDir(t, root); len(rec.Damaged) == 0 {
		t.Errorf("taken for sound")
	}
}

// TestEntriesThatDoNotContinueTheStateAreDamage: entries of another history.
func TestEntriesThatDoNotContinueTheStateAreDamage(t *testing.T) {
	l := newLive(t, 4096)
	_, rec := recoverDir(t, l.crash(), cache.Shipped{Slot: 2, PageCount: uint32(len(l.shipped)), Checksum: 5, Pages: []cache.PageSum{{Page: 1, Sum: 3}}})
	if len(rec.Damaged) != len(l.shipped) {
		t.Errorf("damaged: %v", rec.Damaged)
	}
}

// TestAnEntryWhoseAnswerWasNeverSeenIsNotUnshipped.
func TestAnEntryWhoseAnswerWasNeverSeenIsNotUnshipped(t *testing.T) {
	l := newLive(t, 4096)
	l.exec(insert("t", 1, 10, 280))
	e := l.entry()
	root := l.crash()
	_, rec := mustRecover(t, root, 4096, l.shipped, e)
	if len(rec.Unshipped) != 0 {
		t.Errorf("unshipped: %v", rec.Unshipped)
	}
}

// TestAfterARebootOnlyTheShippedStateIsTrusted.
func TestAfterARebootOnlyTheShippedStateIsTrusted(t *testing.T) {
	l := newLive(t, 4096)
	l.exec(insert("t", 1, 10, 280))
	l.ship()
	root := l.crash()
	d := open(t, root)
	if err := d.SetBoot("another"); err != nil {
		t.Fatal(err)
	}
	d.Close()
	d, rec := mustRecover(t, root, 4096, l.shipped)
	if !rec.Rebooted {
		t.Error("not told of the reboot")
	}
	d.Close()
	if _, rec := mustRecover(t, root, 4096, l.shipped); rec.Rebooted {
		t.Error("the reboot is told of twice")
	}

	l.exec(insert("t", 1, 2, 280))
	root = l.crash()
	d = open(t, root)
	if err := d.SetBoot(""); err != nil {
		t.Fatal(err)
	}
	rec, err := d.Recover(context.Background(), nil)
	if err != nil || !rec.Rebooted || !rec.Doubtful || len(rec.Damaged) == 0 || len(rec.Unshipped) > 0 {
		t.Errorf("got %+v, %v", rec, err)
	}
	// The commits may be kept aside.
	want := recovered(t, filepath.Join(root, dbOf))
	path, err := d.KeepAside(1, func(w io.Writer) error { return d.CopyTo(context.Background(), w, nil) })
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("kept aside: %d bytes, want SQLite's %d (%v)", len(got), len(want), err)
	}
	d.Close()
	flip(t, filepath.Join(root, dbOf, "db"), fileSize(t, filepath.Join(root, dbOf, "db"))-50)
	if _, rec := recoverDir(t, root); len(rec.Damaged) == 0 || !rec.Doubtful {
		t.Errorf("with a flipped byte it is kept aside too, as its commits may be whole: got %+v", rec)
	}
}

// TestCleanCloseIsNotReadAgain, unless the file was touched or replaced since.
func TestCleanCloseIsNotReadAgain(t *testing.T) {
	closed := func(t *testing.T) (root string, path string) {
		l := newLive(t, 4096)
		l.exec(insert("t", 1, 10, 280))
		l.ship()
		if err := l.conn.Close(); err != nil {
			t.Fatal(err)
		}
		if err := l.dir.CleanClose(); err != nil {
			t.Fatal(err)
		}
		l.dir.Close()
		return l.root, filepath.Join(l.root, dbOf, "db")
	}
	cases := []struct {
		name string
		do   func(t *testing.T, path string)
		want bool
	}{
		{"untouched", func(*testing.T, string) {}, true},
		{"a byte flipped", func(t *testing.T, p string) { flip(t, p, 5000) }, false},
		{"a byte flipped, the time put back", func(t *testing.T, p string) {
			fi, err := os.Stat(p)
			if err != nil {
				t.Fatal(err)
			}
			flip(t, p, 5000)
			os.Chtimes(p, time.Time{}, fi.ModTime())
		}, false},
		{"replaced", func(t *testing.T, p string) {
			fi, err := os.Stat(p)
			if err != nil {
				t.Fatal(err)
			}
			copyFile(t, p, p+".new")
			flip(t, p+".new", 5000)
			os.Chtimes(p+".new", time.Time{}, fi.ModTime())
			if err := os.Rename(p+".new", p); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"a WAL beside it", func(t *testing.T, p string) { os.WriteFile(p+"-wal", make([]byte, 100), 0o600) }, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			root, path := closed(t)
			want := sumsOf(recovered(t, filepath.Dir(path)), 4096)
			c.do(t, path)
			_, rec := recoverDir(t, root)
			if rec.Skipped != c.want {
				t.Errorf("skipped: got %v, want %v", rec.Skipped, c.want)
			}
			if c.want && (!slices.Equal(rec.Sums.Slice(), want) || len(rec.Unshipped) > 0) {
				t.Errorf("sums differ, or unshipped %v", rec.Unshipped)
			}
		})
	}
}

// TestDamagedStateIsNoState: a byte flipped anywhere in the state never gives another state; only the last records may be lost.
func TestDamagedStateIsNoState(t *testing.T) {
	l := newLive(t, 4096)
	l.exec(insert("t", 1, 10, 280))
	before := l.dir.State()
	l.ship()
	mid := l.dir.State()
	if err := l.dir.SetGeneration(9, 10); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(l.crash(), dbOf, "state"))
	if err != nil {
		t.Fatal(err)
	}
	after := l.dir.State()
	for at := range b {
		c := slices.Clone(b)
		c[at] ^= 0x21
		s, good, err := cache.Replay(c)
		if err == nil && !sameState(s, mid, "") && !sameState(s, before, "") {
			t.Fatalf("byte %d flipped: %d bytes count, slot %d", at, good, s.Slot)
		}
		if err != nil && !errors.Is(err, cache.ErrDamaged) && !errors.Is(err, cache.ErrForeign) {
			t.Fatalf("byte %d flipped: %v", at, err)
		}
	}
	for n := range b {
		s, _, err := cache.Replay(b[:n])
		if err == nil && !sameState(s, mid, "") && !sameState(s, before, "") && !sameState(s, after, "") {
			t.Fatalf("cut at %d: slot %d", n, s.Slot)
		}
		if s, _, err := cache.Replay(append(slices.Clone(b[:n]), make([]byte, 700)...)); err == nil && !sameState(s, mid, "") && !sameState(s, before, "") {
			t.Fatalf("cut at %d and zeros: slot %d", n, s.Slot)
		}
	}
	if s, _, err := cache.Replay(b); err != nil || !sameState(s, after, "") {
		t.Fatalf("whole: %v", err)
	}
}

// TestTornTailIsCutOffAndWrittenOver: the next change stands where the torn one was.
func TestTornTailIsCutOffAndWrittenOver(t *testing.T) {
	l := newLive(t, 4096)
	l.exec(insert("t", 1, 10, 280))
	l.ship()
	root := l.crash()
	path := filepath.Join(root, dbOf, "state")
	truncate(t, path, fileSize(t, path)-5)
	d := open(t, root)
	if s := d.State(); s == nil || s.Slot != 1 {
		t.Fatalf("got %+v", s)
	}
	if err := d.SetGeneration(3, 4); err != nil {
		t.Fatal(err)
	}
	d.Close()
	if s := open(t, root).State(); s == nil || s.Slot != 4 || s.Generation != 3 {
		t.Fatalf("got %+v", s)
	}
}

// TestForeignContentIsRefusedAndKept: a database file without a state, or a state of something else or of a later version.
func TestForeignContentIsRefusedAndKept(t *testing.T) {
	for _, files := range []map[string]string{
		{"db": "someone's"},
		{"db-wal": "someone's"},
		{"db": "x", "state": "not ours at all, and longer than the magic"},
		{"db": "x", "state": ""},
		{"state": "tonbo state v2\n\x00more"},
	} {
		root := t.TempDir()
		dir := filepath.Join(root, dbOf)
		os.Mkdir(dir, 0o700)
		for n, c := range files {
			os.WriteFile(filepath.Join(dir, n), []byte(c), 0o600)
		}
		_, err := cache.Open(root, dbOf, cache.Options{})
		if !errors.Is(err, cache.ErrForeign) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "use another Dir") {
			t.Errorf("%v: got %v", files, err)
		}
		for n, c := range files {
			if b, err := os.ReadFile(filepath.Join(dir, n)); err != nil || string(b) != c {
				t.Errorf("%s was touched: %q %v", n, b, err)
			}
		}
		// It is said again, and the lock is free.
		if _, err := cache.Open(root, dbOf, cache.Options{}); !errors.Is(err, cache.ErrForeign) {
			t.Errorf("the second time: %v", err)
		}
	}
}

// TestDamagedStateOfOursIsRebuilt: it does not lock its owner out.
func TestDamagedStateOfOursIsRebuilt(t *testing.T) {
	l := newLive(t, 4096)
	root := l.crash()
	flip(t, filepath.Join(root, dbOf, "state"), 60)
	d := open(t, root)
	if d.State() != nil || d.Damaged() == "" {
		t.Fatalf("state %v, damaged %q", d.State(), d.Damaged())
	}
	if err := d.SetGeneration(1, 1); err == nil {
		t.Error("a change of no state is accepted")
	}
	if err := d.Reset(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.Path()); err == nil || d.Damaged() != "" {
		t.Error("not reset")
	}
}

// TestAnotherDatabasesDirectoryIsRecognisable: names, stores and incarnations are the caller's to compare.
func TestAnotherDatabasesDirectoryIsRecognisable(t *testing.T) {
	l := newLive(t, 4096)
	root := l.crash()
	if err := os.Rename(filepath.Join(root, dbOf), filepath.Join(root, "other")); err != nil {
		t.Fatal(err)
	}
	d, err := cache.Open(root, "other", cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if s := d.State(); s.Name != dbOf || s.Store != "mem://x" || s.ID != [16]byte{1} {
		t.Errorf("got %+v", s)
	}
}

var errFull = errors.New("no space left on device")

// TestFullDiskLosesNothingAndRecovers: a failed append is an error, memory is right, and the next change that finds room writes it all. A kill in between
// leaves the state of before.
func TestFullDiskLosesNothingAndRecovers(t *testing.T) {
	full := false
	root := t.TempDir()
	d, err := cache.Open(root, dbOf, cache.Options{Fault: func(step string) error {
		if full && (strings.HasSuffix(step, ":append") || strings.HasSuffix(step, ":written")) {
			return errFull
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Begin(cache.State{Name: dbOf, PageSize: 512, Sums: pageset.SumsOf([]uint64{1, 2}), Checksum: 3, Slot: 1}); err != nil {
		t.Fatal(err)
	}
	full = true
	if err := d.Shipped(2, 2, 1^7, []cache.PageSum{{Page: 2, Sum: 7}}); !errors.Is(err, errFull) || !strings.Contains(err.Error(), "state") {
		t.Fatalf("got %v", err)
	}
	if s := d.State(); s.Slot != 2 || s.Sums.At(2) != 7 {
		t.Errorf("memory: %+v", s)
	}
	b, err := os.ReadFile(filepath.Join(root, dbOf, "state"))
	if err != nil {
		t.Fatal(err)
	}
	if s, _, err := cache.Replay(b); err != nil || s.Slot != 1 {
		t.Errorf("a kill now: %+v %v", s, err)
	}
	if err := d.Shipped(3, 2, 1^8, []cache.PageSum{{Page: 2, Sum: 8}}); !errors.Is(err, errFull) {
		t.Errorf("still full: got %v", err)
	}
	if err := d.Begin(cache.State{PageSize: 512}); !errors.Is(err, errFull) {
		t.Errorf("begin: got %v", err)
	}
	if _, err := d.KeepAside(1, func(w io.Writer) error { return errFull }); !errors.Is(err, errFull) {
		t.Errorf("keep aside: got %v", err)
	}
	checkTidy(t, root)
	full = false
	if err := d.Spilled([]cache.PageSum{{Page: 1, Sum: 5}}); err != nil {
		t.Fatal(err)
	}
	b, err = os.ReadFile(filepath.Join(root, dbOf, "state"))
	if err != nil {
		t.Fatal(err)
	}
	if s, _, err := cache.Replay(b); err != nil || s.Slot != 3 || s.Sums.At(2) != 8 {
		t.Errorf("with room again: %+v %v", s, err)
	}
}

// TestStateStaysBounded: ten thousand Shipped.
func TestStateStaysBounded(t *testing.T) {
	l := newLive(t, 4096)
	was := l.dir.State().Sums
	sums := was.Slice()
	x := xor(sums)
	for i := range uint64(10_000) {
		var pages []cache.PageSum
		for p := range min(20, len(sums)) {
			x ^= sums[p] ^ (i * 31)
			sums[p] = i * 31
			pages = append(pages, cache.PageSum{Page: uint32(p + 1), Sum: sums[p]})
		}
		if err := l.dir.Shipped(2+i, uint32(len(sums)), x, pages); err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 {
			if n := fileSize(t, filepath.Join(l.root, dbOf, "state")); n > 1<<20+1<<14 {
				t.Fatalf("after %d: %d bytes", i, n)
			}
		}
	}
	if s := open(t, l.crash()).State(); s.Slot != 10_001 || !slices.Equal(s.Sums.Slice(), sums) {
		t.Error("the state on disk is another")
	}
}

// TestShippedThatDoesNotAddUpIsRefused: the sums must lead to the database checksum.
func TestShippedThatDoesNotAddUpIsRefused(t *testing.T) {
	l := newLive(t, 4096)
	before := l.dir.State()
	count := uint32(before.Sums.Len())
	for _, err := range []error{
		l.dir.Shipped(2, count, before.Checksum, []cache.PageSum{{Page: 1, Sum: 1}}),
		l.dir.Shipped(2, count, before.Checksum, []cache.PageSum{{Page: count + 1, Sum: 1}}),
		l.dir.Shipped(2, count+100, before.Checksum, nil),
		l.dir.Shipped(2, count-1, before.Checksum, nil),
	} {
		if err == nil {
			t.Error("accepted")
		}
	}
	if !sameState(before, l.dir.State(), "") {
		t.Error("a refused Shipped changed the state")
	}
}

// FuzzReplay: a state file of any content gives a state whose sums add up, or an error.
func FuzzReplay(f *testing.F) {
	l := newLive(f, 512)
	l.exec(insert("t", 1, 10, 280))
	l.spill()
	l.ship()
	b, err := os.ReadFile(filepath.Join(l.root, dbOf, "state"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)-9])
	f.Add([]byte{})
	for _, n := range []int{1, 200} { // as runs, and as a bit for each
		known, root := pageset.NewBits(400), f.TempDir()
		for p := range uint32(n) {
			known.Set(2*p + 3)
		}
		if err := open(f, root).Begin(cache.State{Name: dbOf, PageSize: 512, Sums: pageset.NewSums(400), Known: known, Slot: 1}); err != nil {
			f.Fatal(err)
		}
		if b, err = os.ReadFile(filepath.Join(root, dbOf, "state")); err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, good, err := cache.Replay(b)
		if err != nil {
			return
		}
		if good > int64(len(b)) {
			t.Fatalf("%d of %d bytes count", good, len(b))
		}
		if s != nil && s.Known == nil && s.Sums.Xor() != s.Checksum {
			t.Fatal("sums do not add up")
		}
	})
}

// FuzzWAL: a WAL of any content gives whole frames.
func FuzzWAL(f *testing.F) {
	l := newLive(f, 512)
	l.exec(insert("t", 1, 10, 280))
	b, err := os.ReadFile(l.dir.WALPath())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:100])
	big := slices.Clone(b[:32])
	binary.BigEndian.PutUint32(big, 0x377f0683)
	f.Add(big)
	f.Fuzz(func(t *testing.T, b []byte) {
		end, pages, count, err := cache.ScanWAL(b)
		if err != nil {
			t.Fatal(err)
		}
		if end > int64(len(b)) || end == 0 && pages > 0 || end > 0 && (end-32 < int64(pages)*(24+512) || count == 0) {
			t.Fatalf("end %d of %d, %d pages, size %d", end, len(b), pages, count)
		}
	})
}

// TestContentSpilledBeforeAnEntryIsNotTakenForACommitAfterIt: the entry is in the log and the state does not say so yet, and the disk has lost what was in the WAL, under a kernel that runs on.
func TestContentSpilledBeforeAnEntryIsNotTakenForACommitAfterIt(t *testing.T) {
	l := newLive(t, 4096)
	l.exec(insert("t", 1, 10, 280))
	l.spill()
	l.exec("PRAGMA wal_checkpoint(TRUNCATE)")
	l.exec(insert("t", 1, 10, 290))
	e := l.entry()
	l.dir.Captured(e.Slot)
	root := l.crash()
	truncate(t, filepath.Join(root, dbOf, "db-wal"), 0)
	_, rec := recoverDir(t, root, e)
	if len(rec.Damaged) == 0 || len(rec.Unshipped) > 0 {
		t.Errorf("got %+v", rec)
	}
	// What was spilled while the entry was on its way may be later than it.
	l.spill()
	l.exec("PRAGMA wal_checkpoint(TRUNCATE)")
	l.exec(insert("t", 1, 10, 300))
	l.spill()
	l.exec("PRAGMA wal_checkpoint(TRUNCATE)")
	root = l.crash()
	if _, rec = recoverDir(t, root, e); len(rec.Damaged) > 0 || len(rec.Unshipped) == 0 {
		t.Errorf("spilled meanwhile: got %+v", rec)
	}
}

// TestLogCutBeforeAnEntryThatWasNotNotedIsFoundOut: the database grew in the commits that are left of the WAL, which is no shrinking and growing again after the entry.
func TestLogCutBeforeAnEntryThatWasNotNotedIsFoundOut(t *testing.T) {
	l := newLive(t, 4096)
	l.exec(insert("t", 201, 202, 290))
	l.exec(insert("t", 203, 400, 290))
	left := fileSize(t, l.dir.WALPath())
	l.exec(insert("t", 390, 400, 290))
	e := l.entry()
	root := l.crash()
	truncate(t, filepath.Join(root, dbOf, "db-wal"), left)
	if _, rec := recoverDir(t, root, e); len(rec.Damaged) == 0 {
		t.Errorf("got %+v", rec)
	}
}

// TestSpilledPageThatIsTheShippedOneAgainIsFoundOut: a checkpoint wrote it, the WAL was reset, and the disk lost that write and no other.
func TestSpilledPageThatIsTheShippedOneAgainIsFoundOut(t *testing.T) {
	l := newLive(t, 4096)
	before, err := os.ReadFile(l.dir.Path())
	if err != nil {
		t.Fatal(err)
	}
	l.exec(insert("t", 1, 200, 280))
	l.spill()
	l.exec("PRAGMA wal_checkpoint(TRUNCATE)")
	root := l.crash()
	path := filepath.Join(root, dbOf, "db")
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := 4096 * (len(before)/4096 - 2)
	if bytes.Equal(before[at:at+4096], after[at:at+4096]) {
		t.Fatal("the page has not changed")
	}
	copy(after[at:at+4096], before[at:])
	if err := os.WriteFile(path, after, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, rec := recoverDir(t, root); len(rec.Damaged) != 1 {
		t.Errorf("got %+v", rec)
	}
}
