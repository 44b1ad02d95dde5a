package changeset

import (
	"fmt"
	"strings"

	"github.com/ncruces/go-sqlite3"
)

// object is a row of the schema table.
type object struct{ typ, name, table, sql string }

// schema is that of one attached database.
type schema struct {
	db      string   // "main", or what it is attached as
	objects []object // in the order of the schema table; no automatic indexes, no shadow tables, nothing of SQLite's own
	virtual map[string]*virtual
	isA     map[string]string // by folded name: "table", "view", "virtual", "shadow"
	seqs    bool              // it has a table sqlite_sequence
}

func fold(name string) string { return strings.ToLower(name) }

// readSchema reads the schema of one database of a connection.
func readSchema(c *sqlite3.Conn, db string) (*schema, error) {
	s := &schema{db: db, virtual: map[string]*virtual{}, isA: map[string]string{}}
	if err := query(c, "SELECT name, type FROM pragma_table_list WHERE schema = ?", []any{db}, func(st *sqlite3.Stmt) error {
		s.isA[fold(st.ColumnText(0))] = st.ColumnText(1)
		return nil
	}); err != nil {
		return nil, err
	}
	var all []object
	if err := query(c, "SELECT type, name, tbl_name, sql FROM "+ident(db)+".sqlite_schema ORDER BY rowid", nil, func(st *sqlite3.Stmt) error {
		all = append(all, object{st.ColumnText(0), st.ColumnText(1), st.ColumnText(2), st.ColumnText(3)})
		return nil
	}); err != nil {
		return nil, err
	}
	for _, o := range all {
		if o.typ == "table" && s.isA[fold(o.name)] == "virtual" {
			v, err := s.readVirtual(c, o)
			if err != nil {
				return nil, err
			}
			s.virtual[fold(o.name)] = v
		}
	}
	for _, o := range all {
		if o.typ == "table" && s.ownerOf(o.name) != nil {
			s.isA[fold(o.name)] = "shadow"
		}
	}
	for _, o := range all {
		switch {
		case o.name == "sqlite_sequence":
			s.seqs = true
		case o.sql == "" || strings.HasPrefix(fold(o.name), "sqlite_"):
		case o.typ == "table" && s.isA[fold(o.name)] == "shadow":
			v := s.ownerOf(o.name)
			if v == nil {
				return nil, fmt.Errorf("%w: table %s belongs to a virtual table that is not there", ErrUnsupported, o.name)
			}
			v.shadows = append(v.shadows, o.name)
		default:
			s.objects = append(s.objects, o)
		}
	}
	return s, nil
}

// ownerOf finds the virtual table that a shadow table belongs to, nil: it is none.
func (s *schema) ownerOf(name string) *virtual {
	var owner *virtual
	for prefix, v := range s.virtual {
		if strings.HasPrefix(fold(name), prefix+"_") && (owner == nil || len(v.name) > len(owner.name)) && (s.isA[fold(name)] == "shadow" || !v.loaded) {
			owner = v
		}
	}
	return owner
}

func (s *schema) find(typ, name string) (object, bool) {
	for _, o := range s.objects {
		if o.typ == typ && o.name == name {
			return o, true
		}
	}
	return object{}, false
}

// shape is how the rows of a table are read and matched.
type shape struct {
	db      string
	name    string   // that the changes are listed under, and made to
	source  string   // that is read: a full-text table keeps its rows in another one
	columns []string // without generated ones
	exprs   []string // what each is read from: a column of source, or where fixed a literal
	fixed   []bool   // nil: none is
	key     []int    // of columns; nil: none
	colls   []string // collation of each key column
	desc    []bool   // which of them descend
	own     bool     // these are the columns' own
	without bool     // WITHOUT ROWID
	isRowid bool     // the key is the rowid
	nullKey bool     // parts of the key can be NULL
	rowid   string   // name of the rowid, "": none can be read
	unique  bool     // there are other unique indexes
}

