package changeset_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/tonbo-go/tonbo/changeset"
)

var clauses = []string{"ABORT", "FAIL", "IGNORE", "REPLACE", "ROLLBACK"}

// refusals are tables whose constraints refuse a row of the set, each with what it is to do then.
var refusals = []struct{ name, schema, work, meanwhile string }{
	{"inserted, unique", "CREATE TABLE t(id INTEGER PRIMARY KEY, u TEXT UNIQUE ON CONFLICT X); INSERT INTO t VALUES(1, 'a')", "INSERT INTO t VALUES(2, 'b'), (3, 'c')", "INSERT INTO t VALUES(10, 'b')"},
	{"updated, unique", "CREATE TABLE t(id INTEGER PRIMARY KEY, u TEXT UNIQUE ON CONFLICT X); INSERT INTO t VALUES(1, 'a'), (2, 'd')", "UPDATE t SET u = 'b' WHERE id = 1; UPDATE t SET u = 'e' WHERE id = 2", "INSERT INTO t VALUES(10, 'b')"},
	{"updated, key of rows without rowid", "CREATE TABLE t(a, u, PRIMARY KEY(a) ON CONFLICT X, UNIQUE(u) ON CONFLICT X) WITHOUT ROWID; INSERT INTO t VALUES(1, 'a'), (2, 'd')", "UPDATE t SET u = 'b' WHERE a = 1; INSERT INTO t VALUES(3, 'e')", "INSERT INTO t VALUES(10, 'b')"},
	{"without a key", "CREATE TABLE t(u UNIQUE ON CONFLICT X, v); INSERT INTO t VALUES('a', 1)", "INSERT INTO t VALUES('b', 2), ('c', 3)", "INSERT INTO t VALUES('b', 10)"},
	{"copies", "CREATE TABLE t(u UNIQUE ON CONFLICT X, v); CREATE TABLE z(v); INSERT INTO t VALUES('a', 1)", "DELETE FROM t; INSERT INTO t VALUES('b', 2); INSERT INTO z VALUES(1)", "INSERT INTO t VALUES('b', 10)"},
	{"two constraints", "CREATE TABLE t(id INTEGER PRIMARY KEY ON CONFLICT X, u UNIQUE ON CONFLICT X, n NOT NULL ON CONFLICT X DEFAULT 7, CHECK(n > 0)); INSERT INTO t VALUES(1, 'a', 1)", "INSERT INTO t VALUES(2, 'b', 1), (3, 'c', 1)", "INSERT INTO t VALUES(10, 'b', 1)"},
}

// TestOnConflictClausesOfTablesDoNotAct: a row that a constraint refuses is a conflict, whatever the table would do about it, and nothing is changed.
func TestOnConflictClausesOfTablesDoNotAct(t *testing.T) {
	for _, test := range refusals {
		for _, clause := range clauses {
			t.Run(test.name+"/"+clause, func(t *testing.T) {
				t.Parallel()
				a, _, path := pair(t, strings.ReplaceAll(test.schema, "ON CONFLICT X", "ON CONFLICT "+clause), "", test.work)
				s := mustCompare(t, a, path)
				exec(t, a, test.meanwhile)
				before := dump(t, a)
				for _, o := range []changeset.OnConflict{changeset.Fail, changeset.Skip, changeset.Overwrite} {
					got := conflicts(t, s.Apply(context.Background(), a, changeset.ApplyOptions{OnConflict: o}))
					if len(got) != 1 || !strings.Contains(got[0], "UNIQUE constraint failed") {
						t.Errorf("%v: got %q, want one conflict", o, got)
					}
					if after := dump(t, a); !slices.Equal(before, after) {
						t.Errorf("%v: something has changed:\n%s", o, difference(after, before))
					}
				}
				// The script stops, and nothing is committed.
				var script strings.Builder
				if err := s.WriteSQL(&script); err != nil {
					t.Fatal(err)
				}
				if err := a.Exec(script.String()); !errors.Is(err, sqlite3.CONSTRAINT) {
					t.Errorf("script: got %v, want a constraint", err)
				}
				if a.GetAutocommit() {
					t.Error("script: the transaction was ended")
				}
				exec(t, a, "ROLLBACK")
				if after := dump(t, a); !slices.Equal(before, after) {
					t.Errorf("script: something has changed:\n%s", difference(after, before))
				}
			})
		}
	}
}

