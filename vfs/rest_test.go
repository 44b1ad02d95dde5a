package vfs_test

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"os"
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
		f.foretell(t)
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

// foretell is what happens when the write-ahead log then does not begin anew.
func (f *fixture) foretell(t *testing.T) {
	t.Helper()
	_, release, ok := f.d.HoldTakes(t.Context())
	if !ok {
		t.Fatal("not held")
	}
	defer release()
	if err := f.d.Foretell(); err != nil {
		t.Fatal(err)
	}
}

// TestPageForetoldThatIsTheSameAgainAfterAnEntryIsToldAgain: the state has forgotten it with the entry.
func TestPageForetoldThatIsTheSameAgainAfterAnEntryIsToldAgain(t *testing.T) {
	r := told{pages: map[uint32]uint64{}}
	f := open(t, 4096, func(o *vfs.Options) { o.BeforeReset = r.beforeReset })
	f.db.SetMaxOpenConns(1)
	exec(t, f.db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v); INSERT INTO t VALUES(1, 'a')")
	f.ship(t)
	exec(t, f.db, "PRAGMA wal_checkpoint(TRUNCATE)")
	exec(t, f.db, "UPDATE t SET v='b'")
	f.foretell(t)
	was := maps.Clone(r.pages)
	exec(t, f.db, "UPDATE t SET v='c'")
	c, err := f.d.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.r.apply(t, c)
	c.Release()
	exec(t, f.db, "UPDATE t SET v='b'")
	clear(r.pages) // what was told before the entry was captured
	c.Shipped()
	exec(t, f.db, "PRAGMA wal_checkpoint(TRUNCATE)")
	if pages, _ := f.d.Unshipped(); len(was) == 0 || len(pages) != len(was) || !maps.Equal(r.pages, was) {
		t.Errorf("unshipped are pages %v; told: %x, before the entry: %x", pages, r.pages, was)
	}
}

// TestNothingIsForetoldOfPagesThatAHeldCommitShips: they would be told as they were before it, after it was captured.
func TestNothingIsForetoldOfPagesThatAHeldCommitShips(t *testing.T) {
	r := told{pages: map[uint32]uint64{}}
	var f *fixture
	f = open(t, 4096, func(o *vfs.Options) {
		o.BeforeReset = r.beforeReset
		o.BeforeCommit = func(_ context.Context, h *vfs.Held) error {
			c := h.Take(context.Background())
			f.r.apply(t, c)
			c.Release()
			f.foretell(t)
			return nil
		}
	})
	f.db.SetMaxOpenConns(1)
	exec(t, f.db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)")
	exec(t, f.db, "INSERT INTO t VALUES(1, 'a')")
	exec(t, f.db, "UPDATE t SET v='b'")
	if len(r.pages) > 0 {
		t.Errorf("told of %x, and everything is shipped", r.pages)
	}
	f.check(t)
}

// TestNothingIsForetoldBesideATake: when the log has begun anew, Takes are held no more.
func TestNothingIsForetoldBesideATake(t *testing.T) {
	r := told{pages: map[uint32]uint64{}}
	f := open(t, 4096, func(o *vfs.Options) { o.BeforeReset = r.beforeReset })
	f.db.SetMaxOpenConns(1)
	exec(t, f.db, "CREATE TABLE t(v)")
	c, err := f.d.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	exec(t, f.db, "INSERT INTO t VALUES(1)")
	if err := f.d.Foretell(); err != nil || r.told > 0 {
		t.Errorf("told of %d pages, %v", r.told, err)
	}
	f.r.apply(t, c)
	c.Release()
	c.Shipped()
	if err := f.d.Foretell(); err != nil || r.told > 0 {
		t.Errorf("told of %d pages, %v", r.told, err)
	}
	f.ship(t)
	f.check(t)
}

