package tonbo_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
)

// leases returns n DBs of one key, which share a handle.
func leases(t *testing.T, a *account, n int) []*tonbo.DB {
	t.Helper()
	c, err := tonbo.NewClient(a.machine())
	if err != nil {
		t.Fatal(err)
	}
	var dbs []*tonbo.DB
	for range n {
		in, err := c.Instances().Ensure(context.Background(), "k", tonbo.EnsureOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { in.DB.Close() })
		dbs = append(dbs, in.DB)
	}
	return dbs
}

func isClosed(err error) bool {
	return errors.Is(err, tonbo.ErrClosed) || err != nil && strings.Contains(err.Error(), "sql: database is closed")
}

func TestClosedDBOfEnsureRefusesEverythingWhileTheOthersGoOn(t *testing.T) {
	ctx := context.Background()
	dbs := leases(t, newAccount(t), 2)
	one, other := dbs[0], dbs[1]
	exec(t, one, "CREATE TABLE t(x)")
	held, err := one.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	heldStmt, err := held.PrepareContext(ctx, "INSERT INTO t VALUES('by a statement of a held connection')")
	if err != nil {
		t.Fatal(err)
	}
	defer heldStmt.Close()
	stmt, err := one.Prepare("INSERT INTO t VALUES('by a statement')")
	if err != nil {
		t.Fatal(err)
	}
	defer stmt.Close()
	apart := sql.OpenDB(one.Connector())
	defer apart.Close()
	if _, err := apart.Exec("INSERT INTO t VALUES('before')"); err != nil {
		t.Fatal(err)
	}
	tx, err := one.Begin()
	if err == nil {
		_, err = tx.Exec("INSERT INTO t VALUES('by a transaction')")
	}
	if err != nil {
		t.Fatal(err)
	}
	done := one.Done()
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	for what, f := range map[string]func() error{
		"Exec":        func() error { _, err := one.Exec("INSERT INTO t VALUES('by Exec')"); return err },
		"Query":       func() error { return one.QueryRow("SELECT 1").Scan(new(int)) },
		"Begin":       func() error { _, err := one.Begin(); return err },
		"a statement": func() error { _, err := stmt.Exec(); return err },
		"a held connection": func() error {
			_, err := held.ExecContext(ctx, "INSERT INTO t VALUES('by a held connection')")
			return err
		},
		"its statement":   func() error { _, err := heldStmt.Exec(); return err },
		"its transaction": func() error { _, err := held.BeginTx(ctx, nil); return err },
		"its query":       func() error { return held.QueryRowContext(ctx, "SELECT 1").Scan(new(int)) },
		"another pool":    func() error { _, err := apart.Exec("INSERT INTO t VALUES('by another pool')"); return err },
		"a COMMIT":        func() error { return tx.Commit() },
		"Synced":          func() error { return one.Synced(ctx) },
		"Checkpoint":      func() error { _, err := one.Checkpoint(ctx, "a"); return err },
		"Step": func() error {
			_, err := one.Step(ctx, "a", "1", func(context.Context, *sql.Tx) ([]byte, error) { t.Error("the step ran"); return nil, nil })
			return err
		},
		"Reopen":   func() error { return one.Reopen(ctx) },
		"Hydrated": func() error { return one.Hydrated(ctx) },
		"Diff":     func() error { _, err := tonbo.Diff(ctx, one, other); return err },
		"Promote": func() error {
			_, err := tonbo.Promote(ctx, one, new(tonbo.ChangeSet), tonbo.PromoteOptions{})
			return err
		},
		"Err":    one.Err,
		"Status": func() error { return one.Status().Err },
	} {
		if err := f(); !isClosed(err) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
	select {
	case <-done:
	default:
		t.Error("Done is not closed")
	}
	if err := one.Close(); err != nil {
		t.Error("a second Close:", err)
	}
	if _, err := other.Exec("INSERT INTO t VALUES('by the other')"); err != nil {
		t.Fatal(err)
	}
	synced(t, other)
	var got string
	if err := other.QueryRow("SELECT group_concat(x) FROM t").Scan(&got); err != nil || got != "before,by the other" {
		t.Errorf("got %s, %v", got, err)
	}
	select {
	case <-other.Done():
		t.Error("the other is done:", other.Err())
	default:
	}
}

func TestReopenOfSharedHandlesClosesTheIdleConnectionsOfAll(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	dbs := leases(t, a, 3)
	exec(t, dbs[0], "CREATE TABLE t(x)")
	for _, db := range dbs {
		exec(t, db, "INSERT INTO t VALUES(1)")
	}
	synced(t, dbs[0])
	taker := open(t, "k", a.machine())
	for _, db := range dbs {
		if err := db.Synced(ctx); !errors.Is(err, tonbo.ErrFenced) {
			t.Fatal(err)
		}
		select {
		case <-db.Done():
		case <-time.After(time.Minute):
			t.Fatal("fenced, and Done is not closed")
		}
	}
	closeDB(t, taker)
	short, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := dbs[1].Reopen(short); err != nil {
		t.Fatal(err)
	}
	for i, db := range dbs {
		select {
		case <-db.Done():
			t.Errorf("%d is done: %v", i, db.Err())
		default:
		}
		exec(t, db, "INSERT INTO t VALUES(1)")
		synced(t, db)
	}
	if n := count(t, dbs[2].DB, "t"); n != 6 {
		t.Errorf("%d rows", n)
	}
}

func TestThePoolOfADBOfEnsureClosesThatDBAlone(t *testing.T) {
	dbs := leases(t, newAccount(t), 3)
	exec(t, dbs[0], "CREATE TABLE t(x)")
	if err := dbs[0].DB.Close(); err != nil {
		t.Error(err)
	}
	if err := tonbo.From(dbs[1].DB).Close(); err != nil {
		t.Error(err)
	}
	for _, db := range dbs[:2] {
		if err := db.Err(); !errors.Is(err, tonbo.ErrClosed) {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error("once more:", err)
		}
	}
	exec(t, dbs[2], "INSERT INTO t VALUES(1)")
	synced(t, dbs[2])
}
