package tonbotest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/remote/remotetest"
	"github.com/tonbo-go/tonbo/tonbotest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWithoutFaultsItIsAStore(t *testing.T) {
	remotetest.Run(t, func(t *testing.T) remote.Store { return tonbotest.NewStore(mem.New("test")) }, remotetest.UniqueETags())
}

func pair() (*tonbotest.Store, *mem.Store) {
	inner := mem.New("test")
	return tonbotest.NewStore(inner), inner
}

func there(t *testing.T, s remote.Store, key string) bool {
	t.Helper()
	_, err := s.Get(t.Context(), key, remote.GetOptions{})
	if err != nil && !errors.Is(err, remote.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

func TestFaultsOfACreate(t *testing.T) {
	for _, c := range []struct {
		name    string
		set     func(*tonbotest.Store)
		want    error
		applied bool
	}{
		{"fail", func(s *tonbotest.Store) { s.Fail(tonbotest.Match{Op: tonbotest.Create}, 1, remote.ErrDenied) }, remote.ErrDenied, false},
		{"drop answer", func(s *tonbotest.Store) { s.DropAnswer(tonbotest.Match{}, 1) }, remote.ErrUnknown, true},
		{"lose", func(s *tonbotest.Store) { s.Lose(tonbotest.Match{Key: "/log/"}, 1) }, remote.ErrUnknown, false},
		{"hold", func(s *tonbotest.Store) { s.Hold(tonbotest.Match{}, 1) }, remote.ErrUnknown, false},
		{"delay", func(s *tonbotest.Store) { s.Delay(tonbotest.Match{}, 1, time.Hour) }, nil, true},
		{"other op", func(s *tonbotest.Store) { s.Lose(tonbotest.Match{Op: tonbotest.Swap}, 1) }, nil, true},
		{"other key", func(s *tonbotest.Store) { s.Lose(tonbotest.Match{Key: "/seg/"}, 1) }, nil, true},
		{"skipped", func(s *tonbotest.Store) { s.Lose(tonbotest.Match{Skip: 1}, 1) }, nil, true},
		{"healed", func(s *tonbotest.Store) { s.Lose(tonbotest.Match{}, 1); s.Partition(true); s.Heal() }, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, inner := pair()
				c.set(s)
				var n remote.Counter
				_, err := remote.Counted(s, &n).Create(t.Context(), "db/log/1", []byte("x"))
				if !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				if got := there(t, inner, "db/log/1"); got != c.applied {
					t.Errorf("applied %v, want %v", got, c.applied)
				}
				if got := n.Counts(); got != (remote.Counts{Put: 1, BytesUp: 1}) {
					t.Errorf("counted %+v", got)
				}
				if calls := s.Calls(); len(calls) != 1 || calls[0].Op != tonbotest.Create || calls[0].Key != "db/log/1" || calls[0].Err != err {
					t.Errorf("calls %+v", calls)
				}
			})
		})
	}
}

