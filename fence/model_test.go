package fence_test

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/gc"
	"github.com/tonbo-go/tonbo/internal/sim"
)

// The log's model: random schedules over this very package (internal/sim).
//
//	go test ./fence -run TestModel -fence.seeds=100000          more schedules
//	go test ./fence -run TestTrace -v -seed 17 -show           one of them, step by step
//	go test ./fence -run TestTrace -v -seed 17 -broken "R4 ..." with one rule broken
var (
	seeds  = flag.Int("fence.seeds", 0, "seeds of the unbroken rules, default 1800, or TONBO_SIM_SEEDS")
	rate   = flag.Int("fence.rate", 0, "how many of this many seeds find each broken rule, instead of stopping at the first")
	first  = flag.Int64("fence.first", 0, "first seed")
	seed   = flag.Int64("seed", -1, "TestTrace: this seed")
	show   = flag.Bool("show", false, "TestTrace: every step")
	mix    = flag.Int("mix", -1, "TestTrace: this mix, default by the seed")
	broken = flag.String("broken", "", "TestTrace: this variant")
)

func howMany(t *testing.T, n int) int {
	if *seeds > 0 {
		return *seeds
	}
	if s := os.Getenv("TONBO_SIM_SEEDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("TONBO_SIM_SEEDS: %v", err)
		}
		return n
	}
	return n
}

// TestModelKeepsEveryPromise: under no schedule does the package acknowledge what is not in the log, let a stale owner pass, or lose anything.
func TestModelKeepsEveryPromise(t *testing.T) {
	n := 1800                    // a multiple of the mixes
	if testing.Short() || race { // one goroutine runs at a time: the detector has nothing to find here, and takes ten times as long
		n = 200
	}
	n = howMany(t, n)
	var total sim.Stats
	start, shown := time.Now(), time.Now()
	for s := *first; s < *first+int64(n); s++ {
		r := sim.Run(variant{}.config(s))
		if r.Violation != "" {
			t.Fatalf("seed %d: %s: %s\nsee it: go test ./fence -run TestTrace -v -seed %d -show", s, r.Violation, r.Detail, s)
		}
		total.Add(r.Stats)
		if time.Since(shown) > 10*time.Second {
			shown = time.Now()
			t.Logf("%d of %d seeds, %v", s-*first+1, n, time.Since(start).Round(time.Second))
		}
	}
	t.Logf("%d seeds in %v: %+v", n, time.Since(start).Round(100*time.Millisecond), total)
}

// variant is one rule broken: in this package, in package gc, or by the owners that call them. The zero value breaks none.
type variant struct {
	name                string
	gc, owners, readers bool
	mixes               []int // the mixes that it is looked for in; nil: all
}

// enough seeds to find any variant: most are found among the first thirty.
const enough = 1000

func variants() (v []variant) {
	for _, name := range fence.Broken() {
		v = append(v, variant{name: name})
	}
	for _, name := range gc.Rules {
		v = append(v, variant{name: name, gc: true})
	}
	for _, name := range sim.OwnerRules {
		v = append(v, variant{name: name, owners: true})
	}
	for _, name := range sim.ReaderRules {
		v = append(v, variant{name: name, readers: true, mixes: []int{sim.LazyReaders}})
	}
	for i, x := range v {
		switch x.name {
		case "R3 head not compared with the LIST", sim.GhostRead:
			v[i].mixes = []int{sim.Ghosts}
		case gc.PinsBeforeHead, "R11 check before the pin", "R11 no check after the pin", "R10 the end is no horizon for a fork", gc.OwnPinsIgnored, gc.OwnPinsByName, gc.ChildLetsGo, gc.MiddleLetsGo, gc.ForeignByName:
			v[i].mixes = []int{sim.ForksHome}
		case gc.NoLogGrace:
			v[i].mixes = []int{sim.TornLists}
		}
	}
	return v
}

func (v variant) config(seed int64) sim.Config {
	c := sim.Config{Seed: seed, Prepare: fence.Serial}
	switch {
	case v.name == "":
	case v.gc:
		c.GC = v.name
	case v.owners:
		c.Owners = v.name
	case v.readers:
		c.Readers = v.name
	default:
		c.Prepare = func(l *fence.Log) { fence.Serial(l); fence.Break(l, v.name) }
	}
	if len(v.mixes) > 0 {
		c.Mix = sim.Mixes[v.mixes[int(seed)%len(v.mixes)]]
	}
	return c
}

// TestModelFindsEveryBrokenRule: each rule is needed, and the model would notice if it were not kept.
func TestModelFindsEveryBrokenRule(t *testing.T) {
	for _, v := range variants() {
		t.Run(v.name, func(t *testing.T) {
			start, found, kinds := time.Now(), 0, map[string]int{}
			for s := range int64(max(*rate, enough)) {
				if *rate > 0 && s == int64(*rate) {
					break
				}
				r := sim.Run(v.config(s))
				if r.Violation == "" {
					continue
				}
				if *rate == 0 {
					t.Logf("seed %d, %v: %s: %s", s, time.Since(start).Round(time.Millisecond), r.Violation, r.Detail)
					return
				}
				found++
				kinds[r.Violation]++
			}
			t.Logf("%d of %d seeds: %v", found, *rate, kinds)
			if found == 0 {
				t.Errorf("not found")
			}
		})
	}
}

// TestTrace shows one seed.
func TestTrace(t *testing.T) {
	if *seed < 0 {
		t.Skip("-seed N")
	}
	var v variant
	for _, x := range variants() {
		if x.name == *broken {
			v = x
		}
	}
	if *broken != "" && v.name == "" {
		t.Fatalf("no variant %q", *broken)
	}
	c := v.config(*seed)
	if *mix >= 0 {
		c.Mix = sim.Mixes[*mix]
	}
	if *show {
		c.Trace = func(line string) { fmt.Println(line) }
	}
	r := sim.Run(c)
	t.Logf("%d steps, %+v", r.Steps, r.Stats)
	if r.Violation != "" {
		t.Errorf("%s: %s", r.Violation, r.Detail)
	}
}
