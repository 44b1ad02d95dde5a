package tonbo_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// TestWhoWaitsWhenARegistryIsClosed for a place, for the remote or for Prepare, is told that it is.
func TestWhoWaitsForAPlaceWhenTheRegistryIsClosedIsTold(t *testing.T) {
	r, _ := newRegistry(t, newAccount(t).machine(), tonbo.RegistryOptions{MaxOpen: 1})
	got := make(chan error, 1)
	var wg sync.WaitGroup
	leave := make(chan struct{})
	begun := make(chan struct{})
	wg.Go(func() {
		r.Use(context.Background(), "a", func(context.Context, *tonbo.DB) error { close(begun); <-leave; return nil })
	})
	<-begun
	go func() { got <- r.Use(context.Background(), "b", nothing) }()
	for r.Stats().Waiting == 0 {
		time.Sleep(time.Millisecond)
	}
	wg.Go(func() { r.Close(context.Background()) })
	err := <-got
	close(leave)
	wg.Wait()
	wantIs(t, "who waits for a place when the registry is closed", err, tonbo.ErrClosed)
}

// TestOpeningWhenTheRegistryIsClosedIsTold, whatever it waits for.
func TestOpeningWhenTheRegistryIsClosedIsTold(t *testing.T) {
	for _, in := range []string{"open", "Prepare"} {
		a, store := faultyAccount(t)
		a.create("run")
		begun := make(chan struct{})
		ro := tonbo.RegistryOptions{}
		if in == "Prepare" {
			ro.Prepare = func(ctx context.Context, db *tonbo.DB) error { close(begun); <-ctx.Done(); return ctx.Err() }
		}
		r := tonbo.NewRegistry(newClient(t, a.machine()), ro)
		if in == "open" {
			gate := store.Block(logEntries)
			go func() { gate.Wait(t.Context(), 1); close(begun) }()
		}
		got := make(chan error, 1)
		go func() { got <- r.Use(context.Background(), "run", nothing) }()
		<-begun
		if err := r.Close(context.Background()); err != nil {
			t.Error(err)
		}
		wantIs(t, in, <-got, tonbo.ErrClosed)
	}
}

// TestMaxIdleBesideADatabaseThatIsKept: others are closed in time, whenever that one is tried again.
func TestMaxIdleBesideADatabaseThatIsKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, store := faultyAccount(t)
		o := a.machine()
		o.SyncTimeout = time.Second
		c := newClient(t, o)
		r := tonbo.NewRegistry(c, creating(c, tonbo.RegistryOptions{MaxIdle: 5 * time.Second}))
		use(t, r, "kept", put(1))
		use(t, r, "other", func(ctx context.Context, db *tonbo.DB) error { return errors.Join(put(1)(ctx, db), db.Synced(ctx)) })
		store.Fail(tonbotest.Match{Key: "kept/log/"}, -1, remote.ErrUnknown)
		use(t, r, "other", func(ctx context.Context, db *tonbo.DB) error {
			time.Sleep(10 * time.Minute) // kept's retries are a minute apart by now
			for before := r.Stats().FailedCloses; r.Stats().FailedCloses == before; time.Sleep(50 * time.Millisecond) {
			}
			time.Sleep(time.Second)
			return nil
		})
		start := time.Now()
		for r.Stats().Open > 1 && time.Since(start) < 10*time.Minute {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		if took := time.Since(start); took > 8*time.Second {
			t.Errorf("it stayed open for %v, MaxIdle is 5s", took)
		}
		store.Heal()
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestMaxIdleBesideADatabaseThatHangs: others are closed in time while its remote does not answer.
func TestMaxIdleBesideADatabaseThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, store := faultyAccount(t)
		o := a.machine()
		c := newClient(t, o)
		r := tonbo.NewRegistry(c, creating(c, tonbo.RegistryOptions{MaxIdle: 2 * time.Second}))
		use(t, r, "hangs", put(1))
		gate := store.Block(tonbotest.Match{Key: "hangs/log/"})
		time.Sleep(time.Second)
		use(t, r, "other", func(ctx context.Context, db *tonbo.DB) error { return errors.Join(put(1)(ctx, db), db.Synced(ctx)) })
		start := time.Now()
		for r.Stats().Open > 1 && time.Since(start) < 10*time.Minute {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		if took := time.Since(start); took > 4*time.Second {
			t.Errorf("other stayed open for %v, MaxIdle is 2s", took)
		}
		gate.Open()
		store.Heal()
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestIdleConnectionsOfADatabaseThatIsKept count.
func TestIdleConnectionsOfADatabaseThatIsKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const n = 6
		a, store := faultyAccount(t)
		o := a.machine()
		o.SyncTimeout = 10 * time.Second
		c := newClient(t, o)
		r := tonbo.NewRegistry(c, creating(c, tonbo.RegistryOptions{MaxIdle: 10 * time.Second, MaxIdleConns: n}))
		defer r.Close(t.Context())
		for i := range n {
			use(t, r, fmt.Sprint("kept-", i), put(1))
		}
		gate := store.Block(tonbotest.Match{Key: "kept-"})
		time.Sleep(11 * time.Second) // they are being shipped
		for i := range n {
			use(t, r, fmt.Sprint("run-", i), put(1))
		}
		time.Sleep(9500 * time.Millisecond)
		synctest.Wait()
		if s := r.Stats(); s.InUse == 0 && s.Connections > n {
			t.Errorf("MaxIdleConns %d: %+v", n, s)
		}
		gate.Open()
		store.Heal()
	})
}

