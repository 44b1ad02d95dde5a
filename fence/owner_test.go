package fence_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
)

// R2: whatever is answered to a create that was stored, or will be at the next try, Append succeeds, with one object, and looks at the next slot (R4).
func TestUnknownAppendIsDrivenToItsEnd(t *testing.T) {
	for _, c := range []struct {
		name   string
		faults []fault
		want   string
	}{
		{"success", nil, "PUT 2"},
		{"answer lost", []fault{answerLost(failure(remote.ErrUnknown, 0))}, "PUT 2, PUT 2, GET 2, GET 3"},
		{"request lost", []fault{lost(failure(remote.ErrUnknown, 0))}, "PUT 2, PUT 2, GET 3"},
		{"409", []fault{lost(failure(remote.ErrUnknown, 409))}, "PUT 2, PUT 2, GET 3"},
		{"409, then 503 twice", []fault{lost(failure(remote.ErrUnknown, 409)), lost(failure(remote.ErrUnknown, 503)), lost(failure(remote.ErrUnknown, 503))}, "PUT 2, PUT 2, PUT 2, PUT 2, GET 3"},
		{"503 though stored", []fault{answerLost(failure(remote.ErrUnknown, 503))}, "PUT 2, PUT 2, GET 2, GET 3"},
		{"412 for our own", []fault{answerLost(failure(remote.ErrExists, 412))}, "PUT 2, GET 2, GET 3"},
		{"304 for our own", []fault{answerLost(failure(remote.ErrExists, 304))}, "PUT 2, GET 2, GET 3"},
		{"412, and nothing there", []fault{lost(failure(remote.ErrExists, 412))}, "PUT 2, GET 2, PUT 2, GET 3"},
		{"an error of no kind", []fault{answerLost(errors.New("?"))}, "PUT 2, PUT 2, GET 2, GET 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, l, o := created(t)
			s.script("PUT", c.faults...)
			e := must(t, o, commit())
			s.asked(t, c.want)
			if e.Slot != 2 || o.Slot() != 2 || o.Pending() || e.Payload != nil || e.ETag == "" {
				t.Errorf("got %+v", e)
			}
			s.forget()
			must(t, o, commit())
			got, err := l.Read(t.Context(), 3)
			if err != nil {
				t.Fatal(err)
			}
			if err := got.Follows(e); err != nil {
				t.Error(err)
			}
		})
	}
}

// A refusal settles the first try, and no later one.
func TestDefiniteRefusal(t *testing.T) {
	for _, kind := range []error{remote.ErrDenied, remote.ErrUnauthorized, remote.ErrQuota, remote.ErrUnfit, remote.ErrNoBucket} {
		t.Run(kind.Error(), func(t *testing.T) {
			s, _, o := created(t)
			s.script("PUT", lost(failure(kind, 403)))
			_, err := o.Append(t.Context(), commit())
			wantErr(t, err, kind)
			if o.Pending() || errors.Is(err, remote.ErrUnknown) {
				t.Errorf("pending %v, %v", o.Pending(), err)
			}
			s.asked(t, "PUT 2")
			if e := must(t, o, commit()); e.Slot != 2 {
				t.Errorf("slot %d", e.Slot)
			}

			s.forget()
			s.script("PUT", answerLost(failure(remote.ErrUnknown, 0)), lost(failure(kind, 403)))
			_, err = o.Append(t.Context(), commit())
			wantErr(t, err, kind, remote.ErrUnknown)
			if !o.Pending() {
				t.Error("not pending")
			}
			_, err = o.Append(t.Context(), commit())
			wantErr(t, err, fence.ErrPending)
			wantErr(t, o.Check(t.Context()), fence.ErrPending)
			s.asked(t, "PUT 3, PUT 3")
			s.forget()
			e, looked, err := o.Settle(t.Context())
			if err != nil || !looked || e.Slot != 3 || o.Pending() {
				t.Errorf("settle: %v, looked %v, %v", e, looked, err)
			}
			s.asked(t, "PUT 3, GET 3, GET 4")
			if e, looked, err := o.Settle(t.Context()); e != nil || looked || err != nil {
				t.Errorf("settle again: %v %v %v", e, looked, err)
			}
		})
	}
}

// A process that was stopped before its PUT, and goes on after a takeover, is told; and then sends nothing any more.
func TestStaleOwnerIsFenced(t *testing.T) {
	s, l, o := created(t)
	must(t, o, commit())
	var p *fence.Owner
	s.hook("PUT 3", func() {
		s.forget()
		p = claimed(t, l)
	})
	_, err := o.Append(t.Context(), commit())
	wantErr(t, err, fence.ErrFenced)
	var fenced *fence.FencedError
	if !errors.As(err, &fenced) || fenced.By.Generation != p.Generation() || fenced.Stored || fenced.By.Owner != "first" {
		t.Fatalf("got %+v", fenced)
	}
	s.forget()
	for _, call := range []func() error{
		func() error { _, err := o.Append(t.Context(), commit()); return err },
		func() error { return o.Check(t.Context()) },
		func() error { _, _, err := o.Settle(t.Context()); return err },
		o.Err,
	} {
		if err := call(); err != error(fenced) {
			t.Errorf("got %v, want the same error", err)
		}
	}
	s.asked(t, "")
	if err := p.Check(t.Context()); err != nil {
		t.Errorf("the new owner: %v", err)
	}
}

