package changeset

import (
	"strings"

	"github.com/ncruces/go-sqlite3"
)

// keyed compares the rows that have a key: x is a's table, y is b's.
func (d *comparison) keyed(tc *TableChange, x, y *shape) error {
	n := len(y.columns)
	if may := d.mayDiffer(y); may != nil {
		switch {
		case may.Empty():
			return nil
		case y.isRowid:
			return d.byRowid(tc, x, y, may)
		case y.without:
			return d.byKey(tc, x, y, may)
		case x.rowid != "" && y.rowid != "":
			return d.byIndex(tc, x, y, may)
		}
	}
	// (1) What is in a: is it in b, and the same?
	where := "(" + y.read(y.key[0], "y") + " IS NULL OR " + d.differs(x, y) + ")"
	if x.nullKey {
		where += " AND NOT " + x.nulls("x")
	}
	err := query(d.c, "SELECT "+x.list("x")+", "+y.list("y")+" FROM "+x.from()+" x LEFT JOIN "+y.from()+" y ON "+x.matches(y, "x", "y")+" WHERE "+where, nil, func(st *sqlite3.Stmt) error {
		before := columns(st, 0, n)
		if st.ColumnType(n+y.key[0]) == sqlite3.NULL { // in b a key that matches is not NULL
			return d.add(tc, RowChange{Op: Delete, Before: before})
		}
		after := columns(st, n, n)
		if sameRow(before, after) { // the condition lets zeros pass
			return nil
		}
		return d.add(tc, RowChange{Op: Update, Before: before, After: after})
	})
	if err != nil {
		return err
	}
	// (2) What is in b alone.
	where = x.read(x.key[0], "x") + " IS NULL"
	if y.nullKey {
		where += " AND NOT " + y.nulls("y")
	}
	return query(d.c, "SELECT "+y.list("y")+" FROM "+y.from()+" y LEFT JOIN "+x.from()+" x ON "+y.matches(x, "y", "x")+" WHERE "+where, nil, func(st *sqlite3.Stmt) error {
		return d.add(tc, RowChange{Op: Insert, After: columns(st, 0, n)})
	})
}

// matches is the condition that the row other, of table o, has the key of the row as. The collation is the index's, which then serves to find it.
func (t *shape) matches(o *shape, as, other string) string {
	out := make([]string, len(t.key))
	for i, k := range t.key {
		out[i] = o.read(k, other) + " = " + t.read(k, as)
		if !t.isRowid {
			out[i] += " COLLATE " + ident(t.colls[i])
		}
	}
	return strings.Join(out, " AND ")
}

// differs is a condition that holds for all rows x and y that differ, and for few that do not. SQL cannot tell 0.0 from -0.0.
func (d *comparison) differs(a, b *shape) string {
	var terms []string
	for i := range a.columns {
		if a.isRowid && i == a.key[0] {
			continue
		}
		x, y := a.read(i, "x"), b.read(i, "y")
		binary := " COLLATE BINARY"
		if d.o.broken == "collations" {
			binary = ""
		}
		term := x + binary + " IS NOT " + y + binary
		if d.o.broken != "types" {
			term += " OR typeof(" + x + ") <> typeof(" + y + ")"
		}
		if d.o.broken != "zeros" {
			term += " OR " + x + " = 0.0 AND typeof(" + x + ") = 'real'"
		}
		terms = append(terms, term)
	}
	return either(terms)
}

// either joins conditions as a tree: SQLite bounds its depth. https://sqlite.org/limits.html#max_expr_depth
func either(terms []string) string {
	switch len(terms) {
	case 0:
		return "0"
	case 1:
		return "(" + terms[0] + ")"
	}
	half := len(terms) / 2
	return "(" + either(terms[:half]) + " OR " + either(terms[half:]) + ")"
}

