package tonbo_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// chaos is a registry in trouble: who uses it, what is acknowledged, and what it must hold in the end.
type chaos struct {
	t     *testing.T
	seed  uint64
	inner *mem.Store
	store *tonbotest.Store
	o     tonbo.Options
	c     *tonbo.Client
	r     *tonbo.Registry
	names int

	last             atomic.Int64
	mu               sync.Mutex
	acked, committed map[string][]int64
}

func newChaos(t *testing.T, seed uint64, names int, o tonbo.RegistryOptions) *chaos {
	x := &chaos{t: t, seed: seed, inner: mem.New("test"), names: names, acked: map[string][]int64{}, committed: map[string][]int64{}}
	x.store = tonbotest.NewStore(x.inner)
	a := &account{t: t, store: x.store}
	x.o = a.machine()
	x.o.SyncTimeout = 100 * time.Millisecond
	x.c = newClient(t, x.o)
	o.OnError = func(name string, _ error) { // it uses what it is told of
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		x.r.Use(ctx, name, nothing)
	}
	o = creating(x.c, o)
	create, prepare := o.Create, o.Prepare
	o.Create = func(ctx context.Context, name string) error { // and so does Create
		x.r.Use(ctx, x.name(0), nothing)
		return create(ctx, name)
	}
	o.Prepare = func(ctx context.Context, db *tonbo.DB) error {
		if rand.IntN(30) == 0 {
			panic("of the program")
		}
		return prepare(ctx, db)
	}
	x.r = tonbo.NewRegistry(x.c, o)
	return x
}

func (x *chaos) rng(of uint64) *rand.Rand { return rand.New(rand.NewPCG(x.seed, of)) }

func (x *chaos) name(i int) string { return fmt.Sprint("db-", i) }

// put commits a number, whatever becomes of ctx meanwhile.
func (x *chaos) put(db *tonbo.DB, name string) (id int64, ok bool) {
	id = x.last.Add(1)
	if put(id)(context.Background(), db) != nil {
		return id, false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.committed[name] = append(x.committed[name], id)
	return id, true
}

func (x *chaos) sync(ctx context.Context, db *tonbo.DB, name string, id int64) {
	if db.Synced(ctx) != nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.acked[name] = append(x.acked[name], id)
}

// use does one of many things with a database, for a short time.
func (x *chaos) use(rng *rand.Rand) error {
	name := x.name(rng.IntN(x.names))
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.IntN(200))*time.Millisecond)
	defer cancel()
	return x.r.Use(ctx, name, func(ctx context.Context, db *tonbo.DB) error {
		id, ok := x.put(db, name)
		if !ok {
			return nil
		}
		switch pick := rng.IntN(24); {
		case pick < 10:
			if rng.IntN(4) == 0 { // a whole Reopen of another use comes in between
				time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
			}
			x.sync(ctx, db, name, id)
		case pick < 12:
			within := x.name(rng.IntN(x.names))
			x.r.Use(ctx, within, func(ctx context.Context, db *tonbo.DB) error {
				if id, ok := x.put(db, within); ok {
					x.sync(ctx, db, within, id)
				}
				return nil
			})
			x.sync(ctx, db, name, id)
		case pick == 12:
			db.Reopen(ctx)
		case pick == 13:
			db.Suspend(ctx)
		case pick == 14:
			db.Close()
		case pick == 15:
			time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
		}
		return nil
	})
}

// trouble is what happens to the network.
func (x *chaos) trouble(rng *rand.Rand) {
	switch rng.IntN(7) {
	case 0:
		x.store.Partition(true)
		time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
		x.store.Heal()
	case 1:
		x.store.DropAnswer(logEntries, 2)
	case 2:
		x.store.Lose(logEntries, 3)
	case 3:
		x.store.Delay(tonbotest.Match{}, 5, 20*time.Millisecond)
	case 4:
		x.store.Hang(logEntries, 2)
	default:
		x.store.Heal()
	}
}

// takeOver is another machine, which takes a database over and lets go of it.
func (x *chaos) takeOver(rng *rand.Rand, o tonbo.Options) {
	name := x.name(rng.IntN(x.names))
	db, err := tonbo.Open(context.Background(), name, o)
	if err != nil {
		return
	}
	if id, ok := x.put(db, name); ok {
		x.sync(context.Background(), db, name, id)
	}
	db.Close()
}

// has fails the test if a database lacks one of ids.
func (x *chaos) has(db *tonbo.DB, name, what string, ids []int64) {
	have := map[int64]bool{}
	rows, err := db.Query("SELECT x FROM t")
	if err != nil {
		if len(ids) > 0 {
			x.t.Errorf("seed %d: %s: %v", x.seed, name, err)
		}
		return
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			x.t.Error(err)
		}
		have[id] = true
	}
	for _, id := range ids {
		if !have[id] {
			x.t.Errorf("seed %d: %s: %s %d is lost", x.seed, name, what, id)
		}
	}
}

