package changeset

import (
	"fmt"
	"strings"

	"github.com/ncruces/go-sqlite3"
)

// virtual is a virtual table. https://sqlite.org/vtab.html
type virtual struct {
	name    string
	module  string
	args    []string
	columns []string // that can be read and written
	loaded  bool     // its module is there
	shadows []string
	rows    rowsOf
	content string // of derived rows: the table
}

// rowsOf says where the rows of a virtual table are.
type rowsOf int

const (
	opaque  rowsOf = iota // in its shadow tables, and only its module knows how
	stored                // in a table of its own, by rowid
	derived               // in another table of the schema: it is an index of that
	nowhere               // it has no shadow tables
)

// readVirtual reads a definition.
func (s *schema) readVirtual(c *sqlite3.Conn, o object) (*virtual, error) {
	v := &virtual{name: o.name}
	if err := query(c, "SELECT name, hidden FROM pragma_table_xinfo(?, ?)", []any{o.name, s.db}, func(st *sqlite3.Stmt) error {
		v.loaded = true
		if st.ColumnInt(1) == 0 {
			v.columns = append(v.columns, st.ColumnText(0))
		}
		return nil
	}); err != nil {
		return nil, err
	}
	v.module, v.args = parseVirtual(o.sql)
	switch v.module {
	case "fts5":
		v.rows = stored
		for _, a := range v.args {
			if key, value, ok := strings.Cut(a, "="); ok && strings.EqualFold(strings.TrimSpace(key), "content") {
				if v.content = unquote(strings.TrimSpace(value)); v.content == "" {
					v.rows = opaque
				} else {
					v.rows = derived
				}
			}
		}
	case "rtree", "rtree_i32", "geopoly":
		v.rows = stored
	}
	if !v.loaded {
		v.rows = opaque
	}
	return v, nil
}

// kind is rowsOf, once the shadow tables are known.
func (v *virtual) kind() rowsOf {
	if v.rows == opaque && len(v.shadows) == 0 {
		return nowhere
	}
	return v.rows
}

func (v *virtual) unsupported(why string) error {
	return fmt.Errorf("%w: virtual table %s (%s): %s", ErrUnsupported, v.name, v.module, why)
}

// shapeIn describes the rows of a virtual table that stores them.
func (v *virtual) shapeIn(c *sqlite3.Conn, db string) (*shape, error) {
	t := &shape{db: db, name: v.name, source: v.name, own: true, isRowid: true, key: []int{0}, colls: []string{"BINARY"}, rowid: "rowid"}
	switch v.module {
	case "fts5": // https://sqlite.org/fts5.html#the_fts_content_table
		t.source = v.name + "_content"
		stored, err := readShape(c, db, t.source)
		if err != nil {
			return nil, err
		}
		if len(stored.columns) != len(v.columns)+1 || stored.columns[0] != "id" || stored.columns[len(v.columns)] != fmt.Sprint("c", len(v.columns)-1) {
			return nil, v.unsupported("its content table has columns that cannot be written back")
		}
		t.columns, t.exprs, t.rowid = append([]string{"rowid"}, v.columns...), stored.exprs, stored.rowid
		return t, nil
	case "geopoly":
		t.columns = append([]string{"rowid"}, v.columns...)
	default: // the first column of an R-Tree is its rowid. https://sqlite.org/rtree.html
		t.columns, t.rowid = v.columns, ident(v.columns[0])
	}
	for _, n := range t.columns {
		t.exprs = append(t.exprs, ident(n))
	}
	return t, nil
}

// parseVirtual reads CREATE VIRTUAL TABLE name USING module(args).
func parseVirtual(sql string) (module string, args []string) {
	words := splitTop(sql, func(b byte) bool { return b == ' ' || b == '\t' || b == '\n' || b == '\r' || b == '\f' })
	for i, w := range words {
		if !strings.EqualFold(w, "using") || i+1 == len(words) {
			continue
		}
		rest := strings.Join(words[i+1:], " ")
		name, list, ok := strings.Cut(rest, "(")
		if ok {
			if end := strings.LastIndex(list, ")"); end >= 0 {
				list = list[:end]
			}
			args = splitTop(list, func(b byte) bool { return b == ',' })
		}
		return fold(unquote(strings.TrimSpace(name))), args
	}
	return "", nil
}

// unquote takes the quotes off a name. https://sqlite.org/lang_keywords.html
func unquote(s string) string {
	if len(s) < 2 {
		return s
	}
	open, end := s[0], s[len(s)-1]
	if open == '[' && end == ']' {
		return s[1 : len(s)-1]
	}
	if (open == '\'' || open == '"' || open == '`') && end == open {
		return strings.ReplaceAll(s[1:len(s)-1], strings.Repeat(string(open), 2), string(open))
	}
	return s
}

// splitTop splits SQL where sep says so, outside of parentheses, quotes and comments. Empty parts are left out.
func splitTop(s string, sep func(byte) bool) []string {
	var out []string
	depth, begin := 0, 0
	for i := 0; i < len(s); i++ {
		switch b := s[i]; {
		case b == '(':
			depth++
		case b == ')':
			depth--
		case b == '\'' || b == '"' || b == '`' || b == '[':
			end := b
			if b == '[' {
				end = ']'
			}
			for i++; i < len(s) && s[i] != end; i++ {
			}
		case strings.HasPrefix(s[i:], "--"):
			for ; i < len(s) && s[i] != '\n'; i++ {
			}
			i-- // the newline separates
		case strings.HasPrefix(s[i:], "/*"):
			if end := strings.Index(s[i+2:], "*/"); end >= 0 {
				i += end + 3
			} else {
				i = len(s)
			}
		case depth == 0 && sep(b):
			if part := strings.TrimSpace(s[begin:i]); part != "" {
				out = append(out, part)
			}
			begin = i + 1
		}
	}
	if part := strings.TrimSpace(s[min(begin, len(s)):]); part != "" {
		out = append(out, part)
	}
	return out
}
