package tonbo_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/tonbotest"
)

func count(t testing.TB, db *sql.DB, table string) (n int) {
	t.Helper()
	if err := db.QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func insertStep(ran *atomic.Int64, result string) func(context.Context, *sql.Tx) ([]byte, error) {
	return func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
		ran.Add(1)
		_, err := tx.ExecContext(ctx, "INSERT INTO t VALUES(?)", result)
		return []byte(result), err
	}
}

func TestStepRunsOnceAndIsReplayedOnAnotherMachine(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(x)")
	var ran atomic.Int64
	first, err := db.Step(ctx, "orders", "turn-1", insertStep(&ran, "one"))
	if err != nil || string(first.Result) != "one" || first.Replayed || first.Session != "orders" || first.Point.Slot == 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	again, err := db.Step(ctx, "orders", "turn-1", insertStep(&ran, "two"))
	if err != nil || string(again.Result) != "one" || !again.Replayed || again.Session != first.Session {
		t.Fatalf("%+v, %v", again, err)
	}
	if s, err := db.Step(ctx, "other", "turn-1", insertStep(&ran, "three")); err != nil || s.Replayed {
		t.Fatalf("another thread: %+v, %v", s, err)
	}
	// The machine is lost, without a Close.
	db2 := open(t, "run", a.machine())
	elsewhere, err := db2.Step(ctx, "orders", "turn-1", insertStep(&ran, "four"))
	if err != nil || string(elsewhere.Result) != "one" || !elsewhere.Replayed {
		t.Fatalf("%+v, %v", elsewhere, err)
	}
	if ran.Load() != 2 || count(t, db2.DB, "t") != 2 {
		t.Errorf("ran %d times, %d rows", ran.Load(), count(t, db2.DB, "t"))
	}
	if _, err := db.Step(ctx, "orders", "turn-1", insertStep(&ran, "five")); !errors.Is(err, tonbo.ErrFenced) { // its answer would be a stale one
		t.Errorf("a replay of the fenced owner: %v", err)
	}
}

func TestStepOfManyCallersRunsOnce(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(x)")
	var ran, fresh atomic.Int64
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			id := fmt.Sprint(i % 4)
			s, err := db.Step(ctx, "thread", id, insertStep(&ran, "result of "+id))
			if err != nil || string(s.Result) != "result of "+id {
				t.Errorf("%+v, %v", s, err)
			}
			if !s.Replayed {
				fresh.Add(1)
			}
		})
	}
	wg.Wait()
	if ran.Load() != 4 || fresh.Load() != 4 || count(t, db.DB, "t") != 4 {
		t.Errorf("ran %d times, %d say so, %d rows", ran.Load(), fresh.Load(), count(t, db.DB, "t"))
	}
}

func TestErrorsAndPanicsOfAStepLeaveNothing(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(x)")
	if _, err := db.Step(ctx, "a", "0", func(context.Context, *sql.Tx) ([]byte, error) { return nil, nil }); err != nil { // makes the tables
		t.Fatal(err)
	}
	slot := db.Status().Slot
	mine := errors.New("no stock")
	if _, err := db.Step(ctx, "a", "1", func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
		if _, err := tx.Exec("INSERT INTO t VALUES(1)"); err != nil {
			t.Error(err)
		}
		return []byte("half"), mine
	}); err != mine {
		t.Errorf("got %v, want the function's own error", err)
	}
	func() {
		defer func() {
			if r := recover(); r != "boom" {
				t.Errorf("recovered %v", r)
			}
		}()
		db.Step(ctx, "a", "1", func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
			if _, err := tx.Exec("INSERT INTO t VALUES(1)"); err != nil {
				t.Error(err)
			}
			panic("boom")
		})
	}()
	cancelled, cancel := context.WithCancel(ctx)
	if _, err := db.Step(cancelled, "a", "1", func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
		_, err := tx.Exec("INSERT INTO t VALUES(1)")
		cancel()
		return nil, err
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if n := count(t, db.DB, "t"); n != 0 || db.Status().Slot != slot || db.Status().PendingCommits != 0 {
		t.Errorf("%d rows, slot %d of %d, %d commits pending", n, db.Status().Slot, slot, db.Status().PendingCommits)
	}
	var ran atomic.Int64
	if s, err := db.Step(ctx, "a", "1", insertStep(&ran, "done")); err != nil || s.Replayed || ran.Load() != 1 {
		t.Errorf("the same step after its failures: %+v, %v", s, err)
	}
	if s, err := db.Step(ctx, "a", "nil", func(context.Context, *sql.Tx) ([]byte, error) { return nil, nil }); err != nil || s.Result != nil {
		t.Errorf("no result: %+v, %v", s, err)
	}
	for _, bad := range []string{"", strings.Repeat("x", 257), "\xff"} {
		if _, err := db.Step(ctx, bad, "1", insertStep(&ran, "")); err == nil {
			t.Errorf("thread %q: accepted", bad)
		}
		if _, err := db.Step(ctx, "a", bad, insertStep(&ran, "")); err == nil {
			t.Errorf("id %q: accepted", bad)
		}
	}
}

func TestStepSaysThatItsTransactionWasEnded(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	_, err := db.Step(ctx, "a", "1", func(ctx context.Context, tx *sql.Tx) ([]byte, error) { return []byte("x"), tx.Commit() })
	if err == nil || !strings.Contains(err.Error(), "its transaction has ended") {
		t.Errorf("got %v", err)
	}
}

