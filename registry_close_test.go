package tonbo_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tonbo-go/tonbo"
)

// TestUseDoesNotWaitForADatabaseToBeShipped: what the registry is about to close is used, and stays open.
func TestUseDoesNotWaitForADatabaseToBeShipped(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, store := faultyAccount(t)
		c := newClient(t, a.machine())
		r := tonbo.NewRegistry(c, creating(c, tonbo.RegistryOptions{MaxIdle: time.Minute}))
		var generation uint64
		use(t, r, "run", func(ctx context.Context, db *tonbo.DB) error {
			generation = db.Status().Generation
			return put(1)(ctx, db)
		})
		gate := store.Block(logEntries)
		time.Sleep(time.Minute + time.Second)
		if err := gate.Wait(t.Context(), 1); err != nil { // it is being shipped
			t.Fatal(err)
		}
		start := time.Now()
		for i := range 2 {
			use(t, r, "run", func(ctx context.Context, db *tonbo.DB) error {
				if got := db.Status().Generation; got != generation {
					t.Errorf("another handle")
				}
				return put(2+i)(ctx, db)
			})
		}
		if took := time.Since(start); took > time.Second { // shipping waits for Options.SyncTimeout, many of them
			t.Errorf("Use took %v", took)
		}
		gate.Open()
		synctest.Wait()
		if s := r.Stats(); s.Open != 1 || s.Expired != 0 || s.FailedCloses != 0 {
			t.Errorf("it was used again: %+v", s)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if s := r.Stats(); s.Open != 0 || s.Expired != 1 {
			t.Errorf("idle: %+v", s)
		}
		if err := exportRows(t, c, "run", 3); err != nil {
			t.Error(err)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestDatabaseThatIsUsedAllTheTimeGivesItsPlace to one that waits, although each use leaves something to ship.
func TestDatabaseThatIsUsedAllTheTimeGivesItsPlace(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, store := faultyAccount(t)
		c := newClient(t, a.machine())
		r := tonbo.NewRegistry(c, creating(c, tonbo.RegistryOptions{MaxOpen: 1}))
		use(t, r, "busy", put(0))
		store.Delay(logEntries, 1<<30, 50*time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var uses int64
		wg.Go(func() {
			for ctx.Err() == nil {
				use(t, r, "busy", put(1))
				uses++
				time.Sleep(10 * time.Millisecond)
			}
		})
		for _, name := range []string{"a", "b", "c"} {
			short, stop := context.WithTimeout(t.Context(), 5*time.Second)
			if err := r.Use(short, name, put(1)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			stop()
		}
		cancel()
		wg.Wait()
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := exportRows(t, c, "busy", uses+1); err != nil {
			t.Error(err)
		}
	})
}

// TestReopenWithinAUseBesideOthers.
func TestReopenWithinAUseBesideOthers(t *testing.T) {
	a := newAccount(t)
	r, _ := newRegistry(t, a.machine(), tonbo.RegistryOptions{})
	use(t, r, "run", put(1))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	use(t, r, "run", func(context.Context, *tonbo.DB) error {
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					if err := r.Use(ctx, "run", nothing); err != nil && !errors.Is(err, tonbo.ErrFenced) && ctx.Err() == nil {
						t.Error(err)
					}
				}
			})
		}
		return nil
	})
	for range 10 {
		closeDB(t, open(t, "run", a.machine()))
		use(t, r, "run", func(ctx context.Context, db *tonbo.DB) error {
			wantIs(t, "taken over", db.Synced(ctx), tonbo.ErrFenced)
			return db.Reopen(ctx)
		})
	}
	cancel()
	wg.Wait()
}

// TestOnErrorMayUseTheDatabase that it is told of.
func TestOnErrorMayUseTheDatabase(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, store := faultyAccount(t)
		o := a.machine()
		o.SyncTimeout = time.Second
		c := newClient(t, o)
		var r *tonbo.Registry
		var told atomic.Int64
		r = tonbo.NewRegistry(c, creating(c, tonbo.RegistryOptions{MaxOpen: 1, MaxIdle: time.Minute, OnError: func(name string, _ error) {
			told.Add(1)
			if err := r.Use(context.Background(), name, nothing); err != nil && !errors.Is(err, tonbo.ErrClosed) {
				t.Error(err)
			}
		}}))
		use(t, r, "run", put(1))
		store.Partition(true)
		time.Sleep(2 * time.Minute)
		store.Partition(false)
		synctest.Wait()
		if told.Load() == 0 {
			t.Error("OnError was not told")
		}
		// Taken over: it is told of what was set aside while the database is opened anew.
		use(t, r, "run", func(ctx context.Context, db *tonbo.DB) error { return db.Synced(ctx) })
		use(t, r, "run", put(2))
		closeDB(t, open(t, "run", a.machine()))
		use(t, r, "run", func(ctx context.Context, db *tonbo.DB) error {
			wantIs(t, "taken over", db.Synced(ctx), tonbo.ErrFenced)
			return nil
		})
		before := told.Load()
		use(t, r, "run", nothing)
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if told.Load() != before+1 {
			t.Errorf("told %d times more, want 1", told.Load()-before)
		}
	})
}

