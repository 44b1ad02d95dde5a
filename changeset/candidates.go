package changeset

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/ncruces/go-sqlite3"

	"github.com/tonbo-go/tonbo/internal/btree"
)

// batch is how many rows are looked for with one statement.
const batch = 10_000

// rowids lists those of both sides as JSON arrays, each once.
func rowids(may *btree.Rows) []string {
	all := slices.Concat(may.Rowids[0], may.Rowids[1])
	slices.Sort(all)
	var out []string
	for part := range slices.Chunk(slices.Compact(all), batch) {
		b := []byte{'['}
		for i, id := range part {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, id, 10)
		}
		out = append(out, string(append(b, ']')))
	}
	return out
}

// pairs takes rows of both sides that have the same key.
type pairs struct {
	d       *comparison
	tc      *TableChange
	inserts []RowChange // come last
}

// take compares two rows; one of them may be nil.
func (p *pairs) take(before, after []any) error {
	switch {
	case sameRow(before, after):
		return nil
	case before == nil:
		p.inserts = append(p.inserts, RowChange{Op: Insert, After: after})
		if p.d.rows+len(p.inserts) > p.d.o.MaxRows {
			return p.end()
		}
		return nil
	case after == nil:
		return p.d.add(p.tc, RowChange{Op: Delete, Before: before})
	}
	return p.d.add(p.tc, RowChange{Op: Update, Before: before, After: after})
}

func (p *pairs) end() error {
	for _, r := range p.inserts {
		if err := p.d.add(p.tc, r); err != nil {
			return err
		}
	}
	p.inserts = nil
	return nil
}

// byRowid compares the rows that may differ of a table whose key is the rowid.
func (d *comparison) byRowid(tc *TableChange, x, y *shape, may *btree.Rows) error {
	n, p := len(y.columns), &pairs{d: d, tc: tc}
	q := "SELECT " + x.list("x") + ", " + y.list("y") + " FROM json_each(?) j LEFT JOIN " + x.from() + " x ON x." + x.rowid + " = j.value LEFT JOIN " + y.from() + " y ON y." + y.rowid + " = j.value"
	for _, ids := range rowids(may) {
		if err := query(d.c, q, []any{ids}, func(st *sqlite3.Stmt) error {
			var before, after []any
			if st.ColumnType(x.key[0]) != sqlite3.NULL {
				before = columns(st, 0, n)
			}
			if st.ColumnType(n+y.key[0]) != sqlite3.NULL {
				after = columns(st, n, n)
			}
			return p.take(before, after)
		}); err != nil {
			return err
		}
	}
	return p.end()
}

// byIndex compares those of a table whose key is another one. Mostly a row is where it was, and is not looked for in the index.
func (d *comparison) byIndex(tc *TableChange, x, y *shape, may *btree.Rows) error {
	n, p := len(y.columns), &pairs{d: d, tc: tc}
	for _, side := range []struct {
		from, to *shape
		take     func(mine, other []any) error
	}{
		{x, y, p.take},
		{y, x, func(mine, other []any) error {
			if other != nil { // it has been compared from the other side
				return nil
			}
			return p.take(nil, mine)
		}},
	} {
		from, to := side.from, side.to
		find, _, err := d.c.Prepare("SELECT " + to.list("y") + " FROM " + to.from() + " y WHERE " + to.isKey("y"))
		if err != nil {
			return err
		}
		defer find.Close()
		q := "SELECT " + from.list("x") + ", " + to.list("y") + " FROM json_each(?) j CROSS JOIN " + from.from() + " x ON x." + from.rowid + " = j.value LEFT JOIN " + to.from() + " y ON y." + to.rowid + " = j.value AND +(" +
			from.matches(to, "x", "y") + ")"
		for _, ids := range rowids(may) {
			if err := query(d.c, q, []any{ids}, func(st *sqlite3.Stmt) error {
				mine := columns(st, 0, n)
				key := keyOf(from, mine)
				if key == nil { // not matched by it
					return nil
				}
				var other []any
				if st.ColumnType(n+to.key[0]) != sqlite3.NULL {
					other = columns(st, n, n)
				} else if other, err = lookUp(find, key, n); err != nil {
					return err
				}
				return side.take(mine, other)
			}); err != nil {
				return err
			}
		}
	}
	return p.end()
}

// byKey compares those of a table WITHOUT ROWID.
func (d *comparison) byKey(tc *TableChange, x, y *shape, may *btree.Rows) error {
	n, p := len(y.columns), &pairs{d: d, tc: tc}
	var find [2]*sqlite3.Stmt
	for i, t := range []*shape{x, y} {
		st, _, err := d.c.Prepare("SELECT " + t.list("x") + " FROM " + t.from() + " x WHERE " + t.isKey("x"))
		if err != nil {
			return err
		}
		defer st.Close()
		find[i] = st
	}
	seen := map[string]bool{}
	for _, key := range slices.Concat(may.Keys[0], may.Keys[1]) {
		before, err := lookUp(find[0], key, n)
		if err != nil {
			return err
		}
		after, err := lookUp(find[1], key, n)
		if err != nil {
			return err
		}
		row := before
		if row == nil {
			row = after
		}
		if row == nil {
			continue
		}
		if k := string(appendExact(nil, keyOf(y, row))); !seen[k] {
			seen[k] = true
			if err := p.take(before, after); err != nil {
				return err
			}
		}
	}
	return p.end()
}

// isKey is the condition that a row has the key given as parameters.
func (t *shape) isKey(as string) string {
	out := make([]string, len(t.key))
	for i, k := range t.key {
		out[i] = t.read(k, as) + " = ? COLLATE " + ident(t.colls[i])
	}
	return strings.Join(out, " AND ")
}

// lookUp reads the row with a key, nil: there is none.
func lookUp(st *sqlite3.Stmt, key []any, n int) (row []any, err error) {
	if err := bind(st, 1, key...); err != nil {
		return nil, err
	}
	if st.Step() {
		row = columns(st, 0, n)
	}
	return row, errors.Join(st.Err(), st.Reset())
}