// chaosSeeds are few unless TONBO_TEST_LARGE is set.
func chaosSeeds() uint64 {
	if os.Getenv("TONBO_TEST_LARGE") != "" {
		return 60
	}
	return 4
}

// TestRegistryInTroubleLosesNothing: callers without patience, uses within others, panics, Reopen, Suspend and Close within uses, takeovers, lost and late answers, few places. What is acknowledged is there, every database gets a place again, and all of them are closed when they are idle.
func TestRegistryInTroubleLosesNothing(t *testing.T) {
	lasts := 700 * time.Millisecond
	for seed := range chaosSeeds() {
		x := newChaos(t, seed, 6, tonbo.RegistryOptions{MaxOpen: 1 + int(seed%3), MaxIdle: time.Duration(1+seed%10) * time.Millisecond, MaxIdleConns: int(seed%3) - 1, Suspend: seed%2 == 0})
		other := (&account{t: t, store: x.inner}).machine()
		stop := make(chan struct{})
		var wg sync.WaitGroup
		repeat := func(of uint64, every int, do func(*rand.Rand)) {
			rng := x.rng(of)
			wg.Go(func() {
				for {
					pause := time.Duration(0)
					if every > 0 {
						pause = time.Duration(rng.IntN(every)) * time.Millisecond
					}
					select {
					case <-stop:
						return
					case <-time.After(pause):
						do(rng)
					}
				}
			})
		}
		for w := range 8 {
			repeat(uint64(w), 0, func(rng *rand.Rand) { x.use(rng) })
		}
		repeat(98, 60, func(rng *rand.Rand) { x.takeOver(rng, other) })
		repeat(99, 50, x.trouble)
		time.Sleep(lasts)
		close(stop)
		wg.Wait()
		x.store.Heal()
		for i := range x.names { // there is a place for each
			for end := time.Now().Add(20 * time.Second); ; {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second) // an opening that began before hangs for as long as somebody waits for it
				err := x.r.Use(ctx, x.name(i), nothing)
				cancel()
				if err == nil {
					break
				}
				if time.Now().After(end) { // Prepare panics now and then
					t.Fatalf("seed %d: %s: %v; %+v", seed, x.name(i), err, x.r.Stats())
				}
			}
		}
		for end := time.Now().Add(20 * time.Second); x.r.Stats().Open > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("seed %d: idle: %+v", seed, x.r.Stats())
			}
		}
		if err := x.r.Close(context.Background()); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		n := 0
		for name, ids := range x.acked {
			ro, err := tonbo.OpenReadOnly(t.Context(), name, tonbo.Options{Remote: x.inner, Dir: t.TempDir()})
			if err != nil {
				t.Errorf("seed %d: %v", seed, err)
				continue
			}
			x.has(ro, name, "acknowledged", ids)
			ro.Close()
			n += len(ids)
		}
		t.Logf("seed %d: %d acknowledged; %+v", seed, n, x.r.Stats())
	}
}

// TestCloseOfARegistryAtAnyMoment, with a context that ends soon: it returns, leaves nothing open, and every commit is in the remote or in the local copy.
func TestCloseOfARegistryAtAnyMoment(t *testing.T) {
	for seed := range 4 * chaosSeeds() {
		x := newChaos(t, seed, 5, tonbo.RegistryOptions{MaxOpen: 1 + int(seed%4), MaxIdle: time.Duration(1+seed%20) * time.Millisecond, Suspend: seed%2 == 0})
		var wg sync.WaitGroup
		for w := range 8 {
			rng := x.rng(uint64(w))
			wg.Go(func() {
				for {
					name := x.name(rng.IntN(x.names))
					err := x.r.Use(context.Background(), name, func(ctx context.Context, db *tonbo.DB) error {
						if id, ok := x.put(db, name); ok && rng.IntN(2) == 0 {
							x.sync(ctx, db, name, id)
						}
						return nil
					})
					if errors.Is(err, tonbo.ErrClosed) {
						return
					}
				}
			})
		}
		rng := x.rng(99)
		time.Sleep(time.Duration(rng.IntN(150)) * time.Millisecond)
		switch rng.IntN(4) {
		case 0:
			x.store.Partition(true)
		case 1:
			x.store.Hang(tonbotest.Match{}, 20)
		case 2:
			x.store.DropAnswer(logEntries, 3)
		}
		time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond)
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.IntN(150))*time.Millisecond)
		x.r.Close(ctx) // what it says is another test's
		cancel()
		wg.Wait()
		if s := x.r.Stats(); s.Open != 0 || s.InUse != 0 || s.Waiting != 0 || s.Connections != 0 {
			t.Errorf("seed %d: %+v", seed, s)
		}
		x.store.Heal()
		for name, ids := range x.committed {
			db, err := x.c.Open(context.Background(), name) // ErrLocked: a handle is left
			if err != nil {
				t.Errorf("seed %d: %v", seed, err)
				continue
			}
			x.has(db, name, "acknowledged", x.acked[name])
			x.has(db, name, "committed", ids)
			closeDB(t, db)
		}
	}
}