// TestWhatEndsPrepareOrCreateIsAnError for all who wait, and holds no place.
func TestWhatEndsPrepareOrCreateIsAnError(t *testing.T) {
	o := newAccount(t).machine()
	c := newClient(t, o)
	for _, end := range []struct {
		name, want string
		fn         func()
	}{
		{"panic", "of the program", func() { panic("of the program") }},
		{"Goexit", "runtime.Goexit", runtime.Goexit},
	} {
		for _, in := range []string{"Create", "Prepare"} {
			t.Run(end.name+" in "+in, func(t *testing.T) {
				bad := strings.ToLower("bad-" + end.name + "-" + in)
				ro := creating(c, tonbo.RegistryOptions{MaxOpen: 1})
				create, prepare := ro.Create, ro.Prepare
				gate := make(chan struct{})
				ro.Create = func(ctx context.Context, name string) error {
					if in == "Create" && name == bad {
						<-gate
						end.fn()
					}
					return create(ctx, name)
				}
				ro.Prepare = func(ctx context.Context, db *tonbo.DB) error {
					if in == "Prepare" && db.Status().Name == bad {
						<-gate
						end.fn()
					}
					return prepare(ctx, db)
				}
				r := tonbo.NewRegistry(c, ro)
				var wg sync.WaitGroup
				for range 3 {
					wg.Go(func() {
						err := r.Use(t.Context(), bad, nothing)
						if err == nil || !strings.Contains(err.Error(), end.want) || !strings.Contains(err.Error(), in) || !strings.Contains(err.Error(), bad) {
							t.Errorf("got %v", err)
						}
					})
				}
				for r.Waiting(bad) < 3 {
					time.Sleep(time.Millisecond)
				}
				close(gate)
				wg.Wait()
				use(t, r, "good", put(1)) // there is its place, and no handle of it is left open
				if in == "Prepare" {
					closeDB(t, open(t, bad, o))
				}
				if err := r.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestWhatNobodyWaitsForIsReported: commits of a Prepare that could not be shipped, when its callers have gone.
func TestWhatNobodyWaitsForIsReported(t *testing.T) {
	a, store := faultyAccount(t)
	o := a.machine()
	o.SyncTimeout = 50 * time.Millisecond
	a.create("run")
	c := newClient(t, o)
	var said onError
	begun := make(chan struct{})
	r := tonbo.NewRegistry(c, tonbo.RegistryOptions{OnError: said.note, Prepare: func(ctx context.Context, db *tonbo.DB) error {
		exec(t, db, "CREATE TABLE t(x)")
		store.Partition(true)
		close(begun)
		<-ctx.Done()
		return ctx.Err()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	wantIs(t, "who lost patience", r.Use(ctx, "run", nothing), context.Canceled)
	for len(said.all()) == 0 {
		time.Sleep(time.Millisecond)
	}
	if got := said.all(); len(got) != 1 || !strings.Contains(got[0], "1 commits") {
		t.Errorf("OnError: %v", got)
	}
	store.Partition(false)
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := rows(t, open(t, "run", o), "SELECT count(*) FROM t"); got != "0" {
		t.Errorf("got %s", got)
	}
}

// TestSecondCloseOfARegistryWaitsForTheFirst.
func TestSecondCloseOfARegistryWaitsForTheFirst(t *testing.T) {
	a, store := faultyAccount(t)
	c := newClient(t, a.machine())
	r := tonbo.NewRegistry(c, creating(c, tonbo.RegistryOptions{}))
	use(t, r, "run", put(1))
	gate := store.Block(logEntries)
	first := make(chan error, 1)
	go func() { first <- r.Close(context.Background()) }()
	if err := gate.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	wantIs(t, "the second, which is in a hurry", r.Close(short), context.DeadlineExceeded)
	second := make(chan error)
	go func() { second <- r.Close(context.Background()) }()
	gate.Open()
	if err := <-second; err != nil {
		t.Error(err)
	}
	if s := r.Stats(); s.Open != 0 {
		t.Errorf("when the second one has returned: %+v", s)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// TestSuspendBesideACloseTellsWhetherTheCopyIsGone.
func TestSuspendBesideACloseTellsWhetherTheCopyIsGone(t *testing.T) {
	a, store := faultyAccount(t)
	a.create("run")
	o := a.machine()
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(x)")
	gate := store.Block(logEntries)
	suspended := make(chan [2]error, 1)
	go func() {
		err := db.Suspend(context.Background())
		_, serr := os.Stat(db.LocalFile())
		suspended <- [2]error{err, serr}
	}()
	if err := gate.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- db.Close() }()
	for db.DB.Ping() == nil || !strings.Contains(db.DB.Ping().Error(), "database is closed") {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(10 * time.Millisecond) // on its way into the handle
	gate.Open()
	got := <-suspended
	if got[0] == nil && got[1] == nil {
		t.Error("Suspend returned nil, and the local copy is there")
	}
	if got[0] != nil {
		wantIs(t, "Suspend", got[0], tonbo.ErrClosed)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if got := rows(t, open(t, "run", o), "SELECT count(*) FROM t"); got != "0" {
		t.Errorf("got %s", got)
	}
}
