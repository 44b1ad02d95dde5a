package changeset_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/tonbo-go/tonbo/changeset"
)

// TestWhatIsNotShownIsNotRun changes a set as somebody would who wants more to be done than the one sees who approves it.
func TestWhatIsNotShownIsNotRun(t *testing.T) {
	const (
		both = `CREATE TABLE t(id INTEGER PRIMARY KEY, v); INSERT INTO t VALUES(1, 'a'); CREATE TABLE money(money, rank); INSERT INTO money VALUES(1, 2); CREATE TABLE wide(a); CREATE TABLE old(x);
			CREATE VIRTUAL TABLE f USING fts5(a); CREATE VIRTUAL TABLE e USING fts5(v, content='t', content_rowid='id'); CREATE TRIGGER fires AFTER INSERT ON t BEGIN SELECT 1; END`
		work = `CREATE TABLE n(x); ALTER TABLE wide ADD COLUMN b DEFAULT 'x'; DROP TABLE old; CREATE INDEX i ON t(v); CREATE VIEW w AS SELECT 1 AS one; CREATE TRIGGER g AFTER DELETE ON t BEGIN SELECT 2; END;
			PRAGMA user_version = 5; INSERT INTO f(f, rank) VALUES('automerge', 8); INSERT INTO t(id, v) VALUES(2, 'b')`
	)
	find := func(s *changeset.Set, op changeset.Op, typ, name string) *changeset.SchemaChange {
		t.Helper()
		for i := range s.Schema {
			if sc := &s.Schema[i]; sc.Op == op && sc.Type == typ && sc.Name == name {
				return sc
			}
		}
		t.Fatalf("no %s of %s %s in\n%s", op, typ, name, s)
		return nil
	}
	table := func(s *changeset.Set) *changeset.SchemaChange { return find(s, changeset.Create, "table", "n") }
	evil := filepath.ToSlash(filepath.Join(t.TempDir(), "evil.db"))
	both2 := func(sc *changeset.SchemaChange, sql string) { sc.After, sc.Statements = sql, []string{sql} }
	for _, test := range []struct {
		name  string
		alter func(s *changeset.Set)
		shown string // what the approver must see; "": that it is refused is enough
	}{
		{"statements that say something else", func(s *changeset.Set) {
			table(s).Statements = []string{"COMMIT; DROP TABLE money; ATTACH '" + evil + "' AS e; CREATE TABLE IF NOT EXISTS e.z(x); BEGIN; CREATE TABLE n(x)"}
		}, "DROP TABLE money; ATTACH"},
		{"one statement more", func(s *changeset.Set) { table(s).Statements = append(table(s).Statements, "DROP TABLE money") }, "DROP TABLE money"},
		{"another statement", func(s *changeset.Set) { table(s).Statements = []string{"DELETE FROM money"} }, "DELETE FROM money"},
		{"no statement", func(s *changeset.Set) { table(s).Statements = nil }, ""},
		{"definition of two statements", func(s *changeset.Set) { both2(table(s), "CREATE TABLE n(x); DROP TABLE money") }, "DROP TABLE money"},
		{"definition that goes on far to the right", func(s *changeset.Set) {
			both2(table(s), "CREATE TABLE n(x)"+strings.Repeat(" ", 500)+"; DROP TABLE money")
		}, "DROP TABLE money"},
		{"definition that goes on behind a comment", func(s *changeset.Set) { both2(table(s), "CREATE TABLE n(x) -- nothing\n; DROP TABLE money") }, "    | ; DROP TABLE money"},
		{"definition of another name", func(s *changeset.Set) { both2(table(s), "CREATE TABLE other(x)") }, "other"},
		{"definition elsewhere", func(s *changeset.Set) { both2(table(s), "CREATE TABLE temp.n(x)") }, "temp.n"},
		{"definition of a temporary table", func(s *changeset.Set) { both2(table(s), "CREATE TEMP TABLE n(x)") }, "TEMP"},
		{"definition that SQLite keeps in another way", func(s *changeset.Set) { both2(table(s), "CREATE  TABLE n(x)") }, ""},
		{"definition with rows", func(s *changeset.Set) { both2(table(s), "CREATE TABLE n AS SELECT * FROM money") }, "AS SELECT"},
		{"definition that is an attachment", func(s *changeset.Set) { both2(table(s), "ATTACH '"+evil+"' AS e") }, "ATTACH"},
		{"view of two statements", func(s *changeset.Set) {
			both2(find(s, changeset.Create, "view", "w"), "CREATE VIEW w AS SELECT 1 AS one; DELETE FROM money")
		}, "DELETE FROM money"},
		{"trigger with something behind it", func(s *changeset.Set) {
			both2(find(s, changeset.Create, "trigger", "g"), "CREATE TRIGGER g AFTER DELETE ON t BEGIN SELECT 2; END; DELETE FROM money; SELECT 1; END")
		}, "DELETE FROM money"},
		{"columns that are others", func(s *changeset.Set) {
			find(s, changeset.Alter, "table", "wide").Statements = []string{"ALTER TABLE money ADD COLUMN b DEFAULT 'x'"}
		}, "ALTER TABLE money"},
		{"columns, and more", func(s *changeset.Set) {
			sc := find(s, changeset.Alter, "table", "wide")
			sc.Statements = append(sc.Statements, "DROP TABLE money")
		}, "DROP TABLE money"},
		{"columns of a definition that attaches", func(s *changeset.Set) {
			sc := find(s, changeset.Alter, "table", "wide")
			sc.Before = "ATTACH '" + evil + "' AS e; CREATE TABLE e.z(x);" + sc.Before
			sc.After = "ATTACH '" + evil + "' AS e; CREATE TABLE e.z(x);" + sc.After
		}, ""},
		{"drop of another", func(s *changeset.Set) {
			find(s, changeset.Drop, "table", "old").Statements = []string{`DROP TABLE "money"`}
		}, `DROP TABLE "money"`},
		{"another pragma", func(s *changeset.Set) {
			sc := find(s, changeset.Setting, "pragma", "user_version")
			sc.Name, sc.Before, sc.After, sc.Statements = "writable_schema", "0", "1", []string{"PRAGMA writable_schema = 1"}
		}, "writable_schema"},
		{"a pragma that is run when it is read", func(s *changeset.Set) {
			sc := find(s, changeset.Setting, "pragma", "user_version")
			sc.Name, sc.Statements = "journal_mode = DELETE; --", []string{"PRAGMA journal_mode = DELETE; -- = 5"}
		}, "journal_mode"},
		{"a pragma's value that goes on", func(s *changeset.Set) {
			sc := find(s, changeset.Setting, "pragma", "user_version")
			sc.After, sc.Statements = "5; DROP TABLE money", []string{"PRAGMA user_version = 5; DROP TABLE money"}
		}, "DROP TABLE money"},
		{"a command for a setting", func(s *changeset.Set) {
			sc := find(s, changeset.Setting, "fts5", "automerge")
			sc.Name, sc.After, sc.Statements = "delete-all", "1", []string{`INSERT INTO "f"("f", rank) VALUES('delete-all', 1)`}
		}, "delete-all"},
		{"a setting's value that is computed", func(s *changeset.Set) {
			sc := find(s, changeset.Setting, "fts5", "automerge")
			sc.After, sc.Statements = "(SELECT money FROM money)", []string{`INSERT INTO "f"("f", rank) VALUES('automerge', (SELECT money FROM money))`}
		}, "(SELECT money FROM money)"},
		{"a setting of a table that is none of full text", func(s *changeset.Set) {
			sc := find(s, changeset.Setting, "fts5", "automerge")
			sc.Table, sc.Statements = "money", []string{`INSERT INTO "money"("money", rank) VALUES('automerge', 8)`}
		}, "money.automerge"},
		{"a table that is no index is built anew", func(s *changeset.Set) {
			sc := find(s, changeset.Rebuild, "table", "e")
			sc.Name, sc.Statements = "money", []string{`INSERT INTO "money"("money") VALUES('rebuild')`}
		}, "table money: built anew"},
		{"an op that there is not", func(s *changeset.Set) { table(s).Op = "run" }, "! run of table n"},
		{"a type that there is not", func(s *changeset.Set) { table(s).Type = "anything" }, "anything n"},
		{"a name that goes on", func(s *changeset.Set) { table(s).Name = "n\nt: +0 ~0 -0" }, ""},
		{"a trigger that a script would replace", func(s *changeset.Set) { s.Triggers[0].SQL = "DROP TABLE money" }, "DROP TABLE money"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, _, path := pair(t, both, "", work)
			s := mustCompare(t, a, path)
			if err := s.WriteSQL(&strings.Builder{}); err != nil {
				t.Fatalf("before it is changed: %v", err)
			}
			before := dump(t, a)
			test.alter(s)
			if got := s.String(); !strings.Contains(got, test.shown) || strings.Contains(got, "\nt: +0") {
				t.Errorf("%q is not shown:\n%s", test.shown, got)
			}
			err, scriptErr := s.Apply(context.Background(), a, changeset.ApplyOptions{}), s.WriteSQL(&strings.Builder{})
			switch test.name {
			case "definition that SQLite keeps in another way", "a setting of a table that is none of full text", "a table that is no index is built anew": // a script cannot look
				if err == nil {
					t.Error("it was applied")
				}
			default:
				if err == nil || scriptErr == nil {
					t.Errorf("apply: %v, script: %v", err, scriptErr)
				}
			}
			if after := dump(t, a); !slices.Equal(before, after) || !a.GetAutocommit() {
				t.Errorf("something has changed:\n%s", difference(after, before))
			}
			if _, err := os.Stat(evil); err == nil {
				t.Error("a file was made")
			}
		})
	}
}

