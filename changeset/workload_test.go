package changeset_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"
)

// objects that a workload begins with: every kind of table, and what hangs on them.
const beginning = `
CREATE TABLE people(id INTEGER PRIMARY KEY, name TEXT COLLATE NOCASE, v, score REAL);
CREATE TABLE words(k TEXT PRIMARY KEY COLLATE NOCASE, v BLOB);
CREATE TABLE pairs(a, b, v, n NUMERIC, PRIMARY KEY(a, b)) WITHOUT ROWID;
CREATE TABLE log(x, y COLLATE NOCASE);
CREATE TABLE items(id INTEGER PRIMARY KEY AUTOINCREMENT, u UNIQUE, parent REFERENCES items ON DELETE SET NULL, g AS (typeof(u) || 'x') STORED, h AS (id + 1));
CREATE TABLE odd("a b" TEXT, "sel""ect" INT, rowid, PRIMARY KEY("a b" COLLATE NOCASE, "sel""ect"));
CREATE TABLE children(id INTEGER PRIMARY KEY, p INTEGER REFERENCES people ON DELETE CASCADE, q INTEGER REFERENCES people ON UPDATE CASCADE);
CREATE TABLE strict(i INTEGER PRIMARY KEY DESC, t TEXT NOT NULL DEFAULT 'none', CHECK(length(t) < 1000)) STRICT;
CREATE UNIQUE INDEX words_v ON words(v);
CREATE INDEX people_name ON people(name, v) WHERE v IS NOT NULL;
CREATE VIRTUAL TABLE notes USING fts5(title, body, note UNINDEXED, tokenize = 'porter unicode61');
CREATE VIRTUAL TABLE people_index USING fts5(name, content='people', content_rowid='id');
CREATE VIRTUAL TABLE areas USING rtree(id, x0, x1, y0, y1, +label);
CREATE VIEW named AS SELECT id, name FROM people WHERE name IS NOT NULL;
CREATE TRIGGER people_new AFTER INSERT ON people BEGIN INSERT INTO log VALUES(new.id, new.name); INSERT INTO people_index(rowid, name) VALUES(new.id, new.name); END;
CREATE TRIGGER people_gone AFTER DELETE ON people BEGIN INSERT INTO people_index(people_index, rowid, name) VALUES('delete', old.id, old.name); END;
CREATE TRIGGER people_other AFTER UPDATE ON people BEGIN
	INSERT INTO people_index(people_index, rowid, name) VALUES('delete', old.id, old.name); INSERT INTO people_index(rowid, name) VALUES(new.id, new.name); END;
CREATE TRIGGER named_new INSTEAD OF INSERT ON named BEGIN INSERT INTO people(name) VALUES(new.name); END;
`

// values that are easily taken for one another, or lost on the way.
var pool = []any{
	nil, int64(0), int64(1), int64(-1), int64(2), int64(math.MaxInt64), int64(math.MinInt64), int64(1 << 53), int64(1<<53 + 1), 0.0, math.Copysign(0, -1), 1.0, 0.1, 0.1 + 0.2, 1e300, -1e-300, 5e-324,
	float64(1 << 53), float64(1 << 63), math.Inf(1), math.Inf(-1), math.MaxFloat64, 123456.75, "", "a", "A", "a ", "b", "1", "1.0", "it's", "two\nlines", "zero\x00inside", "\x00", "not \xff UTF-8", "日本語 🙂", "NULL", "x'00'", "-- no", []byte{}, []byte{0}, []byte("a"),
	[]byte{0xff, 0xfe, 0}, []byte(strings.Repeat("blob", 700)), strings.Repeat("long text ", 600),
}

// work makes random changes to a database.
type work struct {
	t  testing.TB
	r  *rand.Rand
	c  *sqlite3.Conn
	id string // of this line of work, in names
	n  int
}

func (w *work) value() any {
	if w.r.IntN(3) == 0 {
		return int64(w.r.IntN(40))
	}
	return pool[w.r.IntN(len(pool))]
}

