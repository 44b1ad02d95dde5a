package tonbo_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo"
)

// creating makes a registry create what does not exist, each with a table t.
func creating(c *tonbo.Client, o tonbo.RegistryOptions) tonbo.RegistryOptions {
	o.Create = func(ctx context.Context, name string) error {
		_, err := c.Create(ctx, name, tonbo.CreateOptions{})
		return err
	}
	o.Prepare = func(ctx context.Context, db *tonbo.DB) error {
		_, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS t(x)")
		return err
	}
	return o
}

// newRegistry returns a registry that creates what does not exist, and its client. It is closed with the test.
func newRegistry(t *testing.T, mo tonbo.Options, o tonbo.RegistryOptions) (*tonbo.Registry, *tonbo.Client) {
	t.Helper()
	c := newClient(t, mo)
	r := tonbo.NewRegistry(c, creating(c, o))
	t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r, c
}

// put inserts x into the database's table t.
func put(x any) func(context.Context, *tonbo.DB) error {
	return func(ctx context.Context, db *tonbo.DB) error {
		_, err := db.ExecContext(ctx, "INSERT INTO t VALUES(?)", x)
		return err
	}
}

func nothing(context.Context, *tonbo.DB) error { return nil }

func use(t testing.TB, r *tonbo.Registry, name string, fn func(context.Context, *tonbo.DB) error) {
	t.Helper()
	if err := r.Use(context.Background(), name, fn); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// TestRegistryKeepsWithinItsBoundsAndLosesNothing: many goroutines use many databases of which few may be open: each commit is there at the end, each handle is the only one of its name (the lock of the local copy would say otherwise), generations rise, and no more
// are open than may be.
func TestRegistryKeepsWithinItsBoundsAndLosesNothing(t *testing.T) {
	for _, suspend := range []bool{false, true} {
		t.Run(fmt.Sprint("suspend=", suspend), func(t *testing.T) {
			const open, conns, names, workers = 8, 4, 40, 24
			each := 50
			if testing.Short() {
				each = 15
			}
			a := newAccount(t)
			o := a.machine()
			r, c := newRegistry(t, o, tonbo.RegistryOptions{MaxOpen: open, MaxIdleConns: conns, MaxIdle: 20 * time.Millisecond, Suspend: suspend})
			var generations [names]atomic.Uint64
			var rows [names]atomic.Int64
			var inUse atomic.Int64
			var g errgroup.Group
			for w := range workers {
				rng := rand.New(rand.NewPCG(1, uint64(w)))
				g.Go(func() error {
					for range each {
						i := rng.IntN(names)
						err := r.Use(t.Context(), fmt.Sprint("agent-", i), func(ctx context.Context, db *tonbo.DB) error {
							s := r.Stats()
							if s.Open > open || s.InUse > open {
								return fmt.Errorf("beyond the bounds: %+v", s)
							}
							if n := inUse.Add(1); n > workers {
								return fmt.Errorf("%d in use", n)
							}
							defer inUse.Add(-1)
							gen := db.Status().Generation
							if was := generations[i].Swap(gen); was > gen {
								return fmt.Errorf("generation %d after %d", gen, was)
							}
							if err := put(1)(ctx, db); err != nil {
								return err
							}
							rows[i].Add(1)
							if rng.IntN(4) == 0 {
								return db.Synced(ctx)
							}
							return nil
						})
						if err != nil {
							return err
						}
					}
					return nil
				})
			}
			if err := g.Wait(); err != nil {
				t.Fatal(err)
			}
			s := r.Stats()
			for deadline := time.Now().Add(10 * time.Second); s.Connections > conns; s = r.Stats() { // some are just being closed
				if time.Now().After(deadline) {
					t.Fatalf("idle: %+v", s)
				}
				time.Sleep(time.Millisecond)
			}
			if err := r.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v", s)
			if s.Evicted == 0 || suspend && s.OpenedWarm > 0 || !suspend && s.OpenedWarm == 0 || s.FailedCloses > 0 {
				t.Errorf("%+v", s)
			}
			if s := r.Stats(); s.Open != 0 || s.InUse != 0 || s.Connections != 0 {
				t.Errorf("closed, it has %+v", s)
			}
			if got := copies(t, o.Dir); suspend && got > 0 {
				t.Errorf("%d local copies are left", got)
			}
			for i := range names { // on another machine: all of it is in the remote
				want := rows[i].Load()
				if want == 0 {
					continue
				}
				name := fmt.Sprint("agent-", i)
				err := exportRows(t, c, name, want)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}

// copies counts the local copies in a directory.
func copies(t *testing.T, dir string) int {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*", "state"))
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

// exportRows reads the remote's head, and tells whether table t has that many rows.
func exportRows(t *testing.T, c *tonbo.Client, name string, want int64) error {
	ro, err := tonbo.OpenReadOnly(t.Context(), name, tonbo.Options{Remote: c.Remote(), Dir: t.TempDir()})
	if err != nil {
		return err
	}
	defer ro.Close()
	var got int64
	if err := ro.QueryRow("SELECT count(*) FROM t").Scan(&got); err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("%d rows, want %d", got, want)
	}
	return nil
}

// TestRegistryClosesWhatNobodyUses after MaxIdle, and opens it again: warm, or cold when it suspends. Nothing is left to do then.
func TestRegistryClosesWhatNobodyUses(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, suspend := range []bool{false, true} {
			a := newAccount(t)
			o := a.machine()
			c := newClient(t, o)
			r := tonbo.NewRegistry(c, creating(c, tonbo.RegistryOptions{MaxIdle: time.Minute, Suspend: suspend}))
			var first uint64
			use(t, r, "one", func(ctx context.Context, db *tonbo.DB) error {
				first = db.Status().Generation
				return put(1)(ctx, db)
			})
			use(t, r, "two", put(1))
			time.Sleep(50 * time.Second)
			use(t, r, "two", put(2))
			time.Sleep(11 * time.Second)
			synctest.Wait()
			if s := r.Stats(); s.Open != 1 || s.Expired != 1 {
				t.Errorf("after the first one's minute: %+v", s)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			if s := r.Stats(); s.Open != 0 || s.Expired != 2 || s.Connections != 0 {
				t.Errorf("idle: %+v", s)
			}
			if got := copies(t, o.Dir); suspend && got != 0 || !suspend && got != 2 {
				t.Errorf("suspend=%t: %d local copies", suspend, got)
			}
			use(t, r, "one", func(ctx context.Context, db *tonbo.DB) error {
				if s := db.Status(); s.Generation <= first || s.ColdStart != suspend {
					t.Errorf("opened again: %+v", s)
				}
				if got := rows(t, db, "SELECT x FROM t"); got != "1" {
					t.Errorf("got %s", got)
				}
				return nil
			})
			if err := r.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if err := r.Use(t.Context(), "one", nothing); !errors.Is(err, tonbo.ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
		}
	})
}

// TestLeastRecentlyUsedGoesFirst, and one that is in use never.
func TestLeastRecentlyUsedGoesFirst(t *testing.T) {
	r, _ := newRegistry(t, newAccount(t).machine(), tonbo.RegistryOptions{MaxOpen: 3})
	generation := func(name string) (g uint64) {
		use(t, r, name, func(_ context.Context, db *tonbo.DB) error { g = db.Status().Generation; return nil })
		return g
	}
	use(t, r, "a", func(ctx context.Context, db *tonbo.DB) error {
		b := generation("b")
		c := generation("c")
		generation("b")
		generation("d") // c goes
		if got := generation("b"); got != b {
			t.Errorf("b, used after c, was closed")
		}
		if got := generation("c"); got <= c {
			t.Errorf("c has generation %d after %d: it was not closed", got, c)
		}
		return put(1)(ctx, db)
	})
	if s := r.Stats(); s.Open != 3 || s.Evicted != 2 {
		t.Errorf("%+v", s)
	}
}

// TestOneOpeningForAllWhoAsk: it goes on for the others when the context of the first ends, and ends when nobody waits any more.
func TestOneOpeningForAllWhoAsk(t *testing.T) {
	a, store := faultyAccount(t)
	a.create("run")
	r := tonbo.NewRegistry(newClient(t, a.machine()), tonbo.RegistryOptions{})
	defer r.Close(t.Context())
	gate := store.Block(logEntries)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var opened atomic.Int64
	errs := make([]error, 9)
	asks := func(i int, ctx context.Context) {
		wg.Go(func() {
			errs[i] = r.Use(ctx, "run", func(_ context.Context, db *tonbo.DB) error {
				opened.Store(int64(db.Status().Generation))
				return nil
			})
		})
	}
	asks(0, ctx)
	if err := gate.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(errs); i++ {
		asks(i, t.Context())
	}
	for r.Waiting("run") < len(errs) {
		time.Sleep(time.Millisecond)
	}
	cancel()
	for r.Waiting("run") == len(errs) {
		time.Sleep(time.Millisecond)
	}
	gate.Open()
	wg.Wait()
	wantIs(t, "who lost patience", errs[0], context.Canceled)
	for _, err := range errs[1:] {
		if err != nil {
			t.Error(err)
		}
	}
	if got := opened.Load(); got != 2 {
		t.Errorf("generation %d: want one opening", got)
	}
}

func TestOpeningEndsWhenNobodyWaits(t *testing.T) {
	a, store := faultyAccount(t)
	a.create("run")
	r := tonbo.NewRegistry(newClient(t, a.machine()), tonbo.RegistryOptions{})
	defer r.Close(t.Context())
	gate := store.Block(logEntries)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Use(ctx, "run", nothing) }()
	if err := gate.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	cancel()
	wantIs(t, "who lost patience", <-done, context.Canceled)
	for r.Stats().Open > 0 {
		time.Sleep(time.Millisecond)
	}
	gate.Open()
	use(t, r, "run", nothing)
}

// TestUseBeyondMaxOpenWaits for a place, with its context, and within another Use does not wait at all.
func TestUseBeyondMaxOpenWaits(t *testing.T) {
	r, _ := newRegistry(t, newAccount(t).machine(), tonbo.RegistryOptions{MaxOpen: 2})
	use(t, r, "a", func(ctx context.Context, _ *tonbo.DB) error {
		return r.Use(ctx, "b", func(ctx context.Context, _ *tonbo.DB) error {
			err := r.Use(ctx, "c", nothing)
			wantIs(t, "within others", err, tonbo.ErrLimit)
			short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			err = r.Use(short, "c", nothing)
			wantIs(t, "beside others", err, tonbo.ErrLimit)
			wantIs(t, "beside others", err, context.DeadlineExceeded)
			return r.Use(ctx, "a", nothing) // is open
		})
	})
	order := make(chan string, 3)
	var wg sync.WaitGroup
	use(t, r, "a", func(ctx context.Context, _ *tonbo.DB) error {
		return r.Use(ctx, "b", func(context.Context, *tonbo.DB) error {
			for i, name := range []string{"c", "d", "e"} {
				wg.Go(func() {
					use(t, r, name, func(context.Context, *tonbo.DB) error { order <- name; return nil })
				})
				for r.Stats().Waiting <= i {
					time.Sleep(time.Millisecond)
				}
			}
			return nil
		})
	})
	wg.Wait()
	close(order)
	var got []string
	for name := range order {
		got = append(got, name)
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"c", "d", "e"}) {
		t.Errorf("got %v", got)
	}
}

// TestPanicInAUseLetsGoOfTheDatabase.
func TestPanicInAUseLetsGoOfTheDatabase(t *testing.T) {
	r, _ := newRegistry(t, newAccount(t).machine(), tonbo.RegistryOptions{MaxOpen: 1})
	func() {
		defer func() { recover() }()
		r.Use(t.Context(), "a", func(context.Context, *tonbo.DB) error { panic("of the program") })
	}()
	use(t, r, "b", nothing)
}

func TestRegistrySaysWhatOpenSays(t *testing.T) {
	c := newAccount(t).client()
	r := tonbo.NewRegistry(c, tonbo.RegistryOptions{})
	defer r.Close(t.Context())
	wantIs(t, "a database that is not there", r.Use(t.Context(), "none", nothing), tonbo.ErrNotFound)
	wantIs(t, "a bad name", r.Use(t.Context(), "/", nothing), tonbo.ErrName)
	wantIs(t, "no function", r.Use(t.Context(), "none", nil), tonbo.ErrInvalid)
	failed := errors.New("not prepared")
	var inner error
	var p *tonbo.Registry
	p = tonbo.NewRegistry(c, tonbo.RegistryOptions{
		Create: func(ctx context.Context, name string) error {
			_, err := c.Create(ctx, name, tonbo.CreateOptions{})
			return err
		},
		Prepare: func(ctx context.Context, db *tonbo.DB) error {
			inner = p.Use(ctx, db.Status().Name, nothing) // would wait for itself
			return failed
		},
	})
	defer p.Close(t.Context())
	wantIs(t, "what Prepare refuses", p.Use(t.Context(), "run", nothing), failed)
	if inner == nil {
		t.Error("Prepare used its own database")
	}
	if s := p.Stats(); s.Open != 0 {
		t.Errorf("%+v", s)
	}
	db := open(t, "run", tonbo.Options{Remote: c.Remote(), Dir: t.TempDir()}) // it was let go of
	synced(t, db)
}