// TestSQLOfASetReachesNothingButMain: were a statement to pass all the same, it is kept from what is not the target, and from the transaction.
func TestSQLOfASetReachesNothingButMain(t *testing.T) {
	evil := filepath.ToSlash(filepath.Join(t.TempDir(), "evil.db"))
	a := connect(t, filepath.Join(t.TempDir(), "a.db"))
	exec(t, a, "ATTACH ':memory:' AS other; CREATE TABLE other.o(x); CREATE TABLE t(x); CREATE TABLE aux(x); CREATE TEMP TABLE tt(x); BEGIN IMMEDIATE; SAVEPOINT one")
	before := dump(t, a)
	for _, q := range []string{
		"ATTACH '" + evil + "' AS e", "DETACH other", "COMMIT", "END", "ROLLBACK", "BEGIN", "SAVEPOINT two", "RELEASE one", "ROLLBACK TO one", "VACUUM", "VACUUM INTO '" + evil + "'",
		"PRAGMA journal_mode = DELETE", "PRAGMA writable_schema = 1", "PRAGMA foreign_keys = 1", "PRAGMA other.user_version = 3", "PRAGMA data_version = 3", "PRAGMA page_size = 512", "SELECT load_extension('" + evil + "')",
		"CREATE TEMP TABLE n(x)", "CREATE TEMP VIEW n AS SELECT 1", "CREATE TEMP TRIGGER n AFTER INSERT ON t BEGIN SELECT 1; END", "CREATE TABLE temp.n(x)", "CREATE TABLE other.n(x)", "CREATE INDEX other.n ON o(x)",
		"CREATE TABLE n AS SELECT * FROM other.o", "INSERT INTO other.o VALUES(1)", "INSERT INTO t SELECT x FROM other.o", "DELETE FROM o", "DROP TABLE o", "DROP TABLE tt", "DROP TABLE temp.tt", "ALTER TABLE o ADD COLUMN y", "ALTER TABLE tt ADD COLUMN y",
		"CREATE TABLE n(x); DROP TABLE t", "CREATE TABLE n(x);;", "", "-- nothing",
	} {
		if err := changeset.Guarded(a, q); err == nil {
			t.Errorf("%s: it was run", q)
		}
		if a.GetAutocommit() {
			t.Fatalf("%s: the transaction was ended", q)
		}
	}
	if after := dump(t, a); !slices.Equal(before, after) {
		t.Errorf("something has changed:\n%s", difference(after, before))
	}
	if _, err := os.Stat(evil); err == nil {
		t.Error("a file was made")
	}
	for _, q := range []string{"CREATE TABLE n(x)", "ALTER TABLE n ADD COLUMN y NOT NULL DEFAULT 1 CHECK(y > 0)", "CREATE INDEX i ON n(abs(y)) -- so", "CREATE VIRTUAL TABLE f USING fts5(a)", "CREATE VIRTUAL TABLE r USING rtree(id, a, b)", "DROP TABLE f", "DROP TABLE r", "PRAGMA user_version = 3"} {
		if err := changeset.Guarded(a, q); err != nil {
			t.Errorf("%s: %v", q, err)
		}
	}
	// Afterwards all is allowed again, also when a function has panicked.
	exec(t, a, "COMMIT; INSERT INTO t VALUES(1)")
	if err := a.CreateFunction("boom", 1, sqlite3.DETERMINISTIC|sqlite3.INNOCUOUS, func(sqlite3.Context, ...sqlite3.Value) { panic("boom") }); err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		changeset.Guarded(a, "CREATE INDEX booms ON t(boom(x))")
	}()
	exec(t, a, "ATTACH ':memory:' AS another; DETACH another")
}

