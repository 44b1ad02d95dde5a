package tonbo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// stepStmts are the statements that a step adds to its transaction, on one SQLite connection. They are compiled once for each connection and run on it directly: compiled anew for each step, or handed from layer to layer of
// database/sql, they cost more than what they do.
type stepStmts struct {
	mark, unmark *sqlite3.Stmt // markTx, unmarkTx
	find         *sqlite3.Stmt // what is recorded of a step, and the database's version
	record       *sqlite3.Stmt
}

const (
	findStep   = `SELECT s.session, s.result, (SELECT value FROM _tonbo_meta WHERE key = 'version') FROM (SELECT 1) LEFT JOIN _tonbo_steps s ON thread = ? AND id = ?`
	recordStep = `INSERT INTO _tonbo_steps(thread, id, session, at, result) VALUES(?, ?, ?, ?, ?)`
)

func (s *stepStmts) prepare(c *sqlite3.Conn) error {
	for _, p := range []struct {
		to  **sqlite3.Stmt
		sql string
	}{{&s.mark, markTx}, {&s.unmark, unmarkTx}, {&s.find, findStep}, {&s.record, recordStep}} {
		if *p.to != nil {
			continue
		}
		st, _, err := c.PrepareFlags(p.sql, sqlite3.PREPARE_PERSISTENT)
		if err != nil {
			return err
		}
		*p.to = st
	}
	return nil
}

// close is for who closes the connection, which SQLite keeps open until its statements are gone.
func (s *stepStmts) close() error {
	return errors.Join(s.mark.Close(), s.unmark.Close(), s.find.Close(), s.record.Close())
}

// recorded is what a database knows of a step.
type recorded struct {
	is      bool // it has run
	session string
	result  []byte
	version string // of the database, now
}

// beginStep marks the transaction that has just begun, and looks the step up.
func (c *conn) beginStep(ctx context.Context, thread, id string) (r recorded, err error) {
	raw := c.Raw()
	defer raw.SetInterrupt(raw.SetInterrupt(ctx))
	s := &c.steps
	if err := s.prepare(raw); err != nil {
		return r, c.h.reason(err)
	}
	if err := s.mark.Exec(); err != nil {
		return r, c.h.reason(err)
	}
	err = errors.Join(s.find.BindText(1, thread), s.find.BindText(2, id))
	if err == nil && s.find.Step() {
		if r.is = s.find.ColumnType(0) != sqlite3.NULL; r.is {
			r.session = s.find.ColumnText(0)
			if s.find.ColumnType(1) != sqlite3.NULL {
				r.result = s.find.ColumnBlob(1, []byte{})
			}
		}
		if s.find.ColumnType(2) != sqlite3.NULL {
			r.version = s.find.ColumnText(2)
		}
	}
	if err == nil {
		err = s.find.Err()
	}
	return r, c.h.reason(errors.Join(err, s.find.Reset(), s.find.ClearBindings()))
}

// endStep records the step, if the transaction is the one still that beginStep marked. Between the two statements nothing can end it: the connection is not let go of.
func (c *conn) endStep(ctx context.Context, thread, id, session string, result []byte) error {
	raw := c.Raw()
	defer raw.SetInterrupt(raw.SetInterrupt(ctx))
	s := &c.steps
	if err := s.unmark.Exec(); err != nil {
		return endedTx(ctx, c.h.reason(err))
	}
	return c.h.reason(errors.Join(
		s.record.BindText(1, thread), s.record.BindText(2, id), s.record.BindText(3, session), s.record.BindInt64(4, time.Now().Unix()), s.record.BindBlob(5, result),
		s.record.Exec(), s.record.ClearBindings()))
}

// endedTx is the error of a transaction whose mark is not there any more, as err shows.
func endedTx(ctx context.Context, err error) error {
	if ctx.Err() != nil { // of course: database/sql rolls it back
		return ctx.Err()
	}
	return fmt.Errorf("its function returned without an error, but its transaction has ended: the function ended it, or something in it rolled it back; nothing of it is recorded: %w", err)
}
