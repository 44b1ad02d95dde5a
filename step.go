package tonbo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Step is a step that has been taken.
type Step struct {
	Result   []byte // what fn returned when it ran
	Replayed bool   // it had run before: not in this call
	Session  string // "<thread>-<version>" of the database's version when it ran, see [EnsureOptions]; "<thread>" in a database without one
	Point    Point  // a point that holds the step: the one that this call's Synced reached
}

// Our own tables, in the user's database so that a transaction spans both. Names that begin with _tonbo_ are ours.
const (
	metaTable  = `CREATE TABLE IF NOT EXISTS _tonbo_meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID`
	stepsTable = `CREATE TABLE IF NOT EXISTS _tonbo_steps(thread TEXT NOT NULL, id TEXT NOT NULL, session TEXT NOT NULL, at INTEGER NOT NULL, result BLOB,
		PRIMARY KEY(thread, id)) WITHOUT ROWID`
)

// stepping is what the steps of one handle share.
type stepping struct {
	turn  chan struct{} // holds a token while a step's transaction runs: SQLite has one writer, and a channel can be left when a ctx ends
	ready bool          // the tables are known to exist, in the handle's epoch. Used with the token alone, as is what follows
	epoch int64
}

// tables makes the tables where they are not known to be.
func (s *stepping) tables(ctx context.Context, pool *sql.DB, epoch int64) error {
	if s.ready && s.epoch == epoch {
		return nil
	}
	for _, q := range []string{metaTable, stepsTable} {
		if _, err := pool.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	s.ready, s.epoch = true, epoch
	return nil
}

// Step runs fn once for each (thread, id), whatever happens: fn's rows and its result are committed in one transaction, which is then acknowledged by the remote. The
// same thread and id again, here or on another machine, now or after a crash at any point, returns the recorded result without running fn. Concurrent calls run it
// once: the others wait for the result. So a message's id, or a turn's, makes the handling of it exactly-once as far as the database goes; what fn does outside of it
// (a request, a mail) may happen again when the machine is lost in the middle, and should carry the same id.
//
// fn gets the transaction and must write through it alone: another connection of db cannot write before fn has returned, and neither can another Step: a Step in fn is an error when it gets fn's ctx, and else waits until its
// own ctx ends. An error of fn is returned as it is, and a
// panic goes on; neither leaves anything in the database. thread and id are 1 to 256 bytes of UTF-8. Results are kept until their rows are deleted:
//
//	DELETE FROM _tonbo_steps WHERE at < unixepoch('now', '-30 days')
//
// It works on db's own pool: in a DB of [From] whose pool wraps the connections it is [ErrUnsupported].
//
// An error after the COMMIT is Synced's: the step is recorded here and not acknowledged. Call Step again: it returns the result once the remote has it. After [ErrFenced] the
// step may have to be taken again by the new owner; what it did here is set aside with the other commits.
func (db *DB) Step(ctx context.Context, thread, id string, fn func(context.Context, *sql.Tx) ([]byte, error)) (Step, error) {
	h := db.h
	if h.ro != nil {
		return Step{}, wrap(h.name, "step", ErrReadOnly)
	}
	if err := notNil("fn", fn == nil); err != nil {
		return Step{}, wrap(h.name, "step", err)
	}
	if ctx.Value(inStep{h}) != nil {
		return Step{}, wrap(h.name, "step", errors.New("Step was called from within a step's function, which has the transaction already: take one step after the other"))
	}
	if err := db.live(); err != nil {
		return Step{}, wrap(h.name, "step", err)
	}
	for _, p := range [...][2]string{{"thread", thread}, {"id", id}} {
		if s := p[1]; s == "" || len(s) > 256 || !utf8.ValidString(s) {
			return Step{}, wrap(h.name, "step", invalid(p[0], "%.40q: want 1 to 256 bytes of UTF-8", s))
		}
	}
	s, epoch, err := db.step(ctx, thread, id, fn)
	if err != nil {
		return Step{}, err
	}
	if err := db.syncedSince(ctx, epoch); err != nil {
		return s, fmt.Errorf("step %s %s is recorded here, and not acknowledged: %w", thread, id, err)
	}
	owner, _ := h.current()
	s.Point = pointOf(owner.Last())
	return s, nil
}

// session is the session of a thread in a database of a version.
func session(thread, version string) string {
	if version == "" {
		return thread
	}
	return thread + "-" + version
}

// inStep marks the ctx of a step's function.
type inStep struct{ h *handle }

// step is the transaction.
func (db *DB) step(ctx context.Context, thread, id string, fn func(context.Context, *sql.Tx) ([]byte, error)) (s Step, epoch int64, err error) {
	h := db.h
	select {
	case h.steps.turn <- struct{}{}:
		defer func() { <-h.steps.turn }()
	case <-ctx.Done():
		return s, epoch, wrap(h.name, "step", ctx.Err())
	case <-h.opened.Done():
		return s, epoch, wrap(h.name, "step", ErrClosed)
	}
	if h.opened.Err() != nil {
		return s, epoch, wrap(h.name, "step", ErrClosed)
	}
	if err := h.steps.tables(ctx, db.DB, h.epoch.Load()); err != nil {
		return s, epoch, wrap(h.name, "step", err)
	}
	// (1) BEGIN IMMEDIATE: from here on no other writer gets in between.
	epoch = h.epoch.Load() // a Reopen waits for the transaction, and what was committed before it is not what comes after
	c, err := db.Conn(ctx)
	if err != nil {
		return s, epoch, wrap(h.name, "step", err)
	}
	defer c.Close()
	tx, err := c.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
	if err != nil {
		return s, epoch, wrap(h.name, "step", err)
	}
	defer tx.Rollback() // after Commit it does nothing; it also cleans up when fn panics
	// (2) Has it run? The caller's Synced covers what is read here.
	var was recorded
	if err := onConn(ctx, c, func(c *conn) (err error) { was, err = c.beginStep(ctx, thread, id); return err }); err != nil {
		h.steps.ready = false // perhaps somebody dropped the tables
		return s, epoch, wrap(h.name, "step", err)
	}
	if was.is {
		return Step{Session: was.session, Result: was.result, Replayed: true}, epoch, nil
	}
	// (3) It runs now, and its result is in the same transaction.
	s.Session = session(thread, was.version)
	if s.Result, err = fn(context.WithValue(ctx, inStep{h}, true), tx); err != nil {
		return s, epoch, err
	}
	if err = onConn(ctx, c, func(c *conn) error { return c.endStep(ctx, thread, id, s.Session, s.Result) }); err == nil {
		fault("step:before-commit")
		err = tx.Commit()
	}
	if err != nil {
		return s, epoch, wrap(h.name, "step", err)
	}
	fault("step:committed")
	return s, epoch, nil
}

// onConn runs f on the connection that c stands for, alone.
func onConn(ctx context.Context, c *sql.Conn, f func(*conn) error) error {
	err := c.Raw(func(dc any) error {
		own, ok := dc.(*conn)
		if !ok {
			return fmt.Errorf("its connections are %T: %w: make the pool with Open, or with sql.Open and the driver tonbo", dc, ErrUnsupported)
		}
		return f(own)
	})
	if err != nil && ctx.Err() != nil { // SQLite calls it an interrupt, and database/sql a transaction that is over
		return fmt.Errorf("%w (%w)", ctx.Err(), err)
	}
	return err
}

// A mark at the beginning of a transaction that a user's function works in. It is gone when the transaction has ended, by whatever: a ROLLBACK or COMMIT of the function's own, a conflict clause or a trigger that rolls back, a full
// disk. What comes after would then be committed without what the function did.
const (
	markTx   = `SAVEPOINT _tonbo_tx`
	unmarkTx = `RELEASE _tonbo_tx`
)

// stillInTx returns an error if the transaction that began with markTx is not the one any more.
func stillInTx(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, unmarkTx)
	if err == nil {
		return nil
	}
	return endedTx(ctx, err)
}
