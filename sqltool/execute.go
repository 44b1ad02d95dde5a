package sqltool

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ncruces/go-sqlite3"
)

// execution runs one call's statements on a connection.
type execution struct {
	*connection
	budget      *budget
	sql         string // the whole
	rows, bytes int    // left of the limits
	results     []*result
	cells       []any
	wrote       bool // something was committed, or may have been
	writing     bool // the statement at hand is one that can write
	grows       bool // max_page_count is set
	spoiled     bool // the connection is not to be used again
}

// script runs the statements in sql.
func (x *execution) script(sql string) error {
	x.sql = sql
	x.raw.SetInterrupt(x.budget)
	n := 0
	for rest := sql; rest != ""; {
		var err error
		doing := func() error {
			stmt, tail, err := x.prepare(rest)
			if err != nil {
				n++
				return err
			}
			if stmt == nil {
				rest = tail
				return nil
			}
			defer stmt.Close()
			if n++; n > maxStatements {
				return &Error{Message: fmt.Sprintf("a call may have %d statements", maxStatements)}
			}
			did := x.auth.seen
			if !x.l.Multi && x.more(tail) {
				return &Error{Message: "one statement a call: the input has more"}
			}
			rest = tail
			return x.statement(stmt, did)
		}
		if err = x.safely(doing); err != nil {
			var e *Error
			if err = x.explain(err); errors.As(err, &e) && x.l.Multi {
				e = e.copy()
				e.Statement = n
				return e
			}
			return err
		}
	}
	if n == 0 {
		return &Error{Message: "there is no statement in the input"}
	}
	if !x.raw.GetAutocommit() {
		return &Error{Message: "the transaction was still open at the end of the call: it was rolled back", Hint: "end it with COMMIT in the same call"}
	}
	return nil
}

// prepare compiles the first statement. Neither stmt nor an error: there was none, but perhaps a comment.
func (x *execution) prepare(sql string) (stmt *sqlite3.Stmt, tail string, err error) {
	x.auth.seen, x.writing = seen{}, false
	stmt, tail, err = x.compile(sql)
	if x.auth.temp {
		x.spoiled = true
	}
	if err == nil && stmt != nil && stmt.BindCount() > 0 {
		stmt.Close()
		return nil, "", &Error{Message: "parameters (?, :name) have no values here", Hint: "write the values into the statement"}
	}
	return stmt, tail, err
}

// padding makes a text longer than any that SQLite compiles for its own purposes.
var padding = strings.Repeat(" ", 64<<10)

// compile is the driver's Prepare, which panics when an error is at a place in a text of SQLite's own that the statement is too short for (ALTER TABLE of a column that an index uses).
func (x *execution) compile(sql string) (stmt *sqlite3.Stmt, tail string, err error) {
	err = x.safely(func() (err error) {
		stmt, tail, err = x.raw.Prepare(sql)
		return err
	})
	var p panicked
	if errors.As(err, &p) && p.bounds() {
		x.spoiled = true // the driver has not freed what it had
		stmt, tail, err = x.raw.Prepare(sql + padding)
		tail = strings.TrimRight(tail, " ")
	}
	return stmt, tail, err
}

// more tells whether another statement follows: something that is not a comment.
func (x *execution) more(sql string) bool {
	for sql != "" {
		stmt, tail, err := x.prepare(sql)
		if stmt != nil || err != nil {
			stmt.Close()
			return true
		}
		sql = tail
	}
	return false
}

// statement runs a compiled statement.
func (x *execution) statement(stmt *sqlite3.Stmt, did seen) (err error) {
	if err := x.watch(did.heavy); err != nil {
		return err
	}
	r := &result{wrote: !stmt.ReadOnly()}
	if x.writing = r.wrote; r.wrote {
		if x.l.ReadOnly {
			return &Error{Message: "the database can only be read"}
		}
		if err := x.limitGrowth(); err != nil {
			return err
		}
		x.wrote = true
	}
	if did.schema && r.wrote {
		// What the authorizer is not told: the new name of a table, and the parents of foreign keys. So it is looked at before it is committed.
		if err := x.inner(`SAVEPOINT _tonbo_tool`); err != nil {
			return err
		}
		before, ierr := x.ours()
		defer func() {
			stmt.Close()
			if after, aerr := x.ours(); err == nil {
				if err = errors.Join(ierr, aerr); err == nil && after != before {
					err = &Error{Message: notOurs}
				}
			}
			if err == nil {
				err = x.inner(`RELEASE _tonbo_tool`)
			}
			if err != nil {
				x.undo()
			}
		}()
	}
	before := x.raw.TotalChanges()
	for i := range stmt.ColumnCount() {
		r.columns = append(r.columns, clip(stmt.ColumnName(i), 256))
	}
	if err := x.read(stmt, r); err != nil {
		return err
	}
	if r.wrote && !did.schema && x.raw.TotalChanges() != before {
		r.changes = x.raw.Changes()
	}
	if err := stmt.Close(); err != nil && r.wrote {
		return err
	}
	x.results = append(x.results, r)
	return nil
}

