package tonbo_test

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
)

// What cannot be is refused before anything is made, with an error that names it.
func TestWhatCannotBeIsRefusedByName(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	c := golden(t, a)
	a.create("run")
	db := open(t, "run", a.machine())
	ro, err := tonbo.OpenReadOnly(ctx, "run", a.machine())
	if err != nil {
		t.Fatal(err)
	}
	defer ro.Close()
	run := func(context.Context, *tonbo.DB) error { return nil }
	step := func(context.Context, *sql.Tx) ([]byte, error) { return nil, nil }
	with := func(change func(*tonbo.Options)) error {
		o := a.machine()
		change(&o)
		_, err := tonbo.NewClient(o)
		return err
	}
	for what, err := range map[string]error{
		"fn":             errOf(db.Step(ctx, "t", "i", nil)),
		"thread":         errOf(db.Step(ctx, "", "i", step)),
		"fn ":            tonbo.Scratch(ctx, c, "golden", "t", nil),
		"c":              tonbo.Scratch(ctx, nil, "golden", "t", run),
		"Run of":         errOf(tonbo.Explore(ctx, c, "golden", []tonbo.Candidate{{Name: "a"}}, tonbo.ExploreOptions{Score: scoreRows})),
		"Concurrency":    errOf(tonbo.Explore(ctx, c, "golden", candidates(t, 1), tonbo.ExploreOptions{Score: scoreRows, Concurrency: -1})),
		"fn  ":           db.Gate(ctx, nil),
		"w":              c.Export(ctx, "golden", nil, nil),
		"a":              errOf(tonbo.Diff(ctx, nil, db)),
		"b":              errOf(tonbo.Diff(ctx, db, nil)),
		"a ":             errOf(tonbo.Diff(ctx, (*tonbo.DB)(nil), db)),
		"Client":         errOf(tonbo.Diff(ctx, tonbo.Ref{Name: "golden"}, db)),
		"cs":             errOf(tonbo.Promote(ctx, db, nil, tonbo.PromoteOptions{})),
		"dst":            errOf(tonbo.Promote(ctx, nil, new(tonbo.ChangeSet), tonbo.PromoteOptions{})),
		"OnConflict":     errOf(tonbo.Promote(ctx, db, new(tonbo.ChangeSet), tonbo.PromoteOptions{OnConflict: 9})),
		"r":              errOf(tonbo.ReadPrices(nil)),
		"label":          errOf(db.Checkpoint(ctx, "")),
		"at":             errOf(c.Rewind(ctx, "run", nil)),
		"the label":      errOf(c.Fork(ctx, "golden", "f", tonbo.ForkOptions{At: tonbo.Label("")})),
		"the point":      errOf(c.Fork(ctx, "golden", "f", tonbo.ForkOptions{At: tonbo.Point{}})),
		"Version":        errOf(c.Instances().Ensure(ctx, "k", tonbo.EnsureOptions{Migrate: func(context.Context, *sql.Tx, string) error { return nil }})),
		"Create.Frozen":  errOf(c.Instances().Ensure(ctx, "k", tonbo.EnsureOptions{Create: tonbo.CreateOptions{Frozen: true}})),
		"ReplaceAfter":   errOf(c.Instances().Ensure(ctx, "k", tonbo.EnsureOptions{ReplaceAfter: -1})),
		"At":             errOf(tonbo.Open(ctx, "run", func() tonbo.Options { o := a.machine(); o.At = tonbo.Slot(1); return o }())),
		"SyncEvery":      with(func(o *tonbo.Options) { o.SyncEvery = -1 }),
		"History":        with(func(o *tonbo.Options) { o.History = -time.Hour }),
		"Hydration":      with(func(o *tonbo.Options) { o.Hydration = 9 }),
		"Owner":          with(func(o *tonbo.Options) { o.Owner = strings.Repeat("x", 257) }),
		"Owner ":         with(func(o *tonbo.Options) { o.Owner = "a\nb" }),
		"Limit":          errOf(c.Count(ctx, tonbo.Filter{Limit: -1})),
		"Metadata":       errOf(c.Create(ctx, "m", tonbo.CreateOptions{Metadata: map[string]string{"k": "\xff"}})),
		"Grace":          errOf(c.Sweep(ctx, tonbo.Janitor{Grace: -1})),
		"candidates: th": errOf(tonbo.Explore(ctx, c, "golden", nil, tonbo.ExploreOptions{Score: scoreRows})),
	} {
		if !errors.Is(err, tonbo.ErrInvalid) || !strings.Contains(err.Error(), strings.TrimSpace(what)) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	wantIs(t, "Reopen of a read-only handle", ro.Reopen(ctx), tonbo.ErrReadOnly)
	if tonbo.From(nil) != nil {
		t.Error("From(nil) is something")
	}
	p := tonbo.Point{ID: strings.Repeat("a", 32), Slot: 7}
	if got, err := tonbo.ParsePoint(p.String()); err != nil || got != p {
		t.Errorf("a point without a time: %+v, %v", got, err)
	}
	if _, err := tonbo.Open(ctx, "nobody", a.machine()); err == nil || strings.Count(err.Error(), "no such database") != 1 || !strings.Contains(err.Error(), "mem://test") {
		t.Errorf("got %v", err)
	}
	alone(t, c, "golden", "run")
}

func errOf[T any](_ T, err error) error { return err }

func TestScoresThatAreNoNumbersDoNotWin(t *testing.T) {
	a := newAccount(t)
	c := golden(t, a)
	n := 0
	r, err := tonbo.Explore(context.Background(), c, "golden", candidates(t, 3), tonbo.ExploreOptions{Concurrency: 1, Score: func(context.Context, *tonbo.DB) (float64, error) {
		n++
		return []float64{math.NaN(), 5, math.NaN()}[n-1], nil
	}})
	if err != nil || r.Index != 1 || r.Candidates[0].Err == nil {
		t.Errorf("%+v, %v", r, err)
	}
	// A janitor that looks for scratch databases passes the winner over.
	report, err := c.Sweep(context.Background(), tonbo.Janitor{Metadata: map[string]string{tonbo.MetadataKind: tonbo.ScratchKind}, OlderThan: 1})
	if err != nil || len(report.Done) != 0 {
		t.Errorf("swept %+v, %v", report, err)
	}
}

func TestPanicOfKeepReachesTheCallerOfSweep(t *testing.T) {
	a := newAccount(t)
	a.create("x")
	defer func() {
		if p := recover(); p != "boom" {
			t.Errorf("recovered %v", p)
		}
	}()
	c := newClient(t, a.machine().Clocked(func() time.Time { return time.Now().Add(time.Hour) }))
	c.Sweep(context.Background(), tonbo.Janitor{OlderThan: time.Minute, Keep: func(*tonbo.Database) bool { panic("boom") }})
}

func TestNestedStepsAndEnsuresAreRefused(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	c := a.client()
	var inner error
	in := ensure(t, c, "k", tonbo.EnsureOptions{Version: "1", Migrate: func(ctx context.Context, _ *sql.Tx, _ string) error {
		_, inner = c.Instances().Ensure(ctx, "k", tonbo.EnsureOptions{})
		return nil
	}})
	if inner == nil || !strings.Contains(inner.Error(), "own Migrate") {
		t.Errorf("Ensure in Migrate: %v", inner)
	}
	step := func(context.Context, *sql.Tx) ([]byte, error) { return nil, nil }
	if _, err := in.DB.Step(ctx, "t", "1", func(ctx context.Context, _ *sql.Tx) ([]byte, error) {
		_, inner = in.DB.Step(ctx, "t", "2", step)
		return nil, nil
	}); err != nil || inner == nil || !strings.Contains(inner.Error(), "within a step's function") {
		t.Errorf("Step in a step: %v, %v", inner, err)
	}
	db := open(t, in.Name, a.machine())
	closeDB(t, db)
	_, err := db.Step(ctx, "t", "3", step)
	wantIs(t, "Step of a closed handle", err, tonbo.ErrClosed)
}
