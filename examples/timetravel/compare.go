package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
)

// queries give each table's rows as a key and a value, in the order of the keys.
var queries = []struct{ table, sql string }{
	{"steps", "SELECT printf('%03d', id) AS k, package || ' | ' || plan FROM steps ORDER BY k"},
	{"symbols", "SELECT package || ' ' || name AS k, signature || ' | ' || step FROM symbols ORDER BY k"},
	{"totals", "SELECT kind AS k, cast(symbols AS TEXT) FROM totals ORDER BY k"},
}

// tables are rows, by table and key.
type tables map[string]map[string]string

// digest is a hash of all rows.
func digest(ctx context.Context, db *sql.DB) (string, error) {
	h := sha256.New()
	for _, q := range queries {
		c, err := open(ctx, db, q.sql)
		if err != nil {
			return "", err
		}
		for ; c.ok; c.next() {
			fmt.Fprintf(h, "%s %q %q\n", q.table, c.key, c.value)
		}
		if err := c.close(); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// cursor reads rows one by one.
type cursor struct {
	rows       *sql.Rows
	ok         bool // there is a row: key, value
	key, value string
	err        error
}

func open(ctx context.Context, db *sql.DB, query string) (*cursor, error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	c := &cursor{rows: rows}
	c.next()
	return c, nil
}

func (c *cursor) next() {
	if c.ok = c.err == nil && c.rows.Next(); c.ok {
		c.err = c.rows.Scan(&c.key, &c.value)
		c.ok = c.err == nil
	}
}

// close returns the error that ended the rows, if one did.
func (c *cursor) close() error {
	if c.err == nil {
		c.err = c.rows.Err()
	}
	c.rows.Close()
	return c.err
}

// difference is a row that two databases do not agree on. "": it has none.
type difference struct{ table, key, left, right string }

// counts of a table's rows.
type counts struct{ same, changed, left, right int }

func (c *counts) add(inLeft, inRight, same bool) {
	switch {
	case same:
		c.same++
	case inLeft && inRight:
		c.changed++
	case inLeft:
		c.left++
	default:
		c.right++
	}
}

// compare walks over the rows of two databases at the same time, and calls differs for each on which they do not agree.
func compare(ctx context.Context, left, right *sql.DB, differs func(difference)) (map[string]counts, error) {
	all := map[string]counts{}
	for _, q := range queries {
		l, err := open(ctx, left, q.sql)
		if err != nil {
			return nil, err
		}
		r, err := open(ctx, right, q.sql)
		if err != nil {
			l.close()
			return nil, err
		}
		var n counts
		for l.ok || r.ok {
			inLeft := l.ok && (!r.ok || l.key <= r.key)
			inRight := r.ok && (!l.ok || r.key <= l.key)
			d := difference{table: q.table}
			if inLeft {
				d.key, d.left = l.key, l.value
			}
			if inRight {
				d.key, d.right = r.key, r.value
			}
			same := inLeft && inRight && l.value == r.value
			if n.add(inLeft, inRight, same); !same {
				differs(d)
			}
			if inLeft {
				l.next()
			}
			if inRight {
				r.next()
			}
		}
		lerr, rerr := l.close(), r.close()
		if lerr != nil {
			return nil, lerr
		}
		if rerr != nil {
			return nil, rerr
		}
		all[q.table] = n
	}
	return all, nil
}

// compareTables counts the same in what was computed.
func compareTables(left, right tables) map[string]counts {
	all := map[string]counts{}
	for _, q := range queries {
		var n counts
		l, r := left[q.table], right[q.table]
		for k, v := range l {
			other, in := r[k]
			n.add(true, in, in && v == other)
		}
		for k := range r {
			if _, in := l[k]; !in {
				n.add(false, true, false)
			}
		}
		all[q.table] = n
	}
	return all
}

// matches says what a database has that was not computed, or the other way round; "" when nothing.
func matches(ctx context.Context, db *sql.DB, want tables) (string, error) {
	for _, q := range queries {
		c, err := open(ctx, db, q.sql)
		if err != nil {
			return "", err
		}
		n := 0
		wrong := ""
		for ; c.ok; c.next() {
			n++
			if v, in := want[q.table][c.key]; !in || v != c.value {
				wrong = fmt.Sprintf("%s %s is %q, want %q", q.table, c.key, c.value, v)
			}
		}
		if err := c.close(); err != nil {
			return "", err
		}
		if wrong == "" && n != len(want[q.table]) {
			wrong = fmt.Sprintf("%s has %d rows, want %d", q.table, n, len(want[q.table]))
		}
		if wrong != "" {
			return wrong, nil
		}
	}
	return "", nil
}
