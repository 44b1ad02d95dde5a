package changeset

import (
	"strings"

	"github.com/ncruces/go-sqlite3"
)

// added is a table's change by ALTER TABLE ADD COLUMN.
type added struct {
	statements []string
	defaults   map[string]any // what rows that were there before have in the new columns
}

// addedColumns finds the statements that make one definition of a table of the other, nil: there are none. It is SQLite that says so, in a database of its own.
// https://sqlite.org/lang_altertable.html#alter_table_add_column
func addedColumns(name, before, after string) *added {
	more := len(after) - len(before)
	if more <= 0 {
		return nil
	}
	same := 0
	for same < len(before) && before[same] == after[same] {
		same++
	}
	for at := same; at >= 0; at-- { // ALTER puts ", definition" behind the last column
		if after[at] != ',' || before[at:] != after[at+more:] {
			continue
		}
		if a, err := tryColumns(name, before, after, splitTop(after[at:at+more], func(b byte) bool { return b == ',' })); err == nil && a != nil {
			return a
		}
		if len(before)-at > 64<<10 { // it would have been close to the end
			break
		}
	}
	return nil
}

// tryColumns adds columns to the definition before, nil: it does not become after.
func tryColumns(name, before, after string, definitions []string) (*added, error) {
	c, err := sqlite3.Open(":memory:")
	if err != nil {
		return nil, err
	}
	defer c.Close()
	const probe = "tonbo_probe_"
	run := func(q string) error { return guarded(c, func() error { return runOne(c, q) }) }
	for _, q := range []string{before, `CREATE TABLE ` + probe + `(` + probe + `id INTEGER PRIMARY KEY)`, `INSERT INTO ` + probe + ` VALUES(1)`} {
		if err := run(q); err != nil {
			return nil, err
		}
	}
	a := &added{defaults: map[string]any{}}
	for _, d := range definitions {
		add := "ALTER TABLE " + ident(name) + " ADD COLUMN " + d
		if err := run(add); err != nil {
			return nil, err
		}
		if err := run("ALTER TABLE " + probe + " ADD COLUMN " + d); err != nil { // it has one row, so it has to take what the default is
			return nil, err
		}
		a.statements = append(a.statements, add)
	}
	became := ""
	if err := query(c, "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?", []any{name}, func(st *sqlite3.Stmt) error {
		became = st.ColumnText(0)
		return nil
	}); err != nil || became != after {
		return nil, err
	}
	err = query(c, "SELECT * FROM "+probe, nil, func(st *sqlite3.Stmt) error {
		for i := range st.ColumnCount() {
			if n := st.ColumnName(i); !strings.EqualFold(n, probe+"id") {
				a.defaults[fold(n)] = column(st, i)
			}
		}
		return nil
	})
	return a, err
}
