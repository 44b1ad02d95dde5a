package tonbo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote/mem"
)

// TestFindingAPointTakesFewRoundTrips: however long the log is, by label, time or slot; of a small database, whose entries carry it whole, as of a large one.
func TestFindingAPointTakesFewRoundTrips(t *testing.T) {
	for _, large := range []bool{false, true} {
		t.Run(fmt.Sprintf("large=%t", large), func(t *testing.T) {
			ctx := context.Background()
			store := &chained{Store: mem.New("test")}
			a := newAccount(t)
			a.store = store
			a.create("run")
			db := open(t, "run", a.machine())
			exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)")
			if large {
				exec(t, db, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<3000) INSERT INTO t(v) SELECT randomblob(900) FROM s")
			}
			const n = 1000
			points := make([]tonbo.Point, n)
			for i := range points {
				var err error
				if i%3 > 0 { // every third label names a point at which nothing was written
					exec(t, db, "INSERT INTO t(v) VALUES(?)", i)
				}
				if points[i], err = db.Checkpoint(ctx, fmt.Sprint("step-", i)); err != nil {
					t.Fatal(err)
				}
			}
			closeDB(t, db)
			c := client(t, a)
			store.delay = 2 * time.Millisecond
			for i := 0; i < n; i += 111 {
				for _, at := range []tonbo.At{tonbo.Label(fmt.Sprint("step-", i)), tonbo.Time(points[i].Time), tonbo.Slot(points[i].Slot), points[i]} {
					store.reset()
					p, err := c.Find(ctx, "run", at)
					requests, chain := store.counts()
					if err != nil || p.Slot != points[i].Slot {
						t.Errorf("%T %v: slot %d, want %d: %v", at, at, p.Slot, points[i].Slot, err)
					}
					t.Logf("%T: %d requests, %d one after the other", at, requests, chain)
					if chain > 8 || requests > 224 { // a tail of up to 192 entries, 64 at once, and what leads to it
						t.Errorf("%T: %d requests, %d one after the other: want at most 224 and 8", at, requests, chain)
					}
				}
			}
			if _, err := c.Find(ctx, "run", tonbo.Label("step-1000")); !errors.Is(err, tonbo.ErrPointGone) {
				t.Errorf("a label that was never given: %v", err)
			}
		})
	}
}

// labelsOf lists the labels that History knows, the newest first.
func labelsOf(t *testing.T, c *tonbo.Client, name string) (labels []string) {
	t.Helper()
	for e, err := range c.History(context.Background(), name) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Label != "" {
			labels = append(labels, e.Label)
		}
	}
	return labels
}

// TestLabelsOutliveRewindsAndCollection: a labelled point is found, listed and read whatever was rewound, collected and compacted since.
func TestLabelsOutliveRewindsAndCollection(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	c := client(t, a)
	a.create("run")
	o := a.machine().Tuned(1000, time.Hour)
	o.History = time.Nanosecond
	var want []string // newest first
	states := map[string]string{}
	steps := func(db *tonbo.DB, labels ...string) {
		t.Helper()
		for _, l := range labels {
			for range 3 {
				exec(t, db, "INSERT INTO t(v) VALUES(randomblob(3000))")
				synced(t, db)
			}
			if _, err := db.Checkpoint(ctx, l); err != nil {
				t.Fatal(err)
			}
			states[l] = rows(t, db, stateQuery)
			want = slices.Insert(want, 0, l)
		}
	}
	compact := func(db *tonbo.DB) {
		t.Helper()
		if err := db.Compact(ctx, false); err != nil {
			t.Fatal(err)
		}
	}
	look := func(when string) {
		t.Helper()
		if got := labelsOf(t, c, "run"); !slices.Equal(got, want) {
			t.Errorf("%s: history has %v, want %v", when, got, want)
		}
		for _, l := range want {
			ro := readOnly(t, a, "run", tonbo.Label(l))
			if got := rows(t, ro, stateQuery); got != states[l] {
				t.Errorf("%s: %s is %s, want %s", when, l, got, states[l])
			}
			closeDB(t, ro)
		}
		if _, err := c.Find(ctx, "run", tonbo.Label("none")); !errors.Is(err, tonbo.ErrPointGone) {
			t.Errorf("%s: %v", when, err)
		}
	}
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
	steps(db, "a", "b")
	compact(db)
	steps(db, "c", "d") // stand on the base of b
	closeDB(t, db)
	if _, err := c.Rewind(ctx, "run", tonbo.Label("c")); err != nil { // d is on a branch that was left
		t.Fatal(err)
	}
	db = open(t, "run", o)
	steps(db, "e")
	before := db.Status().Point
	compact(db)
	steps(db, "f")
	compact(db) // the horizon is behind e: what is between c and e goes
	collect(t, a, "run")
	look("collected")
	closeDB(t, db)
	// Back to a labelled point below the horizon: the log has holes on both sides of it.
	if _, err := c.Rewind(ctx, "run", tonbo.Label("d")); err != nil {
		t.Fatal(err)
	}
	look("rewound below the horizon")
	collect(t, a, "run")
	db = open(t, "run", o)
	if got := rows(t, db, stateQuery); got != states["d"] {
		t.Errorf("rewound to d: %s, want %s", got, states["d"])
	}
	steps(db, "g")
	compact(db)
	steps(db, "h")
	compact(db)
	steps(db, "i")
	closeDB(t, db)
	collect(t, a, "run")
	look("compacted behind that")
	if _, err := c.Rewind(ctx, "run", before); err != nil { // e: labelled, below the horizon
		t.Fatal(err)
	}
	db = open(t, "run", a.machine())
	if got := rows(t, db, stateQuery); got != states["e"] {
		t.Errorf("rewound to e: %s, want %s", got, states["e"])
	}
	closeDB(t, db)
	collect(t, a, "run")
	look("undone")
	db = open(t, "run", o)
	steps(db, "j")
	compact(db)
	collect(t, a, "run")
	look("compacted once more")
	if _, err := c.Find(ctx, "run", tonbo.Time(time.Unix(1, 0))); !errors.Is(err, tonbo.ErrPointGone) {
		t.Errorf("a time before all: %v", err)
	}
}