// TestTablesWithOnConflictClausesAreMadeTheOther: nothing is in the way of the same changes.
func TestTablesWithOnConflictClausesAreMadeTheOther(t *testing.T) {
	for _, test := range refusals {
		for _, clause := range clauses {
			t.Run(test.name+"/"+clause, func(t *testing.T) {
				t.Parallel()
				a, b, path := pair(t, strings.ReplaceAll(test.schema, "ON CONFLICT X", "ON CONFLICT "+clause), "", test.work)
				s := mustCompare(t, a, path)
				var script strings.Builder
				if err := s.WriteSQL(&script); err != nil {
					t.Fatal(err)
				}
				scripted := copyTo(t, a, path+"3")
				exec(t, scripted, script.String())
				if err := s.Apply(context.Background(), a, changeset.ApplyOptions{}); err != nil {
					t.Fatal(err)
				}
				for _, c := range []*sqlite3.Conn{a, scripted} {
					if got, want := dump(t, c), dump(t, b); !slices.Equal(got, want) {
						t.Error(difference(got, want))
					}
				}
			})
		}
	}
}

// TestTransactionOfAnotherIsNotCommitted: what Apply began was rolled back, and another transaction is open in its place.
func TestTransactionOfAnotherIsNotCommitted(t *testing.T) {
	a, _, path := pair(t, "CREATE TABLE t(id INTEGER PRIMARY KEY)", "", "INSERT INTO t VALUES(1)")
	s := mustCompare(t, a, path)
	before := dump(t, a)
	for _, q := range []string{"ROLLBACK", "ROLLBACK; BEGIN; INSERT INTO t VALUES(7)"} {
		if err := s.Apply(context.Background(), a, changeset.ApplyOptions{BeforeCommit: func() error { return a.Exec(q) }}); err == nil || !strings.Contains(err.Error(), "ended") {
			t.Errorf("%s: got %v", q, err)
		}
		if after := dump(t, a); !slices.Equal(before, after) || !a.GetAutocommit() {
			t.Errorf("%s: something has changed:\n%s", q, difference(after, before))
		}
	}
}

// TestTempObjectsAreNotTheTarget: names mean the main database, and a TEMP trigger does not fire.
func TestTempObjectsAreNotTheTarget(t *testing.T) {
	a, b, path := pair(t, "CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, v); INSERT INTO t VALUES(1, 'a'), (2, 'b'); CREATE TABLE bag(v); INSERT INTO bag VALUES(1)", "",
		"INSERT INTO t VALUES(3, 'c'); UPDATE t SET v = 'A' WHERE id = 1; DELETE FROM t WHERE id = 2; DELETE FROM bag; PRAGMA user_version = 4")
	s := mustCompare(t, a, path)
	exec(t, a, "CREATE TEMP TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, v); INSERT INTO temp.t VALUES(9, 'z'); CREATE TEMP TABLE bag(v); CREATE TEMP TRIGGER fires AFTER INSERT ON main.t BEGIN SELECT RAISE(ROLLBACK, 'fired'); END")
	if err := s.Apply(context.Background(), a, changeset.ApplyOptions{}); err == nil || !strings.Contains(err.Error(), "trigger fires is TEMP") {
		t.Errorf("got %v", err)
	}
	exec(t, a, "DROP TRIGGER fires")
	if err := s.Apply(context.Background(), a, changeset.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, want := dump(t, copyTo(t, a, path+"2")), dump(t, b); !slices.Equal(got, want) {
		t.Error(difference(got, want))
	}
}
