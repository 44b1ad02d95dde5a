package blockcache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tonbo-go/tonbo/internal/blockcache"
)

// content is what block n of object o holds.
func content(o, n int) []byte {
	b := make([]byte, 500+n*37%1500)
	rand.NewChaCha8([32]byte{byte(o), byte(n), byte(n >> 8)}).Read(b)
	return b
}

func blocks(o, first, n int) []blockcache.Block {
	r := make([]blockcache.Block, n)
	for i := range r {
		b := content(o, first+i)
		r[i] = blockcache.Block{Length: len(b), Sum: xxhash.Sum64(b)}
	}
	return r
}

// remote counts what is fetched.
type remote struct {
	bytes, calls atomic.Int64
	hold         chan struct{} // not nil: fetches wait until it is closed
}

func (r *remote) fetch(o, first int) func(context.Context, int, int) ([][]byte, error) {
	return func(ctx context.Context, i, j int) ([][]byte, error) {
		r.calls.Add(1)
		if r.hold != nil {
			select {
			case <-r.hold:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		var got [][]byte
		for k := i; k < j; k++ {
			b := content(o, first+k)
			r.bytes.Add(int64(len(b)))
			got = append(got, b)
		}
		return got, nil
	}
}

func object(c *blockcache.Cache, o int) *blockcache.Object {
	return c.Object("mem://x", fmt.Sprint("db/a/seg/", o), "")
}

func read(t testing.TB, c *blockcache.Cache, r *remote, o, first, n int) {
	t.Helper()
	if err := tryRead(c, r, o, first, n); err != nil {
		t.Fatal(err)
	}
}

func tryRead(c *blockcache.Cache, r *remote, o, first, n int) error {
	got, err := object(c, o).Blocks(context.Background(), first, blocks(o, first, n), r.fetch(o, first))
	if err != nil {
		return err
	}
	for i, b := range got {
		if !bytes.Equal(b, content(o, first+i)) {
			return fmt.Errorf("block %d of object %d is wrong", first+i, o)
		}
	}
	return nil
}

func newCache(t testing.TB, o blockcache.Options) *blockcache.Cache {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	if o.Max == 0 {
		o.Max = 1 << 30
	}
	c := blockcache.New(o)
	t.Cleanup(c.Close)
	return c
}

// filesIn lists the files of blocks.
func filesIn(t testing.TB, dir string) (r []string, total int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "lock" {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return nil // removed meanwhile
		}
		r, total = append(r, path), total+fi.Size()
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return r, total
}

func TestWhatIsHereIsNotFetched(t *testing.T) {
	dir := t.TempDir()
	r := &remote{}
	read(t, newCache(t, blockcache.Options{Dir: dir}), r, 1, 10, 20)
	n := r.bytes.Load()
	c := newCache(t, blockcache.Options{Dir: dir}) // another process
	read(t, c, r, 1, 10, 20)
	read(t, c, r, 1, 15, 3)
	if r.bytes.Load() != n {
		t.Error("fetched what is here")
	}
	read(t, c, r, 1, 5, 30) // what is missing before and behind it
	if got, want := r.bytes.Load(), total(5, 30); got != want {
		t.Errorf("fetched %d bytes, want %d", got, want)
	}
	if got := r.calls.Load(); got != 3 {
		t.Errorf("%d fetches, want 3", got)
	}
	read(t, c, r, 2, 10, 20) // another object
	if got, want := r.bytes.Load(), total(5, 30)+total(10, 20); got != want {
		t.Errorf("fetched %d bytes, want %d", got, want)
	}
}

func total(first, n int) (sum int64) {
	for i := range n {
		sum += int64(len(content(1, first+i)))
	}
	return sum
}

func TestStoresAndLivesDoNotMix(t *testing.T) {
	c := newCache(t, blockcache.Options{})
	get := func(store, key, life, body string) string {
		b, err := c.Object(store, key, life).Blob(context.Background(), 0, func(context.Context) ([]byte, bool, error) { return []byte(body), true, nil })
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for i, k := range [][3]string{{"s3://a", "k", ""}, {"s3://b", "k", ""}, {"s3://a", "k", "1"}, {"s3://a", "k", "2"}, {"s3://a", "k 1", ""}, {`s3://a" "k`, "", ""}} {
		want := fmt.Sprint("body ", i)
		if got := get(k[0], k[1], k[2], want); got != want {
			t.Errorf("%q: got %q, want %q", k, got, want)
		}
		if got := get(k[0], k[1], k[2], "another"); got != want {
			t.Errorf("%q again: got %q, want %q", k, got, want)
		}
	}
}

// TestDamagedFilesAreFetchedAgain changes the files in every way.
func TestDamagedFilesAreFetchedAgain(t *testing.T) {
	dir := t.TempDir()
	c := newCache(t, blockcache.Options{Dir: dir})
	blob := func() string {
		b, err := object(c, 1).Blob(context.Background(), -5, func(context.Context) ([]byte, bool, error) { return []byte("the end"), true, nil })
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 300 {
		r := &remote{}
		read(t, c, r, 1, 0, 8)
		blob()
		files, _ := filesIn(t, dir)
		if len(files) != 9 {
			t.Fatalf("%d files", len(files))
		}
		f := files[rng.IntN(len(files))]
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		switch rng.IntN(5) {
		case 0:
			b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
		case 1:
			b = b[:rng.IntN(len(b))]
		case 2:
			b = append(b, 0)
		case 3: // another's content
			if b, err = os.ReadFile(files[rng.IntN(len(files))]); err != nil {
				t.Fatal(err)
			}
		case 4:
			clear(b)
		}
		if err := os.WriteFile(f, b, 0o600); err != nil {
			t.Fatal(err)
		}
		read(t, c, r, 1, 0, 8)
		if got := blob(); got != "the end" {
			t.Fatalf("round %d: %q", round, got)
		}
	}
}

func TestWhatTheStoreGotWrongIsNotKept(t *testing.T) {
	dir := t.TempDir()
	c := newCache(t, blockcache.Options{Dir: dir})
	got, err := object(c, 1).Blocks(context.Background(), 0, blocks(1, 0, 2), func(context.Context, int, int) ([][]byte, error) {
		return [][]byte{content(1, 0), content(1, 5)}, nil
	})
	if err != nil || !bytes.Equal(got[1], content(1, 5)) { // whoever reads it checks it
		t.Fatal(err)
	}
	if files, _ := filesIn(t, dir); len(files) != 1 {
		t.Errorf("%d files, want the one that is right", len(files))
	}
	for i, keep := range []bool{false, true, false} {
		b, err := object(c, 1).Blob(context.Background(), 0, func(context.Context) ([]byte, bool, error) { return []byte{byte(i)}, keep, nil })
		if want := min(i, 1); err != nil || int(b[0]) != want {
			t.Errorf("part %d: %v %v", i, b, err)
		}
	}
	boom := errors.New("boom")
	if _, err := object(c, 1).Blocks(context.Background(), 0, blocks(1, 0, 2), func(context.Context, int, int) ([][]byte, error) { return nil, boom }); err != boom {
		t.Errorf("got %v", err)
	}
}

func TestOneFetchesForAllWhoWantTheSame(t *testing.T) {
	dir := t.TempDir()
	r := &remote{hold: make(chan struct{})}
	var all sync.WaitGroup
	for i := range 20 {
		c := newCache(t, blockcache.Options{Dir: dir, Wait: time.Minute})
		all.Go(func() {
			first := i % 4 * 2 // they overlap
			if err := tryRead(c, r, 1, first, 8); err != nil {
				t.Error(err)
			}
		})
	}
	close(r.hold)
	all.Wait()
	if got, want := r.bytes.Load(), total(0, 14); got != want {
		t.Errorf("fetched %d bytes, want %d", got, want)
	}
}

func TestWaitingIsBounded(t *testing.T) {
	dir := t.TempDir()
	stuck := &remote{hold: make(chan struct{})}
	holder := newCache(t, blockcache.Options{Dir: dir})
	var done sync.WaitGroup
	done.Go(func() {
		if err := tryRead(holder, stuck, 1, 0, 4); err != nil {
			t.Error(err)
		}
	})
	for stuck.calls.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	// Who waits leaves with its context ...
	ctx, cancel := context.WithCancel(context.Background())
	waiter := newCache(t, blockcache.Options{Dir: dir, Wait: time.Hour})
	left := make(chan error)
	go func() {
		_, err := object(waiter, 1).Blocks(ctx, 0, blocks(1, 0, 1), (&remote{}).fetch(1, 0))
		left <- err
	}()
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	// ... or fetches by itself after a while, and then does not wait again for some time.
	r := &remote{}
	hasty := newCache(t, blockcache.Options{Dir: dir, Wait: time.Millisecond})
	read(t, hasty, r, 1, 0, 1)
	read(t, hasty, r, 1, 1, 2)
	if r.calls.Load() != 2 {
		t.Errorf("%d fetches", r.calls.Load())
	}
	close(stuck.hold)
	done.Wait()
}

func TestWhatWasUsedLeastRecentlyIsRemoved(t *testing.T) {
	dir := t.TempDir()
	const limit = 400_000
	c := newCache(t, blockcache.Options{Dir: dir, Max: limit})
	r := &remote{}
	old := time.Now().Add(-time.Hour)
	age := func() {
		files, _ := filesIn(t, dir)
		for _, f := range files {
			os.Chtimes(f, old, old)
		}
	}
	read(t, c, r, 1, 0, 100)
	age()
	read(t, c, r, 1, 0, 10) // used again
	abandoned := filepath.Join(filepath.Dir(one(t, dir)), "123.tmp")
	if err := os.WriteFile(abandoned, make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	os.Chtimes(abandoned, old, old)
	for n := 100; n < 600; n += 10 {
		read(t, c, r, 1, n, 10)
	}
	c.Close() // waits for an eviction under way, beside which none begins
	if err := newCache(t, blockcache.Options{Dir: dir, Max: limit}).Evict(); err != nil {
		t.Fatal(err)
	}
	if _, sum := filesIn(t, dir); sum > limit || sum < limit/2 {
		t.Errorf("%d bytes are left of at most %d", sum, limit)
	}
	if _, err := os.Stat(abandoned); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a killed process left: %v", err)
	}
}

func one(t testing.TB, dir string) string {
	t.Helper()
	files, _ := filesIn(t, dir)
	if len(files) == 0 {
		t.Fatal("no files")
	}
	return files[0]
}

// TestWritersKeepTheBoundBetweenThem: nobody counts what others write, and each writes little.
func TestWritersKeepTheBoundBetweenThem(t *testing.T) {
	dir := t.TempDir()
	const limit = 256 << 10
	r := &remote{}
	for n := range 80 {
		c := blockcache.New(blockcache.Options{Dir: dir, Max: limit})
		read(t, c, r, 1, n*20, 20)
		c.Close()
	}
	if _, sum := filesIn(t, dir); sum > 2*limit || r.bytes.Load() < 5*limit {
		t.Errorf("%d bytes are there, the bound is %d; %d were written", sum, limit, r.bytes.Load())
	}
}

func TestWithoutADirectoryEverythingPasses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCache(t, blockcache.Options{Dir: filepath.Join(file, "sub")})
	r := &remote{}
	read(t, c, r, 1, 0, 5)
	read(t, c, r, 1, 0, 5)
	if got, want := r.bytes.Load(), 2*total(0, 5); got != want {
		t.Errorf("fetched %d bytes, want %d", got, want)
	}
}

func TestFilesAreForTheirOwnerAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), ".blocks")
	read(t, newCache(t, blockcache.Options{Dir: dir}), &remote{}, 1, 0, 2)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err == nil && fi.Mode().Perm()&0o077 != 0 && !strings.Contains(os.Getenv("OS"), "Windows") {
			t.Errorf("%s: mode %v", path, fi.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
