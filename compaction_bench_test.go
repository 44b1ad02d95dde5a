package tonbo_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/internal/s3test"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/dir"
	"github.com/tonbo-go/tonbo/remote/mem"
)

// BenchmarkCompactionOfRandomPages changes rows anywhere in a database of 1 GB, 20 a sync, and reports what compaction puts for each byte shipped: each page is written anew once a tier of
// runs; the chunks of the bottom, of 16 MiB, when the runs hold three quarters of the database. An operation is a sync.
// TONBO_TEST_LARGE=1 go test -run '^$' -bench CompactionOfRandomPages -benchtime 5000x .
func BenchmarkCompactionOfRandomPages(b *testing.B) {
	if os.Getenv("TONBO_TEST_LARGE") == "" {
		b.Skip("set TONBO_TEST_LARGE=1: 1 GB, minutes, 8 GB of disk")
	}
	d, err := dir.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	store := weigh(d)
	a := &account{t: b, store: store}
	benchDatabase(b, a, 1000)
	o := a.machine().Collecting()
	o.History = time.Nanosecond
	db := open(b, "bench", o)
	hydrated(b, db)
	rng := rand.New(rand.NewPCG(1, 2))
	entries0, compaction0 := store.sofar()
	var longest time.Duration
	b.ResetTimer()
	for range b.N {
		tx, err := db.Begin()
		if err != nil {
			b.Fatal(err)
		}
		for range 20 {
			if _, err := tx.Exec("UPDATE t SET v=randomblob(500) WHERE id=?", 1+rng.IntN(950_000)); err != nil {
				b.Fatal(err)
			}
		}
		if err := tx.Commit(); err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		synced(b, db)
		longest = max(longest, time.Since(start))
	}
	b.StopTimer()
	entries, compaction := store.sofar()
	_, bytes := stored(b, a, "bench")
	size := db.Status().Pages * 4096
	b.ReportMetric(float64(entries-entries0)/1e6, "MB-shipped")
	b.ReportMetric(float64(compaction-compaction0)/1e6, "MB-compaction")
	b.ReportMetric(float64(compaction-compaction0)/float64(entries-entries0), "amplification")
	b.ReportMetric(float64(bytes)/float64(size), "stored/database")
	b.ReportMetric(float64(levels(db.Base())), "levels")
	b.ReportMetric(float64(longest.Microseconds()), "max-ack-us")
	closeDB(b, db)
}

// BenchmarkRemoteSyncedBesideCompaction compares the Synced calls during which a compaction was under way with all others, of one run: rows changed anywhere in a database of 50 MB, merged
// after every 32 entries instead of 128. "far" is a store that needs no processor of this machine and answers after 5 ms: what is left there is our own part. On a server that shares the
// machine, a PUT of 1 MiB beside a Synced has its price too: "put" shows that alone, without a compaction.
func BenchmarkRemoteSyncedBesideCompaction(b *testing.B) {
	for _, s := range []struct {
		name  string
		store func() remote.Store
		put   bool
	}{
		{"far", func() remote.Store { return &chained{Store: mem.New("far"), delay: 5 * time.Millisecond} }, false},
		{"server", func() remote.Store { return s3test.Store(b) }, false},
		{"server, put", func() remote.Store { return s3test.Store(b) }, true},
	} {
		b.Run(s.name, func(b *testing.B) { besideBackground(b, s.store(), s.put) })
	}
}

func besideBackground(b *testing.B, store remote.Store, put bool) {
	ctx := context.Background()
	a := &account{t: b, store: store}
	benchDatabase(b, a, 50)
	o := a.machine().Tuned(32, time.Hour)
	if put {
		o = a.machine().Unsettled()
	}
	db := open(b, "bench", o)
	hydrated(b, db)
	busy := db.Compacting
	if put {
		var under atomic.Bool
		busy = under.Load
		defer background(func(i int) {
			body := make([]byte, 1<<20)
			for k := 0; k < len(body); k += 8 {
				binary.LittleEndian.PutUint64(body[k:], rand.Uint64())
			}
			under.Store(true)
			if _, err := store.Create(ctx, fmt.Sprintf("raw/%d", i), body); err != nil {
				b.Error(err)
			}
			under.Store(false)
			time.Sleep(20 * time.Millisecond)
		})()
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var beside, alone []time.Duration
	b.ResetTimer()
	for range b.N {
		if _, err := db.Exec("UPDATE t SET v=randomblob(500) WHERE id=?", 1+rng.IntN(47_000)); err != nil {
			b.Fatal(err)
		}
		before := busy()
		start := time.Now()
		if err := db.Synced(ctx); err != nil {
			b.Fatal(err)
		}
		d := time.Since(start)
		if before {
			beside = append(beside, d)
		} else {
			alone = append(alone, d)
		}
	}
	b.StopTimer()
	if len(beside) < 100 || len(alone) < 100 {
		return
	}
	b.ReportMetric(float64(len(beside))/float64(b.N), "beside")
	b.ReportMetric(percentile(beside, .5), "p50-beside-us")
	b.ReportMetric(percentile(alone, .5), "p50-alone-us")
	b.ReportMetric(percentile(beside, .99), "p99-beside-us")
	b.ReportMetric(percentile(alone, .99), "p99-alone-us")
	b.ReportMetric(percentile(beside, .99)/percentile(alone, .99), "ratio-p99")
	b.ReportMetric(0, "ns/op")
	closeDB(b, db)
}

// background calls f again and again, until the function that it returns is called.
func background(f func(i int)) (stop func()) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-end:
				return
			default:
				f(i)
			}
		}
	})
	return func() { close(end); wg.Wait() }
}