// unkeyed compares rows that have no key, as multisets.
func (d *comparison) unkeyed(tc *TableChange, x, y *shape) error {
	if may := d.mayDiffer(y); may != nil && may.Empty() {
		return nil
	}
	if x.rowid != "" && y.rowid != "" && y.key == nil { // mostly nothing has changed, and that is seen without sorting
		some := false
		note := func(*sqlite3.Stmt) error { some = true; return nil }
		on := "y." + y.rowid + " = x." + x.rowid
		if err := query(d.c, "SELECT 1 FROM "+x.from()+" x LEFT JOIN "+y.from()+" y ON "+on+" WHERE y."+y.rowid+" IS NULL OR "+d.differs(x, y)+" LIMIT 1", nil, note); err != nil {
			return err
		}
		if !some {
			if err := query(d.c, "SELECT 1 FROM "+y.from()+" y LEFT JOIN "+x.from()+" x ON "+on+" WHERE x."+x.rowid+" IS NULL LIMIT 1", nil, note); err != nil {
				return err
			}
		}
		if !some {
			return nil
		}
	}
	return d.multiset(x, y, func(values []any, a, b int64) error {
		switch {
		case a > b:
			return d.add(tc, RowChange{Op: Delete, Before: values, CopiesBefore: a, CopiesAfter: b})
		case a < b:
			return d.add(tc, RowChange{Op: Insert, After: values, CopiesBefore: a, CopiesAfter: b})
		}
		return nil
	})
}

// multiset tells how many copies of each row without a key there are in x and in y, which may be nil. SQLite sorts both, on disk if need be, and they are merged.
func (d *comparison) multiset(x, y *shape, do func(values []any, a, b int64) error) error {
	var side [2]*sorted
	for i, t := range []*shape{x, y} {
		if t == nil {
			side[i] = &sorted{}
			continue
		}
		var by []string
		for j := range t.columns {
			e := t.read(j, "x")
			by = append(by, e+" COLLATE BINARY", "typeof("+e+")")
		}
		where := ""
		if t.nullKey {
			where = " WHERE " + t.nulls("x")
		}
		st, _, err := d.c.Prepare("SELECT " + t.list("x") + " FROM " + t.from() + " x" + where + " ORDER BY " + strings.Join(by, ", "))
		if err != nil {
			return err
		}
		defer st.Close()
		side[i] = &sorted{st: st, n: len(t.columns)}
		if err := side[i].next(); err != nil {
			return err
		}
	}
	// Rows that sort as one are a group. Mostly they are copies of one row; they may differ in the sign of a zero.
	type counts struct {
		values []any
		n      [2]int64
	}
	for side[0].row != nil || side[1].row != nil {
		first := side[0].row
		if first == nil || side[1].row != nil && d.orderRows(side[1].row, first) < 0 {
			first = side[1].row
		}
		var group []*counts
		find := map[string]*counts{}
		for i, s := range side {
			for s.row != nil && d.orderRows(s.row, first) == 0 {
				k := string(appendExact(nil, s.row))
				if find[k] == nil {
					find[k] = &counts{values: s.row}
					group = append(group, find[k])
				}
				find[k].n[i]++
				if err := s.next(); err != nil {
					return err
				}
			}
		}
		for _, g := range group {
			if d.o.broken == "copies" {
				g.n = [2]int64{min(g.n[0], 1), min(g.n[1], 1)}
			}
			if err := do(g.values, g.n[0], g.n[1]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *comparison) orderRows(a, b []any) int {
	for i := range a {
		if c := order(d.set.Encoding, a[i], b[i]); c != 0 {
			return c
		}
	}
	return 0
}

// sorted is a statement's rows, one after the other.
type sorted struct {
	st  *sqlite3.Stmt // nil: there are none
	n   int
	row []any // the present one, nil: at the end
}

func (s *sorted) next() error {
	s.row = nil
	if s.st == nil {
		return nil
	}
	if s.st.Step() {
		s.row = columns(s.st, 0, s.n)
		return nil
	}
	return s.st.Err()
}
