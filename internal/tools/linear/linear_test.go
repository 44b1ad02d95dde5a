package linear_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// operation is a read of the database, or a write of a value that no other one writes.
type operation struct {
	write bool
	value int
}

// result is what was read. unknown: nobody was told whether it was acknowledged.
type result struct {
	value   int
	unknown bool
}

// register is the model: the database holds the value that was written last.
var register = porcupine.Model{
	Init: func() any { return 0 },
	Step: func(state, input, output any) (bool, any) {
		op, r := input.(operation), output.(result)
		if op.write {
			return true, op.value
		}
		return r.value == state.(int), state
	},
	DescribeOperation: func(input, output any) string {
		op, r := input.(operation), output.(result)
		if op.write {
			return fmt.Sprintf("write %d (unknown %t)", op.value, r.unknown)
		}
		return fmt.Sprintf("read %d", r.value)
	},
}

// history collects operations. Time is counted in calls and returns.
type history struct {
	mu  sync.Mutex
	now int64
	ops []porcupine.Operation
}

func (h *history) call() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now++
	return h.now
}

// done records an operation that was acknowledged, or a write that perhaps comes to be, at any time from its call on.
func (h *history) done(client int, called int64, op operation, r result) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now++
	returned := h.now
	if r.unknown {
		returned = 1 << 60
	}
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: op, Call: called, Output: r, Return: returned})
}

// client opens the database, which fences the others, works on it, and starts over when it has lost it. What counts is acknowledged by Synced: writes and, as it covers what was read as well, reads.
func client(ctx context.Context, n int, h *history, o tonbo.Options, rng *rand.Rand, rounds int, honest bool) error {
	db, err := tonbo.Open(ctx, "register", o)
	for try := 0; err != nil && try < 50; try++ {
		db, err = tonbo.Open(ctx, "register", o)
	}
	if err != nil {
		return err
	}
	defer func() { db.Close() }()
	for i := range rounds {
		op := operation{write: rng.IntN(2) == 0, value: n*1000000 + i + 1}
		called := h.call()
		var r result
		if op.write {
			_, err = db.ExecContext(ctx, "INSERT OR REPLACE INTO register VALUES(1, ?)", op.value)
		} else {
			err = db.QueryRowContext(ctx, "SELECT v FROM register").Scan(&r.value)
		}
		if err == nil && honest {
			err = db.Synced(ctx)
		}
		switch {
		case err == nil:
			h.done(n, called, op, r)
		case op.write:
			h.done(n, called, op, result{unknown: true})
		}
		if db.Err() != nil || rng.IntN(8) == 0 { // fenced, or somewhere else from here on
			// A write that was acknowledged to nobody may still be shipped by whoever opens this directory next: its operation stays open.
			if err := db.Reopen(ctx); err != nil && ctx.Err() != nil {
				return err
			}
		}
	}
	return nil
}

// register0 makes the database, which holds 0.
func register0(t *testing.T, ctx context.Context, o tonbo.Options) {
	if _, err := tonbo.Create(ctx, "register", o); err != nil {
		t.Fatal(err)
	}
	db, err := tonbo.Open(ctx, "register", o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE register(id INTEGER PRIMARY KEY, v INTEGER); INSERT INTO register VALUES(1, 0)"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// count tells how many operations were acknowledged, and how many writes were not.
func count(ops []porcupine.Operation) (acked, unknown int) {
	for _, op := range ops {
		if op.Output.(result).unknown {
			unknown++
		} else {
			acked++
		}
	}
	return acked, unknown
}

// check asks the checker. Writes that nobody acknowledged and nobody has read are left out: they may have come last, or never.
func check(ops []porcupine.Operation) porcupine.CheckResult {
	read := map[int]bool{}
	for _, op := range ops {
		if !op.Input.(operation).write {
			read[op.Output.(result).value] = true
		}
	}
	var of []porcupine.Operation
	for _, op := range ops {
		if !op.Output.(result).unknown || read[op.Input.(operation).value] {
			of = append(of, op)
		}
	}
	return porcupine.CheckOperationsTimeout(register, of, 20*time.Second)
}

// run lets clients loose on one database and returns what the checker says.
func run(t *testing.T, seed uint64, honest bool) (porcupine.CheckResult, []porcupine.Operation) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	inner := mem.New("linear")
	options := func() tonbo.Options {
		return tonbo.Options{Remote: inner, Dir: t.TempDir(), SyncTimeout: 5 * time.Second, SharedCache: -1}
	}
	register0(t, ctx, options())
	var h history
	var wg sync.WaitGroup
	for n := range 3 {
		o := options()
		store := tonbotest.NewStore(inner)
		store.Random(seed*10+uint64(n), 0.03, tonbotest.Lose, tonbotest.DropAnswer, tonbotest.Fail)
		o.Remote = store
		wg.Go(func() {
			if err := client(ctx, n+1, &h, o, rand.New(rand.NewPCG(seed, uint64(n))), 25, honest); err != nil {
				t.Errorf("seed %d: client %d: %v", seed, n, err)
			}
		})
	}
	wg.Wait()
	return check(h.ops), h.ops
}

func seeds(n uint64) uint64 {
	if more, err := strconv.ParseUint(os.Getenv("TONBO_SIM_SEEDS"), 10, 64); err == nil {
		return more
	}
	return n
}

func TestAcknowledgedOperationsAreLinearizable(t *testing.T) {
	var acked, unknown int
	for seed := uint64(1); seed <= seeds(6); seed++ {
		got, ops := run(t, seed, true)
		if got != porcupine.Ok {
			t.Errorf("seed %d: %s", seed, got)
		}
		a, u := count(ops)
		acked, unknown = acked+a, unknown+u
	}
	t.Logf("%d operations acknowledged, %d writes not", acked, unknown)
}

// TestOperationsThatNobodyAcknowledgedAreNot: without Synced, a former owner reads what is long past. So the checker sees.
func TestOperationsThatNobodyAcknowledgedAreNot(t *testing.T) {
	for seed := uint64(1); seed <= 100; seed++ {
		if got, _ := run(t, seed, false); got == porcupine.Illegal {
			return
		}
	}
	t.Error("not found")
}
