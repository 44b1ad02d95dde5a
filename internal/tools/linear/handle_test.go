package linear_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// machine is a process whose goroutines share one handle. Any of them takes the database back when it is lost, or closes the handle and opens another one, while others are in the middle of a call.
type machine struct {
	o    tonbo.Options
	db   atomic.Pointer[tonbo.DB]
	turn sync.Mutex // held by who changes the handle
	acks func(context.Context, *tonbo.DB) error
}

// again takes the database back, or closes the handle and opens another one. Others go on meanwhile, and fail.
func (m *machine) again(ctx context.Context, lost *tonbo.DB, closes bool) {
	if !m.turn.TryLock() {
		return // somebody is at it
	}
	defer m.turn.Unlock()
	switch {
	case m.db.Load() != lost:
	case !closes:
		_ = lost.Reopen(ctx) // failed, it is tried again
	default:
		_ = lost.Close() // what was not shipped is kept here, and may be shipped by the next handle: its operations stay open
		for ctx.Err() == nil {
			if db, err := tonbo.Open(ctx, "register", m.o); err == nil {
				m.db.Store(db)
				return
			}
		}
	}
}

// work is one goroutine's: writes and reads, each acknowledged by a Synced of its own, which shares its round trip with others' (R1). A strict COMMIT needs none.
func (m *machine) work(ctx context.Context, id int, h *history, rng *rand.Rand, rounds int) {
	for i := range rounds {
		db := m.db.Load()
		op := operation{write: rng.IntN(2) == 0, value: id*1000000 + i + 1}
		called := h.call()
		var r result
		var err error
		if op.write {
			_, err = db.ExecContext(ctx, "INSERT OR REPLACE INTO register VALUES(1, ?)", op.value)
		} else {
			err = db.QueryRowContext(ctx, "SELECT v FROM register").Scan(&r.value)
		}
		refused := op.write && err != nil && !m.o.Strict // it left no trace, and is never read
		if err == nil && !(op.write && m.o.Strict) {
			err = m.acks(ctx, db)
		}
		switch {
		case err == nil:
			h.done(id, called, op, r)
		case op.write && !refused:
			h.done(id, called, op, result{unknown: true})
		}
		switch {
		case db.Err() != nil || errors.Is(err, tonbo.ErrClosed):
			m.again(ctx, db, rng.IntN(2) == 0)
		case rng.IntN(12) == 0:
			m.again(ctx, db, true)
		}
	}
}

// shared lets two machines with goroutines that share a handle loose on one database, and returns what the checker says.
func shared(t *testing.T, seed uint64, acks func(context.Context, *tonbo.DB) error) (porcupine.CheckResult, []porcupine.Operation) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	inner := mem.New("linear")
	register0(t, ctx, tonbo.Options{Remote: inner, Dir: t.TempDir()})
	var h history
	var wg sync.WaitGroup
	var machines []*machine
	for n := range 2 {
		store := tonbotest.NewStore(inner)
		store.Random(seed*10+uint64(n), 0.03, tonbotest.Lose, tonbotest.DropAnswer, tonbotest.Fail)
		m := &machine{acks: acks, o: tonbo.Options{Remote: store, Dir: t.TempDir(), SyncTimeout: 5 * time.Second, SharedCache: -1, Strict: (seed+uint64(n))%3 == 0}}
		for m.db.Load() == nil {
			db, err := tonbo.Open(ctx, "register", m.o)
			if err == nil {
				m.db.Store(db)
			} else if ctx.Err() != nil {
				t.Fatal(err)
			}
		}
		machines = append(machines, m)
	}
	for n, m := range machines {
		for g := range 3 {
			wg.Go(func() { m.work(ctx, n*3+g+1, &h, rand.New(rand.NewPCG(seed, uint64(n*3+g))), 12) })
		}
	}
	wg.Wait()
	for _, m := range machines {
		m.db.Load().Close()
	}
	return check(h.ops), h.ops
}

// TestGoroutinesOnOneHandleAreLinearizable: several goroutines write and read on one handle at once and have that acknowledged, while the handle is fenced, taken back, closed and opened.
func TestGoroutinesOnOneHandleAreLinearizable(t *testing.T) {
	var acked, unknown int
	for seed := uint64(1); seed <= seeds(6); seed++ {
		got, ops := shared(t, seed, func(ctx context.Context, db *tonbo.DB) error { return db.Synced(ctx) })
		if got != porcupine.Ok {
			t.Errorf("seed %d: %s", seed, got)
		}
		a, u := count(ops)
		acked, unknown = acked+a, unknown+u
	}
	t.Logf("%d operations acknowledged, %d writes not", acked, unknown)
}

// TestAnswersOfEarlierRoundTripsAreNot: a Synced that is answered by one which began before it acknowledges what is long past (R1). So the checker sees.
func TestAnswersOfEarlierRoundTripsAreNot(t *testing.T) {
	for seed := uint64(1); seed <= 100; seed++ {
		var mu sync.Mutex
		under := map[*tonbo.DB]*answer{}
		joined := func(ctx context.Context, db *tonbo.DB) error {
			mu.Lock()
			a := under[db]
			if a != nil && a.left > 0 {
				a.left--
				mu.Unlock()
				<-a.done
				return a.err
			}
			a = &answer{done: make(chan struct{}), left: 3}
			under[db] = a
			mu.Unlock()
			a.err = db.Synced(ctx)
			close(a.done)
			return a.err
		}
		if got, _ := shared(t, seed, joined); got == porcupine.Illegal {
			t.Logf("seed %d", seed)
			return
		}
	}
	t.Error("not found")
}

// answer is that of one Synced, which the next ones take for theirs.
type answer struct {
	done chan struct{}
	err  error
	left int // so many
}
