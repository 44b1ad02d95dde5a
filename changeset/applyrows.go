package changeset

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ncruces/go-sqlite3"
)

// writer writes the rows of one table of the target.
type writer struct {
	*applier
	t  *TableChange
	sh *shape

	find, insert, insertAt, delete *sqlite3.Stmt
	updates                        map[string]*sqlite3.Stmt // by the columns that they set
}

// table makes the changes to one table's rows.
func (a *applier) table(t *TableChange) error {
	if t.Name == sequenceTable {
		return a.sequences(t)
	}
	sh, err := a.shapeOf(t)
	if err != nil || sh == nil {
		return err
	}
	w := &writer{applier: a, t: t, sh: sh, updates: map[string]*sqlite3.Stmt{}}
	defer w.close()
	if err := w.prepare(); err != nil {
		return err
	}
	// (1) What is there, for every row, before any of them changes.
	var todo []*step
	if sh.key != nil {
		if todo, err = w.lookUp(); err != nil {
			return err
		}
	}
	more, err := w.count()
	if err != nil {
		return err
	}
	todo = append(todo, more...)
	// (2) Rows go first, then others change, then others come: unique columns may have changed hands.
	for _, s := range todo {
		if s.found != nil && (s.wanted == nil || t.Unique || sh.unique) {
			if err := w.one(w.delete, s, s.where...); err != nil {
				return err
			}
		}
	}
	for _, s := range todo {
		if s.found != nil && s.wanted != nil && !t.Unique && !sh.unique {
			if err := w.update(s); err != nil {
				return err
			}
		}
	}
	for _, s := range todo {
		if s.wanted == nil || s.found != nil && !t.Unique && !sh.unique {
			continue
		}
		for range max(1, s.copies) {
			st, args := w.insert, s.wanted
			if s.rowid != nil {
				st, args = w.insertAt, append([]any{s.rowid}, s.wanted...)
			}
			if err := w.one(st, s, args...); err != nil {
				return err
			}
		}
	}
	return nil
}

// step is what is to be done about one row.
type step struct {
	row    *RowChange
	found  []any // that goes or changes; nil: none
	where  []any // finds it
	wanted []any // that it becomes, or that comes; nil: none
	rowid  any   // to come back under
	copies int64 // to come
}

// mainTable is the name of a table of the target, whatever else the connection has under it.
func mainTable(name string) string { return "main." + ident(name) }

// prepare makes the statements. OR ABORT goes before what the table says ON CONFLICT: a row that a constraint refuses is not skipped, puts no other out, and does not end the
// transaction. DELETE has no such clause, and needs none where no trigger fires. https://sqlite.org/lang_conflict.html
func (w *writer) prepare() (err error) {
	table := mainTable(w.t.Name)
	prepare := func(q string) *sqlite3.Stmt {
		if err != nil {
			return nil
		}
		var st *sqlite3.Stmt
		st, _, err = w.c.Prepare(q)
		return st
	}
	names := make([]string, len(w.t.Columns))
	for i, n := range w.t.Columns {
		names[i] = ident(n)
	}
	list, marks := strings.Join(names, ", "), strings.TrimSuffix(strings.Repeat("?, ", len(names)), ", ")
	w.insert = prepare("INSERT OR ABORT INTO " + table + "(" + list + ") VALUES(" + marks + ")")
	where := w.where()
	if w.sh.key != nil {
		rowid := "NULL"
		if w.sh.rowid != "" && !w.sh.isRowid {
			rowid = w.sh.rowid
			w.insertAt = prepare("INSERT OR ABORT INTO " + table + "(" + rowid + ", " + list + ") VALUES(?, " + marks + ")")
		}
		w.find = prepare("SELECT " + list + ", " + rowid + " FROM " + table + " WHERE " + where)
	}
	w.delete = prepare("DELETE FROM " + table + " WHERE " + where)
	return err
}

// where finds a row: by its key, without one by its rowid.
func (w *writer) where() string {
	if w.sh.key == nil {
		if w.sh.rowid == "" {
			return "0"
		}
		return w.sh.rowid + " = ?"
	}
	out := make([]string, len(w.sh.key))
	for i, k := range w.sh.key {
		out[i] = ident(w.t.Columns[k]) + " = ?"
		if !w.sh.isRowid {
			out[i] += " COLLATE " + ident(w.sh.colls[i])
		}
	}
	return strings.Join(out, " AND ")
}

func (w *writer) close() {
	for _, st := range []*sqlite3.Stmt{w.find, w.insert, w.insertAt, w.delete} {
		if st != nil {
			st.Close()
		}
	}
	for _, st := range w.updates {
		st.Close()
	}
}

// lookUp finds the rows with a key.
func (w *writer) lookUp() (todo []*step, err error) {
	for i := range w.t.Rows {
		r := &w.t.Rows[i]
		if !r.keyed() {
			continue
		}
		key := keyOf(w.sh, r.values())
		if key == nil {
			return nil, fmt.Errorf("row %s: its key has a NULL", cells(r.values(), 6))
		}
		s := &step{row: r, where: key}
		if err := bind(w.find, 1, key...); err != nil {
			return nil, err
		}
		if w.find.Step() {
			s.found = columns(w.find, 0, len(w.t.Columns))
			s.rowid = column(w.find, len(w.t.Columns))
		}
		if err := errors.Join(w.find.Err(), w.find.Reset()); err != nil {
			return nil, err
		}
		switch {
		case sameRow(s.found, r.After):
			continue
		case !sameRow(s.found, r.Before):
			if w.o.OnConflict == Fail {
				w.conflict(Conflict{Table: w.t.Name, Type: "row", Op: r.Op, Columns: w.t.Columns, Key: key, Expected: r.Before, Found: s.found, Wanted: r.After})
			}
			if w.o.OnConflict != Overwrite {
				continue
			}
		}
		s.wanted = r.After
		todo = append(todo, s)
	}
	return todo, nil
}

