package tonbo_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/tonbo-go/tonbo/remote"
)

// TestSameSeedIsTheSameRun runs seeds again with other goroutines coming first, and compares what was asked of the store, in which order, and what it answered.
func TestSameSeedIsTheSameRun(t *testing.T) {
	warmUp(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for seed := range simSeeds(6) {
		if seed == 0 {
			seed = 7895 // reads that went at once met their faults in the order in which they came
		}
		var first []string
		for run, procs := range []int{2, 1, 2} {
			runtime.GOMAXPROCS(procs)
			w, err := simulate(t, seed, simBreak{disks: true, jostle: run > 0})
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			all := append(w.order.history, w.trace...)
			if run == 0 {
				first = all
				t.Logf("seed %d, %s", seed, w.trace[len(w.trace)-1])
			}
			for i := range max(len(all), len(first)) {
				if i >= len(all) || i >= len(first) || all[i] != first[i] {
					from := max(0, i-5)
					t.Errorf("seed %d, run %d: line %d is not what it was.\nNow:\n%s\nThen:\n%s", seed, run+1, i+1, strings.Join(all[min(from, len(all)):min(i+3, len(all))], "\n"), strings.Join(first[min(from, len(first)):min(i+3, len(first))], "\n"))
					break
				}
			}
		}
	}
}

// sum stands for all requests of a run, in their order, and for what the store and the disks hold.
func (w *simWorld) sum() string {
	requests, store := xxhash.New(), xxhash.New()
	for _, r := range w.order.history {
		fmt.Fprintln(requests, r)
	}
	if err := writeAll(w.ctx, store, w.inner); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d requests %x, the store %x", len(w.order.history), requests.Sum64(), store.Sum64())
}

// disks stands for what the machines' disks hold, but for what is another one in each process: the lock, and the state, which knows the place of the file and when the system says that it was changed.
func (w *simWorld) disks() string {
	var b strings.Builder
	for _, m := range w.machines {
		h := xxhash.New()
		err := filepath.WalkDir(m.disk.Dir(), func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() || e.Name() == "lock" || strings.HasSuffix(path, "-shm") {
				return err
			}
			fmt.Fprint(h, strings.TrimPrefix(path, m.disk.Dir()))
			if e.Name() != "state" {
				content, err := os.ReadFile(path)
				fmt.Fprint(h, summary(content), err)
			}
			return nil
		})
		fmt.Fprintf(&b, "m%d has made %d changes and has %x %v, ", m.n, m.disk.Changes(), h.Sum64(), err)
	}
	return b.String()
}

// writeAll writes all that a store has.
func writeAll(ctx context.Context, to io.Writer, s remote.Store) error {
	for after, more := "", true; more; {
		page, m, err := s.List(ctx, "", remote.ListOptions{After: after})
		if err != nil {
			return err
		}
		for more = m; len(page) > 0; page = page[1:] {
			after = page[0].Key
			o, err := s.Get(ctx, after, remote.GetOptions{})
			if err != nil && !errors.Is(err, remote.ErrNotFound) {
				return err
			}
			fmt.Fprintln(to, o.Key, o.ETag, o.Time.UnixNano(), summary(o.Body))
		}
	}
	return nil
}
