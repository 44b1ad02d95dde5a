package tonbo_test

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
)

// soakWatch looks at what the supervisor holds, and at disks and bucket.
type soakWatch struct {
	s       *soaking
	long    time.Duration
	seed    maphash.Seed
	kinds   map[uint64]bool // slots of the log that were looked at, and whether they stay for ever (R5)
	samples []soakSample
}

// soakSample is one look. Bytes, but for counts.
type soakSample struct {
	at                  time.Duration
	h                   processHolds
	disk, diskFiles     int64 // local copies of all machines, and of the supervisor
	objects, bytes      int64 // in the bucket, but for the next
	forever, foreverLen int64 // log slots that are never collected (R5)
	agents, acks        int64
}

func newSoakWatch(s *soaking, long time.Duration) *soakWatch {
	return &soakWatch{s: s, long: long, seed: maphash.MakeSeed(), kinds: map[uint64]bool{}}
}

// run takes a sample every so often.
func (w *soakWatch) run(ctx context.Context) {
	begun := time.Now()
	every := time.NewTicker(max(w.long/240, 2*time.Second))
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		x := soakSample{at: time.Since(begun), h: holdsNow(w.s.t), agents: w.s.agents.Load(), acks: w.s.acks.Load()}
		if err := w.bucket(ctx, &x); err != nil {
			if ctx.Err() == nil {
				w.s.broken("look at the bucket: %v", err)
			}
			return
		}
		w.disks(&x)
		if n := len(w.samples); n == 0 || w.samples[n-1].at.Truncate(time.Minute) != x.at.Truncate(time.Minute) {
			w.s.t.Logf("%s", x)
		}
		w.samples = append(w.samples, x)
	}
}

func (x soakSample) String() string {
	mib := func(b int64) float64 { return float64(b) / (1 << 20) }
	return fmt.Sprintf("%8s: heap %5.1f MiB, resident %5.1f MiB, %3d goroutines, %3d files; disks %6.1f MiB in %4d files; bucket %5d objects, %6.1f MiB, and %5d slots for ever, %4.2f MiB; %d agents, %d acknowledgements",
		x.at.Round(time.Second), mib(x.h.heap), mib(x.h.rss), x.h.goroutines, x.h.files, mib(x.disk), x.diskFiles, x.objects, mib(x.bytes), x.forever, mib(x.foreverLen), x.agents, x.acks)
}

// bucket lists what is in the bucket.
func (w *soakWatch) bucket(ctx context.Context, x *soakSample) error {
	seen := map[uint64]bool{}
	for after := ""; ; {
		page, more, err := w.s.store.List(ctx, "", remote.ListOptions{After: after})
		if err != nil {
			return err
		}
		for _, o := range page {
			after = o.Key
			ever := false
			if slot, ok := fence.ParseSlotKey(o.Key); ok {
				key := maphash.String(w.seed, o.Key)
				if ever, ok = w.kinds[key]; !ok {
					e, err := w.log(o.Key).ReadHeader(ctx, slot)
					if err != nil {
						return err
					}
					if e == nil { // collected meanwhile
						continue
					}
					ever = e.Kind != fence.Commit && e.Kind != fence.Base && e.Kind != fence.Close
				}
				seen[key] = ever
			}
			if ever {
				x.forever++
				x.foreverLen += o.Size
			} else {
				x.objects++
				x.bytes += o.Size
			}
		}
		if !more {
			w.kinds = seen
			return nil
		}
	}
}

func (w *soakWatch) log(key string) *fence.Log {
	name := strings.Split(key, "/")[1]
	return fence.New(w.s.store, name, fence.Options{})
}

// disks adds up the local files. Some vanish meanwhile.
func (w *soakWatch) disks(x *soakSample) {
	_ = filepath.WalkDir(w.s.base, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil
		case d.IsDir() && filepath.Base(path) == "remote":
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		if fi, err := d.Info(); err == nil {
			x.disk += 512 * fi.Sys().(*syscall.Stat_t).Blocks // local copies are sparse
			x.diskFiles++
		}
		return nil
	})
}

// judge compares the last third of an hour with the one before: their medians. (Before that log slots that are garbage wait for their time.)
func (w *soakWatch) judge() {
	if len(w.samples) == 0 {
		return
	}
	t := w.s.t
	t.Logf("first %s", w.samples[0])
	t.Logf("last  %s", w.samples[len(w.samples)-1])
	if w.long < time.Hour {
		return
	}
	n := len(w.samples)
	for _, what := range []struct {
		name         string
		of           func(soakSample) int64
		factor, more float64 // allowed growth
	}{
		{"heap", func(x soakSample) int64 { return x.h.heap }, 1.1, 2 << 20},
		{"resident memory", func(x soakSample) int64 { return x.h.rss }, 1.1, 8 << 20},
		{"goroutines", func(x soakSample) int64 { return int64(x.h.goroutines) }, 1, 10},
		{"open files", func(x soakSample) int64 { return int64(x.h.files) }, 1, 10},
		{"bytes on disks", func(x soakSample) int64 { return x.disk }, 1.25, 32 << 20},
		{"objects in the bucket", func(x soakSample) int64 { return x.objects }, 1.25, 500},
		{"bytes in the bucket", func(x soakSample) int64 { return x.bytes }, 1.25, 32 << 20},
	} {
		second, last := soakMedian(w.samples[n/3:2*n/3], what.of), soakMedian(w.samples[2*n/3:], what.of)
		t.Logf("%s: %d in the second third, %d in the last (medians)", what.name, second, last)
		if float64(last) > math.Ceil(float64(second)*what.factor)+what.more {
			t.Errorf("%s have grown from %d to %d", what.name, second, last)
		}
	}
}

func soakMedian(samples []soakSample, of func(soakSample) int64) int64 {
	s := slices.SortedFunc(slices.Values(samples), func(a, b soakSample) int { return cmp.Compare(of(a), of(b)) })
	return of(s[len(s)/2])
}
