package fence_test

import (
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/internal/sim"
)

func keyedConfig(seed int64, broken string) sim.Config {
	return sim.Config{Seed: seed, Mix: sim.KeyedMix, Prepare: fence.Serial, Keyed: broken}
}

// TestOneDatabaseForAnIdempotencyKey: under no schedule does a key make two databases, or answer two callers with different ones.
func TestOneDatabaseForAnIdempotencyKey(t *testing.T) {
	n := 600
	if testing.Short() || race {
		n = 60
	}
	n = howMany(t, n)
	var total sim.Stats
	start := time.Now()
	for s := *first; s < *first+int64(n); s++ {
		r := sim.Run(keyedConfig(s, ""))
		if r.Violation != "" {
			t.Fatalf("seed %d: %s: %s", s, r.Violation, r.Detail)
		}
		total.Add(r.Stats)
	}
	if total.Keyed == 0 || total.Replayed == 0 || total.Gone == 0 {
		t.Errorf("nothing happened: %+v", total)
	}
	t.Logf("%d seeds in %v: %+v", n, time.Since(start).Round(100*time.Millisecond), total)
}

// TestBrokenIdempotencyIsFound: each step of it is needed, and the model would notice.
func TestBrokenIdempotencyIsFound(t *testing.T) {
	for _, rule := range catalog.Rules {
		t.Run(rule, func(t *testing.T) {
			for s := range int64(enough) {
				if r := sim.Run(keyedConfig(s, rule)); r.Violation != "" {
					t.Logf("seed %d: %s: %s", s, r.Violation, r.Detail)
					return
				}
			}
			t.Error("not found")
		})
	}
}
