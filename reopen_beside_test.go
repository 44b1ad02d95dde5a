package tonbo_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	sqlitedriver "github.com/ncruces/go-sqlite3/driver"

	"github.com/tonbo-go/tonbo"
)

// TestReopenBesideSomebodyDoesNotAcknowledge what it has set aside: one commits, another machine takes the database over, and somebody who shares the handle takes it back before the first one calls Synced.
func TestReopenBesideSomebodyDoesNotAcknowledge(t *testing.T) {
	a := newAccount(t)
	o := a.machine()
	r, c := newRegistry(t, o, tonbo.RegistryOptions{})
	other := a.machine()
	passed := func() { // another machine's moment
		db := open(t, "run", other)
		exec(t, db, "INSERT INTO t VALUES('elsewhere')")
		closeDB(t, db)
	}
	reopen := func(ctx context.Context, db *tonbo.DB) error { return db.Reopen(ctx) }
	wantLost := func(t *testing.T, what string, err error, x string) {
		t.Helper()
		var fenced *tonbo.FencedError
		if !errors.As(err, &fenced) || fenced.Lost == "" {
			t.Errorf("%s: %v, want a FencedError that names a file", what, err)
			return
		}
		lost, err := sqlitedriver.Open("file:" + filepath.ToSlash(fenced.Lost))
		if err != nil {
			t.Fatal(err)
		}
		defer lost.Close()
		if got := rows(t, lost, "SELECT count(*) FROM t WHERE x='"+x+"'"); got != "1" {
			t.Errorf("%s: %s in %s: %s, want 1", what, x, fenced.Lost, got)
		}
	}
	use(t, r, "run", func(ctx context.Context, db *tonbo.DB) error { return db.Synced(ctx) })

	// (1) Uses of a registry.
	use(t, r, "run", func(ctx context.Context, db *tonbo.DB) error {
		if err := put("a use's")(ctx, db); err != nil {
			return err
		}
		passed()
		use(t, r, "run", reopen) // of somebody else
		wantLost(t, "Synced within a use", db.Synced(ctx), "a use''s")
		wantLost(t, "Suspend within a use", db.Suspend(ctx), "a use''s")
		wantLost(t, "Gate within a use", db.Gate(ctx, func() error { return nil }), "a use''s")
		_, err := db.Step(ctx, "th", "1", func(context.Context, *sql.Tx) ([]byte, error) { return nil, nil })
		wantLost(t, "Step within a use", err, "a use''s")
		use(t, r, "run", func(ctx context.Context, db *tonbo.DB) error { return db.Synced(ctx) }) // it has nothing to do with that
		return nil
	})
	// (2) Its own Reopen: it knows of that.
	use(t, r, "run", func(ctx context.Context, db *tonbo.DB) error {
		if err := put("known")(ctx, db); err != nil {
			return err
		}
		passed()
		wantIs(t, "Synced", db.Synced(ctx), tonbo.ErrFenced)
		if err := db.Reopen(ctx); err != nil {
			return err
		}
		return db.Synced(ctx)
	})
	// (3) Gate, on the one DB of all.
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	db, err := c.Open(t.Context(), "run")
	if err != nil {
		t.Fatal(err)
	}
	err = db.Gate(t.Context(), func() error {
		if err := put("a gate's")(t.Context(), db); err != nil {
			return err
		}
		passed()
		return reopen(t.Context(), db)
	})
	wantLost(t, "Gate", err, "a gate''s")
	if err := db.Gate(t.Context(), func() error { return put("later")(t.Context(), db) }); err != nil {
		t.Error(err)
	}
	closeDB(t, db)
}
