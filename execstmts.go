package tonbo

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// What a connection keeps of compiled statements, at most.
const (
	maxKeptStmts  = 16
	maxKeptText   = 4 << 10   // of one, in bytes
	maxKeptMemory = 256 << 10 // of all, in bytes as SQLite counts them: a statement of a table with triggers holds their programs as well
)

// execStmts are the INSERT, REPLACE, UPDATE and DELETE statements that a connection was given with arguments and has compiled, for when it is given the same text again: compiling one costs as much as running it.
//
// Nothing else is kept, since it would not do the same: a PRAGMA may act when it is compiled, and what has columns tells these before it runs, when SQLite has not looked yet whether the schema is another one.
// Of what is kept, SQLite itself compiles anew what a change of the schema, a pragma or an ATTACH has made old (https://sqlite.org/c3ref/prepare.html). A statement that runs is not among these, and comes back only after it has ended well: reset, without its bindings.
// What is left of a difference: a text that does not compile any more has asked for the lock to write first, which a deferred transaction then holds.
type execStmts struct {
	kept   []keptStmt // the one used last is the last
	memory int        // of all
	off    bool
}

// keptStmt is a statement of the driver.
type keptStmt struct {
	execStmt
	text   string
	memory int // 0: not measured yet
}

// execStmt is what the driver's statements implement.
type execStmt interface {
	sqliteStmt
	ColumnCount() int
	Status(op sqlite3.StmtStatus, reset bool) int
}

// changesRows tells whether a text begins as one of the statements that are kept. What begins with a comment or with WITH is compiled each time.
func changesRows(text string) bool {
	text = strings.TrimLeft(text, " \t\r\n")
	for _, verb := range []string{"INSERT", "REPLACE", "UPDATE", "DELETE"} {
		if len(text) > len(verb) && strings.EqualFold(text[:len(verb)], verb) && strings.IndexByte(" \t\r\n", text[len(verb)]) >= 0 {
			return true
		}
	}
	return false
}

// take gives out the statement of a text, if it is there, to nobody else until put gets it back.
func (e *execStmts) take(text string) (keptStmt, bool) {
	for i := len(e.kept) - 1; i >= 0; i-- {
		if s := e.kept[i]; s.text == text {
			e.kept = slices.Delete(e.kept, i, i+1)
			e.memory -= s.memory
			return s, true
		}
	}
	return keptStmt{}, false
}

// put keeps a statement that has ended well, and lets go of what was not used for longest.
func (e *execStmts) put(s keptStmt) {
	if s.memory == 0 {
		s.memory = s.Status(sqlite3.STMTSTATUS_MEMUSED, false)
	}
	if e.off || s.memory > maxKeptMemory || s.ColumnCount() > 0 {
		s.Close()
		return
	}
	e.kept, e.memory = append(e.kept, s), e.memory+s.memory
	for len(e.kept) > maxKeptStmts || e.memory > maxKeptMemory {
		e.memory -= e.kept[0].memory
		e.kept[0].Close()
		e.kept = slices.Delete(e.kept, 0, 1)
	}
}

// forget closes all. Of statements that are reset, nothing can fail.
func (e *execStmts) forget() {
	for _, s := range e.kept {
		s.Close()
	}
	e.kept, e.memory = nil, 0
}

// close is for who closes the connection, which SQLite keeps open until its statements are gone, and for who gives the connection itself away: nothing is kept any more.
func (e *execStmts) close() {
	e.forget()
	e.off = true
}

// execKept runs a statement with arguments as database/sql would: compile, bind, run; but it compiles only what is not kept. It returns driver.ErrSkip, having done nothing, where that is for database/sql to do: what is no change of
// rows, arguments that do not fit.
func (c *conn) execKept(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	if len(args) == 0 || len(text) > maxKeptText || c.h.ro != nil || c.execs.off || !changesRows(text) {
		return nil, driver.ErrSkip
	}
	if c.Conn.Raw().DBName(2) != "" { // of main and temp, SQLite looks at the schema of each that a name may be found in; of attached ones only where it was found
		c.execs.forget()
		return nil, driver.ErrSkip
	}
	args, err := defaultArgs(args)
	if err != nil {
		return nil, driver.ErrSkip
	}
	s, again := c.execs.take(text)
	if !again {
		if s, err = c.compile(ctx, strings.Clone(text)); err != nil {
			return nil, err
		}
	}
	well := false
	defer func() { // also when the bytes of an argument come from a method that panics
		if well {
			c.execs.put(s)
		} else {
			s.Close() // which could only repeat the error
		}
	}()
	if n := s.NumInput(); n >= 0 && n != len(args) {
		return nil, driver.ErrSkip
	}
	r, err := s.ExecContext(ctx, args)
	if well = err == nil; well {
		return r, nil
	}
	if again {
		// Perhaps it could not be compiled any more, which is the error then, with the place in the text: a lock that another connection holds, say, comes to be asked for only behind that.
		anew, cerr := c.compile(ctx, strings.Clone(text))
		if errors.Is(cerr, sqlite3.ERROR) {
			return nil, cerr
		}
		if cerr == nil {
			c.execs.put(anew)
		}
	}
	return nil, err
}

func (c *conn) compile(ctx context.Context, text string) (keptStmt, error) {
	s, err := c.Conn.PrepareContext(ctx, text)
	if err != nil {
		return keptStmt{}, err
	}
	return keptStmt{execStmt: s.(execStmt), text: text}, nil
}

// defaultArgs makes of arguments what database/sql makes of them for a statement of the driver. Of what only the driver knows (sqlite3.JSON, sqlite3.Pointer) it makes an error.
func defaultArgs(args []driver.NamedValue) ([]driver.NamedValue, error) {
	own := false
	for i, a := range args {
		switch a.Value.(type) {
		case nil, bool, int, int64, float64, string, []byte, time.Time, sqlite3.ZeroBlob:
			continue
		}
		v, err := driver.DefaultParameterConverter.ConvertValue(a.Value)
		if err != nil {
			return nil, err
		}
		if !own {
			args, own = slices.Clone(args), true
		}
		args[i].Value = v
	}
	return args, nil
}
