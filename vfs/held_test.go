package vfs_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/tonbo-go/tonbo/vfs"
)

// Between BeforeCommit's nil and the commit frame, what is shipped is ahead of the file: a Take then must wait, since it would see the database shrink back.
func TestTakeBesideHeldCommits(t *testing.T) {
	var mu sync.Mutex // one shipment at a time, as R1 has it
	var last uint32   // pages shipped; guarded by mu
	f := open(t, 512, func(o *vfs.Options) {
		o.BeforeCommit = func(_ context.Context, h *vfs.Held) error {
			mu.Lock()
			defer mu.Unlock()
			c := h.Take(context.Background())
			if c.PageCount < last {
				t.Errorf("a commit makes the database %d pages, %d were shipped", c.PageCount, last)
			}
			last = c.PageCount
			return nil
		}
	})
	exec(t, f.db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for ctx.Err() == nil {
				mu.Lock()
				c, err := f.d.Take(ctx)
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				if c != nil {
					t.Errorf("Take returns %d pages of a database of %d, all were shipped, with %d", c.Len(), c.PageCount, last)
					c.Release()
					c.Return()
					cancel()
				}
				mu.Unlock()
			}
		}()
	}
	for range 2000 {
		exec(t, f.db, "INSERT INTO t(v) VALUES(zeroblob(1500))")
		if ctx.Err() != nil {
			break
		}
	}
	cancel()
	wg.Wait()
}

// A connection that outlives the observation, as rows that were not closed keep it, must not touch the file: it may be another process's by then.
func TestConnectionsThatOutliveTheDatabaseAreHarmless(t *testing.T) {
	f := open(t, 4096, nil)
	exec(t, f.db, "CREATE TABLE t(v); INSERT INTO t VALUES(1)")
	old, err := f.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if _, err := old.ExecContext(t.Context(), "INSERT INTO t VALUES(2)"); err != nil {
		t.Fatal(err)
	}
	if err := f.d.Detach(); err != nil {
		t.Fatal(err)
	}
	// The next owner: it has checkpointed and removed the write-ahead log, and made another one.
	before, err := os.ReadFile(f.d.Path())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"-wal", "-shm"} {
		os.Remove(f.d.Path() + s)
	}
	if err := os.WriteFile(f.d.Path()+"-wal", []byte("the next one's"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := old.ExecContext(t.Context(), "INSERT INTO t VALUES(3)"); !errors.Is(err, vfs.CodeRefused) {
		t.Errorf("a write: %v", err)
	}
	old.Close()
	f.db.Close()
	after, err := os.ReadFile(f.d.Path())
	if err != nil {
		t.Fatal(err)
	}
	if string(before) != string(after) {
		t.Error("the file was changed")
	}
	if b, _ := os.ReadFile(f.d.Path() + "-wal"); string(b) != "the next one's" {
		t.Errorf("the write-ahead log is %q", b)
	}
}