// TestIdleConnectionsOfADatabaseOpenedForNobody count, too.
func TestIdleConnectionsOfADatabaseOpenedForNobody(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	ctx, cancel := context.WithCancel(t.Context())
	var r *tonbo.Registry
	r = tonbo.NewRegistry(newClient(t, a.machine()), tonbo.RegistryOptions{MaxIdleConns: -1, Prepare: func(_ context.Context, db *tonbo.DB) error {
		_, err := db.Exec("CREATE TABLE IF NOT EXISTS t(x)")
		cancel()
		for r.Waiting("run") > 0 {
			time.Sleep(time.Millisecond)
		}
		return err
	}})
	wantIs(t, "who lost patience", r.Use(ctx, "run", nothing), context.Canceled)
	for end := time.Now().Add(10 * time.Second); r.Stats().OpenedWarm+r.Stats().OpenedCold == 0 || r.Stats().Connections > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("none may stay: %+v", r.Stats())
		}
	}
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestPlaceThatBecomesFreeIsTakenWhileAnotherDatabaseIsShipped for who needs one: the remote of one may be slow, and others leave.
func TestPlaceThatBecomesFreeIsTakenWhileAnotherDatabaseIsShipped(t *testing.T) {
	for _, free := range []bool{true, false} {
		t.Run(fmt.Sprint("free=", free), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				a, store := faultyAccount(t)
				c := newClient(t, a.machine())
				ro := creating(c, tonbo.RegistryOptions{MaxOpen: 2})
				bad, prepare := false, ro.Prepare
				ro.Prepare = func(ctx context.Context, db *tonbo.DB) error {
					if bad && db.Status().Name == "b" {
						return errors.New("bad")
					}
					return prepare(ctx, db)
				}
				r := tonbo.NewRegistry(c, ro)
				use(t, r, "hangs", put(1))
				gate := store.Block(tonbotest.Match{Key: "hangs/log/"})
				got := make(chan time.Duration, 1)
				start := time.Now()
				use(t, r, "b", func(ctx context.Context, db *tonbo.DB) error {
					go func() {
						if err := r.Use(context.Background(), "c", nothing); err != nil {
							t.Error(err)
						}
						got <- time.Since(start)
					}()
					if free {
						defer db.Close()
					}
					return gate.Wait(t.Context(), 1)
				})
				if free { // it is to be opened anew, and cannot be
					bad = true
					if err := r.Use(t.Context(), "b", nothing); err == nil {
						t.Error("b was opened")
					}
				}
				if took := <-got; took > 2*time.Second {
					t.Errorf("Use waited %v for a place, although one was free, or to be had at once: %+v", took, r.Stats())
				}
				gate.Open()
				store.Heal()
				if err := r.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestPrepareThatUsesItsOwnDatabaseIsRefused also when its callers have gone.
func TestPrepareThatUsesItsOwnDatabaseIsRefused(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	c := newClient(t, a.machine())
	ctx, cancel := context.WithCancel(t.Context())
	var r *tonbo.Registry
	done := make(chan error, 1)
	r = tonbo.NewRegistry(c, tonbo.RegistryOptions{Prepare: func(pctx context.Context, db *tonbo.DB) error {
		cancel()
		<-pctx.Done()
		err := r.Use(context.WithoutCancel(pctx), "run", nothing)
		done <- err
		return err
	}})
	r.Use(ctx, "run", nothing)
	select {
	case err := <-done:
		if err == nil {
			t.Error("Prepare used its own database")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it waits for itself")
	}
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestUseWithinAUseThatHasEndedIsOneOfItsOwn: what a Create is within may have ended, and its handle be over.
func TestUseWithinAUseThatHasEndedIsOneOfItsOwn(t *testing.T) {
	a := newAccount(t)
	o := a.machine()
	c := newClient(t, o)
	var r *tonbo.Registry
	ended := make(chan struct{})
	inner := make(chan error, 1)
	r = tonbo.NewRegistry(c, tonbo.RegistryOptions{
		Create: func(ctx context.Context, name string) error {
			if name == "b" {
				<-ended
				inner <- r.Use(context.WithoutCancel(ctx), "a", func(ctx context.Context, db *tonbo.DB) error { return errors.Join(db.Err(), db.PingContext(ctx)) })
			}
			_, err := c.Create(ctx, name, tonbo.CreateOptions{})
			return err
		},
	})
	defer r.Close(context.Background())
	use(t, r, "a", func(ctx context.Context, db *tonbo.DB) error {
		go r.Use(context.WithoutCancel(ctx), "b", nothing) // first one
		for r.Waiting("b") == 0 {
			time.Sleep(time.Millisecond)
		}
		return db.Close()
	})
	close(ended)
	if err := <-inner; err != nil {
		t.Errorf("nobody uses a, and it was not opened anew: %v", err)
	}
}
