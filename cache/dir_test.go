package cache_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/tonbo-go/tonbo/cache"
	"github.com/tonbo-go/tonbo/internal/pageset"
)

// TestNamesStayApartOnEveryFileSystem: also where case is ignored, : and / mean something, and con is a device.
func TestNamesStayApartOnEveryFileSystem(t *testing.T) {
	for name, want := range map[string]string{
		"run-42":      "run-42",
		"a.b_c@d":     "a.b_c@d",
		"Run":         "%52un",
		"a/b":         "a%2fb",
		"a%2fb":       "a%252fb",
		"x:y":         "x%3ay",
		"..":          "%2e%2e",
		".hidden":     "%2ehidden",
		"end.":        "end%2e",
		"con":         "%63on",
		"nul.txt":     "%6eul.txt",
		"com1":        "%63om1",
		"com":         "com",
		"console":     "console",
		"a.lost-5.db": "a%2elost-5.db",
		"é":           "%c3%a9",
		"":            "%",
	} {
		if got := cache.Escape(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
	a, b := cache.Escape(strings.Repeat("x", 400)+"1"), cache.Escape(strings.Repeat("x", 400)+"2")
	if a == b || len(a) > 220 {
		t.Errorf("long names: %q, %q", a, b)
	}
}

// FuzzEscape: no two names share a directory, and none leaves root.
func FuzzEscape(f *testing.F) {
	f.Add("a", "A")
	f.Add("%41", "A")
	f.Add("con", "%63on")
	f.Add("", "%")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := cache.Escape(a), cache.Escape(b)
		if a != b && strings.EqualFold(x, y) {
			t.Fatalf("%q and %q are both %q", a, b, x)
		}
		if !filepath.IsLocal(x) || strings.ContainsAny(x, `/\:`) || len(x) > 240 || strings.HasSuffix(x, ".") || strings.Contains(x, ".lost-") {
			t.Fatalf("%q gives %q", a, x)
		}
	})
}

// TestUnusableRootSaysSo: the error names the path and the way out.
func TestUnusableRootSaysSo(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	roots := []string{file, filepath.Join(file, "below")}
	if runtime.GOOS == "linux" {
		roots = append(roots, "/proc/nothing")
	}
	if os.Getuid() > 0 {
		locked := filepath.Join(dir, "readonly")
		if err := os.Mkdir(locked, 0o500); err != nil {
			t.Fatal(err)
		}
		roots = append(roots, locked)
	}
	for _, root := range roots {
		_, err := cache.Open(root, "x", cache.Options{})
		if !errors.Is(err, cache.ErrDir) || !strings.Contains(err.Error(), root) || !strings.Contains(err.Error(), "TONBO_DIR") {
			t.Errorf("%s: got %v", root, err)
		}
	}
}

// TestFreshDirectoryIsVacant, and private.
func TestFreshDirectoryIsVacant(t *testing.T) {
	root := filepath.Join(t.TempDir(), "a", "b")
	d := open(t, root)
	if d.State() != nil || d.Damaged() != "" {
		t.Errorf("state %v, damaged %q", d.State(), d.Damaged())
	}
	if _, err := d.Recover(context.Background(), nil); err == nil {
		t.Error("Recover of nothing succeeds")
	}
	if d.Root() != root || d.Path() != filepath.Join(root, dbOf, "db") {
		t.Errorf("root %s, path %s", d.Root(), d.Path())
	}
	if fi, err := os.Stat(filepath.Dir(d.Path())); err != nil || runtime.GOOS != "windows" && fi.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
}

// TestFilesKeptAsideAreNeverOverwritten: another content gets another name, the same content the same one.
func TestFilesKeptAsideAreNeverOverwritten(t *testing.T) {
	d := open(t, t.TempDir())
	keep := func(gen uint64, content string) string {
		t.Helper()
		path, err := d.KeepAside(gen, func(w io.Writer) error {
			d.State() // src may ask
			_, err := io.WriteString(w, content)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	long := strings.Repeat("a", 600_000)
	for _, c := range []struct {
		gen           uint64
		content, want string
	}{
		{5, long, "run.lost-5.db"},
		{5, long[1:] + "b", "run.lost-5-2.db"},
		{5, long + "c", "run.lost-5-3.db"},
		{5, long, "run.lost-5.db"},
		{5, long[1:] + "b", "run.lost-5-2.db"},
		{6, long, "run.lost-6.db"},
	} {
		got := keep(c.gen, c.content)
		if got != filepath.Join(d.Root(), c.want) {
			t.Errorf("got %s, want %s", got, c.want)
		}
		if b, err := os.ReadFile(got); err != nil || string(b) != c.content {
			t.Errorf("%s: another content (%v)", got, err)
		}
	}
	if err := d.Reset(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(d.Root())
	if err != nil || len(entries) != 5 {
		t.Errorf("%v in the root, want the directory and 4 files (%v)", entries, err)
	}
}

// TestLostPathIsRemembered.
func TestLostPathIsRemembered(t *testing.T) {
	l := newLive(t, 4096)
	if err := l.dir.SetLost("/x/run.lost-1.db"); err != nil {
		t.Fatal(err)
	}
	if s := open(t, l.crash()).State(); s.Lost != "/x/run.lost-1.db" {
		t.Errorf("got %q", s.Lost)
	}
}

// TestCancelledRecoverChangesNothing.
func TestCancelledRecoverChangesNothing(t *testing.T) {
	l := newLive(t, 4096)
	l.exec(insert("t", 1, 10, 280))
	root := l.crash()
	before := contents(t, root)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := open(t, root).Recover(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if after := contents(t, root); after != before {
		t.Errorf("files were changed: %s, before %s", after, before)
	}
}

// TestConcurrentCallersSeeOneState: Spilled, Shipped, State and KeepAside from many goroutines.
func TestConcurrentCallersSeeOneState(t *testing.T) {
	d := open(t, t.TempDir())
	if err := d.Begin(cache.State{Name: dbOf, PageSize: 512, Sums: pageset.NewSums(50)}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 50 {
				var err error
				switch g {
				case 0:
					err = d.Shipped(uint64(i), 50, uint64(i), []cache.PageSum{{Page: 1, Sum: uint64(i)}})
				case 1:
					err = d.Spilled([]cache.PageSum{{Page: uint32(i + 1), Sum: 1}})
				case 2:
					if s := d.State(); s.Sums.Xor() != s.Checksum {
						err = errors.New("sums do not add up")
					}
				case 3:
					d.Captured(0)
					err = d.SetLost(fmt.Sprint(i))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
