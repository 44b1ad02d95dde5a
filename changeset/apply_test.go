package changeset_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/tonbo-go/tonbo/changeset"
)

// pair is two databases: begun the same, then each with statements of its own.
func pair(t testing.TB, both, onA, onB string) (a, b *sqlite3.Conn, path string) {
	t.Helper()
	dir := t.TempDir()
	a = connect(t, filepath.Join(dir, "a.db"))
	exec(t, a, both)
	path = filepath.Join(dir, "b.db")
	b = copyTo(t, a, path)
	exec(t, a, onA)
	exec(t, b, onB)
	return a, b, path
}

func conflicts(t testing.TB, err error) []string {
	t.Helper()
	var ce *changeset.ConflictError
	if err == nil {
		return nil
	}
	if !errors.As(err, &ce) || !errors.Is(err, changeset.ErrConflict) {
		t.Fatalf("got %v, want a conflict", err)
	}
	var out []string
	for _, c := range ce.Rows {
		out = append(out, c.String())
	}
	slices.Sort(out)
	return out
}

func TestConflictsAreFoundAndNothingIsChanged(t *testing.T) {
	const both = `CREATE TABLE t(id INTEGER PRIMARY KEY, v, u UNIQUE); INSERT INTO t VALUES(1, 'a', 'x'), (2, 'b', 'y'), (3, 'c', 'z'); CREATE TABLE bag(v); INSERT INTO bag VALUES(1), (1), (2);
		CREATE TABLE parent(id INTEGER PRIMARY KEY); INSERT INTO parent VALUES(1), (2); CREATE TABLE child(p REFERENCES parent ON DELETE CASCADE); CREATE INDEX v ON t(v); CREATE TABLE seq(a INTEGER PRIMARY KEY AUTOINCREMENT)`
	for _, test := range []struct {
		name, work, meanwhile string
		want                  string // of the only conflict
	}{
		{"other row", "UPDATE t SET v = 'A' WHERE id = 1", "UPDATE t SET v = 'B' WHERE id = 2", ""},
		{"same row, same value", "UPDATE t SET v = 'A' WHERE id = 1", "UPDATE t SET v = 'A' WHERE id = 1", ""},
		{"same row", "UPDATE t SET v = 'A' WHERE id = 1", "UPDATE t SET v = 'B' WHERE id = 1", "update in t of (1), expected (1, 'a', 'x'), found (1, 'B', 'x'), wanted (1, 'A', 'x')"},
		{"another column of the same row", "UPDATE t SET v = 'A' WHERE id = 1", "UPDATE t SET u = 'B' WHERE id = 1", "update in t of (1), expected (1, 'a', 'x'), found (1, 'a', 'B'), wanted (1, 'A', 'x')"},
		{"row gone", "UPDATE t SET v = 'A' WHERE id = 1", "DELETE FROM t WHERE id = 1", "update in t of (1), expected (1, 'a', 'x'), found none, wanted (1, 'A', 'x')"},
		{"deleted row changed", "DELETE FROM t WHERE id = 1", "UPDATE t SET v = 1.0 WHERE id = 1", "delete in t of (1), expected (1, 'a', 'x'), found (1, 1.0, 'x'), wanted none"},
		{"deleted row gone", "DELETE FROM t WHERE id = 1", "DELETE FROM t WHERE id = 1", ""},
		{"same key", "INSERT INTO t VALUES(4, 'd', NULL)", "INSERT INTO t VALUES(4, 'e', NULL)", "insert in t of (4), expected none, found (4, 'e', NULL), wanted (4, 'd', NULL)"},
		{"unique column", "INSERT INTO t VALUES(4, 'd', 'w')", "INSERT INTO t VALUES(5, 'e', 'w')", "insert in t of (4): sqlite3: constraint failed: UNIQUE constraint failed: t.u"},
		{"integer for real", "UPDATE t SET v = 1 WHERE id = 1", "UPDATE t SET v = 1.0 WHERE id = 1", "update in t of (1), expected (1, 'a', 'x'), found (1, 1.0, 'x'), wanted (1, 1, 'x')"},
		{"copies", "INSERT INTO bag VALUES(1)", "INSERT INTO bag VALUES(2)", ""},
		{"copies, the same", "INSERT INTO bag VALUES(1)", "DELETE FROM bag WHERE v = 1", "insert in bag, expected 2 of (1), found (1), wanted 3 of (1)"},
		{"column added", "UPDATE t SET v = 'A' WHERE id = 1", "ALTER TABLE t ADD COLUMN w", `alter of table t: it has columns ["id" "v" "u" "w"] with key ["id"]: wanted ["id" "v" "u"] with key ["id"]`},
		{"table dropped", "UPDATE t SET v = 'A' WHERE id = 1", "DROP TABLE t", "alter of table t: it is not there"},
		{"table dropped that has a new row", "DROP TABLE bag", "INSERT INTO bag VALUES(7)", "drop in bag, expected none, found (7), wanted none"},
		{"table dropped that lacks a row", "DROP TABLE t", "DELETE FROM t WHERE id = 2", "drop in t of (2), expected (2, 'b', 'y'), found none, wanted none"},
		{"table dropped on both", "DROP TABLE bag", "DROP TABLE bag", ""},
		{"index", "DROP INDEX v; CREATE INDEX v ON t(v, u)", "DROP INDEX v; CREATE INDEX v ON t(u, v)", "drop of index v, expected 'CREATE INDEX v ON t(v)', found 'CREATE INDEX v ON t(u, v)', wanted 'CREATE INDEX v ON t(v, u)'"},
		{"same table created", "CREATE TABLE n(a PRIMARY KEY); INSERT INTO n VALUES(1)", "CREATE TABLE n(a PRIMARY KEY); INSERT INTO n VALUES(2)", ""},
		{"other table created", "CREATE TABLE n(a)", "CREATE TABLE n(b)", "create of table n, expected none, found 'CREATE TABLE n(b)', wanted 'CREATE TABLE n(a)'"},
		{"user_version", "PRAGMA user_version = 2", "PRAGMA user_version = 3", "set of pragma user_version, expected '0', found '3', wanted '2'"},
		{"child of a parent that goes", "DELETE FROM parent WHERE id = 1", "INSERT INTO child VALUES(1)", "insert in child of (1): it refers to a row of parent that would not be there (foreign key)"},
		{"parent of a child that comes", "INSERT INTO child VALUES(2)", "DELETE FROM parent WHERE id = 2", "insert in child of (1): it refers to a row of parent that would not be there (foreign key)"},
		{"the larger sequence stays", "INSERT INTO seq VALUES(50); DELETE FROM seq", "INSERT INTO seq VALUES(70); DELETE FROM seq", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a, _, path := pair(t, both, "", test.work)
			s := mustCompare(t, a, path)
			exec(t, a, test.meanwhile)
			before := dump(t, a)
			err := s.Apply(context.Background(), a, changeset.ApplyOptions{})
			got := conflicts(t, err)
			if test.want == "" && err != nil || test.want != "" && (len(got) != 1 || got[0] != test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
			if after := dump(t, a); test.want != "" && !slices.Equal(before, after) {
				t.Errorf("something has changed:\n%s", difference(after, before))
			}
			if !a.GetAutocommit() {
				t.Error("a transaction is open")
			}
			if test.name == "the larger sequence stays" {
				exec(t, a, "CREATE TABLE is70(x CHECK(x = 70)); INSERT INTO is70 SELECT seq FROM sqlite_sequence WHERE name = 'seq'")
			}
		})
	}
}

