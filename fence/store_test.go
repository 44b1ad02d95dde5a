package fence_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.uber.org/goleak"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store is an object store in memory that writes down every request as "PUT 3", "GET 3" (slots), "LIST" or "DELETE 3", and lets a test come between.
type store struct {
	mu    sync.Mutex
	m     map[string][]byte
	calls []string
	// on is asked before each request is applied. It may use the store itself.
	on func(ctx context.Context, call string) fault
}

// fault is what becomes of a request.
type fault struct {
	err error // answer instead of the true one; nil: none
	do  bool  // apply it all the same
}

var ok = fault{do: true}

func lost(err error) fault       { return fault{err: err} }
func answerLost(err error) fault { return fault{err: err, do: true} }

// failure is an error as stores give it.
func failure(kind error, status int) error {
	return &remote.Error{Op: "create", Store: "test://", Key: "k", Kind: kind, Status: status, Err: errors.New("injected")}
}

func newStore() *store { return &store{m: map[string][]byte{}} }

func name(op, key string) string {
	if slot, ok := fence.ParseSlotKey(key); ok {
		return fmt.Sprintf("%s %d", op, slot)
	}
	return op + " " + key
}

func (s *store) ask(ctx context.Context, call string) fault {
	s.mu.Lock()
	s.calls = append(s.calls, call)
	on := s.on
	s.mu.Unlock()
	if on != nil {
		return on(ctx, call)
	}
	return ok
}

func tag(b []byte) string { return fmt.Sprintf("%016x", xxhash.Sum64(b)) }

func (s *store) Create(ctx context.Context, key string, body []byte) (string, error) {
	f := s.ask(ctx, name("PUT", key))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil && f.err == nil {
		return "", &remote.Error{Op: "create", Store: "test://", Key: key, Kind: remote.ErrUnknown, Err: err}
	}
	_, exists := s.m[key]
	if f.do && !exists {
		s.m[key] = slices.Clone(body)
	}
	switch {
	case f.err != nil:
		return "", f.err
	case exists:
		return "", &remote.Error{Op: "create", Store: "test://", Key: key, Kind: remote.ErrExists, Status: 412}
	}
	return tag(body), nil
}

func (s *store) Get(ctx context.Context, key string, o remote.GetOptions) (remote.Object, error) {
	f := s.ask(ctx, name("GET", key))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(f.err, ctx.Err()); err != nil {
		return remote.Object{}, err
	}
	b, found := s.m[key]
	if !found {
		return remote.Object{}, &remote.Error{Op: "get", Store: "test://", Key: key, Kind: remote.ErrNotFound, Status: 404}
	}
	obj := remote.Object{Info: remote.Info{Key: key, Size: int64(len(b)), ETag: tag(b)}, Body: slices.Clone(b)}
	if o.Length > 0 && o.Length < obj.Size {
		obj.Body = obj.Body[:o.Length]
	}
	return obj, nil
}

func (s *store) List(ctx context.Context, prefix string, o remote.ListOptions) ([]remote.Info, bool, error) {
	f := s.ask(ctx, "LIST")
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(f.err, ctx.Err()); err != nil {
		return nil, false, err
	}
	var page []remote.Info
	for k, b := range s.m {
		if strings.HasPrefix(k, prefix) && k > o.After {
			page = append(page, remote.Info{Key: k, Size: int64(len(b)), ETag: tag(b)})
		}
	}
	slices.SortFunc(page, func(a, b remote.Info) int { return strings.Compare(a.Key, b.Key) })
	if o.Max > 0 && len(page) > o.Max {
		return page[:o.Max], true, nil
	}
	return page, false, nil
}

func (s *store) Swap(context.Context, string, string, []byte) (string, error) {
	return "", remote.ErrUnfit
}

func (s *store) Delete(ctx context.Context, key string) error {
	f := s.ask(ctx, name("DELETE", key))
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.do {
		delete(s.m, key)
	}
	return f.err
}

func (s *store) String() string { return "test://" }

// script sets what happens to the next requests whose call begins with prefix, one after the other; the others pass.
func (s *store) script(prefix string, faults ...fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := 0
	s.on = func(_ context.Context, call string) fault {
		s.mu.Lock()
		defer s.mu.Unlock()
		if strings.HasPrefix(call, prefix) && i < len(faults) {
			i++
			return faults[i-1]
		}
		return ok
	}
}

// hook sets what comes between, once, before the first request of this name.
func (s *store) hook(call string, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var once sync.Once
	s.on = func(_ context.Context, c string) fault {
		if c == call {
			once.Do(f)
		}
		return ok
	}
}

// forget starts a new record of calls, and ends faults.
func (s *store) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls, s.on = nil, nil
}

// asked compares the calls since forget.
func (s *store) asked(t *testing.T, want string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := strings.Join(s.calls, ", "); got != want {
		t.Errorf("requests: got %s, want %s", got, want)
	}
}

// collect deletes slots as a collector does: below the horizon, R5's kinds kept.
func collect(t *testing.T, s *store, l *fence.Log) {
	t.Helper()
	head, err := l.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for slot := uint64(1); slot < head.Horizon; slot++ {
		e, err := l.Read(t.Context(), slot)
		if errors.Is(err, remote.ErrNotFound) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == fence.Commit || e.Kind == fence.Base || e.Kind == fence.Close {
			if err := s.Delete(t.Context(), fence.SlotKey("db1", slot)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// instant is Options that wait for nothing.
func instant(owner string) fence.Options {
	return fence.Options{Owner: owner, Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}
}

// created is a new database, its log, and its owner.
func created(t *testing.T) (*store, *fence.Log, *fence.Owner) {
	t.Helper()
	s := newStore()
	l := fence.New(s, "db1", instant("first"))
	o, err := l.Create(t.Context(), fence.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.forget()
	return s, l, o
}

func commit() fence.Draft {
	return fence.Draft{Kind: fence.Commit, State: &fence.State{PageSize: 512, PageCount: 1}, Payload: make([]byte, 100)}
}

// base is a base at o's position that raises the horizon to its own slot.
func base(o *fence.Owner) fence.Draft {
	return fence.Draft{Kind: fence.Base, Base: fmt.Sprintf("db/db1/base/%d", o.Slot()), BaseSlot: o.Slot(), Horizon: o.Slot() + 1}
}

func must(t *testing.T, o *fence.Owner, d fence.Draft) *fence.Entry {
	t.Helper()
	e, err := o.Append(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func claimed(t *testing.T, l *fence.Log) *fence.Owner {
	t.Helper()
	o, err := l.Claim(t.Context(), fence.ClaimOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func wantErr(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("got %v, want %v", err, target)
		}
	}
}
