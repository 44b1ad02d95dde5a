package tonbo_test

import (
	"os"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/internal/s3test"
)

// BenchmarkRemoteForks opens 20 forks of one golden database of 64 MiB at once on one machine, in one process; each reads the same 20 MiB. With the machine's shared
// block cache, and without.
func BenchmarkRemoteForks(b *testing.B) {
	inner := s3test.Store(b)
	names, query, want := (&account{t: b, store: inner}).golden(64, 20, 20)
	for _, c := range []struct {
		name string
		size int64
	}{{"shared", 0}, {"each-for-itself", -1}} {
		b.Run(c.name, func(b *testing.B) {
			a := &account{t: b, store: &line{Store: inner, rate: 125e6}}
			var took []time.Duration
			var down int64
			for range b.N {
				o := a.lazyMachine()
				o.SharedCache = c.size
				start := time.Now()
				n, got, err := readForks(forksJob{Names: names, Query: query}, o)
				took = append(took, time.Since(start))
				if err != nil || got != want {
					b.Fatal(got, err)
				}
				down += n
				os.RemoveAll(o.Dir)
			}
			b.ReportMetric(float64(down)/float64(b.N)/(1<<20), "MiB-down")
			b.ReportMetric(percentile(took, .5)/1e3, "p50-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}
