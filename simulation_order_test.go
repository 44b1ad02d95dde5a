package tonbo_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing/synctest"

	"github.com/cespare/xxhash/v2"

	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// simOrder does the requests of a run one at a time: when every goroutine of the bubble waits for something, one of the requests that wait is done, whichever the seed says, and then nothing
// else until all wait again. So requests that are on their way at once meet their faults, come to the store and are answered in an order that the seed alone decides, not in that of the goroutines.
type simOrder struct {
	mu      sync.Mutex // guards what follows
	rng     *rand.Rand
	waiting []*simTurn
	history []string // the requests in the order in which they were done

	jostle bool          // goroutines stand aside at random before they ask
	asked  chan struct{} // somebody waits
	stop   chan struct{}
	ended  chan struct{}
}

// simTurn is somebody who waits.
type simTurn struct {
	what string    // the request; empty: comes when no request waits
	from []uintptr // the stack of who asks, to tell two apart who want the same
	now  chan struct{}
}

func newSimOrder(seed uint64, jostle bool) *simOrder {
	o := &simOrder{jostle: jostle, rng: rand.New(rand.NewPCG(seed, 5)), asked: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{})}
	go o.run()
	return o
}

func (o *simOrder) close() {
	close(o.stop)
	<-o.ended
}

func (o *simOrder) run() {
	defer close(o.ended)
	for {
		select {
		case <-o.asked:
			for o.next() {
			}
		case <-o.stop:
			return
		}
	}
}

// next gives one a turn.
func (o *simOrder) next() bool {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting) == 0 {
		return false
	}
	slices.SortFunc(o.waiting, func(a, b *simTurn) int {
		if c := strings.Compare(b.what, a.what); c != 0 { // the empty one last
			return c
		}
		return strings.Compare(stackOf(a.from), stackOf(b.from))
	})
	n := len(o.waiting)
	for n > 1 && o.waiting[n-1].what == "" {
		n--
	}
	i := 0
	if n > 1 {
		i = o.rng.IntN(n)
	}
	close(o.waiting[i].now)
	o.waiting = slices.Delete(o.waiting, i, i+1)
	return true
}

// turn waits for one. It fails when ctx ends before.
func (o *simOrder) turn(ctx context.Context, what string) error {
	if o.jostle {
		for range rand.IntN(8) {
			runtime.Gosched()
		}
	}
	var pc [32]uintptr
	t := &simTurn{what: what, from: pc[:runtime.Callers(2, pc[:])], now: make(chan struct{})}
	o.mu.Lock()
	o.waiting = append(o.waiting, t)
	o.mu.Unlock()
	select {
	case o.asked <- struct{}{}:
	default:
	}
	select {
	case <-t.now:
		return nil
	case <-ctx.Done():
		o.mu.Lock()
		defer o.mu.Unlock()
		o.waiting = slices.DeleteFunc(o.waiting, func(x *simTurn) bool { return x == t })
		return ctx.Err()
	}
}

// settle waits until nothing goes on any more but waiting for the clock.
func (o *simOrder) settle() { o.turn(context.Background(), "") }

func (o *simOrder) did(what, answer string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.history = append(o.history, what+": "+answer)
}

// stackOf is a stack in words.
func stackOf(pc []uintptr) string {
	var b strings.Builder
	frames := runtime.CallersFrames(pc)
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		fmt.Fprintf(&b, "%s:%d ", f.Function, f.Line)
	}
	return b.String()
}

// orderedStore is a store whose requests wait for their turn. As it cannot be compared, nobody remembers that it has passed the probe: each Open asks.
type orderedStore struct {
	inner remote.Store
	order *simOrder
	who   string
	_     []struct{}
}

func ordered[T any](ctx context.Context, s orderedStore, op tonbotest.Op, key, what string, do func() (T, error), answer func(T) string) (T, error) {
	what = fmt.Sprintf("%s %s %s%s", s.who, op, key, what)
	if err := s.order.turn(ctx, what); err != nil {
		var none T
		return none, &remote.Error{Op: string(op), Store: s.String(), Key: key, Kind: remote.ErrUnknown, Err: err}
	}
	r, err := do()
	if err != nil {
		s.order.did(what, err.Error())
	} else {
		s.order.did(what, answer(r))
	}
	return r, err
}

// summary stands for bytes.
func summary(b []byte) string {
	return fmt.Sprintf("%d bytes %x", len(b), xxhash.Sum64(b))
}

func same(s string) string { return s }

func (s orderedStore) String() string { return s.inner.String() }

func (s orderedStore) Create(ctx context.Context, key string, body []byte) (string, error) {
	return ordered(ctx, s, tonbotest.Create, key, " "+summary(body), func() (string, error) { return s.inner.Create(ctx, key, body) }, same)
}

func (s orderedStore) Swap(ctx context.Context, key, etag string, body []byte) (string, error) {
	return ordered(ctx, s, tonbotest.Swap, key, " "+etag+" "+summary(body), func() (string, error) { return s.inner.Swap(ctx, key, etag, body) }, same)
}

func (s orderedStore) Get(ctx context.Context, key string, o remote.GetOptions) (remote.Object, error) {
	return ordered(ctx, s, tonbotest.Get, key, fmt.Sprintf(" %d+%d %s", o.Offset, o.Length, o.IfMatch), func() (remote.Object, error) { return s.inner.Get(ctx, key, o) },
		func(b remote.Object) string { return b.ETag + " " + summary(b.Body) })
}

func (s orderedStore) List(ctx context.Context, prefix string, o remote.ListOptions) (page []remote.Info, more bool, err error) {
	page, err = ordered(ctx, s, tonbotest.List, prefix, fmt.Sprintf(" %s %d", o.After, o.Max), func() (page []remote.Info, err error) {
		page, more, err = s.inner.List(ctx, prefix, o)
		return page, err
	}, func(page []remote.Info) string { return fmt.Sprint(len(page)) })
	return page, more, err
}

func (s orderedStore) Delete(ctx context.Context, key string) error {
	_, err := ordered(ctx, s, tonbotest.Delete, key, "", func() (string, error) { return "", s.inner.Delete(ctx, key) }, same)
	return err
}