func (w *work) word() string {
	return []string{"alpha", "Beta", "gamma", "delta", "it's", "naïve", "Omega"}[w.r.IntN(7)] + fmt.Sprint(w.r.IntN(9))
}

// exec runs a statement. What a constraint, or the lack of a table that was dropped, refuses is left out.
func (w *work) exec(q string, args ...any) {
	w.t.Helper()
	st, _, err := w.c.Prepare(q)
	if err != nil {
		if !strings.Contains(err.Error(), "no such") && !strings.Contains(err.Error(), "duplicate column") && !strings.Contains(err.Error(), "values were supplied") && !strings.Contains(err.Error(), "error in") {
			w.t.Fatalf("%s: %v", q, err)
		}
		return
	}
	defer st.Close()
	for i, v := range args {
		switch v := v.(type) {
		case int64:
			err = st.BindInt64(i+1, v)
		case float64:
			err = st.BindFloat(i+1, v)
		case string:
			err = st.BindText(i+1, v)
		case []byte:
			if err = st.BindBlob(i+1, v); len(v) == 0 {
				err = st.BindZeroBlob(i+1, 0)
			}
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	if err := st.Exec(); err != nil && !strings.Contains(err.Error(), "constraint") && !strings.Contains(err.Error(), "mismatch") && !strings.Contains(err.Error(), "no such") &&
		!strings.Contains(err.Error(), "error in") && !strings.Contains(err.Error(), "duplicate column") && !strings.Contains(err.Error(), "datatype") &&
		!strings.Contains(err.Error(), "already") && !strings.Contains(err.Error(), "cannot drop") && !strings.Contains(err.Error(), "cannot store") && !strings.Contains(err.Error(), "values were supplied") && !strings.Contains(err.Error(), "malformed") {
		w.t.Fatalf("%s %v: %v", q, args, err)
	}
}

// rows changes some.
func (w *work) rows(n int) {
	for range n {
		id := int64(w.r.IntN(60))
		switch w.r.IntN(28) {
		case 0, 1:
			w.exec("INSERT INTO people(id, name, v, score) VALUES(?, ?, ?, ?)", id, w.word(), w.value(), w.value())
		case 2:
			w.exec("UPDATE people SET v = ?, score = ? WHERE id = ?", w.value(), w.value(), id)
		case 3:
			w.exec("UPDATE people SET name = upper(name) WHERE id = ?", id)
		case 4:
			w.exec("DELETE FROM people WHERE id = ?", id)
		case 5:
			w.exec("UPDATE people SET id = id + 100 WHERE id = ?", id)
		case 6:
			w.exec("INSERT INTO words VALUES(?, ?)", w.value(), w.value())
		case 7:
			w.exec("INSERT INTO words VALUES(NULL, ?)", w.value())
		case 8:
			w.exec("UPDATE words SET k = upper(k), v = ? WHERE rowid % 7 = ?", w.value(), id%7)
		case 9:
			w.exec("DELETE FROM words WHERE rowid % 9 = ?", id%9)
		case 10, 11:
			w.exec("INSERT OR REPLACE INTO pairs VALUES(?, ?, ?, ?)", w.value(), w.value(), w.value(), w.value())
		case 12:
			w.exec("DELETE FROM pairs WHERE a = ?", w.value())
		case 13:
			v := w.value()
			for range 1 + w.r.IntN(3) {
				w.exec("INSERT INTO log VALUES(?, ?)", v, v)
			}
		case 14:
			w.exec("DELETE FROM log WHERE rowid IN (SELECT rowid FROM log ORDER BY random() LIMIT 2)")
		case 15:
			w.exec("UPDATE log SET x = ? WHERE rowid % 11 = ?", w.value(), id%11)
		case 16:
			w.exec("INSERT INTO items(u, parent) VALUES(?, (SELECT max(id) FROM items))", w.value())
		case 17: // unique values change hands
			w.exec("CREATE TEMP TABLE hands AS SELECT id, u FROM items WHERE id % 3 = ?", id%3)
			w.exec("UPDATE items SET u = 'hand' || id WHERE id IN (SELECT id FROM hands)")
			w.exec("UPDATE items SET u = (SELECT u FROM hands ORDER BY hands.id < items.id, hands.id LIMIT 1) WHERE id IN (SELECT id FROM hands LIMIT 1)")
			w.exec("DROP TABLE temp.hands")
		case 18:
			w.exec("DELETE FROM items WHERE id = (SELECT max(id) FROM items) OR id = ?", id)
		case 19:
			w.exec(`INSERT INTO odd VALUES(?, ?, ?)`, w.value(), w.value(), w.value())
		case 20:
			w.exec(`UPDATE odd SET "a b" = upper("a b"), rowid = ? WHERE _rowid_ % 5 = ?`, w.value(), id%5)
		case 21:
			w.exec("INSERT INTO children VALUES(?, (SELECT id FROM people ORDER BY random() LIMIT 1), (SELECT id FROM people ORDER BY random() LIMIT 1))", id)
		case 22:
			w.exec("INSERT OR REPLACE INTO strict VALUES(?, ?)", id, w.word())
		case 23:
			w.exec("INSERT OR REPLACE INTO notes(rowid, title, body, note) VALUES(?, ?, ?, ?)", id, w.word(), w.word()+" "+w.word(), w.value())
		case 24:
			w.exec("DELETE FROM notes WHERE rowid = ?", id)
		case 25:
			x := w.r.Float64() * 100
			w.exec("INSERT OR REPLACE INTO areas VALUES(?, ?, ?, ?, ?, ?)", id, x, x+1, -x, x, w.value())
			w.exec("DELETE FROM areas WHERE id = ?", int64(w.r.IntN(60)))
		case 26: // the same number, as SQL compares them
			w.exec("UPDATE people SET v = CASE typeof(v) WHEN 'integer' THEN CAST(v AS REAL) WHEN 'real' THEN CAST(v AS INTEGER) ELSE v END WHERE id % 5 = ?", id%5)
		case 27:
			w.exec("UPDATE people SET v = CASE typeof(v) WHEN 'real' THEN -v WHEN 'integer' THEN -0.0 ELSE v END WHERE id % 5 = ?", id%5)
		}
	}
}

// ddl changes the schema.
func (w *work) ddl() {
	w.n++
	name := fmt.Sprint(w.id, w.n)
	tables := []string{"people", "words", "pairs", "log", "items", "odd", "children", "strict"}
	pick := tables[w.r.IntN(len(tables))]
	switch w.r.IntN(22) {
	case 0, 1:
		w.exec("ALTER TABLE " + pick + " ADD COLUMN c" + name + " TEXT DEFAULT 5")
		w.exec("UPDATE " + pick + " SET c" + name + " = 'other' WHERE rowid % 4 = 1")
	case 2:
		w.exec("ALTER TABLE " + pick + " ADD COLUMN d" + name + " REAL NOT NULL DEFAULT 7")
		w.exec("ALTER TABLE " + pick + " ADD COLUMN e" + name + " DEFAULT 2.5 CHECK(e" + name + " <> 'x,)') /* a, b */")
	case 3:
		w.exec("ALTER TABLE " + pick + " RENAME TO r" + name)
	case 4:
		w.exec("ALTER TABLE log RENAME COLUMN x TO x" + name)
	case 5:
		w.exec("ALTER TABLE pairs DROP COLUMN v")
	case 6:
		w.exec("DROP TABLE IF EXISTS " + pick)
	case 7:
		w.exec("CREATE TABLE n" + name + "(a INTEGER PRIMARY KEY AUTOINCREMENT, b)")
		w.exec("INSERT INTO n" + name + "(b) SELECT name FROM people")
	case 8:
		w.exec("CREATE TABLE n" + name + " AS SELECT * FROM log")
	case 9:
		w.exec("CREATE INDEX i" + name + " ON log(rowid)")
		w.exec("CREATE INDEX j" + name + " ON people(v)")
	case 10:
		w.exec("DROP INDEX IF EXISTS people_name")
	case 11:
		w.exec("DROP INDEX IF EXISTS words_v")
		w.exec("INSERT INTO words SELECT 'w' || rowid, v FROM words")
	case 12:
		w.exec("CREATE VIEW v" + name + " AS SELECT * FROM people -- all of them")
	case 13:
		w.exec("DROP VIEW IF EXISTS named")
		w.exec("CREATE VIEW named AS SELECT name, id FROM people")
	case 14:
		w.exec("CREATE TRIGGER t" + name + " AFTER UPDATE ON pairs BEGIN INSERT INTO log SELECT new.a, new.b; END")
	case 15:
		w.exec("DROP TRIGGER IF EXISTS people_new")
	case 16:
		w.exec(fmt.Sprintf("PRAGMA user_version = %d", w.r.IntN(1000)))
	case 17:
		w.exec("VACUUM")
	case 18:
		w.exec("INSERT INTO notes(notes) VALUES('optimize')")
		w.exec("INSERT INTO notes(notes, rank) VALUES('automerge', ?)", int64(2+w.r.IntN(10)))
	case 19:
		w.exec("CREATE VIRTUAL TABLE f" + name + " USING fts5(a, b, prefix='2 3')")
		w.exec("INSERT INTO f" + name + " SELECT name, v FROM people")
	case 20: // another definition of the same table
		w.exec("DROP TABLE IF EXISTS words")
		w.exec("CREATE TABLE words(k TEXT PRIMARY KEY, v BLOB, w)")
		w.exec("CREATE INDEX words_v ON words(v)")
		w.exec("INSERT INTO words SELECT DISTINCT name, v, score FROM people GROUP BY name")
	case 21:
		w.exec("DROP TABLE IF EXISTS notes")
		w.exec("CREATE VIRTUAL TABLE notes USING fts5(title, body, note UNINDEXED, tokenize = 'unicode61')")
		w.exec("INSERT INTO notes SELECT name, v, id FROM people")
	}
}

// dump is what a database holds, as a person would compare it: it shares nothing with the code that it checks.
func dump(t testing.TB, c *sqlite3.Conn) []string {
	t.Helper()
	var out []string
	text := func(q string) []string {
		t.Helper()
		st, _, err := c.Prepare(q)
		if err != nil {
			t.Fatalf("%s: %v", q, err)
		}
		defer st.Close()
		var lines []string
		for st.Step() {
			var line []string
			for i := range st.ColumnCount() {
				switch st.ColumnType(i) {
				case sqlite3.INTEGER:
					line = append(line, fmt.Sprint("i", st.ColumnInt64(i)))
				case sqlite3.FLOAT:
					line = append(line, fmt.Sprintf("r%x", math.Float64bits(st.ColumnFloat(i))))
				case sqlite3.TEXT:
					line = append(line, fmt.Sprintf("t%q", st.ColumnRawText(i)))
				case sqlite3.BLOB:
					line = append(line, fmt.Sprintf("b%x", st.ColumnRawBlob(i)))
				default:
					line = append(line, "null")
				}
			}
			lines = append(lines, strings.Join(line, "|"))
		}
		if err := st.Err(); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
		slices.Sort(lines)
		return lines
	}
	out = append(out, text("PRAGMA user_version")...)
	out = append(out, text("PRAGMA application_id")...)
	out = append(out, text(`SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\_%' ESCAPE '\'
		AND name NOT IN (SELECT name FROM pragma_table_list WHERE type = 'shadow')`)...)
	st, _, err := c.Prepare("SELECT name, type FROM pragma_table_list WHERE schema = 'main' AND type IN ('table', 'virtual') AND name NOT IN ('sqlite_schema', 'sqlite_stat1') ORDER BY name")
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for st.Step() {
		name, q := st.ColumnText(0), `SELECT * FROM "`+st.ColumnText(0)+`"`
		if st.ColumnText(1) == "virtual" {
			q = `SELECT rowid, * FROM "` + name + `"`
		}
		if name == "people_index" && len(text("SELECT 1 FROM sqlite_schema WHERE name = 'people'")) == 0 { // its table was dropped or renamed
			continue
		}
		for _, line := range text(q) {
			out = append(out, name+": "+line)
		}
	}
	return append(out, strings.Join(text("PRAGMA integrity_check"), "; "))
}