// TestDatabaseThatGrowsHasNotShrunkWhileAnEntryIsInFlight: whichever of the two states is the last shipped one. That it was smaller than the entry makes it before that, says nothing of damage behind it.
func TestDatabaseThatGrowsHasNotShrunkWhileAnEntryIsInFlight(t *testing.T) {
	for _, c := range []struct {
		name, sql string
		shrinks   bool
	}{
		{"grows on", "INSERT INTO t(v) VALUES(randomblob(20000))", false},
		{"below the entry", "DELETE FROM t WHERE id > 2; VACUUM", true},
		{"below what is shipped", "DELETE FROM t; VACUUM", true},
	} {
		for _, stored := range []bool{true, false} {
			var last vfs.Spill
			r := told{pages: map[uint32]uint64{}}
			f := open(t, 4096, func(o *vfs.Options) {
				o.BeforeReset = func(s vfs.Spill) error { last = s; return r.beforeReset(s) }
			})
			f.db.SetMaxOpenConns(1)
			exec(t, f.db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v); INSERT INTO t(v) VALUES(randomblob(20000))")
			f.ship(t)
			exec(t, f.db, "PRAGMA wal_checkpoint(TRUNCATE)")
			exec(t, f.db, "INSERT INTO t(v) VALUES(randomblob(20000)), (randomblob(20000)), (randomblob(20000))")
			entry, err := f.d.Take(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			f.r.apply(t, entry)
			entry.Release()
			exec(t, f.db, c.sql)
			f.foretell(t)
			if foretold := r.told > 0; foretold == c.shrinks {
				t.Errorf("%s: foretold: %t", c.name, foretold)
			}
			exec(t, f.db, "PRAGMA wal_checkpoint(TRUNCATE)")
			if last.MaxCount != entry.PageCount || last.MinCount < last.MaxCount != c.shrinks {
				t.Errorf("%s: told of %d to %d pages, the entry has %d", c.name, last.MinCount, last.MaxCount, entry.PageCount)
			}
			if stored {
				entry.Shipped()
			} else {
				entry.Return()
			}
			pages, _ := f.d.Unshipped()
			buf := make([]byte, 4096)
			for _, p := range pages {
				if sum, err := f.d.ReadPage(p, buf); err != nil || r.pages[p] != sum {
					t.Errorf("%s: page %d is told to be %x, is %x, %v", c.name, p, r.pages[p], sum, err)
				}
			}
			f.ship(t)
			f.check(t)
		}
	}
}

// TestHeldCommitIsTakenAfterWhatIsBeingForetold: so that what is told of before it is captured is older than it.
func TestHeldCommitIsTakenAfterWhatIsBeingForetold(t *testing.T) {
	telling, took := make(chan struct{}), make(chan struct{})
	hold := false
	f := open(t, 4096, func(o *vfs.Options) {
		o.BeforeReset = func(vfs.Spill) error {
			if hold {
				hold = false
				close(telling)
				select {
				case <-took:
					t.Error("the commit was taken meanwhile")
				case <-time.After(50 * time.Millisecond):
				}
			}
			return nil
		}
		o.BeforeCommit = func(_ context.Context, h *vfs.Held) error {
			select {
			case <-telling:
				h.Take(context.Background()).Release()
				close(took)
			default: // not shipped
			}
			return nil
		}
	})
	exec(t, f.db, "CREATE TABLE t(v)")
	_, release, ok := f.d.HoldTakes(t.Context())
	if !ok {
		t.Fatal("not held")
	}
	defer release()
	hold = true
	foretold := make(chan error)
	go func() { foretold <- f.d.Foretell() }()
	<-telling
	exec(t, f.db, "INSERT INTO t VALUES(1)")
	if err := <-foretold; err != nil {
		t.Fatal(err)
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

// TestPositionOfTheLogIsNeverAheadOfIt: what is said beside commits, checkpoints and logs that begin anew is what the log with these salts has, which SQLite's own index tells after each commit.
func TestPositionOfTheLogIsNeverAheadOfIt(t *testing.T) {
	f := open(t, 512, nil)
	f.db.SetMaxOpenConns(1)
	if salts, end := f.d.WALPosition(); end != 0 {
		t.Errorf("without a log: %x, %d", salts, end)
	}
	exec(t, f.db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)")
	type position struct {
		salts [8]byte
		end   int64
	}
	said := map[position]bool{}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				salts, end := f.d.WALPosition()
				said[position{salts, end}] = true
			}
		}
	}()
	has := map[[8]byte]int64{}
	for i := range 300 {
		exec(t, f.db, "INSERT INTO t(v) VALUES(randomblob(?))", i*7%900)
		h, err := os.ReadFile(f.d.Path() + "-shm")
		if err != nil { // an index in memory only: https://sqlite.org/wal.html#noshm
			h = make([]byte, 48)
		}
		salts, end := f.d.WALPosition()
		if frames := binary.NativeEndian.Uint32(h[16:]); err == nil && len(h) >= 48 && (salts != [8]byte(h[32:40]) || end != 32+int64(frames)*(24+512)) {
			t.Fatalf("commit %d: %x, %d; SQLite says %x, %d frames", i, salts, end, h[32:40], frames)
		}
		log, err := os.ReadFile(f.d.Path() + "-wal")
		if err != nil || [8]byte(log[16:24]) != salts || int64(len(log)) < end {
			t.Fatalf("commit %d: %x, %d; the log has %d bytes: %v", i, salts, end, len(log), err)
		}
		has[salts] = end
		switch i % 20 {
		case 7:
			exec(t, f.db, "PRAGMA wal_checkpoint(RESTART)")
		case 13:
			exec(t, f.db, "PRAGMA wal_checkpoint(TRUNCATE)")
		}
	}
	close(stop)
	<-done
	for p := range said {
		if p.end > 0 && p.end > has[p.salts] {
			t.Errorf("%d was said of the log %x, which had %d bytes", p.end, p.salts, has[p.salts])
		}
	}
	f.db.SetMaxIdleConns(0) // the last connection takes the log with it
	if salts, end := f.d.WALPosition(); end != 0 {
		t.Errorf("behind the last connection: %x, %d", salts, end)
	}
}
