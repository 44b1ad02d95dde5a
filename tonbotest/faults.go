package tonbotest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tonbo-go/tonbo/remote"
)

// Fault is what is done to a call.
type Fault string

// The faults that a script picks from. See the methods of [Store] of these names.
const (
	Pass       Fault = ""            // nothing
	Fail       Fault = "fail"        // with status 503, which says nothing about the outcome
	Lose       Fault = "lose"        // it never arrives
	DropAnswer Fault = "drop answer" // it is done, and nobody is told
	Hold       Fault = "hold"        // it is done when the test says so
	Truncate   Fault = "truncate"    // of a Get; of other calls: none
	FlipBit    Fault = "flip a bit"  // likewise
)

const (
	hang      Fault = "hang"
	block     Fault = "block"
	delay     Fault = "delay"
	partition Fault = "partition"
	stale     Fault = "stale"
)

type rule struct {
	fault Fault
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
	if s.script != nil {
		if f := s.script(op, key); f != Pass {
			return &rule{fault: f, err: &remote.Error{Op: string(op), Store: s.inner.String(), Key: key, Kind: remote.ErrUnknown, Status: 503, Err: ErrInjected}}
		}
	}
	return nil
}

// Script asks f about each call that no rule takes; nil: no more. Calls ask one after the other.
func (s *Store) Script(f func(op Op, key string) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = f
}

// Random is a Script: each call is taken with the chance (0 to 1) by one of the faults, as the seed says. The same calls in the same order meet the same faults.
func (s *Store) Random(seed uint64, chance float64, faults ...Fault) {
	rng := rand.New(rand.NewPCG(seed, 0))
	s.Script(func(Op, string) Fault {
		if len(faults) == 0 || rng.Float64() >= chance {
			return Pass
		}
		return faults[rng.IntN(len(faults))]
	})
}

// Fail answers the next n matching calls (n < 0: all) with err, without doing anything: one of package remote's errors, or a
// whole *remote.Error with status and RetryAfter.
func (s *Store) Fail(m Match, n int, err error) { s.add(&rule{fault: Fail, match: m, err: err}, n) }

// DropAnswer does what the next n matching calls ask for and answers remote.ErrUnknown: stored, and nobody knows.
func (s *Store) DropAnswer(m Match, n int) { s.add(&rule{fault: DropAnswer, match: m}, n) }

// Lose answers the next n matching calls with remote.ErrUnknown and does nothing.
func (s *Store) Lose(m Match, n int) { s.add(&rule{fault: Lose, match: m}, n) }

// Hold answers the next n matching calls with remote.ErrUnknown at once; what they ask for is done when the test says so
// ([Store.Held]): stored later.
//
// Released in another order than they arrived, they are reordered.
func (s *Store) Hold(m Match, n int) { s.add(&rule{fault: Hold, match: m}, n) }

// Throttle answers the next n matching calls with status 429 and Retry-After, and does nothing.
func (s *Store) Throttle(m Match, n int, after time.Duration) {
	s.Fail(m, n, &remote.Error{Op: string(m.Op), Store: s.inner.String(), Key: m.Key, Kind: remote.ErrUnknown, Status: 429, RetryAfter: after, Err: ErrInjected})
}

// Truncate answers the next n matching Gets with the first half of what they asked for, as if that were all.
func (s *Store) Truncate(m Match, n int) { s.spoil(Truncate, m, n) }

// FlipBit answers the next n matching Gets with one bit changed, in the middle.
func (s *Store) FlipBit(m Match, n int) { s.spoil(FlipBit, m, n) }

func (s *Store) spoil(f Fault, m Match, n int) {
	if m.Op == "" {
		m.Op = Get
	}
	s.add(&rule{fault: f, match: m}, n)
}

// spoilt is what a Get answers that lies.
func spoilt(f Fault, o remote.Object) remote.Object {
	o.Body = slices.Clone(o.Body)
	switch half := len(o.Body) / 2; {
	case f == Truncate:
		o.Body = o.Body[:half]
	case len(o.Body) > 0:
		o.Body[half] ^= 0x10
	}
	return o
}

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

// Partition cuts the store off (every call: remote.ErrUnknown at once, nothing done), or ends that. It comes before all rules. Give each writer a Store of its own over one inner store, and
// one of them can be cut off alone.
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

// Heal takes back all rules, Script, Partition, IgnoreConditions and StaleNotFound, and opens all gates. What is held stays held.
func (s *Store) Heal() {
	s.mu.Lock()
	rules := s.rules
	s.rules, s.partitioned, s.ignore, s.stale, s.seen, s.script = nil, false, false, nil, nil, nil
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
