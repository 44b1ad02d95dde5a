package changeset

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
)

// WriteSQL writes a script for the sqlite3 shell, or any other SQLite, that turns the first database into the second one, in one transaction of its own. It is for that database alone: unlike [Set.Apply] it
// looks at nothing that is there. It switches foreign keys off for its connection, and takes the triggers of the tables that change away while it runs, so that neither act. Run it so that it stops at an error, as sqlite3 -bail
// does: then nothing is committed. As Apply does, it refuses a set whose statements are not those that it shows.
func (s *Set) WriteSQL(to io.Writer) error {
	if err := s.verify(); err != nil {
		return err
	}
	if err := s.checkLines(); err != nil {
		return err
	}
	w := &script{bufio.NewWriter(to), s.Encoding}
	w.line("-- %s -> %s", oneLine(s.From.String()), oneLine(s.To.String()))
	w.line("PRAGMA foreign_keys = OFF;")
	w.line("BEGIN IMMEDIATE;")
	for _, t := range s.Triggers {
		w.line("DROP TRIGGER %s;", ident(t.Name))
	}
	w.schema(s, func(sc *SchemaChange) bool {
		return sc.Op == Drop || sc.Op == Alter || sc.Op == Create && sc.Type == "table" || sc.Op == Setting && sc.Type == "fts5"
	})
	for i := range s.Tables {
		if t := &s.Tables[i]; !t.Dropped { // its rows go with it
			w.table(t)
		}
	}
	w.schema(s, func(sc *SchemaChange) bool {
		return sc.Op == Create && sc.Type != "table" || sc.Op == Rebuild || sc.Op == Setting && sc.Type == "pragma"
	})
	for _, t := range s.Triggers {
		w.line("%s;", endLine(t.SQL))
	}
	w.line("COMMIT;")
	return w.Flush()
}

// endOfBatch is a line that ends a statement for the sqlite3 shell, as a semicolon does. https://sqlite.org/cli.html
var endOfBatch = regexp.MustCompile(`(?im)^\s*(/|go)\s*(--.*|/\*.*)?$`)

// checkLines: it is the same statements for the shell.
func (s *Set) checkLines() error {
	for i := range s.Schema {
		for _, q := range s.Schema[i].Statements {
			if endOfBatch.MatchString(q) {
				return fmt.Errorf("%w in a script: %s %s has a line of nothing but / or go, which ends a statement for the sqlite3 shell", ErrUnsupported, s.Schema[i].Type, s.Schema[i].Name)
			}
		}
	}
	for _, t := range s.Triggers {
		if endOfBatch.MatchString(t.SQL) {
			return fmt.Errorf("%w in a script: trigger %s has a line of nothing but / or go, which ends a statement for the sqlite3 shell", ErrUnsupported, t.Name)
		}
	}
	return nil
}

// script is one that is being written.
type script struct {
	*bufio.Writer
	encoding string
}

func (w *script) line(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

func (w *script) schema(s *Set, which func(*SchemaChange) bool) {
	for i := range s.Schema {
		if sc := &s.Schema[i]; which(sc) {
			for _, q := range sc.Statements {
				w.line("%s;", endLine(q))
			}
		}
	}
}

// endLine keeps a comment at the end of a statement from swallowing what follows it.
func endLine(q string) string {
	if strings.Contains(q, "--") {
		return q + "\n"
	}
	return q
}

func (w *script) table(t *TableChange) {
	if t.Name == sequenceTable {
		for i := range t.Rows {
			r := &t.Rows[i]
			w.line("DELETE FROM sqlite_sequence WHERE name = %s;", literal(w.encoding, r.values()[0]))
			if r.After != nil {
				w.line("INSERT INTO sqlite_sequence(name, seq) VALUES(%s, %s);", literal(w.encoding, r.After[0]), literal(w.encoding, r.After[1]))
			}
		}
		return
	}
	for i := range t.Rows {
		if r := &t.Rows[i]; r.Op == Delete || r.Op == Update && t.Unique {
			w.delete(t, r)
		}
	}
	for i := range t.Rows {
		if r := &t.Rows[i]; r.Op == Update && !t.Unique {
			var set []string
			for j, v := range r.After {
				if !same(v, r.Before[j]) {
					set = append(set, ident(t.Columns[j])+" = "+literal(w.encoding, v))
				}
			}
			w.line("UPDATE OR ABORT %s SET %s WHERE %s;", ident(t.Name), strings.Join(set, ", "), w.key(t, r.Before))
		}
	}
	for i := range t.Rows {
		if r := &t.Rows[i]; r.Op == Insert || r.Op == Update && t.Unique {
			names, vs := make([]string, len(t.Columns)), make([]string, len(t.Columns))
			for j, v := range r.After {
				names[j], vs[j] = ident(t.Columns[j]), literal(w.encoding, v)
			}
			for range max(1, r.CopiesAfter-r.CopiesBefore) {
				w.line("INSERT OR ABORT INTO %s(%s) VALUES(%s);", ident(t.Name), strings.Join(names, ", "), strings.Join(vs, ", "))
			}
		}
	}
}

// key finds a row by its key.
func (w *script) key(t *TableChange, row []any) string {
	var out []string
	for i, k := range t.Key {
		q := ident(k) + " = " + literal(w.encoding, row[slices.Index(t.Columns, k)])
		if t.KeyCollations != nil {
			q += " COLLATE " + ident(t.KeyCollations[i])
		}
		out = append(out, q)
	}
	return strings.Join(out, " AND ")
}

// delete takes a row away, or some of its copies.
func (w *script) delete(t *TableChange, r *RowChange) {
	if r.keyed() {
		w.line("DELETE FROM %s WHERE %s;", ident(t.Name), w.key(t, r.Before))
		return
	}
	var out []string
	rowid := "rowid"
	for i, v := range r.Before {
		name := ident(t.Columns[i])
		out = append(out, fmt.Sprintf("%s IS %s COLLATE BINARY AND typeof(%s) = '%s'", name, literal(w.encoding, v), name, typeName(v)))
		if f, ok := v.(float64); ok && f == 0 { // only arithmetic can tell the two zeros apart
			sign := ">"
			if math.Signbit(f) {
				sign = "<"
			}
			out = append(out, fmt.Sprintf("atan2(%s, -1.0) %s 0", name, sign))
		}
	}
	for _, n := range []string{"rowid", "_rowid_", "oid"} {
		if !slices.ContainsFunc(t.Columns, func(c string) bool { return fold(c) == n }) {
			rowid = n
			break
		}
	}
	w.line("DELETE FROM %s WHERE %s IN (SELECT %s FROM %s WHERE %s LIMIT %d);", ident(t.Name), rowid, rowid, ident(t.Name), strings.Join(out, " AND "), r.CopiesBefore-r.CopiesAfter)
}

func typeName(v any) string {
	switch v.(type) {
	case int64:
		return "integer"
	case float64:
		return "real"
	case string:
		return "text"
	case []byte:
		return "blob"
	}
	return "null"
}
