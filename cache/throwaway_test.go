package cache_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/tonbo-go/tonbo/cache"
)

func TestThrowawaysAreRemovedUnlessSomebodyHasThem(t *testing.T) {
	root := t.TempDir()
	make := func(name string, marked bool) *cache.Dir {
		d, err := cache.Open(root, name, cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		files := []string{d.Path(), d.WALPath()}
		if name == "dead" {
			files = append(files, filepath.Join(filepath.Dir(d.Path()), "spool-1.tmp"))
		}
		for _, file := range files {
			if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.SetThrowaway(marked); err != nil {
			t.Fatal(err)
		}
		return d
	}
	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(root, name, "db"))
		return err == nil
	}
	live := make("live", true)
	defer live.Close()
	for name, marked := range map[string]bool{"dead": true, "ordinary": false, "taken-back": true} {
		d := make(name, marked)
		if name == "taken-back" {
			if err := d.SetThrowaway(false); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := cache.RemoveThrowaways(root, true); n != 1 || err != nil || !there("dead") {
		t.Errorf("dry: %d, %v", n, err)
	}
	// Any number at once: each goes once, and none is an error.
	var wg sync.WaitGroup
	var mu sync.Mutex
	removed := 0
	for range 8 {
		wg.Go(func() {
			n, err := cache.RemoveThrowaways(root, false)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			removed += n
		})
	}
	wg.Wait()
	if _, err := os.Stat(filepath.Join(root, "dead")); removed < 1 || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%d removed, %v", removed, err)
	}
	for _, name := range []string{"live", "ordinary", "taken-back"} {
		if !there(name) {
			t.Errorf("%s is gone", name)
		}
	}
	if err := live.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "live")); !errors.Is(err, os.ErrNotExist) {
		t.Error("removed by its owner, and there:", err)
	}
	if n, err := cache.RemoveThrowaways(filepath.Join(root, "nowhere"), false); n != 0 || err != nil {
		t.Error(n, err)
	}
}

// An Open beside a removal gets a directory that is its own, or is told that it is locked.
func TestOpenBesideARemovalHasTheDirectoryForItself(t *testing.T) {
	root := t.TempDir()
	for range 50 {
		d, err := cache.Open(root, "d", cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.SetThrowaway(true); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := cache.RemoveThrowaways(root, false); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			d, err := cache.Open(root, "d", cache.Options{})
			if errors.Is(err, cache.ErrLocked) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := cache.Open(root, "d", cache.Options{}); !errors.Is(err, cache.ErrLocked) {
				t.Error("a second one has it, too:", err)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
	}
}

// Its owner removes it while others look for what the dead have left: nobody fails, and nothing stays.
func TestOwnersRemovalBesideThatOfOthersIsNoError(t *testing.T) {
	root := t.TempDir()
	for range 200 {
		d, err := cache.Open(root, "d", cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.SetThrowaway(true); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for range 20 {
					if _, err := cache.RemoveThrowaways(root, false); err != nil {
						t.Error("others:", err)
					}
				}
			})
		}
		wg.Go(func() {
			if err := d.Remove(); err != nil {
				t.Error("owner:", err)
			}
		})
		wg.Wait()
		if _, err := os.Stat(filepath.Join(root, "d")); !errors.Is(err, os.ErrNotExist) {
			t.Fatal("it is there still:", err)
		}
	}
}
