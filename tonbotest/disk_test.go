package tonbotest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/disk"
	"github.com/tonbo-go/tonbo/internal/fsys"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

func newDisk(t *testing.T) (*tonbotest.Disk, fsys.FS) {
	t.Helper()
	d, err := tonbotest.NewDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d, fsys.At(d.Dir())
}

// put writes a file anew.
func put(t *testing.T, files fsys.FS, path string, b []byte, sync bool) error {
	t.Helper()
	f, err := files.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteAt(b, 0); err != nil {
		return err
	}
	if sync {
		return f.Sync()
	}
	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "-"
	}
	must(t, err)
	return string(b)
}

func TestDiskFailsTheOperationsThatAreMeant(t *testing.T) {
	d, files := newDisk(t)
	a, b := filepath.Join(d.Dir(), "a"), filepath.Join(d.Dir(), "b")
	d.Fail(tonbotest.DiskMatch{Op: tonbotest.FileWrite, File: "a*", Skip: 1}, 2, nil)
	d.Fail(tonbotest.DiskMatch{Op: tonbotest.FileRemove}, 1, syscall.EACCES)
	d.Fail(tonbotest.DiskMatch{Op: tonbotest.FileRead}, 1, nil)
	for i, want := range []error{nil, syscall.EIO, syscall.EIO, nil} {
		must(t, put(t, files, b, []byte("x"), true))
		if err := put(t, files, a, []byte("x"), false); !errors.Is(err, want) || want != nil && !errors.Is(err, tonbotest.ErrInjected) {
			t.Errorf("write %d: %v, want %v", i, err, want)
		}
	}
	if err := files.Remove(a); !errors.Is(err, syscall.EACCES) || read(t, a) != "x" {
		t.Errorf("remove: %v", err)
	}
	f, err := files.Open(a)
	must(t, err)
	defer f.Close()
	if _, err := f.ReadAt(make([]byte, 1), 0); !errors.Is(err, syscall.EIO) {
		t.Errorf("read: %v", err)
	}
	if _, err := f.ReadAt(make([]byte, 1), 0); err != nil {
		t.Error(err)
	}
}

func TestDiskFillsUpAndHasRoomAgain(t *testing.T) {
	d, files := newDisk(t)
	a, b := filepath.Join(d.Dir(), "a"), filepath.Join(d.Dir(), "b")
	d.Room(1000)
	must(t, put(t, files, a, make([]byte, 900), false))
	must(t, put(t, files, a, make([]byte, 900), false)) // in place
	if err := put(t, files, b, make([]byte, 200), false); !disk.Full(err) {
		t.Errorf("got %v", err)
	}
	must(t, files.Remove(a))
	must(t, put(t, files, b, make([]byte, 200), false))
}

func TestTornWriteIsWrittenInPart(t *testing.T) {
	d, files := newDisk(t)
	a := filepath.Join(d.Dir(), "a")
	old, now := strings.Repeat("o", 3000), strings.Repeat("n", 3000)
	must(t, put(t, files, a, []byte(old), true))
	d.Tear(tonbotest.DiskMatch{}, 1)
	must(t, files.WriteFile(filepath.Join(d.Dir(), "empty"), nil, 0o600)) // no write: the rule waits
	d.Tear(tonbotest.DiskMatch{Op: tonbotest.FileWrite}, 1)
	if err := put(t, files, a, []byte(now), false); !errors.Is(err, syscall.EIO) {
		t.Errorf("got %v", err)
	}
	got := read(t, a)
	for at := 0; at < 3000; at += 512 {
		if s := got[at:min(at+512, 3000)]; strings.Trim(s, "o") != "" && strings.Trim(s, "n") != "" {
			t.Errorf("sector at %d is torn itself", at)
		}
	}
	if !strings.Contains(got, "o") || !strings.Contains(got, "n") {
		t.Error("all of it or nothing was written")
	}
}