func TestStepRecordedAndNotAcknowledgedIsReplayed(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	store := tonbotest.NewStore(a.store)
	a.store = store
	a.create("run")
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(x)")
	synced(t, db)
	var ran atomic.Int64
	gate := store.Block(tonbotest.Match{Op: tonbotest.Create})
	short, cancel := context.WithCancel(ctx)
	go func() {
		if err := gate.Wait(ctx, 1); err != nil {
			t.Error(err)
		}
		cancel() // while the entry is on its way
	}()
	if _, err := db.Step(short, "a", "1", insertStep(&ran, "one")); !errors.Is(err, tonbo.ErrUnsynced) || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled on the way: %v", err)
	}
	gate.Open()
	s, err := db.Step(ctx, "a", "1", insertStep(&ran, "two"))
	if err != nil || !s.Replayed || string(s.Result) != "one" || ran.Load() != 1 || db.Status().PendingCommits != 0 {
		t.Errorf("again: %+v, %v, ran %d times", s, err, ran.Load())
	}
}

// TestStepRunsOnceWhateverIsKilled kills a process at each step of taking steps and shipping them; the next one, with its disk and without, takes the same steps.
func TestStepRunsOnceWhateverIsKilled(t *testing.T) {
	s := scenario{name: "step", job: job{Steps: 4, Exactly: true, Close: true}}
	names, times := s.failpoints(t)
	for i, name := range names {
		at := fmt.Sprintf("%s#%d", name, 1+i%times[name])
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			dir := w.dir()
			_, events := s.play(w, dir, at)
			said1 := said(events, "step")
			if i%2 == 1 {
				dir = w.dir() // the disk is lost
			}
			j := s.job
			j.Dir = dir
			more := w.start(j, "").wait()
			results := map[int]string{}
			for _, e := range said(more, "step") {
				results[e.Seq] = e.Path
			}
			for _, e := range said1 { // acknowledged before the kill
				if results[e.Seq] != e.Path {
					t.Errorf("step %d: result %q, and %q before the kill", e.Seq, results[e.Seq], e.Path)
				}
			}
			db, _ := w.open(w.dir())
			for n := 1; n <= s.job.Steps; n++ {
				var effects int
				if err := db.QueryRow("SELECT count(*) FROM effects WHERE step=?", n).Scan(&effects); err != nil || effects != 1 {
					t.Errorf("step %d took effect %d times (%v)", n, effects, err)
				}
			}
			closeDB(t, db)
		})
	}
}

// TestStepsOutliveWhatHappensToTheirStatements: a step's statements stay compiled on its connection, whatever is done to the database meanwhile.
func TestStepsOutliveWhatHappensToTheirStatements(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	db.SetMaxOpenConns(1) // the very connection
	exec(t, db, "CREATE TABLE t(x)")
	var ran atomic.Int64
	n := 0
	step := func(what string) {
		t.Helper()
		n++
		for i := range 2 {
			s, err := db.Step(ctx, "a", fmt.Sprint(n), insertStep(&ran, what))
			if err != nil || string(s.Result) != what || s.Replayed != (i == 1) {
				t.Fatalf("%s, call %d: %+v, %v", what, i, s, err)
			}
		}
	}
	step("as it is")
	exec(t, db, "ALTER TABLE t ADD COLUMN y DEFAULT 1")
	exec(t, db, "CREATE TABLE u(x)")
	exec(t, db, "ALTER TABLE t DROP COLUMN y")
	step("another schema")
	exec(t, db, "VACUUM")
	step("vacuumed")
	exec(t, db, "PRAGMA wal_checkpoint(TRUNCATE)")
	step("no WAL")
	if err := db.Reopen(ctx); err != nil {
		t.Fatal(err)
	}
	step("reopened")
	exec(t, db, "DROP TABLE _tonbo_steps")
	if _, err := db.Step(ctx, "a", "dropped", insertStep(&ran, "x")); err == nil {
		t.Error("a step without its table")
	}
	step("made again")
	if int(ran.Load()) != n {
		t.Errorf("%d steps ran %d times", n, ran.Load())
	}
}

func TestStepTellsAnEmptyResultFromNone(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	for id, result := range map[string][]byte{"none": nil, "empty": {}, "zeros": {0, 0}} {
		for range 2 {
			s, err := db.Step(ctx, "a\x00b", id, func(context.Context, *sql.Tx) ([]byte, error) { return result, nil })
			if err != nil || (s.Result == nil) != (result == nil) || string(s.Result) != string(result) || s.Session != "a\x00b" {
				t.Errorf("%s: %#v, %v", id, s, err)
			}
		}
	}
}

// wrappedConnector makes connections that are not the driver's own any more, as tracing does.
type wrappedConnector struct{ driver.Connector }

func (w wrappedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := w.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return struct {
		driver.Conn
		driver.ConnBeginTx
		driver.ConnPrepareContext
	}{c, c.(driver.ConnBeginTx), c.(driver.ConnPrepareContext)}, nil
}

func TestStepSaysThatItsPoolIsWrapped(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(x)")
	pool := sql.OpenDB(wrappedConnector{db.Connector()})
	defer pool.Close()
	var ran atomic.Int64
	_, err := tonbo.From(pool).Step(ctx, "a", "1", insertStep(&ran, "x"))
	if !errors.Is(err, tonbo.ErrUnsupported) || ran.Load() != 0 {
		t.Errorf("ran %d times: %v", ran.Load(), err)
	}
	if s, err := db.Step(ctx, "a", "1", insertStep(&ran, "x")); err != nil || s.Replayed {
		t.Errorf("with its own pool: %+v, %v", s, err)
	}
}