// count finds the copies of rows without a key: the table is read once.
func (w *writer) count() (todo []*step, err error) {
	type copies struct {
		row    *RowChange
		n      int64
		rowids []int64 // of as many as may have to go
	}
	var all []*copies
	find := map[string]*copies{}
	for i := range w.t.Rows {
		if r := &w.t.Rows[i]; !r.keyed() {
			c := &copies{row: r}
			all = append(all, c)
			find[string(appendExact(nil, r.values()))] = c
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	rowid := w.sh.rowid
	if rowid == "" {
		return nil, fmt.Errorf("%w: it has no key, and columns in place of its rowid", ErrUnsupported)
	}
	where := ""
	if w.sh.key != nil {
		where = " WHERE " + w.sh.nulls("x")
	}
	var key []byte
	if err := query(w.c, "SELECT x."+rowid+", "+w.sh.list("x")+" FROM "+w.sh.from()+" x"+where, nil, func(st *sqlite3.Stmt) error {
		key = appendExact(key[:0], columns(st, 1, len(w.t.Columns)))
		if c := find[string(key)]; c != nil {
			c.n++
			c.rowids = append(c.rowids, st.ColumnInt64(0))
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for _, c := range all {
		r := c.row
		switch c.n {
		case r.CopiesAfter:
			continue
		case r.CopiesBefore:
		default:
			if w.o.OnConflict == Fail {
				v := r.values()
				w.conflict(Conflict{Table: w.t.Name, Type: "row", Op: r.Op, Columns: w.t.Columns, Expected: v, Found: v, Wanted: v, CopiesExpected: r.CopiesBefore, CopiesFound: c.n, CopiesWanted: r.CopiesAfter})
			}
			if w.o.OnConflict != Overwrite {
				continue
			}
		}
		for ; c.n > r.CopiesAfter; c.n-- {
			todo = append(todo, &step{row: r, found: r.values(), where: []any{c.rowids[c.n-1]}})
		}
		if c.n < r.CopiesAfter {
			todo = append(todo, &step{row: r, wanted: r.values(), copies: r.CopiesAfter - c.n})
		}
	}
	return todo, nil
}

// update sets the columns that differ.
func (w *writer) update(s *step) error {
	var set []string
	var args []any
	for i, v := range s.wanted {
		if !same(v, s.found[i]) {
			set = append(set, ident(w.t.Columns[i])+" = ?")
			args = append(args, v)
		}
	}
	q := strings.Join(set, ", ")
	st := w.updates[q]
	if st == nil {
		var err error
		if st, _, err = w.c.Prepare("UPDATE OR ABORT " + mainTable(w.t.Name) + " SET " + q + " WHERE " + w.where()); err != nil {
			return err
		}
		w.updates[q] = st
	}
	return w.one(st, s, append(args, s.where...)...)
}

// one runs a statement for one row. A constraint that does not let it pass is a conflict: another row is in the way.
func (w *writer) one(st *sqlite3.Stmt, s *step, args ...any) error {
	if st == w.delete && w.sh.key != nil && !s.row.keyed() { // a row without a key in a table that has one
		return w.c.Exec(fmt.Sprintf("DELETE FROM %s WHERE %s = %d", mainTable(w.t.Name), w.sh.rowid, args[0]))
	}
	if err := bind(st, 1, args...); err != nil {
		return err
	}
	err := st.Exec()
	if terr := w.stillOpen(); terr != nil {
		return errors.Join(err, terr)
	}
	if errors.Is(err, sqlite3.CONSTRAINT) {
		w.conflict(Conflict{Table: w.t.Name, Type: "row", Op: s.row.Op, Columns: w.t.Columns, Key: keyOf(w.sh, s.row.values()),
			Expected: s.row.Before, Found: s.found, Wanted: s.row.After, Reason: err.Error()})
		return nil
	}
	return err
}

// sequences raises what AUTOINCREMENT has counted to: it never goes back.
func (a *applier) sequences(t *TableChange) error {
	for i := range t.Rows {
		r := &t.Rows[i]
		name, was, found := r.values()[0], any(nil), false
		if err := query(a.c, "SELECT seq FROM main.sqlite_sequence WHERE name = ?", []any{name}, func(st *sqlite3.Stmt) error {
			was, found = column(st, 0), true
			return nil
		}); err != nil {
			return err
		}
		q, args := "", []any(nil)
		switch {
		case r.Op == Delete && found && same(was, r.Before[1]):
			q, args = "DELETE FROM main.sqlite_sequence WHERE name = ?", []any{name}
		case r.Op == Delete:
		case !found:
			q, args = "INSERT OR ABORT INTO main.sqlite_sequence(name, seq) VALUES(?, ?)", r.After
		case order(a.set.Encoding, r.After[1], was) > 0:
			q, args = "UPDATE OR ABORT main.sqlite_sequence SET seq = ? WHERE name = ?", []any{r.After[1], name}
		}
		if q == "" {
			continue
		}
		if err := query(a.c, q, args, func(*sqlite3.Stmt) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}