func TestCheckFindsATakeover(t *testing.T) {
	s, l, o := created(t)
	claimed(t, l)
	s.forget()
	wantErr(t, o.Check(t.Context()), fence.ErrFenced)
	s.asked(t, "GET 2")
}

func TestCheckFindsADelete(t *testing.T) {
	_, l, o := created(t)
	if _, err := l.Delete(t.Context(), o.ID()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Create(t.Context(), fence.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	err := o.Check(t.Context())
	wantErr(t, err, fence.ErrDeleted)
	if errors.Is(err, fence.ErrFenced) {
		t.Error("deleted is not fenced")
	}
}

// R4 by hand: the append is stored, its answer lost, and a new owner stands behind it before the retry. The commit is in the history: not lost, not acknowledged.
func TestStoredButPassedIsFenced(t *testing.T) {
	s, l, o := created(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.on = func(context.Context, string) fault {
		s.forget()
		cancel()
		return answerLost(failure(remote.ErrUnknown, 0))
	}
	_, err := o.Append(ctx, commit())
	wantErr(t, err, remote.ErrUnknown, context.Canceled)
	p := claimed(t, l)
	if p.Slot() != 3 || len(p.Prev().Payload) != 100 {
		t.Fatalf("the new owner follows slot %d", p.Prev().Slot)
	}
	_, _, err = o.Settle(t.Context())
	var fenced *fence.FencedError
	if !errors.As(err, &fenced) || !fenced.Stored || fenced.By.Slot != 3 {
		t.Fatalf("got %v", err)
	}
	if o.Slot() != 2 {
		t.Errorf("position %d", o.Slot())
	}
}

// PITFALLS A1: a writer stops before its PUT of slot N. Others take over, commit, raise the horizon, and slot N's neighbours are collected. N itself is a
// claim and is never collected (R5): the writer's PUT cannot succeed.
func TestCollectedLogStillFences(t *testing.T) {
	s, l, o := created(t)
	must(t, o, commit())
	s.hook("PUT 3", func() {
		s.forget()
		p := claimed(t, l)
		must(t, p, commit())
		must(t, p, base(p))
		q := claimed(t, l)
		must(t, q, base(q))
		collect(t, s, l)
	})
	_, err := o.Append(t.Context(), commit())
	wantErr(t, err, fence.ErrFenced)
	for _, slot := range []uint64{2, 4, 5} {
		if _, err := l.Read(t.Context(), slot); !errors.Is(err, remote.ErrNotFound) {
			t.Errorf("slot %d was not collected: %v", slot, err)
		}
	}
}

// A claimer that looked long ago lands in a collected slot: a ghost. Its second LIST tells, and it starts over (R3).
func TestGhostClaimStartsOver(t *testing.T) {
	s, l, o := created(t)
	must(t, o, commit()) // 2
	s.hook("PUT 3", func() {
		s.forget()
		must(t, o, commit()) // 3
		must(t, o, base(o))  // 4
		collect(t, s, l)
		s.forget()
	})
	p := claimed(t, l)
	s.asked(t, "LIST, LIST, GET 4, PUT 5, LIST")
	if p.Generation() != 5 || p.Prev().Slot != 4 {
		t.Errorf("generation %d behind %d", p.Generation(), p.Prev().Slot)
	}
	wantErr(t, o.Check(t.Context()), fence.ErrFenced)
}

// R1: however many call at once, the slots are contiguous and each is written once.
func TestConcurrentAppendsTakeTurns(t *testing.T) {
	s, l, o := created(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				if _, err := o.Append(t.Context(), commit()); err != nil {
					t.Error(err)
				}
				if err := o.Check(t.Context()); err != nil {
					t.Error(err)
				}
				o.Slot()
			}
		})
	}
	wg.Wait()
	puts := 0
	for _, c := range s.calls {
		if strings.HasPrefix(c, "PUT") {
			puts++
		}
	}
	if puts != 40 || o.Slot() != 41 {
		t.Errorf("%d PUTs, position %d", puts, o.Slot())
	}
	prev := o.Entry()
	for slot := uint64(2); slot <= 41; slot++ {
		e, err := l.Read(t.Context(), slot)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Follows(prev); err != nil {
			t.Error(err)
		}
		prev = e
	}
}

