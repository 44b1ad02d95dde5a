package fence_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
)

// Two processes have looked at one head. One of them wins the slot, the other one comes behind it; the winner is fenced.
func TestRacingClaimsGetOneSlotEach(t *testing.T) {
	s, l, _ := created(t)
	var ready, done sync.WaitGroup
	ready.Add(2)
	s.on = func(_ context.Context, call string) fault {
		if call == "PUT 2" { // nobody puts before both have looked
			ready.Done()
			ready.Wait()
		}
		return ok
	}
	owners := make(chan *fence.Owner, 2)
	for range 2 {
		done.Go(func() {
			o, err := l.Claim(t.Context(), fence.ClaimOptions{})
			if err != nil {
				t.Error(err)
			}
			owners <- o
		})
	}
	done.Wait()
	a, b := <-owners, <-owners
	if a.Generation() > b.Generation() {
		a, b = b, a
	}
	if b.Generation() != a.Generation()+1 {
		t.Fatalf("generations %d and %d", a.Generation(), b.Generation())
	}
	wantErr(t, a.Check(t.Context()), fence.ErrFenced)
	if err := b.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// The head that was listed is collected before it is read: that is no absent database (reading the head).
func TestClaimWhileTheHeadIsCollected(t *testing.T) {
	s, l, o := created(t)
	must(t, o, commit())
	s.hook("GET 2", func() {
		s.forget()
		must(t, o, base(o)) // 3
		collect(t, s, l)
		s.forget()
	})
	p := claimed(t, l)
	s.asked(t, "LIST, GET 3, PUT 4, LIST")
	if p.Prev().Slot != 3 {
		t.Errorf("follows %d", p.Prev().Slot)
	}
}

// Worse: a stalled Delete's entry lands in the collected slot. It must not pass for the head.
func TestGhostIsNotTakenForTheHead(t *testing.T) {
	s, l, o := created(t)
	must(t, o, commit())     // 2
	s.hook("PUT 3", func() { // Delete has looked at head 2, and stalls
		s.forget()
		g := ghost(t, s)
		must(t, o, commit()) // 3
		s.hook("GET 3", func() {
			s.forget()
			must(t, o, base(o)) // 4
			collect(t, s, l)
			s.m[fence.SlotKey("db1", 3)] = g
			s.forget()
		})
		head, err := l.Head(t.Context())
		if err != nil || head == nil || head.Slot != 4 {
			t.Errorf("head: got %+v, %v", head, err)
		}
		s.asked(t, "LIST, GET 4")
		s.forget()
	})
	if id, err := l.Delete(t.Context(), o.ID()); err != nil || id != o.ID() {
		t.Error(id, err)
	}
	s.asked(t, "GET 3, LIST, GET 4, PUT 5, LIST")
	wantErr(t, o.Check(t.Context()), fence.ErrDeleted)
}

// ghost is the bytes of a delete at the head as of now, as a Delete that stalls would send them later on.
func ghost(t *testing.T, s *store) []byte {
	t.Helper()
	c := newStore()
	c.m = maps.Clone(s.m)
	if _, err := fence.New(c, "db1", instant("stalled")).Delete(t.Context(), fence.ID{}); err != nil {
		t.Fatal(err)
	}
	return c.m[fence.SlotKey("db1", 3)]
}

func TestClaimOfADatabaseDeletedMeanwhile(t *testing.T) {
	s, l, o := created(t)
	s.hook("PUT 2", func() {
		s.forget()
		if _, err := l.Delete(t.Context(), o.ID()); err != nil {
			t.Error(err)
		}
	})
	_, err := l.Claim(t.Context(), fence.ClaimOptions{})
	wantErr(t, err, fence.ErrNoDatabase)
}

func TestNoDatabase(t *testing.T) {
	s := newStore()
	l := fence.New(s, "db1", instant("x"))
	if head, err := l.Head(t.Context()); head != nil || err != nil {
		t.Errorf("head: %v, %v", head, err)
	}
	for range 2 { // never used; then deleted
		_, err := l.Claim(t.Context(), fence.ClaimOptions{})
		wantErr(t, err, fence.ErrNoDatabase)
		_, err = l.Delete(t.Context(), fence.ID{})
		wantErr(t, err, fence.ErrNoDatabase)
		_, err = l.Rewind(t.Context(), fence.RewindOptions{To: 1})
		wantErr(t, err, fence.ErrNoDatabase)
		o, err := l.Create(t.Context(), fence.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if id, err := l.Delete(t.Context(), fence.ID{}); err != nil || id != o.ID() {
			t.Fatal(id, err)
		}
	}
}

// What is read beside the second LIST is thrown away, and its context ended, when the LIST shows that the claim has been passed.
func TestLoadRunsAgainWhenTheClaimIsPassed(t *testing.T) {
	s, l, _ := created(t)
	passed, running := false, make(chan struct{}, 1)
	s.on = func(_ context.Context, call string) fault {
		if call == "LIST" && len(s.m) == 2 && !passed { // the second one
			passed = true
			<-running
			s.forget()
			claimed(t, l)
		}
		return ok
	}
	var generations []uint64
	var refused error
	o, err := l.Claim(t.Context(), fence.ClaimOptions{Load: func(ctx context.Context, o *fence.Owner) error {
		generations = append(generations, o.Generation())
		if len(generations) == 1 {
			_, refused = o.Append(ctx, commit())
			running <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if len(generations) != 2 || generations[0] != 2 || generations[1] != 4 || o.Generation() != 4 {
		t.Errorf("loaded for %v, owner of %d", generations, o.Generation())
	}
	if refused == nil {
		t.Error("an unconfirmed owner appends")
	}
	must(t, o, commit())
}

func TestLoadErrorEndsTheClaim(t *testing.T) {
	_, l, _ := created(t)
	broken := errors.New("broken")
	_, err := l.Claim(t.Context(), fence.ClaimOptions{Load: func(context.Context, *fence.Owner) error { return broken }})
	wantErr(t, err, broken)
}

// However old the head that a caller brings, R3 finds out.
func TestClaimWithAStaleHead(t *testing.T) {
	s, l, o := created(t)
	stale, err := l.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.forget()
	p, err := l.Claim(t.Context(), fence.ClaimOptions{Head: stale})
	if err != nil {
		t.Fatal(err)
	}
	s.asked(t, "PUT 2, LIST")
	must(t, p, commit())
	q, err := l.Claim(t.Context(), fence.ClaimOptions{Head: stale})
	if err != nil || q.Generation() != 4 {
		t.Fatal(q, err)
	}
	wantErr(t, o.Check(t.Context()), fence.ErrFenced)
	wantErr(t, p.Check(t.Context()), fence.ErrFenced)
}

func TestFrozen(t *testing.T) {
	_, l, _ := created(t)
	o, err := l.Claim(t.Context(), fence.ClaimOptions{Frozen: true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.Claim(t.Context(), fence.ClaimOptions{})
	wantErr(t, err, fence.ErrFrozen)
	if e := must(t, o, fence.Draft{Kind: fence.Close}); !e.Frozen {
		t.Error("the close forgot it")
	}
	_, err = l.Claim(t.Context(), fence.ClaimOptions{})
	wantErr(t, err, fence.ErrFrozen)
	_, err = l.Rewind(t.Context(), fence.RewindOptions{To: 1})
	wantErr(t, err, fence.ErrFrozen)
	o, err = l.Claim(t.Context(), fence.ClaimOptions{IgnoreFrozen: true})
	if err != nil {
		t.Fatal(err)
	}
	must(t, o, fence.Draft{Kind: fence.Close})
	o = claimed(t, l)
	must(t, o, fence.Draft{Kind: fence.Close, Frozen: true})
	_, err = l.Claim(t.Context(), fence.ClaimOptions{})
	wantErr(t, err, fence.ErrFrozen)
}

// A janitor's claim follows a close, tries one slot and gives up.
func TestJanitorFencesNobody(t *testing.T) {
	s, l, o := created(t)
	_, err := l.Claim(t.Context(), fence.ClaimOptions{IfClosed: true})
	wantErr(t, err, fence.ErrBusy)
	if err := o.Check(t.Context()); err != nil {
		t.Error(err)
	}
	must(t, o, fence.Draft{Kind: fence.Close}) // 2
	var p *fence.Owner
	s.hook("PUT 3", func() {
		s.forget()
		p = claimed(t, l)
	})
	_, err = l.Claim(t.Context(), fence.ClaimOptions{IfClosed: true})
	wantErr(t, err, fence.ErrBusy)
	must(t, p, fence.Draft{Kind: fence.Close})
	if p, err = l.Claim(t.Context(), fence.ClaimOptions{IfClosed: true}); err != nil {
		t.Fatal(err)
	}
	// Frozen stays frozen.
	must(t, p, fence.Draft{Kind: fence.Close, Frozen: true})
	if p, err = l.Claim(t.Context(), fence.ClaimOptions{IfClosed: true}); err != nil {
		t.Fatal(err)
	}
	if e := must(t, p, fence.Draft{Kind: fence.Close}); !e.Frozen || !p.Entry().Frozen {
		t.Error("thawed")
	}
}

// R7: what has been created anew under the name is none of Delete's business.
func TestDeleteAimsAtTheIncarnation(t *testing.T) {
	s, l, o := created(t)
	var p *fence.Owner
	again := func() {
		s.forget()
		if _, err := l.Delete(t.Context(), fence.ID{}); err != nil {
			t.Error(err)
		}
		var err error
		if p, err = l.Create(t.Context(), fence.CreateOptions{}); err != nil {
			t.Error(err)
		}
	}
	s.hook("PUT 2", again) // after its first look
	if id, err := l.Delete(t.Context(), fence.ID{}); err != nil || id != o.ID() {
		t.Errorf("got %v, %v", id, err)
	}
	_, err := l.Delete(t.Context(), o.ID()) // before it
	wantErr(t, err, fence.ErrNoDatabase)
	if err := p.Check(t.Context()); err != nil {
		t.Errorf("the new incarnation: %v", err)
	}
	wantErr(t, o.Check(t.Context()), fence.ErrDeleted)
}

func TestRewind(t *testing.T) {
	s, l, o := created(t)
	first := must(t, o, commit())
	d := commit()
	d.State = &fence.State{PageSize: 512, PageCount: 9, Checksum: 9}
	must(t, o, d)
	s.forget()
	p, err := l.Rewind(t.Context(), fence.RewindOptions{ID: o.ID(), To: 2})
	if err != nil {
		t.Fatal(err)
	}
	s.asked(t, "LIST, GET 3, GET 2, PUT 4, LIST")
	if e := p.Entry(); e.To != 2 || e.State != first.State || p.State() != first.State || len(e.Tail) != 1 || e.Tail[0] != 2 {
		t.Errorf("got %+v", e)
	}
	wantErr(t, o.Check(t.Context()), fence.ErrFenced)
	must(t, p, commit()) // 5
	must(t, p, base(p))  // 6
	for _, to := range []uint64{0, 5, 7} {
		_, err = l.Rewind(t.Context(), fence.RewindOptions{To: to})
		wantErr(t, err, fence.ErrPointGone)
	}
	_, err = l.Rewind(t.Context(), fence.RewindOptions{ID: fence.ID{1}, To: 6})
	wantErr(t, err, fence.ErrNoDatabase)
}

// The horizon passes the target between the look at the head and the look at the target: no rewind to a hole.
func TestRewindToAPointThatGoesMeanwhile(t *testing.T) {
	s, l, o := created(t)
	must(t, o, commit()) // 2
	must(t, o, commit()) // 3
	s.hook("GET 2", func() {
		s.forget()
		must(t, o, base(o)) // 4
		collect(t, s, l)
	})
	_, err := l.Rewind(t.Context(), fence.RewindOptions{To: 2})
	wantErr(t, err, fence.ErrPointGone)
	if err := o.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// Requests, where nothing goes wrong: what docs/fencing.md's table says.
func TestRequestCounts(t *testing.T) {
	s := newStore()
	l := fence.New(s, "db1", instant("x"))
	ctx := t.Context()
	var o *fence.Owner
	count := func(what, want string, f func() error) {
		t.Helper()
		s.forget()
		if err := f(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		s.asked(t, want)
	}
	count("create", "LIST, PUT names/db1, PUT 1", func() (err error) {
		o, err = l.Create(ctx, fence.CreateOptions{Before: func(ctx context.Context, _ fence.Creation) error {
			_, err := s.Create(ctx, "names/db1", nil)
			return err
		}})
		return err
	})
	count("append", "PUT 2", func() error { _, err := o.Append(ctx, commit()); return err })
	count("check", "GET 3", func() error { return o.Check(ctx) })
	count("head", "LIST, GET 2", func() error { _, err := l.Head(ctx); return err })
	count("claim", "LIST, GET 2, PUT 3, LIST", func() (err error) { o, err = l.Claim(ctx, fence.ClaimOptions{}); return err })
	count("close", "PUT 4", func() error { _, err := o.Append(ctx, fence.Draft{Kind: fence.Close}); return err })
	count("delete", "LIST, GET 4, PUT 5, LIST", func() error { _, err := l.Delete(ctx, fence.ID{}); return err })
	count("create again", "LIST, GET 5, PUT 6", func() (err error) { o, err = l.Create(ctx, fence.CreateOptions{}); return err })
}

// A context that ends at any request leaves nothing half done: the error says so, and the same call with a fresh context succeeds.
func TestContextEndsAtEachRequest(t *testing.T) {
	for _, c := range []struct {
		name string
		call func(ctx context.Context, l *fence.Log, o *fence.Owner) error
	}{
		{"head", func(ctx context.Context, l *fence.Log, o *fence.Owner) error { _, err := l.Head(ctx); return err }},
		{"claim", func(ctx context.Context, l *fence.Log, o *fence.Owner) error {
			_, err := l.Claim(ctx, fence.ClaimOptions{})
			return err
		}},
		{"rewind", func(ctx context.Context, l *fence.Log, o *fence.Owner) error {
			_, err := l.Rewind(ctx, fence.RewindOptions{To: 1})
			return err
		}},
		{"append", func(ctx context.Context, l *fence.Log, o *fence.Owner) error {
			if _, _, err := o.Settle(ctx); err != nil {
				return err
			}
			_, err := o.Append(ctx, commit())
			return err
		}},
		{"check", func(ctx context.Context, l *fence.Log, o *fence.Owner) error { return o.Check(ctx) }},
		{"delete", func(ctx context.Context, l *fence.Log, o *fence.Owner) error {
			_, err := l.Delete(ctx, o.ID())
			return err
		}},
		{"create", func(ctx context.Context, l *fence.Log, o *fence.Owner) error {
			if _, err := l.Delete(ctx, o.ID()); err != nil && !errors.Is(err, fence.ErrNoDatabase) {
				return err
			}
			_, err := l.Create(ctx, fence.CreateOptions{})
			return err
		}},
	} {
		for _, applied := range []bool{false, true} {
			for at := 0; ; at++ {
				s, l, o := created(t)
				must(t, o, commit())
				ctx, cancel := context.WithCancel(t.Context())
				n := 0
				s.on = func(_ context.Context, call string) fault {
					if n++; n != at+1 {
						return ok
					}
					cancel()
					kind := remote.ErrUnknown
					if !strings.HasPrefix(call, "PUT") {
						kind = nil
					}
					return fault{err: &remote.Error{Op: call, Kind: kind, Err: context.Canceled}, do: applied}
				}
				err := c.call(ctx, l, o)
				reached := n > at
				cancel()
				if !reached {
					if err != nil {
						t.Errorf("%s: %v", c.name, err)
					}
					break
				}
				if err == nil || !errors.Is(err, context.Canceled) {
					t.Errorf("%s, request %d: got %v", c.name, at, err)
				}
				put := strings.HasPrefix(s.calls[len(s.calls)-1], "PUT")
				if put != errors.Is(err, remote.ErrUnknown) {
					t.Errorf("%s, request %d: unknown or not: %v", c.name, at, err)
				}
				if o.Pending() != (put && c.name == "append") {
					t.Errorf("%s, request %d: pending %v", c.name, at, o.Pending())
				}
				s.forget()
				err = c.call(t.Context(), l, o)
				done := c.name == "create" && errors.Is(err, fence.ErrTaken) || c.name == "delete" && errors.Is(err, fence.ErrNoDatabase)
				if err != nil && !done {
					t.Errorf("%s, request %d, again: %v", c.name, at, err)
				}
			}
		}
	}
	// Over before the first request: nothing is sent.
	s, _, o := created(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := o.Append(ctx, commit())
	if !errors.Is(err, context.Canceled) || o.Pending() || errors.Is(err, remote.ErrUnknown) {
		t.Errorf("pending %v, %v", o.Pending(), err)
	}
	s.asked(t, "")
}
