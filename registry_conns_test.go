package tonbo_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo"
)

// TestIdleDatabasesKeepFewConnections: those of the least recently used are closed, and what is in use has as many as it needs.
func TestIdleDatabasesKeepFewConnections(t *testing.T) {
	const most, n = 3, 10
	r, _ := newRegistry(t, newAccount(t).machine(), tonbo.RegistryOptions{MaxIdleConns: most})
	for i := range n {
		use(t, r, fmt.Sprint("run-", i), put(i))
		if s := r.Stats(); s.Connections != min(i+1, most) {
			t.Errorf("%d were used one after the other: %+v", i+1, s)
		}
	}
	for i := range n {
		i = n - 1 - i // the last ones keep theirs; each that is used takes another one's
		use(t, r, fmt.Sprint("run-", i), func(ctx context.Context, db *tonbo.DB) error {
			if got, want := db.Stats().OpenConnections, 1; i >= n-most && got != want {
				t.Errorf("run-%d, one of those used last, has %d connections, want %d", i, got, want)
			} else if i < n-most && got != 0 {
				t.Errorf("run-%d has %d connections", i, got)
			}
			return db.PingContext(ctx)
		})
	}
	// Each holds a connection, and needs another one, and one of another database: nobody waits.
	var g errgroup.Group
	var begun sync.WaitGroup
	begun.Add(n)
	for i := range n {
		g.Go(func() error {
			return r.Use(t.Context(), fmt.Sprint("run-", i), func(ctx context.Context, db *tonbo.DB) error {
				c, err := db.Conn(ctx)
				begun.Done()
				if err != nil {
					return err
				}
				defer c.Close()
				begun.Wait()
				if s := r.Stats(); s.Connections < most {
					return fmt.Errorf("all hold one: %+v", s)
				}
				return errors.Join(put(i)(ctx, db), r.Use(ctx, fmt.Sprint("run-", (i+5)%n), put(i)))
			})
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if s := r.Stats(); s.Connections > most || s.Open != n {
		t.Errorf("idle: %+v", s)
	}
	for i := range n {
		use(t, r, fmt.Sprint("run-", i), func(ctx context.Context, db *tonbo.DB) error {
			if got := count(t, db.DB, "t"); got != 3 {
				t.Errorf("run-%d has %d rows", i, got)
			}
			return nil
		})
	}
	none, _ := newRegistry(t, newAccount(t).machine(), tonbo.RegistryOptions{MaxIdleConns: -1})
	use(t, none, "run", put(1))
	if s := none.Stats(); s.Connections != 0 {
		t.Errorf("none may stay: %+v", s)
	}
}
