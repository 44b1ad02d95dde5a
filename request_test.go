package tonbo_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// TestKilledAtEveryRequest kills a process before each request to the store, and between the request and its answer.
func TestKilledAtEveryRequest(t *testing.T) {
	j := job{Steps: 26, Sync: 3, Large: true, Close: true}
	run := func(t *testing.T, request int, after bool) (*world, string, []event) {
		w := newWorld(t)
		j := j
		j.Dir, j.Request, j.After = w.dir(), request, after
		events := w.start(j, "").wait()
		return w, j.Dir, events
	}
	_, _, events := run(t, 0, false)
	done := said(events, "done")
	if len(done) != 1 {
		t.Fatalf("the process did not come to its end: %v", events)
	}
	n := done[0].After
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("after=%t", after), func(t *testing.T) {
			t.Parallel()
			for i := 1; i <= n; i++ {
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					w, dir, events := run(t, i, after)
					if len(said(events, "done")) > 0 {
						t.Fatal("the process came to its end")
					}
					if w.store == nil {
						w.apart(func() { w.final() })
					}
					w.kept(dir)
					w.final(dir)
				})
			}
		})
	}
}

// TestEachCommitOnceWhateverAnswerIsLost runs a script against a store that does what the i-th request asks for and loses the answer, or that
// loses the request, or refuses it for the moment: for every i. Each commit is in the history exactly once.
func TestEachCommitOnceWhateverAnswerIsLost(t *testing.T) {
	ctx := context.Background()
	// A read that fails is its caller's to try again; what must not happen is that anything is done twice, or not at all.
	retry := func(f func() error) (err error) {
		for range 4 {
			if err = f(); err == nil || !errors.Is(err, remote.ErrUnknown) {
				return err
			}
		}
		return err
	}
	script := func(s *tonbotest.Store, o tonbo.Options) error {
		if err := retry(func() error {
			_, err := tonbo.Create(ctx, "run", o, tonbo.CreateOptions{IfNotExists: true})
			return err
		}); err != nil {
			return fmt.Errorf("create: %w", err)
		}
		seq := 0
		for range 2 {
			var db *tonbo.DB
			if err := retry(func() (err error) { db, err = tonbo.Open(ctx, "run", o); return err }); err != nil {
				return fmt.Errorf("open: %w", err)
			}
			defer db.Close()
			if seq == 0 {
				exec(t, db, schema)
			}
			for range 4 {
				seq++
				if err := step(db.DB, commit{seq, db.Status().Generation}, false); err != nil {
					return err
				}
				if seq%2 == 0 {
					for range 2 { // the second one with nothing to ship
						if err := retry(func() error { return db.Synced(ctx) }); err != nil {
							return fmt.Errorf("synced: %w", err)
						}
					}
				}
			}
			if err := db.Close(); err != nil {
				return fmt.Errorf("close: %w", err)
			}
		}
		return nil
	}
	run := func(t *testing.T, inject func(*tonbotest.Store)) (requests int) {
		inner := mem.New("test")
		s := tonbotest.NewStore(inner)
		inject(s)
		if err := script(s, tonbo.Options{Remote: s, Dir: t.TempDir()}); err != nil {
			t.Fatal(err)
		}
		requests = len(s.Calls())
		db := open(t, "run", tonbo.Options{Remote: inner, Dir: t.TempDir()})
		if found, err := inspect(ctx, db.DB); err != nil || len(found) != 8 {
			t.Errorf("%d transactions, want 8 (%v)", len(found), err)
		}
		return requests
	}
	n := run(t, func(*tonbotest.Store) {})
	for _, fault := range []struct {
		name   string
		inject func(s *tonbotest.Store, m tonbotest.Match)
	}{
		{"answer lost", func(s *tonbotest.Store, m tonbotest.Match) { s.DropAnswer(m, 1) }},
		{"two answers lost", func(s *tonbotest.Store, m tonbotest.Match) { s.DropAnswer(m, 2) }},
		{"request lost", func(s *tonbotest.Store, m tonbotest.Match) { s.Lose(m, 1) }},
		{"busy", func(s *tonbotest.Store, m tonbotest.Match) { s.Fail(m, 1, remote.ErrUnknown) }},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			for i := range n {
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					run(t, func(s *tonbotest.Store) { fault.inject(s, tonbotest.Match{Skip: i}) })
				})
			}
		})
	}
}