// watch sets how often the statement is asked whether to go on.
func (x *execution) watch(careful bool) error {
	steps := progressSteps
	if careful {
		steps = carefulSteps
	}
	x.budget.each.Store(int64(steps))
	if careful == x.careful {
		return nil
	}
	x.careful = careful
	return setProgress(x.raw, int32(steps))
}

// read steps through the statement. One that writes is run to its end whatever the limits of what is returned.
func (x *execution) read(stmt *sqlite3.Stmt, r *result) error {
	for {
		if !stmt.Step() {
			return stmt.Err()
		}
		if r.truncated {
			continue
		}
		if x.rows == 0 {
			r.truncated = true
			r.note = fmt.Sprintf("at most %d rows are returned", x.l.Rows)
		} else {
			ok, err := x.row(stmt, r)
			if err != nil {
				return err
			}
			if ok {
				x.rows--
				continue
			}
			r.truncated = true
			r.note = fmt.Sprintf("at most %d bytes are returned: select fewer or shorter columns", x.l.Bytes)
		}
		if !r.wrote {
			return nil
		}
	}
}

// row reads the row that the statement is at, unless it is too long for what is left.
func (x *execution) row(stmt *sqlite3.Stmt, r *result) (bool, error) {
	if n := stmt.ColumnCount(); len(x.cells) != n {
		x.cells = make([]any, n)
	}
	if err := stmt.ColumnsRaw(x.cells...); err != nil {
		return false, err
	}
	start := len(r.rows)
	b := r.rows
	if start > 0 {
		b = append(b, ',')
	}
	b = append(b, '[')
	for i, v := range x.cells {
		if i > 0 {
			b = append(b, ',')
		}
		if b = appendCell(b, v, x.l.CellBytes); len(b)-start >= x.bytes {
			return false, nil
		}
	}
	r.rows = append(b, ']')
	x.bytes -= len(r.rows) - start
	return true, nil
}

// limitGrowth bounds the size of the database. https://sqlite.org/pragma.html#pragma_max_page_count
//
// The pragma takes a transaction of its own, so a bound stays while less than an eighth of GrowBytes has gone into it.
func (x *execution) limitGrowth() error {
	if x.grows {
		return nil
	}
	pages, grow := x.db.Status().Pages, max(1, x.l.GrowBytes/x.page)
	if x.most > pages+grow || x.most < pages+grow-grow/8 {
		if err := x.inner(fmt.Sprintf(`PRAGMA max_page_count = %d`, pages+grow)); err != nil {
			return err
		}
		x.most = pages + grow
	}
	x.grows = true
	return nil
}

// ours lists tonbo's own tables, what stands on them, and the foreign keys that refer to them.
func (x *execution) ours() (string, error) {
	all, err := x.strings(`SELECT type || ' ' || name FROM main.sqlite_schema WHERE name LIKE '\_tonbo\_%' ESCAPE '\' OR tbl_name LIKE '\_tonbo\_%' ESCAPE '\'
		UNION ALL SELECT 'reference ' || m.name FROM main.sqlite_schema m, pragma_foreign_key_list(m.name) f WHERE m.type = 'table' AND f."table" LIKE '\_tonbo\_%' ESCAPE '\'
		ORDER BY 1`)
	return strings.Join(all, "\n"), err
}

// undo ends the savepoint of a statement that changed the schema, and nothing around it.
func (x *execution) undo() {
	x.raw.SetInterrupt(context.Background())
	defer x.raw.SetInterrupt(x.budget)
	if x.raw.GetAutocommit() {
		return // SQLite has rolled back already
	}
	if err := x.inner(`ROLLBACK TO _tonbo_tool; RELEASE _tonbo_tool`); err != nil {
		x.inner(`ROLLBACK`)
	}
}

// leave makes the connection what it was before the call. After an error it is not to be used again.
func (x *execution) leave() error { return x.settle() }