// TestPowerLossKeepsWhatWasSynced, and of what was not any part. Each possible outcome comes about.
func TestPowerLossKeepsWhatWasSynced(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(300) {
		d, files := newDisk(t)
		in := func(name string) string { return filepath.Join(d.Dir(), name) }
		must(t, put(t, files, in("kept"), []byte("old"), true))
		must(t, put(t, files, in("renamed.tmp"), []byte("new"), true))
		must(t, put(t, files, in("renamed"), []byte("old"), true))
		must(t, put(t, files, in("removed"), []byte("old"), true))
		must(t, files.SyncDir(d.Dir()))
		must(t, put(t, files, in("kept"), []byte("new"), false))
		must(t, put(t, files, in("made"), []byte("new"), true))
		must(t, files.Rename(in("renamed.tmp"), in("renamed")))
		must(t, files.Remove(in("removed")))
		d.Cut(0)
		if err := put(t, files, in("kept"), []byte("late"), true); !errors.Is(err, syscall.EIO) {
			t.Fatalf("without power: %v", err)
		}
		must(t, d.PowerLoss(seed))
		for _, name := range []string{"kept", "made", "renamed", "renamed.tmp", "removed"} {
			seen[name+" "+read(t, in(name))] = true
		}
		if (read(t, in("renamed")) == "new") != (read(t, in("renamed.tmp")) == "-") {
			t.Fatal("renamed in part")
		}
		// What is there now is durable.
		before := read(t, in("kept"))
		must(t, d.PowerLoss(seed+1))
		if got := read(t, in("kept")); got != before {
			t.Fatalf("changed by the second power cut: %q, was %q", got, before)
		}
	}
	want := []string{"kept old", "kept new", "made -", "made new", "renamed old", "renamed new", "renamed.tmp -", "renamed.tmp new", "removed -", "removed old"}
	for _, w := range want {
		if !seen[w] {
			t.Errorf("never: %s", w)
		}
	}
	if len(seen) != len(want) {
		t.Errorf("got %v", seen)
	}
}

func TestSameSeedLosesTheSame(t *testing.T) {
	var first []byte
	for i := range 2 {
		d, files := newDisk(t)
		a := filepath.Join(d.Dir(), "a")
		must(t, put(t, files, a, bytes.Repeat([]byte("a"), 5000), true))
		must(t, files.SyncDir(d.Dir()))
		for n := range 20 {
			must(t, put(t, files, a, bytes.Repeat([]byte{byte('b' + n)}, 5000-200*n), false))
		}
		must(t, d.PowerLoss(42))
		b := []byte(read(t, a))
		if i > 0 && !bytes.Equal(b, first) {
			t.Error("another content")
		}
		first = b
	}
}

func TestDiskThatLiesAboutFsyncLosesWhatWasSynced(t *testing.T) {
	lost := false
	for seed := range uint64(50) {
		d, files := newDisk(t)
		d.Lie(tonbotest.DiskMatch{File: "a"}, -1)
		a := filepath.Join(d.Dir(), "a")
		must(t, put(t, files, a, []byte("new"), true))
		must(t, files.SyncDir(d.Dir()))
		must(t, d.PowerLoss(seed))
		lost = lost || read(t, a) != "new"
	}
	if !lost {
		t.Error("nothing was lost")
	}
}

func ExampleDisk() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "tonbotest-*")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	disk, err := tonbotest.NewDisk(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer disk.Close()
	o := tonbo.Options{Remote: mem.New("example"), Dir: disk.Dir()}
	if _, err := tonbo.Create(ctx, "run-1", o); err != nil {
		log.Fatal(err)
	}
	db, err := tonbo.Open(ctx, "run-1", o)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE steps(id INTEGER PRIMARY KEY); INSERT INTO steps VALUES(1)"); err != nil {
		log.Fatal(err)
	}
	if err := db.Synced(ctx); err != nil {
		log.Fatal(err)
	}
	disk.Cut(0)                                     // the power goes
	_, err = db.Exec("INSERT INTO steps VALUES(2)") // was never committed
	fmt.Println("without power:", err != nil)       //
	db.Close()                                      // lets go of the files
	if err := disk.PowerLoss(1); err != nil {       // what may be on the disk
		log.Fatal(err)
	}
	db, err = tonbo.Open(ctx, "run-1", o)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	var n int
	if err := db.QueryRow("SELECT count(*) FROM steps").Scan(&n); err != nil {
		log.Fatal(err)
	}
	fmt.Println("steps:", n)
	// Output:
	// without power: true
	// steps: 1
}
