package changeset

import (
	"fmt"

	"github.com/ncruces/go-sqlite3"
)

// violation is a row that refers to one that is not there.
type violation struct {
	table  string
	rowid  any // nil in a table WITHOUT ROWID
	parent string
	key    int64 // which of the table's foreign keys
}

// violations lists those that the changes could touch, as the target is now. https://sqlite.org/pragma.html#pragma_foreign_key_check
func (a *applier) violations() (map[violation]int, error) {
	found := map[violation]int{}
	if !a.enforce {
		return found, nil
	}
	touched := map[string]bool{}
	for _, t := range a.set.Tables {
		touched[fold(t.Name)] = true
	}
	for _, sc := range a.set.Schema {
		if sc.Type == "table" {
			touched[fold(sc.Name)] = true
		}
	}
	var tables []string
	if err := query(a.c, "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND rootpage > 0", nil, func(st *sqlite3.Stmt) error {
		tables = append(tables, st.ColumnText(0))
		return nil
	}); err != nil {
		return nil, err
	}
	for _, name := range tables {
		check := false
		if err := query(a.c, `SELECT "table" FROM pragma_foreign_key_list(?, 'main')`, []any{name}, func(st *sqlite3.Stmt) error {
			check = check || touched[fold(name)] || touched[fold(st.ColumnText(0))]
			return nil
		}); err != nil {
			return nil, err
		}
		if !check {
			continue
		}
		if err := query(a.c, "PRAGMA main.foreign_key_check("+ident(name)+")", nil, func(st *sqlite3.Stmt) error {
			found[violation{st.ColumnText(0), column(st, 1), st.ColumnText(2), st.ColumnInt64(3)}]++
			return nil
		}); err != nil {
			return nil, fmt.Errorf("foreign keys of table %s: %w", name, err)
		}
	}
	return found, nil
}

// newViolations makes a conflict of each that was not there before.
func (a *applier) newViolations(before map[violation]int) error {
	after, err := a.violations()
	if err != nil {
		return err
	}
	for v, n := range after {
		if n > before[v] {
			a.conflict(Conflict{Table: v.table, Type: "row", Op: Insert, Key: []any{v.rowid}, Reason: "it refers to a row of " + v.parent + " that would not be there (foreign key)"})
		}
	}
	return nil
}
