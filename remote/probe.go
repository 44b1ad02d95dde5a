package remote

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"
)

// ProbeKey is the object that [Probe] works on. Whoever comes first makes it, and nobody deletes it.
const ProbeKey = "probe/ok-v1"

const probeTimeout = 30 * time.Second

// Probe finds out whether a store keeps the one promise that everything rests on: a create of a key that is taken is
// refused. Steps:
//
//  1. create [ProbeKey];
//  2. create it again with another body: must be refused;
//  3. read it: must be the first body;
//  4. list it: must be there.
//
// The object stays for good and claims nothing by itself: the proof is the refusal, which the store has to give again to
// each prober. So when step 1 is refused, that was the proof, and step 2 is left out. A prober that dies between two steps,
// or a bucket copied to a store that ignores the condition, deceives nobody, and any number may probe at once: one of them
// makes the object, the others are refused. It needs no permission to delete.
//
// A store that does not hold is [ErrUnfit]; the error names the store, the step and what to do. Other refusals
// ([ErrUnauthorized], [ErrDenied], [ErrNoBucket], ...) come back as they are, with the step. Unknown outcomes are repeated
// until ctx ends, at most 30 s.
//
// Probe costs 4 requests on a new location and 3 on one in use; most callers want [ProbeOnce].
func Probe(ctx context.Context, s Store) error { return probe(ctx, s, true) }

// ProbeOnce is [Probe] at the price of an Open: on a new location its 4 requests, on one in use a single create that is
// refused, and none when this process has already seen this very store value pass ([Counted] and [OnBehalf] are looked through; callers that
// make a new Store for each handle pay one request for each).
//
// It may run beside an Open's first reads, but must have returned before the first create that decides anything. Who only
// reads needs no probe.
func ProbeOnce(ctx context.Context, s Store) error {
	p := passedProbes.of(s)
	if p == nil { // not comparable: nothing to remember it by
		return probe(ctx, s, false)
	}
	select { // one prober per store; the others wait for its result
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return &Error{Op: "probe", Store: s.String(), Key: ProbeKey, Kind: ErrUnknown, Err: ctx.Err()}
	}
	if p.passed {
		return nil
	}
	if err := probe(ctx, s, false); err != nil {
		return err
	}
	p.passed = true
	return nil
}

func probe(ctx context.Context, s Store, full bool) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	first, second := probeBody("first"), probeBody("second")

	// 1. Create.
	err := createKnown(ctx, s, first)
	made := err == nil
	switch {
	case made:
		// 2. Refused create.
		err := createKnown(ctx, s, second)
		if err == nil {
			return unfit(s, 2, "a second create of the same key was accepted: the store ignores If-None-Match: *, so two writers "+
				"would both own a database")
		}
		if !errors.Is(err, ErrExists) {
			return probeError(s, 2, err)
		}
	case !errors.Is(err, ErrExists):
		return probeError(s, 1, err)
	case !full:
		return nil
	}

	// 3. Read back.
	o, err := s.Get(ctx, ProbeKey, GetOptions{})
	switch {
	case errors.Is(err, ErrNotFound):
		return unfit(s, 3, "an object is absent right after it was created: reads are not strongly consistent, or something deletes "+
			"objects (a lifecycle rule?)")
	case err != nil:
		return probeError(s, 3, err)
	case made && !bytes.Equal(o.Body, first):
		return unfit(s, 3, "the object is not what was created: a refused create has overwritten it, or reads are stale")
	}

	// 4. List.
	page, _, err := s.List(ctx, ProbeKey, ListOptions{Max: 1})
	switch {
	case err != nil:
		return probeError(s, 4, err)
	case len(page) != 1 || page[0].Key != ProbeKey:
		return unfit(s, 4, "the listing does not show an object that was created: LIST is not strongly consistent, or something "+
			"deletes objects (a lifecycle rule?)")
	}
	return nil
}

// createKnown repeats a create until its outcome is known. Taken after an unknown try is a refusal like any other.
func createKnown(ctx context.Context, s Store, body []byte) error {
	var b Backoff
	for {
		_, err := s.Create(ctx, ProbeKey, body)
		if err == nil || !errors.Is(err, ErrUnknown) {
			return err
		}
		if ctxErr := b.Wait(ctx, err); ctxErr != nil {
			return fmt.Errorf("%w, last: %w", ctxErr, err)
		}
	}
}

func probeBody(which string) []byte {
	return fmt.Appendf(nil, "tonbo probe: the %s of two creates of this key, %s. Keep it: others are refused by it.\n", which, rand.Text())
}

var probeSteps = [...]string{1: "create", 2: "refused create", 3: "read back", 4: "list"}

func unfit(s Store, step int, why string) error {
	return &Error{Op: "probe", Store: s.String(), Key: ProbeKey, Kind: ErrUnfit, Err: fmt.Errorf(
		"step %d of 4, %s: %s. Use a store with conditional writes and strongly consistent reads, or update this one",
		step, probeSteps[step], why)}
}

func probeError(s Store, step int, err error) error {
	var e *Error
	if errors.As(err, &e) && e.Status == 501 || errors.Is(err, ErrUnfit) {
		return &Error{Op: "probe", Store: s.String(), Key: ProbeKey, Kind: ErrUnfit, Status: statusOf(e), Err: fmt.Errorf(
			"step %d of 4, %s: the store does not implement If-None-Match: * (some do not on versioned buckets alone). "+
				"Use a bucket without versioning, or a store with conditional writes: %w", step, probeSteps[step], err)}
	}
	return fmt.Errorf("probe %s, step %d of 4, %s: %w", s, step, probeSteps[step], err)
}

func statusOf(e *Error) int {
	if e == nil {
		return 0
	}
	return e.Status
}

// passedProbes is the process's memory of stores that passed. It is bounded, since it keeps the stores alive: forgetting costs a
// request.
var passedProbes = probeMemory{max: 64}

type probeMemory struct {
	mu     sync.Mutex
	max    int
	stores map[Store]*probed
}

type probed struct {
	turn   chan struct{} // capacity 1; held while passed is read or written
	passed bool
}

func (m *probeMemory) of(s Store) *probed {
	for wrapped := true; wrapped; {
		switch w := s.(type) {
		case counted:
			s = w.Store
		case behalf:
			s = w.Store
		default:
			wrapped = false
		}
	}
	if !reflect.ValueOf(s).Comparable() {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.stores[s]
	if p == nil {
		if m.stores == nil || len(m.stores) >= m.max {
			m.stores = make(map[Store]*probed)
		}
		p = &probed{turn: make(chan struct{}, 1)}
		m.stores[s] = p
	}
	return p
}
