package dir_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/dir"
	"github.com/tonbo-go/tonbo/remote/remotetest"
)

func open(t *testing.T, path string) *dir.Store {
	t.Helper()
	s, err := dir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	remotetest.Run(t, func(t *testing.T) remote.Store { return open(t, filepath.Join(t.TempDir(), "new", "store")) },
		remotetest.UniqueETags(), remotetest.Rounds(20))
}

func TestTwoStoresOnOneDirectoryAreOne(t *testing.T) {
	d := t.TempDir()
	var wg sync.WaitGroup
	for round := range 20 {
		results := make([]error, 8)
		for i := range results {
			s := open(t, d)
			wg.Go(func() { _, results[i] = s.Create(t.Context(), fmt.Sprint("k/", round), []byte{byte(i)}) })
		}
		wg.Wait()
		if n := countNil(t, results); n != 1 {
			t.Fatalf("%d winners", n)
		}
	}
}

func countNil(t *testing.T, errs []error) (n int) {
	t.Helper()
	for _, err := range errs {
		if err == nil {
			n++
		} else if !errors.Is(err, remote.ErrExists) {
			t.Fatal(err)
		}
	}
	return n
}

func TestNothingTemporaryIsLeft(t *testing.T) {
	d := t.TempDir()
	s := open(t, d)
	etag, err := s.Create(t.Context(), "k", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	s.Create(t.Context(), "k", []byte("y"))
	s.Swap(t.Context(), "k", etag, []byte("z"))
	s.Swap(t.Context(), "k", etag, []byte("refused"))
	s.Swap(t.Context(), "absent", etag, []byte("refused"))
	if names := temporaries(t, d); len(names) != 0 {
		t.Errorf("left: %v", names)
	}
}

func temporaries(t *testing.T, d string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(d, ".tonbo", "tmp"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestTemporaryFilesOfTheDeadAreRemovedAndOfTheLivingKept(t *testing.T) {
	d := t.TempDir()
	tmp := filepath.Join(d, ".tonbo", "tmp")
	if err := os.MkdirAll(tmp, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{"old": 2 * time.Hour, "young": 10 * time.Minute} {
		file := filepath.Join(tmp, name)
		if err := os.WriteFile(file, []byte("half"), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := open(t, d).Create(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	if got := temporaries(t, d); !slices.Equal(got, []string{"young"}) {
		t.Errorf("left: %v", got)
	}
}

func TestForeignFilesAreIgnoredAndDamagedOnesAreErrors(t *testing.T) {
	d := t.TempDir()
	s := open(t, d)
	if _, err := s.Create(t.Context(), "a/k", []byte("body")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".DS_Store", "Thumbs.db", "a b", "x=4", "x=zz", "x=61", "x~", "~x"} {
		if err := os.WriteFile(filepath.Join(d, "a", name), []byte("foreign"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(d, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	page, _, err := s.List(t.Context(), "", remote.ListOptions{})
	if err != nil || len(page) != 1 || page[0].Key != "a/k" {
		t.Fatalf("%v, %v", page, err)
	}

	file := filepath.Join(d, "a", "k")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) {
		if err := os.WriteFile(file, whole[:n], 0o666); err != nil {
			t.Fatal(err)
		}
		o, err := s.Get(t.Context(), "a/k", remote.GetOptions{})
		if !errors.Is(err, remote.ErrDamaged) || o.Body != nil || !strings.Contains(err.Error(), file) {
			t.Fatalf("cut to %d bytes: %q, %v", n, o.Body, err)
		}
		if page, _, err := s.List(t.Context(), "a/", remote.ListOptions{}); err != nil || len(page) != 1 || page[0].Key != "a/k" { // the key is taken
			t.Fatalf("List, cut to %d bytes: %v, %v", n, page, err)
		} else if _, err := s.Swap(t.Context(), "a/k", page[0].ETag, []byte("new")); !errors.Is(err, remote.ErrDamaged) {
			t.Fatalf("Swap, cut to %d bytes: %v", n, err)
		}
		if _, err := s.Create(t.Context(), "a/k", nil); !errors.Is(err, remote.ErrExists) {
			t.Fatalf("Create, cut to %d bytes: %v", n, err)
		}
	}
}

func TestADirectoryThatIsNotThereIsNotEmpty(t *testing.T) {
	d := filepath.Join(t.TempDir(), "store")
	if _, err := dir.OpenExisting(d); !errors.Is(err, remote.ErrNoBucket) {
		t.Fatalf("OpenExisting: %v", err)
	}
	if _, err := os.Stat(d); err == nil {
		t.Fatal("OpenExisting made it")
	}
	s := open(t, d)
	etag, err := s.Create(t.Context(), "a/k", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(d); err != nil {
		t.Fatal(err)
	}
	_, errCreate := s.Create(t.Context(), "a/k", nil)
	_, errGet := s.Get(t.Context(), "a/k", remote.GetOptions{})
	_, _, errList := s.List(t.Context(), "a/", remote.ListOptions{})
	_, errSwap := s.Swap(t.Context(), "a/k", etag, nil)
	for _, err := range []error{errCreate, errGet, errList, errSwap, s.Delete(t.Context(), "a/k")} {
		if !errors.Is(err, remote.ErrNoBucket) {
			t.Errorf("got %v, want ErrNoBucket", err)
		}
	}
	if _, err := os.Stat(d); err == nil {
		t.Error("somebody made it again")
	}
	// Emptied, not removed: it works on.
	s = open(t, d)
	for range 2 {
		if _, err := s.Create(t.Context(), "a/b/k", nil); err != nil {
			t.Fatal(err)
		}
		for _, sub := range []string{"a", ".tonbo"} {
			if err := os.RemoveAll(filepath.Join(d, sub)); err != nil {
				t.Fatal(err)
			}
		}
	}
	file := filepath.Join(d, "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{file, filepath.Join(file, "below"), ""} {
		if _, err := dir.Open(p); !errors.Is(err, remote.ErrNoBucket) {
			t.Errorf("Open %q: %v", p, err)
		}
	}
}

func TestAKeyThatIsAFolderIsRefusedForGood(t *testing.T) {
	s := open(t, t.TempDir())
	if _, err := s.Create(t.Context(), "a/b", nil); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "a/b/c", "a/b/c/d"} {
		if _, err := s.Create(t.Context(), key, nil); !errors.Is(err, remote.ErrBadKey) || errors.Is(err, remote.ErrUnknown) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// A log is appended to and collected from while it is listed. Every listing must show a head that was there during the call.
func TestListingShowsNoMixtureWhileTheLogMoves(t *testing.T) {
	s := open(t, t.TempDir())
	key := func(slot int) string { return fmt.Sprintf("db/x/log/%016x", ^uint64(0)-uint64(slot)) }
	var mu sync.Mutex
	created := 0 // highest slot whose create returned
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		defer cancel()
		for slot := 1; slot <= 300; slot++ {
			if _, err := s.Create(t.Context(), key(slot), nil); err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			created = slot
			mu.Unlock()
			if slot > 1 {
				if err := s.Delete(t.Context(), key(slot-1)); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for ctx.Err() == nil {
		mu.Lock()
		before := created
		mu.Unlock()
		page, _, err := s.List(t.Context(), "db/x/log/", remote.ListOptions{Max: 1})
		if err != nil {
			t.Fatal(err)
		}
		if before > 0 && (len(page) != 1 || page[0].Key > key(before)) {
			t.Fatalf("slot %d was there before the listing, which shows %v", before, page)
		}
	}
	wg.Wait()
}

func TestLockIsWaitedForUntilTheContextEnds(t *testing.T) {
	d := t.TempDir()
	s := open(t, d)
	etag, err := s.Create(t.Context(), "k", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	child := start(t, "hold", d) // another process holds the lock
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, errSwap := s.Swap(ctx, "k", etag, []byte("y"))
	for _, err := range []error{errSwap, s.Delete(ctx, "k")} {
		if !errors.Is(err, remote.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	}
	// Everything else goes on.
	if _, err := s.Create(t.Context(), "k2", nil); err != nil {
		t.Error(err)
	}
	if o, err := s.Get(t.Context(), "k", remote.GetOptions{}); err != nil || string(o.Body) != "x" {
		t.Errorf("%q, %v", o.Body, err)
	}
	child.kill() // the lock goes with its holder
	if _, err := s.Swap(t.Context(), "k", etag, []byte("y")); err != nil {
		t.Error(err)
	}
}

func BenchmarkCreate(b *testing.B) {
	s, err := dir.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	body := make([]byte, 4096)
	for i := 0; b.Loop(); i++ {
		if _, err := s.Create(b.Context(), fmt.Sprintf("db/x/log/%016x", ^uint64(0)-uint64(i)), body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHeadOfThousand(b *testing.B) {
	s, err := dir.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	for i := range 1000 {
		if _, err := s.Create(b.Context(), fmt.Sprintf("db/x/log/%016x", ^uint64(0)-uint64(i)), nil); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if page, _, err := s.List(b.Context(), "db/x/log/", remote.ListOptions{Max: 1}); err != nil || len(page) != 1 {
			b.Fatal(page, err)
		}
	}
}