func TestRulesTakeTheNextNCallsInOrder(t *testing.T) {
	s, _ := pair()
	s.Fail(tonbotest.Match{Op: tonbotest.Get, Skip: 1}, 2, remote.ErrDenied)
	s.Fail(tonbotest.Match{Op: tonbotest.Get, Key: "b"}, -1, remote.ErrUnauthorized)
	for i, want := range []error{remote.ErrUnauthorized, remote.ErrDenied, remote.ErrDenied, remote.ErrUnauthorized, remote.ErrUnauthorized} {
		if _, err := s.Get(t.Context(), "b", remote.GetOptions{}); !errors.Is(err, want) {
			t.Errorf("call %d: %v, want %v", i+1, err, want)
		}
	}
	if _, err := s.Get(t.Context(), "a", remote.GetOptions{}); !errors.Is(err, remote.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestHeldCallIsDoneWhenReleasedAndOnce(t *testing.T) {
	s, inner := pair()
	s.Hold(tonbotest.Match{Op: tonbotest.Create}, 2)
	var wg sync.WaitGroup
	wg.Go(func() {
		body := []byte("first")
		s.Create(t.Context(), "k", body)
		copy(body, "other")
		s.Create(t.Context(), "k", []byte("second"))
	})
	held, err := s.Held(t.Context(), 2)
	if err != nil || len(held) != 2 || held[0].Key != "k" {
		t.Fatalf("%v, %v", held, err)
	}
	wg.Wait()
	if there(t, inner, "k") {
		t.Fatal("done before it was released")
	}
	for range 2 {
		if err := held[0].Release(t.Context()); err != nil {
			t.Errorf("first: %v", err)
		}
		if err := held[1].Release(t.Context()); !errors.Is(err, remote.ErrExists) {
			t.Errorf("second: %v", err)
		}
	}
	if o, err := inner.Get(t.Context(), "k", remote.GetOptions{}); err != nil || string(o.Body) != "first" {
		t.Errorf("%q, %v", o.Body, err)
	}
}

func TestBlockedCallsWaitAtTheGate(t *testing.T) {
	s, inner := pair()
	gate := s.Block(tonbotest.Match{Op: tonbotest.Create})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var given, passed error
	ended := make(chan struct{})
	wg.Go(func() {
		defer close(ended)
		_, given = s.Create(ctx, "given-up", nil)
	})
	wg.Go(func() { _, passed = s.Create(t.Context(), "k", nil) })
	if err := gate.Wait(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if there(t, s, "k") { // reads pass
		t.Error("done while blocked")
	}
	cancel()
	if err := gate.Wait(ctx, 3); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: %v", err)
	}
	<-ended
	gate.Open()
	wg.Wait()
	if !errors.Is(given, remote.ErrUnknown) || there(t, inner, "given-up") {
		t.Errorf("given up: %v", given)
	}
	if passed != nil || !there(t, inner, "k") {
		t.Errorf("passed: %v", passed)
	}
	if _, err := s.Create(t.Context(), "later", nil); err != nil {
		t.Error(err)
	}
}

func TestHangEndsWithTheContext(t *testing.T) {
	s, inner := pair()
	s.Hang(tonbotest.Match{}, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := s.Create(ctx, "k", nil)
	if !errors.Is(err, remote.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) || there(t, inner, "k") {
		t.Errorf("got %v", err)
	}
}

func TestPartitionCutsEverythingOff(t *testing.T) {
	s, inner := pair()
	s.Partition(true)
	ctx := t.Context()
	_, e1 := s.Create(ctx, "k", nil)
	_, e2 := s.Get(ctx, "k", remote.GetOptions{})
	_, _, e3 := s.List(ctx, "", remote.ListOptions{})
	_, e4 := s.Swap(ctx, "k", "x", nil)
	for i, err := range []error{e1, e2, e3, e4, s.Delete(ctx, "k")} {
		if !errors.Is(err, remote.ErrUnknown) || !errors.Is(err, tonbotest.ErrInjected) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if there(t, inner, "k") {
		t.Error("done behind the partition")
	}
	s.Partition(false)
	if _, err := s.Create(ctx, "k", nil); err != nil {
		t.Error(err)
	}
}

func TestIgnoredConditionsOverwrite(t *testing.T) {
	s, _ := pair()
	s.IgnoreConditions(true)
	for _, body := range []string{"one", "two"} {
		if _, err := s.Create(t.Context(), "k", []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Swap(t.Context(), "k", "no such tag", []byte("three")); err != nil {
		t.Fatal(err)
	}
	if o, err := s.Get(t.Context(), "k", remote.GetOptions{}); err != nil || string(o.Body) != "three" {
		t.Errorf("%q, %v", o.Body, err)
	}
}

func TestStaleAbsenceIsAnsweredOncePerKey(t *testing.T) {
	s, _ := pair()
	for _, k := range []string{"log/a", "log/b", "seg/a"} {
		if _, err := s.Create(t.Context(), k, nil); err != nil {
			t.Fatal(err)
		}
	}
	s.StaleNotFound(tonbotest.Match{Key: "log/"})
	for i, c := range []struct {
		key  string
		want bool
	}{{"log/a", false}, {"log/a", true}, {"log/b", false}, {"log/a", true}, {"seg/a", true}, {"log/b", true}} {
		if got := there(t, s, c.key); got != c.want {
			t.Errorf("read %d of %s: there %v, want %v", i, c.key, got, c.want)
		}
	}
}

func TestGetsThatLie(t *testing.T) {
	s, _ := pair()
	if _, err := s.Create(t.Context(), "k", []byte("12345678")); err != nil {
		t.Fatal(err)
	}
	s.Truncate(tonbotest.Match{}, 1)
	s.FlipBit(tonbotest.Match{Key: "k"}, 1)
	for _, want := range []string{"1234", "1234%678", "12345678"} {
		if o, err := s.Get(t.Context(), "k", remote.GetOptions{}); err != nil || string(o.Body) != want {
			t.Errorf("%q, %v, want %q", o.Body, err, want)
		}
	}
}

func TestThrottledCallsAreToldHowLong(t *testing.T) {
	s, inner := pair()
	s.Throttle(tonbotest.Match{Op: tonbotest.Create}, 1, time.Minute)
	_, err := s.Create(t.Context(), "k", nil)
	var e *remote.Error
	if !errors.As(err, &e) || e.Status != 429 || e.RetryAfter != time.Minute || there(t, inner, "k") {
		t.Errorf("got %v", err)
	}
}

func TestSameSeedMeetsTheSameFaults(t *testing.T) {
	var first []tonbotest.Call
	for range 2 {
		s, _ := pair()
		s.Random(7, 0.5, tonbotest.Lose, tonbotest.DropAnswer, tonbotest.Fail, tonbotest.Hold, tonbotest.Truncate, tonbotest.FlipBit)
		for i := range 60 {
			s.Create(t.Context(), fmt.Sprint(i), nil)
			s.Get(t.Context(), fmt.Sprint(i/2), remote.GetOptions{})
		}
		calls := s.Calls()
		kinds := map[string]bool{}
		for i, c := range calls {
			kinds[c.Fault] = true
			if first != nil && c.Fault != first[i].Fault {
				t.Fatalf("call %d: %q, was %q", i, c.Fault, first[i].Fault)
			}
		}
		if len(kinds) != 7 {
			t.Errorf("faults %v", kinds)
		}
		first = calls
	}
}

func TestClockMovesWhenToldAndRingsOnce(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	c := tonbotest.NewClock(start)
	soon, late := c.After(time.Minute), c.After(time.Hour)
	if now := <-c.After(0); !now.Equal(start) {
		t.Errorf("rang at %v", now)
	}
	c.Advance(-time.Hour)
	c.Advance(time.Hour + time.Minute)
	if now := <-soon; !now.Equal(start.Add(time.Minute)) {
		t.Errorf("rang at %v", now)
	}
	select {
	case <-late:
		t.Error("rang early")
	default:
	}
	c.Advance(time.Hour)
	<-late
}

func ExampleStore() {
	ctx := context.Background()
	inner := mem.New("example")
	store := tonbotest.NewStore(inner)

	// The answer to the next append is lost after the store has it.
	store.DropAnswer(tonbotest.Match{Op: tonbotest.Create, Key: "/log/"}, 1)
	_, err := store.Create(ctx, "db/x/log/1", []byte("entry"))
	fmt.Println("first try unknown:", errors.Is(err, remote.ErrUnknown))
	_, err = store.Create(ctx, "db/x/log/1", []byte("entry"))
	fmt.Println("second try refused:", errors.Is(err, remote.ErrExists))

	for _, c := range store.Calls() {
		fmt.Printf("%s %s %q\n", c.Op, c.Key, c.Fault)
	}
	// Output:
	// first try unknown: true
	// second try refused: true
	// create db/x/log/1 "drop answer"
	// create db/x/log/1 ""
}

func ExampleStore_Block() {
	ctx := context.Background()
	store := tonbotest.NewStore(mem.New("example"))
	gate := store.Block(tonbotest.Match{Op: tonbotest.Create})

	done := make(chan error)
	go func() {
		_, err := store.Create(ctx, "k", nil)
		done <- err
	}()
	gate.Wait(ctx, 1) // the create has been sent ...
	_, err := store.Get(ctx, "k", remote.GetOptions{})
	fmt.Println("not yet there:", errors.Is(err, remote.ErrNotFound))
	gate.Open() // ... and arrives
	fmt.Println("created:", <-done == nil)
	// Output:
	// not yet there: true
	// created: true
}
