package vfs_test

import (
	"context"
	"slices"
	"testing"
)

func TestViewHasWhatIsBeingShippedAndTellsOfCommits(t *testing.T) {
	ctx := context.Background()
	f := open(t, 4096, nil)
	exec(t, f.db, "CREATE TABLE t(v); CREATE TABLE u(v)")
	f.ship(t)
	clean, err := f.d.View(ctx)
	if err != nil || len(clean.Changed) > 0 {
		t.Fatalf("%+v, %v", clean, err)
	}
	exec(t, f.db, "INSERT INTO t VALUES(1)")
	dirty, err := f.d.View(ctx)
	if err != nil || dirty.Version == clean.Version || len(dirty.Changed) == 0 || dirty.PageCount != clean.PageCount {
		t.Fatalf("%+v, %v; was %+v", dirty, err, clean)
	}
	c, err := f.d.Take(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c.Release()
	if taken, err := f.d.View(ctx); err != nil || !slices.Equal(taken.Changed, dirty.Changed) || taken.Version != dirty.Version {
		t.Errorf("%+v, %v; was %+v", taken, err, dirty)
	}
	exec(t, f.db, "INSERT INTO u VALUES(1)")
	c.Return()
	if both, err := f.d.View(ctx); err != nil || len(both.Changed) <= len(dirty.Changed) || both.Version == dirty.Version {
		t.Errorf("%+v, %v; was %+v", both, err, dirty)
	}
}