// TestSQLIsShownAsAWhole: nothing of it is cut, hidden behind a comment, or shown as if it were another change.
func TestSQLIsShownAsAWhole(t *testing.T) {
	long := "CREATE VIEW w AS SELECT " + strings.Repeat("1 + ", 100) + "7 AS last"
	a, _, path := pair(t, "CREATE TABLE t(a); CREATE TRIGGER stays AFTER INSERT ON t BEGIN SELECT 1; END", "",
		"INSERT INTO t VALUES(2); "+long+"; CREATE TRIGGER g AFTER DELETE ON t BEGIN -- harmless\n/*\n  + table x: CREATE TABLE x(y)\n\x1b[2J\u202e*/ DELETE FROM t; END")
	s := mustCompare(t, a, path)
	s.From.Name, s.To.Name = "a\nb\x1b", "c"
	want := `a.b. -> c
schema:
  + view w: ` + long + `
  + trigger g: CREATE TRIGGER g AFTER DELETE ON t BEGIN -- harmless
    | /*
    |   + table x: CREATE TABLE x(y)
    | .[2J.*/ DELETE FROM t; END
triggers that do not fire, and stay as they are (a script takes them away and creates them anew):
  = trigger stays: CREATE TRIGGER stays AFTER INSERT ON t BEGIN SELECT 1; END
t: +1 ~0 -0
  + a=2 (0 -> 1 copies)
`
	if got := s.String(); got != strings.ReplaceAll(want, " (0 -> 1 copies)", "") {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// FuzzCreates: SQL that is taken for one statement is one for SQLite, and creates what it is taken for.
func FuzzCreates(f *testing.F) {
	for _, sql := range []string{
		"CREATE TABLE n(x)", "CREATE TABLE \"n\"(x, [a;b], 'c;d' DEFAULT ';', `e;f`) -- ;", "CREATE TABLE n(x); DROP TABLE t", "CREATE TABLE n(x DEFAULT 'it''s;') STRICT", "CREATE TABLE n(x /* ; */)", "CREATE TABLE n(x /*/ ; DROP TABLE t; /*/)",
		"CREATE TABLE n(x DEFAULT $a(')) ; DROP TABLE t; --'", "CREATE TABLE n(x DEFAULT x'00');", "CREATE VIEW n AS SELECT ';' AS \"a;\"", "CREATE VIEW n AS SELECT 1;DROP TABLE t", "CREATE UNIQUE INDEX n ON t(x)",
		"CREATE TRIGGER n AFTER INSERT ON t BEGIN SELECT 1; END", "CREATE TRIGGER n AFTER INSERT ON t BEGIN SELECT CASE 1 WHEN 1 THEN 2 END; DELETE FROM t; END", "CREATE TRIGGER n AFTER INSERT ON t BEGIN SELECT 1; END; DROP TABLE t; SELECT 1; END",
		"CREATE TRIGGER n AFTER INSERT ON t BEGIN SELECT 1; \ufeffEND; DROP TABLE t; SELECT 1; END", "CREATE VIRTUAL TABLE n USING fts5(a, tokenize = \"unicode61\")", "CREATE TABLE IF NOT EXISTS n(x)", "CREATE TABLE n.n(x)", "CREATE TEMP TABLE n(x)",
		"CREATE TABLE n(x)\x00; DROP TABLE t", "CREATE TABLE n AS SELECT 1", "CREATE TABLE n(\"a\"\"b;\", [c\"d], e)", "CREATE TABLE n('a\\', b); DROP TABLE t; --')",
	} {
		f.Add(sql)
	}
	f.Fuzz(func(t *testing.T, sql string) {
		var typ string
		for _, typ = range []string{"table", "index", "view", "trigger", ""} {
			if changeset.Creates(typ, "n", sql) == nil {
				break
			}
		}
		if typ == "" {
			return
		}
		c, err := sqlite3.Open(":memory:")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		exec(t, c, "CREATE TABLE t(x)")
		st, tail, err := c.Prepare(sql)
		if err != nil {
			return
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		if more, _, err := c.Prepare(tail); more != nil || err != nil {
			t.Fatalf("%q: goes on with %q", sql, tail)
		}
		if c.Exec(sql) != nil { // such as a table that an index finds no column of
			return
		}
		var got []string
		st, _, err = c.Prepare("SELECT type || ' ' || name FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid")
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		for st.Step() {
			got = append(got, st.ColumnText(0))
		}
		if want := []string{"table t", typ + " n"}; !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", sql, got, want)
		}
	})
}

func TestOpsAndTypesThatAreNotKnownAreRefused(t *testing.T) {
	const change = `{"version":1,"encoding":"UTF-8","schema":[{"op":%q,"type":%q,"name":%q,"table":%q,"before":%q,"after":%q,"statements":[]}]}`
	for _, test := range []struct {
		op, typ, name, table, before, after string
		ok                                  bool
	}{
		{"create", "table", "n", "", "", "CREATE TABLE n(x)", true},
		{"drop", "view", "n", "", "CREATE VIEW n AS SELECT 1", "", true},
		{"set", "pragma", "user_version", "", "1", "2", true},
		{"set", "fts5", "pgsz", "f", "", "2", true},
		{"rebuild", "table", "f", "", "", "", true},
		{"run", "table", "n", "", "", "CREATE TABLE n(x)", false},
		{"", "table", "n", "", "", "CREATE TABLE n(x)", false},
		{"insert", "table", "n", "", "", "CREATE TABLE n(x)", false},
		{"create", "database", "n", "", "", "CREATE TABLE n(x)", false},
		{"create", "pragma", "n", "", "", "1", false},
		{"alter", "view", "n", "", "CREATE VIEW n AS SELECT 1", "CREATE VIEW n AS SELECT 2", false},
		{"create", "table", "", "", "", "CREATE TABLE n(x)", false},
		{"create", "table", "n\x00", "", "", "CREATE TABLE n(x)", false},
		{"create", "table", "n", "", "CREATE TABLE n(x)", "CREATE TABLE n(x)", false},
		{"drop", "table", "n", "", "", "", false},
		{"drop", "table", "n", "", "CREATE TABLE n(x)", "CREATE TABLE n(x)", false},
		{"rebuild", "table", "n", "", "", "CREATE TABLE n(x)", false},
		{"set", "fts5", "pgsz", "", "", "2", false},
	} {
		raw, err := json.Marshal([]string{test.op, test.typ, test.name, test.table, test.before, test.after})
		if err != nil {
			t.Fatal(err)
		}
		var parts []json.RawMessage
		if err := json.Unmarshal(raw, &parts); err != nil {
			t.Fatal(err)
		}
		doc := strings.ReplaceAll(change, "%q", "%s")
		var s changeset.Set
		err = json.Unmarshal(fmt.Appendf(nil, doc, parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]), &s)
		if (err == nil) != test.ok {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

// TestScriptsAreTheSameStatementsForTheShell: it takes a line of go or / for a semicolon.
func TestScriptsAreTheSameStatementsForTheShell(t *testing.T) {
	for _, line := range []string{"go", " GO ", "/", "/ -- so", "/ /* so */"} {
		a, _, path := pair(t, "CREATE TABLE t(\"rollback\")", "", "CREATE VIEW w AS SELECT 1\n"+line+"\n"+map[bool]string{true: ", 2", false: "rollback FROM t"}[strings.EqualFold(strings.TrimSpace(line), "go")])
		s := mustCompare(t, a, path)
		if err := s.WriteSQL(&strings.Builder{}); err == nil || !strings.Contains(err.Error(), "shell") {
			t.Errorf("%q: got %v", line, err)
		}
		if err := s.Apply(context.Background(), a, changeset.ApplyOptions{}); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// TestObjectsHoweverTheyWereSpelledAreMade: what is refused is not what SQLite's own schema table says.
func TestObjectsHoweverTheyWereSpelledAreMade(t *testing.T) {
	a, b, path := pair(t, "CREATE TABLE t(x); CREATE TABLE wide(a)", "", `
		CREATE /* a; */ TABLE IF NOT EXISTS main . [n;1] (x DEFAULT ';', "y""; z" CHECK("y""; z" <> 'it''s;')); -- so
		CREATE TABLE 'quo''ted'(a INT, b TEXT) STRICT; CREATE TABLE `+"`back``ticks`"+`(a PRIMARY KEY, b) WITHOUT ROWID;
		CREATE TABLE "if"(x); CREATE TABLE begin(x); CREATE TABLE "new
line"(x); CREATE TABLE made AS SELECT 1 AS a, ';' AS b;
		CREATE UNIQUE INDEX IF NOT EXISTS main.[i 1] ON t(x /* ; */) WHERE x <> ';'; CREATE INDEX "end" ON t(x DESC);
		CREATE VIEW IF NOT EXISTS main.v1(a, b) AS SELECT ';', 1 -- ; so
		; CREATE VIEW v2 AS SELECT CASE WHEN 1 THEN 2 END AS x;
		CREATE TRIGGER IF NOT EXISTS main.t1 INSERT ON t WHEN CASE 1 WHEN 1 THEN 0 END BEGIN SELECT ';'; SELECT CASE 1 WHEN 1 THEN 2 END; /* END; */ END;
		CREATE TRIGGER [begin] INSTEAD OF UPDATE OF x ON v2 FOR EACH ROW BEGIN DELETE FROM t; end; CREATE TRIGGER "t 2" AFTER DELETE ON begin BEGIN SELECT 1;END;
		CREATE VIRTUAL TABLE IF NOT EXISTS main.f1 USING fts5(a, "b", tokenize = "unicode61 separators ';'"); CREATE VIRTUAL TABLE 'f 2' USING RTree(id, a, b);
		ALTER TABLE wide RENAME TO "wi;de"; ALTER TABLE "wi;de" ADD COLUMN b DEFAULT ';' CHECK(b <> '--'); ALTER TABLE "wi;de" ADD COLUMN c AS (b || 'x')`)
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
	if strings.Contains(s.String(), "!") {
		t.Errorf("marked as refused:\n%s", s)
	}
}

// FuzzVirtual: of a CREATE VIRTUAL TABLE of any content module and arguments are found, and each is a part of it.
func FuzzVirtual(f *testing.F) {
	for _, sql := range []string{"CREATE VIRTUAL TABLE n USING fts5(a, b, tokenize = 'porter \"x\"')", "CREATE VIRTUAL TABLE n USING \"rtree\"(id, /* , */ a, b -- )\n)", "create virtual table using using using(", "x USING [a(b](']", "USING a(,,)", "/*"} {
		f.Add(sql)
	}
	f.Fuzz(func(t *testing.T, sql string) {
		_, args := changeset.ParseVirtual(sql)
		all := strings.Join(strings.Fields(sql), "")
		for _, a := range args {
			if a == "" || !strings.Contains(all, strings.Join(strings.Fields(a), "")) {
				t.Errorf("argument %q of %q", a, sql)
			}
		}
	})
}