// readShape describes an ordinary table.
func readShape(c *sqlite3.Conn, db, name string) (*shape, error) {
	t := &shape{db: db, name: name, source: name, own: true}
	taken := map[string]bool{}
	var pks []int // place in the key of each column, from 1
	if err := query(c, "SELECT name, pk, hidden FROM pragma_table_xinfo(?, ?)", []any{name, db}, func(st *sqlite3.Stmt) error {
		taken[fold(st.ColumnText(0))] = true
		if st.ColumnInt(2) != 0 {
			return nil
		}
		t.columns = append(t.columns, st.ColumnText(0))
		t.exprs = append(t.exprs, ident(st.ColumnText(0)))
		pks = append(pks, st.ColumnInt(1))
		return nil
	}); err != nil {
		return nil, err
	}
	if len(t.columns) == 0 {
		return nil, fmt.Errorf("table %s: its columns cannot be read", name)
	}
	t.key = make([]int, 0, len(pks))
	for place := 1; place <= len(pks); place++ {
		for i, pk := range pks {
			if pk == place {
				t.key = append(t.key, i)
			}
		}
	}
	var pkIndex string
	if err := query(c, `SELECT name, "unique", origin FROM pragma_index_list(?, ?)`, []any{name, db}, func(st *sqlite3.Stmt) error {
		if st.ColumnText(2) == "pk" {
			pkIndex = st.ColumnText(0)
		} else if st.ColumnBool(1) {
			t.unique = true
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if err := query(c, "SELECT wr FROM pragma_table_list WHERE schema = ? AND lower(name) = lower(?)", []any{db, name}, func(st *sqlite3.Stmt) error {
		t.without = st.ColumnBool(0)
		return nil
	}); err != nil {
		return nil, err
	}
	if !t.without {
		for _, n := range []string{"rowid", "_rowid_", "oid"} {
			if !taken[n] {
				t.rowid = n
				break
			}
		}
	}
	switch {
	case len(t.key) == 0:
		t.key = nil
	case pkIndex == "": // https://sqlite.org/lang_createtable.html#rowids_and_the_integer_primary_key
		t.isRowid, t.rowid, t.colls = true, ident(t.columns[t.key[0]]), []string{"BINARY"}
	default:
		t.nullKey = !t.without
		t.colls, t.desc = make([]string, len(t.key)), make([]bool, len(t.key))
		if err := query(c, `SELECT name, coll, "desc" FROM pragma_index_xinfo(?, ?) WHERE "key"`, []any{pkIndex, db}, func(st *sqlite3.Stmt) error {
			for i, k := range t.key {
				if t.columns[k] == st.ColumnText(0) && t.colls[i] == "" {
					t.colls[i], t.desc[i] = st.ColumnText(1), st.ColumnBool(2)
					_, own, _, _, _, err := c.TableColumnMetadata(db, name, t.columns[k])
					t.own = t.own && strings.EqualFold(own, t.colls[i])
					return err
				}
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// from is the table that is read, as an SQL name.
func (t *shape) from() string { return ident(t.db) + "." + ident(t.source) }

// read is the expression of a column of the row that is called as.
func (t *shape) read(i int, as string) string {
	if t.fixed != nil && t.fixed[i] {
		return t.exprs[i]
	}
	return as + "." + t.exprs[i]
}

// list is the expressions of all columns.
func (t *shape) list(as string) string {
	out := make([]string, len(t.columns))
	for i := range out {
		out[i] = t.read(i, as)
	}
	return strings.Join(out, ", ")
}

// nulls is the condition that a row has a NULL in its key.
func (t *shape) nulls(as string) string {
	var out []string
	for _, k := range t.key {
		out = append(out, t.read(k, as)+" IS NULL")
	}
	return "(" + strings.Join(out, " OR ") + ")"
}

// keyNames are the names of the key's columns.
func (t *shape) keyNames() []string {
	if t.key == nil {
		return nil
	}
	out := make([]string, len(t.key))
	for i, k := range t.key {
		out[i] = t.columns[k]
	}
	return out
}

// change begins the list of the table's rows.
func (t *shape) change() *TableChange {
	tc := &TableChange{Name: t.name, Columns: t.columns, Key: t.keyNames(), Unique: t.unique}
	if !t.own {
		tc.KeyCollations = t.colls
	}
	return tc
}