func TestForeignKeysAreNotCheckedWhereTheyAreOff(t *testing.T) {
	a, _, path := pair(t, "CREATE TABLE p(id INTEGER PRIMARY KEY); CREATE TABLE c(p REFERENCES p); PRAGMA foreign_keys = OFF", "", "PRAGMA foreign_keys = OFF; INSERT INTO c VALUES(7)")
	if err := mustCompare(t, a, path).Apply(context.Background(), a, changeset.ApplyOptions{}); err != nil {
		t.Error(err)
	}
	if on, err := a.Config(sqlite3.DBCONFIG_ENABLE_FKEY); err != nil || on {
		t.Errorf("%v, %v", on, err)
	}
	// Violations that were there before are nobody's conflict.
	exec(t, a, "PRAGMA foreign_keys = ON")
	b := copyTo(t, a, path+"2")
	exec(t, b, "PRAGMA foreign_keys = OFF; INSERT INTO p VALUES(1); INSERT INTO c VALUES(1)")
	if err := mustCompare(t, a, path+"2").Apply(context.Background(), a, changeset.ApplyOptions{}); err != nil {
		t.Error(err)
	}
}

func TestVirtualTablesThatCannotBeWrittenBackAreRefusedIfTheyDiffer(t *testing.T) {
	const both = "CREATE VIRTUAL TABLE f USING fts5(a, content=''); INSERT INTO f(rowid, a) VALUES(1, 'one'); CREATE TABLE t(x)"
	a, _, path := pair(t, both, "", "INSERT INTO t VALUES(1)")
	if s := mustCompare(t, a, path); len(s.Tables) != 1 {
		t.Errorf("got %s", s)
	}
	a, _, path = pair(t, both, "", "INSERT INTO f(rowid, a) VALUES(2, 'two')")
	if _, err := compare(a, path, changeset.Options{}); !errors.Is(err, changeset.ErrUnsupported) || !strings.Contains(err.Error(), "table f") {
		t.Errorf("got %v", err)
	}
}