// A caller that waits for its turn goes when its context does.
func TestWaitingForTheTurnHonoursTheContext(t *testing.T) {
	s, _, o := created(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.hook("PUT 2", func() {
		cancel()
		_, err := o.Append(ctx, commit())
		wantErr(t, err, context.Canceled)
	})
	must(t, o, commit())
	s.asked(t, "PUT 2")
}

func TestRetryWaitsAsLongAsTheStoreAsks(t *testing.T) {
	s := newStore()
	var waits []time.Duration
	l := fence.New(s, "db1", fence.Options{RetryMin: time.Second, RetryMax: 3 * time.Second, Sleep: func(_ context.Context, d time.Duration) error {
		waits = append(waits, d)
		return nil
	}})
	busy := lost(failure(remote.ErrUnknown, 503))
	slow := lost(&remote.Error{Kind: remote.ErrUnknown, Status: 429, RetryAfter: 7 * time.Second})
	s.script("PUT", busy, busy, busy, slow, busy)
	if _, err := l.Create(t.Context(), fence.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := []time.Duration{1 * time.Second, 2 * time.Second, 3 * time.Second, 7 * time.Second, 3 * time.Second}
	if len(waits) != len(want) {
		t.Fatalf("waits %v", waits)
	}
	for i := range want {
		if waits[i] != want[i] {
			t.Errorf("wait %d: got %v, want %v", i, waits[i], want[i])
		}
	}
}

func TestNothingFollowsAClose(t *testing.T) {
	s, l, o := created(t)
	must(t, o, fence.Draft{Kind: fence.Close, State: &fence.State{PageSize: 512, PageCount: 1}, Payload: make([]byte, 100)}) // a last commit rides in it
	s.forget()
	_, err := o.Append(t.Context(), commit())
	wantErr(t, err, fence.ErrClosed)
	s.asked(t, "")
	if p := claimed(t, l); p.Prev().Kind != fence.Close || len(p.Prev().Payload) != 100 {
		t.Errorf("follows %+v", p.Prev())
	}
}

func TestBadDraftsAreRefusedWithoutARequest(t *testing.T) {
	s, l, _ := created(t)
	o := claimed(t, l) // 2
	must(t, o, commit())
	s.forget()
	for _, d := range []fence.Draft{
		{},
		{Kind: fence.Claim},
		{Kind: fence.Delete},
		{Kind: fence.Base, BaseSlot: 2, Horizon: 1},
		{Kind: fence.Base, Base: "b", BaseSlot: 1, Horizon: 1}, // R8: before the claim
		{Kind: fence.Base, Base: "b", BaseSlot: 4, Horizon: 1},
		{Kind: fence.Base, Base: "b", BaseSlot: 3, Horizon: 0}, // the horizon never falls
		{Kind: fence.Base, Base: "b", BaseSlot: 3, Horizon: 5},
		{Kind: fence.Commit, Label: strings.Repeat("x", 2000)},
		{Kind: fence.Commit, State: &fence.State{PageSize: 7}},
	} {
		if _, err := o.Append(t.Context(), d); err == nil || o.Pending() {
			t.Errorf("%+v: pending %v, %v", d, o.Pending(), err)
		}
	}
	s.asked(t, "")
	if e := must(t, o, base(o)); e.Horizon != 4 || e.Base != "db/db1/base/3" || o.Horizon() != 4 || o.Base() != e.Base {
		t.Errorf("got %+v", e)
	}
}

// A clock that is decades off, or goes backwards, changes nothing but what messages say.
func TestClockDecidesNothing(t *testing.T) {
	s := newStore()
	owner := func(unix int64) *fence.Log {
		o := instant("x")
		o.Now = func() time.Time { return time.Unix(unix, 0) }
		return fence.New(s, "db1", o)
	}
	now := time.Now().Unix()
	o, err := owner(now).Create(t.Context(), fence.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	must(t, o, commit())
	p, err := owner(-1<<31).Claim(t.Context(), fence.ClaimOptions{})
	if err != nil {
		t.Fatal(err)
	}
	must(t, p, commit())
	q, err := owner(now+1<<31).Claim(t.Context(), fence.ClaimOptions{})
	if err != nil {
		t.Fatal(err)
	}
	must(t, q, commit())
	for _, stale := range []*fence.Owner{o, p} {
		wantErr(t, stale.Check(t.Context()), fence.ErrFenced)
	}
	if err := q.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// An owner that never pauses does not keep others out: every now and then it leaves a gap that is long enough for a look at the head and a claim.
func TestBusyOwnerLetsATakeoverIn(t *testing.T) {
	s := newStore()
	l := fence.New(s, "db1", fence.Options{})
	s.on = func(context.Context, string) fault {
		time.Sleep(2 * time.Millisecond) // a request's way
		return ok
	}
	o, err := l.Create(t.Context(), fence.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fenced := make(chan error, 1)
	go func() {
		for {
			if _, err := o.Append(t.Context(), commit()); err != nil {
				fenced <- err
				return
			}
		}
	}()
	claimed(t, l) // for ever, were it not for the gap
	wantErr(t, <-fenced, fence.ErrFenced)
}
