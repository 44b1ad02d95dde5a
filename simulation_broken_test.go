package tonbo_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// tuned makes a break of what an Options method of the tests does.
func tuned(f func(tonbo.Options) tonbo.Options) simBreak { return simBreak{options: f} }

// removing deletes, between two steps, what a collector that broke a rule would: of each live name the first key that pick takes.
func removing(pick func(key string) bool) simBreak {
	return simBreak{step: func(w *simWorld) error {
		if w.rng.IntN(4) > 0 {
			return nil
		}
		page, _, err := w.inner.List(w.ctx, "db/", remote.ListOptions{})
		if err != nil {
			return err
		}
		for _, i := range page {
			if pick(i.Key) {
				return w.inner.Delete(w.ctx, i.Key)
			}
		}
		return nil
	}}
}

// overwriting is a store that ignores the condition of an append.
type overwriting struct{ remote.Store }

func (s overwriting) Create(ctx context.Context, key string, body []byte) (string, error) {
	etag, err := s.Store.Create(ctx, key, body)
	if errors.Is(err, remote.ErrExists) && strings.Contains(key, "/log/") {
		if err := s.Delete(ctx, key); err != nil {
			return "", err
		}
		return s.Store.Create(ctx, key, body)
	}
	return etag, err
}

// taken is one by which whoever finds a slot taken believes that it is his.
type taken struct{ remote.Store }

func (s taken) Create(ctx context.Context, key string, body []byte) (string, error) {
	etag, err := s.Store.Create(ctx, key, body)
	if errors.Is(err, remote.ErrExists) && strings.Contains(key, "/log/") {
		return "taken", nil
	}
	return etag, err
}

// lagging is one whose LIST of a log leaves out what was put last, now and then.
type lagging struct {
	remote.Store
	n atomic.Int64
}

func (s *lagging) List(ctx context.Context, prefix string, o remote.ListOptions) ([]remote.Info, bool, error) {
	page, more, err := s.Store.List(ctx, prefix, o)
	if err != nil || !strings.Contains(prefix, "/log/") || len(page) == 0 || o.After != "" || s.n.Add(1)%3 > 0 {
		return page, more, err
	}
	o.After = page[0].Key
	return s.Store.List(ctx, prefix, o)
}

// simBreaks are the rules and promises as far as they can be broken at this level, one at a time.
var simBreaks = map[string]simBreak{
	"promise 2, R2: an unknown outcome is acknowledged":                   tuned(tonbo.Options.UnknownIsAcked),
	"promise 2, R6: idle, nobody is asked":                                tuned(tonbo.Options.IdleIsAcked),
	"promise 4: the local copy is taken as it is":                         {options: tonbo.Options.TrustsTheCopy, from: 65},
	"promise 4: local commits are kept though others have passed":         {options: tonbo.Options.KeepsWhatIsPassed, from: 171},
	"deltas against what no entry holds":                                  tuned(tonbo.Options.DeltasAgainstUnshipped),
	"a base without deltas":                                               {options: tonbo.Options.BasesWithoutDeltas, from: 53},
	"promise 4: an absent page comes from the base, whatever is above it": {options: tonbo.Options.PagesOfTheBase, from: 67},
	"strict, R2: a COMMIT of unknown outcome returns nil":                 {options: tonbo.Options.StrictUnknownIsAcked, from: 97},
	"expiry: an owner's clock stands still": {owner: func(o tonbo.Options) tonbo.Options {
		opened := time.Now()
		return o.Clocked(func() time.Time { return opened })
	}},
	"expiry: a janitor's clock is ahead": tuned(func(o tonbo.Options) tonbo.Options {
		return o.Clocked(func() time.Time { return time.Now().Add(2 * time.Hour) })
	}),
	"a pack without one of its entries":                                      {options: tonbo.Options.PacksWithoutOne, from: 111},
	"promise 7: the store ignores conditions, and the probe does not see it": {inner: func(s remote.Store) remote.Store { return overwriting{s} }},
	"R2: 412 is taken for stored":                                            {inner: func(s remote.Store) remote.Store { return taken{s} }},
	"R3: a LIST does not show the newest slot":                               {inner: func(s remote.Store) remote.Store { return &lagging{Store: s} }},
	"R6: the store answers absence from a cache": {store: func(s *tonbotest.Store) {
		s.StaleNotFound(tonbotest.Match{Key: "/log/"})
	}},
	"R5: slots of the log are collected":    removing(func(k string) bool { return strings.Contains(k, "/log/") }),
	"R9: segments in use are collected":     removing(func(k string) bool { return strings.Contains(k, "/seg/") }),
	"R10: pins are ignored":                 removing(func(k string) bool { return strings.Contains(k, "/pin/") }),
	"R9, R10: bases in force are collected": removing(func(k string) bool { return strings.Contains(k, "/base/") }),
}

// TestSimulationFindsEveryBrokenRule: what is broken on purpose is found, each within 1,000 seeds.
func TestSimulationFindsEveryBrokenRule(t *testing.T) {
	if raceEnabled {
		t.Skip("a minute, and one goroutine at a time: what races is looked at by TestLibrarySimulation")
	}
	warmUp(t)
	for name, b := range simBreaks {
		if *simOnly != "" && !strings.Contains(name, *simOnly) {
			continue
		}
		found := false
		for seed := max(b.from, 1); seed <= 1000 && !found; seed++ {
			_, err := simulate(t, seed, b)
			var broken *simErr
			if found = errors.As(err, &broken); found {
				t.Logf("%s: seed %d: %.200s", name, seed, err)
			} else if err != nil {
				t.Fatalf("%s: seed %d: %v", name, seed, err)
			}
		}
		if !found {
			t.Errorf("%s: not found by 1,000 seeds", name)
		}
	}
}
