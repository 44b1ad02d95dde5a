package sqltool

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ncruces/go-sqlite3"
)

// Names that a hint looks through, and lists, at most.
const (
	hintNames = 20_000
	hintList  = 20
	hintNear  = 3
)

// hint tells what the model may have meant.
func (x *execution) hint(e *Error) string {
	m := e.Message
	if name, ok := strings.CutPrefix(m, "no such table: "); ok {
		if strings.HasPrefix(strings.ToLower(name), "information_schema") || strings.HasPrefix(strings.ToLower(name), "pg_") {
			return "this is SQLite: the tables are in sqlite_schema, the columns of one in pragma_table_info('name')"
		}
		return x.names(name, tableNames, "the tables are ", "there is no table yet")
	}
	if name, ok := strings.CutPrefix(m, "unknown database "); ok {
		if strings.EqualFold(name, "information_schema") || strings.EqualFold(name, "pg_catalog") {
			return "this is SQLite: the tables are in sqlite_schema, the columns of one in pragma_table_info('name')"
		}
		return "there is one database, main"
	}
	if name, ok := strings.CutPrefix(m, "no such column: "); ok {
		if strings.Contains(name, `"`) || strings.HasPrefix(e.Near, `"`) {
			return "a string is written in 'single quotes'"
		}
		return x.names(name, columnNames, "the columns are ", "")
	}
	if rest, ok := strings.CutPrefix(m, "table "); ok {
		if table, column, ok := strings.Cut(rest, " has no column named "); ok {
			return x.names(table+"."+column, columnNames, "the columns are ", "")
		}
	}
	if name, ok := strings.CutPrefix(m, "no such function: "); ok {
		if near := nearest(strings.ToLower(name), slices.Sorted(maps.Keys(functions))); len(near) > 0 {
			return "did you mean " + strings.Join(near, ", ") + "?"
		}
		return "this is SQLite: sqlite.org/lang_corefunc.html lists its functions"
	}
	if strings.HasSuffix(m, "syntax error") {
		switch word, _, _ := strings.Cut(strings.ToUpper(e.Near), " "); strings.TrimRight(word, ";") {
		case "SHOW", "DESCRIBE", "DESC":
			return "this is SQLite: SELECT name, sql FROM sqlite_schema"
		case "TRUNCATE":
			return "this is SQLite: DELETE FROM the table"
		}
	}
	return ""
}

// The user's tables. (Not pragma_table_list, and no columns of views: each view would be compiled, and nothing interrupts that.)
const (
	userTables = `name NOT LIKE 'sqlite\_%' ESCAPE '\' AND name NOT LIKE '\_tonbo\_%' ESCAPE '\'
		AND name NOT IN (SELECT v.name || x.column1 FROM sqlite_schema v, (VALUES('_data'), ('_idx'), ('_content'), ('_docsize'), ('_config')) x WHERE v.type = 'table' AND v.sql LIKE 'CREATE VIRTUAL TABLE%')`

	tableNames = `SELECT name FROM sqlite_schema s WHERE type IN ('table', 'view') AND ` + userTables + ` ORDER BY name`

	columnNames = `SELECT t.name || '.' || c.name FROM (SELECT name FROM sqlite_schema s WHERE type = 'table' AND ` + userTables + `) t, pragma_table_xinfo(t.name) c WHERE c.hidden <> 1 ORDER BY 1`
)

// names lists those that are near to a name that there is not, or else all, when list is not empty.
func (x *execution) names(name, query, list, none string) string {
	all, err := x.some(query)
	if err != nil {
		return "" // a hint is no more than that
	}
	if near := nearest(name, all); len(near) > 0 {
		return "did you mean " + strings.Join(near, ", ") + "?"
	}
	if len(all) == 0 {
		return none
	}
	more := ""
	if len(all) > hintList {
		all, more = all[:hintList], ", ..."
	}
	return list + strings.Join(all, ", ") + more
}

// some reads up to hintNames names.
func (x *execution) some(query string) (all []string, err error) {
	err = x.each(query+fmt.Sprintf(" LIMIT %d", hintNames), func(s *sqlite3.Stmt) { all = append(all, clip(s.ColumnText(0), 128)) })
	return all, err
}

// nearest finds the names that are a few edits away. A column may be given with or without its table, and is known with it.
func nearest(name string, known []string) []string {
	type candidate struct {
		name string
		far  int
	}
	var found []candidate
	name = strings.ToLower(clip(name, 128))
	_, column, qualified := cutLast(name)
	for _, k := range known {
		low := strings.ToLower(k)
		_, kc, kq := cutLast(low)
		far := 1 << 30
		if qualified || !kq {
			far = distance(name, low)
		}
		if kq {
			d := distance(column, kc)
			if qualified {
				d++ // another table, or an alias
			}
			far = min(far, d)
		}
		if far <= min(3, max(1, len(column)/2)) {
			found = append(found, candidate{k, far})
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return a.far - b.far })
	var near []string
	for _, c := range found[:min(len(found), hintNear)] {
		near = append(near, c.name)
	}
	return near
}

func cutLast(name string) (before, after string, found bool) {
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		return name[:i], name[i+1:], true
	}
	return "", name, false
}

// distance is Levenshtein's.
func distance(a, b string) int {
	if d := len(a) - len(b); d > 8 || d < -8 {
		return 1 << 20
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := before
			if a[i] != b[j] {
				d = 1 + min(before, row[j], row[j+1])
			}
			before, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}
