package vfs_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/vfs"
)

// told is what BeforeReset has been told, as package cache keeps it.
type told struct {
	told  int // pages, in all
	pages map[uint32]uint64
}

func (r *told) beforeReset(s vfs.Spill) error {
	r.told += len(s.Pages)
	if s.MinCount < s.MaxCount {
		for p := range r.pages {
			if p > s.MinCount {
				delete(r.pages, p)
			}
		}
	}
	for _, p := range s.Pages {
		r.pages[p.Page] = p.Sum
	}
	return nil
}

func TestResetHasNothingToTellThatWasForetold(t *testing.T) {
	r := told{pages: map[uint32]uint64{}}
	f := open(t, 4096, func(o *vfs.Options) { o.BeforeReset = r.beforeReset })
	f.db.SetMaxOpenConns(1)
	exec(t, f.db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)")
	f.ship(t)
	exec(t, f.db, "PRAGMA wal_checkpoint(TRUNCATE)")
	for i := range 3 {
		exec(t, f.db, "INSERT INTO t(v) VALUES(randomblob(20000))")
		if i == 1 { // some of it is in the main file by then
			exec(t, f.db, "PRAGMA wal_checkpoint(PASSIVE)")
			exec(t, f.db, "INSERT INTO t(v) VALUES(randomblob(20000))")
		}
		if err := f.d.Foretell(); err != nil {
			t.Fatal(err)
		}
		before := r.told
		exec(t, f.db, "PRAGMA wal_checkpoint(TRUNCATE)")
		if n := r.told - before; n != 0 {
			t.Errorf("round %d: the reset told of %d pages", i, n)
		}
		pages, count := f.d.Unshipped()
		for p := range r.pages {
			if !slices.Contains(pages, p) {
				t.Errorf("round %d: page %d of %d is told of, and not unshipped", i, p, count)
			}
		}
		buf := make([]byte, 4096)
		for _, p := range pages {
			sum, err := f.d.ReadPage(p, buf)
			if err != nil {
				t.Fatal(err)
			}
			if r.pages[p] != sum {
				t.Errorf("round %d: page %d is told to be %x, is %x", i, p, r.pages[p], sum)
			}
		}
	}
}

func TestTakesWaitForTheLogToBeginAnew(t *testing.T) {
	f := open(t, 4096, nil)
	f.db.SetMaxOpenConns(1)
	exec(t, f.db, "CREATE TABLE t(v)")
	c, err := f.d.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.r.apply(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, _, ok := f.d.HoldTakes(ctx); ok {
		t.Error("held while pages are read back")
	}
	go func() { c.Release(); c.Shipped() }()

	over, release, ok := f.d.HoldTakes(t.Context())
	if !ok {
		t.Fatal("not held")
	}
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := f.d.Take(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Take beside: %v", err)
	}
	exec(t, f.db, "PRAGMA wal_checkpoint(PASSIVE)")
	exec(t, f.db, "INSERT INTO t VALUES(1)")
	<-over
	f.ship(t)
	release() // does nothing: it is over

	if _, release, ok = f.d.HoldTakes(t.Context()); !ok {
		t.Fatal("not held")
	}
	exec(t, f.db, "INSERT INTO t VALUES(2)")
	taken := make(chan int)
	go func() { taken <- f.ship(t) }()
	release()
	if n := <-taken; n == 0 {
		t.Error("nothing taken")
	}
	f.check(t)
}
