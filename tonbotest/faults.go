package tonbotest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tonbo-go/tonbo/remote"
)

type fault string

const (
	fail       fault = "fail"
	lose       fault = "lose"
	dropAnswer fault = "drop answer"
	hold       fault = "hold"
	hang       fault = "hang"
	block      fault = "block"
	delay      fault = "delay"
	partition  fault = "partition"
	stale      fault = "stale"
)

type rule struct {
	fault fault
	match Match
	skip  int // guarded by Store.mu, as is left
	left  int // calls still to take; negative: all
	err   error
	delay time.Duration
	gate  *Gate
}

func (r *rule) name() string {
	if r == nil {
		return ""
	}
	return string(r.fault)
}

func (s *Store) add(r *rule, n int) {
	r.skip, r.left = r.match.Skip, n
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, r)
}

// next finds the rule for a call.
func (s *Store) next(op Op, key string) *rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.partitioned {
		return &rule{fault: partition}
	}
	for i, r := range s.rules {
		if !r.match.fits(op, key) {
			continue
		}
		if r.skip > 0 {
			r.skip--
			continue
		}
		if r.left > 0 {
			if r.left--; r.left == 0 {
				s.rules = slices.Delete(s.rules, i, i+1)
			}
		}
		return r
	}
	if op == Get && s.stale != nil && s.stale.fits(op, key) && !s.seen[key] {
		s.seen[key] = true
		return &rule{fault: stale, err: remote.ErrNotFound}
	}
	return nil
}

// Fail answers the next n matching calls (n < 0: all) with err, without doing anything: one of package remote's errors, or a
// whole *remote.Error with status and RetryAfter.
func (s *Store) Fail(m Match, n int, err error) { s.add(&rule{fault: fail, match: m, err: err}, n) }

// DropAnswer does what the next n matching calls ask for and answers remote.ErrUnknown: stored, and nobody knows.
func (s *Store) DropAnswer(m Match, n int) { s.add(&rule{fault: dropAnswer, match: m}, n) }

// Lose answers the next n matching calls with remote.ErrUnknown and does nothing.
func (s *Store) Lose(m Match, n int) { s.add(&rule{fault: lose, match: m}, n) }

// Hold answers the next n matching calls with remote.ErrUnknown at once; what they ask for is done when the test says so
// ([Store.Held]): stored later.
func (s *Store) Hold(m Match, n int) { s.add(&rule{fault: hold, match: m}, n) }

// Delay does the next n matching calls d later.
func (s *Store) Delay(m Match, n int, d time.Duration) {
	s.add(&rule{fault: delay, match: m, delay: d}, n)
}

// Hang never answers the next n matching calls and does nothing: they end with their context, as remote.ErrUnknown.
func (s *Store) Hang(m Match, n int) { s.add(&rule{fault: hang, match: m}, n) }

// Block keeps all matching calls at a gate until it is opened. A call whose context ends there was not done.
func (s *Store) Block(m Match) *Gate {
	g := &Gate{open: make(chan struct{}), changed: make(chan struct{})}
	s.add(&rule{fault: block, match: m, gate: g}, -1)
	return g
}

// Partition cuts the store off (every call: remote.ErrUnknown at once, nothing done), or ends that. It comes before all rules.
func (s *Store) Partition(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.partitioned = on
}

// IgnoreConditions makes the store an unfit one: Create and Swap overwrite whatever is there.
func (s *Store) IgnoreConditions(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ignore = on
}

// StaleNotFound answers the first Get of each matching key with remote.ErrNotFound, as a cache of absence would: an unfit store.
// Skip does not count here.
func (s *Store) StaleNotFound(m Match) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale, s.seen = &m, make(map[string]bool)
}

// Heal takes back all rules, Partition, IgnoreConditions and StaleNotFound, and opens all gates. What is held stays held.
func (s *Store) Heal() {
	s.mu.Lock()
	rules := s.rules
	s.rules, s.partitioned, s.ignore, s.stale, s.seen = nil, false, false, nil, nil
	s.mu.Unlock()
	for _, r := range rules {
		if r.gate != nil {
			r.gate.Open()
		}
	}
}

// Held is a call that its caller has given up and that can still be done.
type Held struct {
	Op  Op
	Key string

	once  sync.Once
	apply func(context.Context) error
	err   error
}

// Release does the call and returns what the store says to it. Only the first Release does anything.
func (h *Held) Release(ctx context.Context) error {
	h.once.Do(func() { h.err = h.apply(ctx) })
	return h.err
}

// Held waits until n calls have been held since the store was made, and returns them all, in the order of their arrival.
func (s *Store) Held(ctx context.Context, n int) ([]*Held, error) {
	for {
		s.mu.Lock()
		held, changed := slices.Clone(s.held), s.changed
		s.mu.Unlock()
		if len(held) >= n {
			return held, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return held, ctx.Err()
		}
	}
}

func (s *Store) keep(h *Held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = append(s.held, h)
	close(s.changed)
	s.changed = make(chan struct{})
}

// Gate is where calls wait: see [Store.Block].
type Gate struct {
	open chan struct{}
	once sync.Once

	mu      sync.Mutex
	arrived int
	changed chan struct{} // closed and renewed when arrived has changed
}

// Open lets all calls go on, those to come too.
func (g *Gate) Open() { g.once.Do(func() { close(g.open) }) }

// Wait waits until n calls have arrived at the gate since it was made.
func (g *Gate) Wait(ctx context.Context, n int) error {
	for {
		g.mu.Lock()
		arrived, changed := g.arrived, g.changed
		g.mu.Unlock()
		if arrived >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *Gate) pass(ctx context.Context) error {
	g.mu.Lock()
	g.arrived++
	close(g.changed)
	g.changed = make(chan struct{})
	g.mu.Unlock()
	select {
	case <-g.open:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