func TestTooManyChangesAreAnError(t *testing.T) {
	a, _, path := pair(t, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)", "", "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<100) INSERT INTO t SELECT n, zeroblob(1000) FROM s")
	for _, o := range []changeset.Options{{MaxRows: 99}, {MaxBytes: 99_000}} {
		if _, err := compare(a, path, o); !errors.Is(err, changeset.ErrTooLarge) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if s, err := compare(a, path, changeset.Options{MaxRows: 100}); err != nil || len(s.Tables[0].Rows) != 100 {
		t.Errorf("100 rows: %v", err)
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := changeset.Compare(cancelled, a, "main", "main", changeset.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestRowsBeyondKeepAreCountedAndTheSetIsOnlyToBeLookedAt(t *testing.T) {
	a, _, path := pair(t, "CREATE TABLE gone(id INTEGER PRIMARY KEY); INSERT INTO gone VALUES(1), (2); CREATE TABLE copies(v); INSERT INTO copies VALUES('x'), ('x'), ('x'); CREATE TABLE t(id INTEGER PRIMARY KEY, v); INSERT INTO t VALUES(1, 1), (2, 2), (3, 3)", "",
		"DROP TABLE gone; DELETE FROM copies; UPDATE t SET v = 0 WHERE id < 3; DELETE FROM t WHERE id = 3; INSERT INTO t VALUES(4, 4)")
	s, err := compare(a, path, changeset.Options{Keep: 1, MaxRows: 1})
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, tc := range s.Tables {
		kept += len(tc.Rows)
	}
	if i, u, d := s.Count(); i != 1 || u != 2 || d != 6 || kept != 1 {
		t.Errorf("+%d ~%d -%d, %d kept: %s", i, u, d, kept, s)
	}
	if !strings.Contains(s.String(), "... and 4 more") {
		t.Errorf("got %s", s)
	}
	if err := s.Apply(context.Background(), a, changeset.ApplyOptions{}); !errors.Is(err, changeset.ErrTooLarge) {
		t.Errorf("Apply: %v", err)
	}
	if err := s.WriteSQL(io.Discard); !errors.Is(err, changeset.ErrTooLarge) {
		t.Errorf("WriteSQL: %v", err)
	}
	if _, err := json.Marshal(s); !errors.Is(err, changeset.ErrTooLarge) {
		t.Errorf("JSON: %v", err)
	}
}

// TestColumnsThatAreAddedDoNotTouchTheRows: ALTER TABLE ADD COLUMN changes no row, so the difference has none.
func TestColumnsThatAreAddedDoNotTouchTheRows(t *testing.T) {
	a, b, path := pair(t, "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT, CHECK(id > 0)); INSERT INTO t VALUES(1, 'a'), (2, 'b')", "",
		"ALTER TABLE t ADD COLUMN w TEXT DEFAULT 5; ALTER TABLE t ADD COLUMN x NUMERIC(4, 2) NOT NULL DEFAULT 'a,b' CHECK(x <> ''); UPDATE t SET w = 'c' WHERE id = 2")
	s := mustCompare(t, a, path)
	if len(s.Schema) != 1 || s.Schema[0].Op != changeset.Alter || len(s.Schema[0].Statements) != 2 || len(s.Tables) != 1 || len(s.Tables[0].Rows) != 1 {
		t.Fatalf("got %s", s)
	}
	if r := s.Tables[0].Rows[0]; !reflect.DeepEqual(r.Before, []any{int64(2), "b", "5", "a,b"}) || !reflect.DeepEqual(r.After, []any{int64(2), "b", "c", "a,b"}) {
		t.Errorf("got %v", r)
	}
	if err := s.Apply(context.Background(), a, changeset.ApplyOptions{}); err != nil || !slices.Equal(dump(t, a), dump(t, b)) {
		t.Errorf("%v\n%s", err, difference(dump(t, a), dump(t, b)))
	}
}

func TestJSONLosesNothing(t *testing.T) {
	s := &changeset.Set{From: changeset.Side{Name: "a", Slot: 1<<64 - 1, Point: "p", Unshipped: true}, Encoding: "UTF-8",
		Tables: []changeset.TableChange{{Name: "t", Columns: []string{"v"}, Key: []string{"v"}}}}
	for _, v := range pool {
		s.Tables[0].Rows = append(s.Tables[0].Rows, changeset.RowChange{Op: changeset.Insert, After: []any{v}}, changeset.RowChange{Op: changeset.Delete, Before: []any{v}, CopiesBefore: 1 << 60})
	}
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var read changeset.Set
	if err := json.Unmarshal(raw, &read); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(*s, read) {
		t.Errorf("got  %+v\nwant %+v", read, *s)
	}
	for i, v := range pool {
		got := read.Tables[0].Rows[2*i].After[0]
		if f, ok := v.(float64); ok && (math.Float64bits(f) != math.Float64bits(got.(float64))) {
			t.Errorf("%v became %v", v, got)
		}
	}
	for _, bad := range []string{
		`{}`, `{"version":2}`, `{"version":1,"tables":[{"name":"t","columns":["a"],"rows":[{"op":"insert"}]}]}`, `{"version":1,"tables":[{"name":"t","columns":["a"],"rows":[{"op":"insert","after":[1,2]}]}]}`,
		`{"version":1,"tables":[{"name":"t","columns":["a"],"rows":[{"op":"drop","after":[1]}]}]}`, `{"version":1,"tables":[{"name":"t","columns":["a"],"rows":[{"op":"insert","after":[true]}]}]}`,
		`{"version":1,"tables":[{"name":"t","columns":["a"],"rows":[{"op":"insert","after":[{}]}]}]}`, `{"version":1,"tables":[{"name":"t","columns":["a"],"rows":[{"op":"insert","after":[1],"copies":[2,1]}]}]}`,
	} {
		if err := json.Unmarshal([]byte(bad), &read); err == nil {
			t.Errorf("accepted %s", bad)
		}
	}
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"version":1,"tables":[{"name":"t","columns":["a","b"],"rows":[{"op":"update","before":[1,{"blob":"AA=="}],"after":[1.0,{"integer":"9223372036854775807"}]}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s, again changeset.Set
		if json.Unmarshal(b, &s) != nil {
			return
		}
		_ = s.String()
		_ = s.WriteSQL(&strings.Builder{})
		raw, err := json.Marshal(&s)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &again); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if second, err := json.Marshal(&again); err != nil || string(second) != string(raw) {
			t.Errorf("%s\nbecame %s (%v)", raw, second, err)
		}
	})
}

func TestLiteralsAreReadAsTheValuesThatTheyAreOf(t *testing.T) {
	a, b, path := pair(t, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)", "", "")
	for i, v := range pool {
		st, _, err := b.Prepare("INSERT INTO t VALUES(?, ?)")
		if err != nil {
			t.Fatal(err)
		}
		w := &work{t: t, c: b}
		w.exec("INSERT INTO t VALUES(?, ?)", int64(i), v)
		st.Close()
	}
	var script strings.Builder
	if err := mustCompare(t, a, path).WriteSQL(&script); err != nil {
		t.Fatal(err)
	}
	exec(t, a, script.String())
	if got, want := dump(t, a), dump(t, b); !slices.Equal(got, want) {
		t.Error(difference(got, want))
	}
}

func TestTextIsForPeople(t *testing.T) {
	a, _, path := pair(t, "CREATE TABLE t(id INTEGER PRIMARY KEY, v); INSERT INTO t VALUES(1, 'a'), (2, x'00'); CREATE TABLE bag(v)", "",
		"UPDATE t SET v = 'b' || char(27) || '[2J' WHERE id = 1; DELETE FROM t WHERE id = 2; INSERT INTO t VALUES(3, '"+strings.Repeat("long ", 40)+"'); INSERT INTO bag VALUES(1.0), (1.0); CREATE INDEX i ON t(v)")
	s := mustCompare(t, a, path)
	s.From, s.To = changeset.Side{Name: "golden", Slot: 4}, changeset.Side{Name: "scratch", Slot: 7, Unshipped: true}
	want := `golden@4 -> scratch@7+
schema:
  + index i: CREATE INDEX i ON t(v)
t: +1 ~1 -1
  ~ id=1, v='a' -> 'b.[2J'
  - id=2, v=x'00'
  + id=3, v='` + strings.Repeat("long ", 12) + `...'
bag: +2 ~0 -0
  + v=1.0 (0 -> 2 copies)
`
	if got := s.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := fmt.Sprint(mustCompare(t, a, strings.Replace(path, "b.db", "a.db", 1))); got != "? -> ?\nno difference\n" {
		t.Errorf("got %q", got)
	}
}
