package tonbotest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/tonbo-go/tonbo/remote"
)

// Op is a method of a [remote.Store]. The empty one stands for all.
type Op string

// The methods, as remote.Error names them.
const (
	Create Op = "create"
	Get    Op = "get"
	List   Op = "list"
	Swap   Op = "swap"
	Delete Op = "delete"
)

// Match picks calls. The zero value picks all.
type Match struct {
	Op   Op     // only this method
	Key  string // only keys (of a List: prefixes) that contain this
	Skip int    // let that many of them pass first
}

func (m Match) fits(op Op, key string) bool {
	return (m.Op == "" || m.Op == op) && strings.Contains(key, m.Key)
}

// Call is one call of the store.
type Call struct {
	Op    Op
	Key   string // of a List: the prefix
	Fault string // what was done to it: "fail", "lose", "drop answer", "hold", "truncate", "flip a bit", "hang", "block", "delay", "partition", "stale"; "" nothing
	Err   error  // what the caller got
}

// ErrInjected is in every error that this package makes up itself.
var ErrInjected = errors.New("injected fault")

// Store is a [remote.Store] that does to another one what the test asks for. Without rules it passes everything through. It is
// safe for concurrent use, also while rules change.
type Store struct {
	inner remote.Store

	mu          sync.Mutex
	rules       []*rule
	partitioned bool
	ignore      bool
	stale       *Match
	script      func(Op, string) Fault
	seen        map[string]bool // keys that had their stale answer
	calls       []Call
	held        []*Held
	changed     chan struct{} // closed and renewed when held has changed
}

var _ remote.Store = (*Store)(nil)

// NewStore wraps a store. Requests that never reach it are counted (remote.Counted) all the same: they were sent.
func NewStore(inner remote.Store) *Store {
	return &Store{inner: inner, changed: make(chan struct{})}
}

// String is the inner store's.
func (s *Store) String() string { return s.inner.String() }

// Calls returns the finished calls, in the order in which they ended.
func (s *Store) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// ResetCalls empties what Calls returns.
func (s *Store) ResetCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = nil
}

// Create implements [remote.Store].
func (s *Store) Create(ctx context.Context, key string, body []byte) (string, error) {
	body = slices.Clone(body) // it may be applied after the caller has gone on
	return do(ctx, s, Create, key, int64(len(body)), func(ctx context.Context) (string, error) {
		if s.ignoresConditions() {
			return s.overwrite(ctx, key, body)
		}
		return s.inner.Create(ctx, key, body)
	})
}

// Swap implements [remote.Store].
func (s *Store) Swap(ctx context.Context, key, etag string, body []byte) (string, error) {
	body = slices.Clone(body)
	return do(ctx, s, Swap, key, int64(len(body)), func(ctx context.Context) (string, error) {
		if s.ignoresConditions() {
			return s.overwrite(ctx, key, body)
		}
		return s.inner.Swap(ctx, key, etag, body)
	})
}

// Get implements [remote.Store].
func (s *Store) Get(ctx context.Context, key string, o remote.GetOptions) (remote.Object, error) {
	return do(ctx, s, Get, key, 0, func(ctx context.Context) (remote.Object, error) { return s.inner.Get(ctx, key, o) })
}

// List implements [remote.Store].
func (s *Store) List(ctx context.Context, prefix string, o remote.ListOptions) ([]remote.Info, bool, error) {
	type answer struct {
		page []remote.Info
		more bool
	}
	a, err := do(ctx, s, List, prefix, 0, func(ctx context.Context) (answer, error) {
		page, more, err := s.inner.List(ctx, prefix, o)
		return answer{page, more}, err
	})
	return a.page, a.more, err
}

// Delete implements [remote.Store].
func (s *Store) Delete(ctx context.Context, key string) error {
	_, err := do(ctx, s, Delete, key, 0, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.inner.Delete(ctx, key) })
	return err
}

func (s *Store) ignoresConditions() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ignore
}

// overwrite is a put without a condition.
func (s *Store) overwrite(ctx context.Context, key string, body []byte) (string, error) {
	for {
		etag, err := s.inner.Create(ctx, key, body)
		if !errors.Is(err, remote.ErrExists) {
			return etag, err
		}
		if err := s.inner.Delete(ctx, key); err != nil {
			return "", err
		}
	}
}

// do runs one call under the rules.
func do[T any](ctx context.Context, s *Store, op Op, key string, up int64, apply func(context.Context) (T, error)) (T, error) {
	f := s.next(op, key)
	answer, err := faulty(ctx, s, f, op, key, up, apply)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, Call{op, key, f.name(), err})
	return answer, err
}

func faulty[T any](ctx context.Context, s *Store, r *rule, op Op, key string, up int64, apply func(context.Context) (T, error)) (T, error) {
	var none T
	lost := func(cause error) error { // sent, and not applied as far as the inner store knows
		remote.Record(ctx, recorded[op], up, 0)
		return s.unknown(op, key, cause)
	}
	if r == nil {
		return apply(ctx)
	}
	switch r.fault {
	case Fail, stale:
		remote.Record(ctx, recorded[op], up, 0)
		return none, s.failure(op, key, r.err)
	case Lose, partition:
		return none, lost(ErrInjected)
	case DropAnswer:
		if _, err := apply(ctx); err != nil && ctx.Err() != nil {
			return none, s.unknown(op, key, ctx.Err())
		}
		return none, s.unknown(op, key, ErrInjected)
	case Hold:
		s.keep(&Held{Op: op, Key: key, apply: func(ctx context.Context) error {
			_, err := apply(ctx)
			return err
		}})
		return none, lost(ErrInjected)
	case Truncate, FlipBit:
		answer, err := apply(ctx)
		if o, ok := any(answer).(remote.Object); ok && err == nil {
			answer = any(spoilt(r.fault, o)).(T)
		}
		return answer, err
	case hang:
		<-ctx.Done()
		return none, lost(ctx.Err())
	case block:
		if err := r.gate.pass(ctx); err != nil {
			return none, lost(err)
		}
	case delay:
		if err := pause(ctx, r.delay); err != nil {
			return none, lost(err)
		}
	}
	return apply(ctx)
}

var recorded = map[Op]remote.Op{
	Create: remote.OpPut, Swap: remote.OpPut, Get: remote.OpGet, List: remote.OpList, Delete: remote.OpDelete,
}

func (s *Store) unknown(op Op, key string, cause error) error {
	return &remote.Error{Op: string(op), Store: s.String(), Key: key, Kind: remote.ErrUnknown, Err: cause}
}

// failure wraps what the test asked for, unless that is a complete error already.
func (s *Store) failure(op Op, key string, err error) error {
	var e *remote.Error
	if errors.As(err, &e) {
		return err
	}
	return &remote.Error{Op: string(op), Store: s.String(), Key: key, Kind: err, Err: ErrInjected}
}
