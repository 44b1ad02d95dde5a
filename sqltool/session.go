package sqltool

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ncruces/go-sqlite3"
	sqlitedriver "github.com/ncruces/go-sqlite3/driver"

	"github.com/tonbo-go/tonbo"
)

const idleTime = time.Second // after which an unused connection is closed

// session runs calls, one after the other, on a connection of its own, which is kept for a while between two of them.
type session struct {
	db *tonbo.DB
	l  Limits

	ends *ends

	turn chan struct{} // holds a token while nobody uses what follows
	c    *connection   // nil: none
	idle *time.Timer   // closes c
}

func newSession(db *tonbo.DB, l Limits) *session {
	s := &session{db: db, l: l, ends: newEnds(l), turn: make(chan struct{}, 1)}
	s.idle = time.AfterFunc(idleTime, func() {
		select {
		case <-s.turn:
		default:
			return // in use
		}
		defer func() { s.turn <- struct{}{} }()
		s.drop()
	})
	s.idle.Stop()
	s.turn <- struct{}{}
	return s
}

// Close closes the connection.
func (s *session) Close() error {
	<-s.turn
	defer func() { s.turn <- struct{}{} }()
	return s.drop()
}

// drop closes the connection. The caller has the turn.
func (s *session) drop() error {
	s.idle.Stop()
	c := s.c
	s.c = nil
	if c == nil {
		return nil
	}
	return c.close()
}

// call runs one call's SQL.
func (s *session) call(ctx context.Context, sql string) (json.RawMessage, error) {
	if len(sql) > s.l.SQLBytes {
		return failed(&Error{Message: fmt.Sprintf("the SQL is too long: %d bytes, at most %d", len(sql), s.l.SQLBytes)})
	}
	if i := strings.IndexByte(sql, 0); i >= 0 {
		return failed(&Error{Message: fmt.Sprintf("the SQL has a NUL character, at byte %d", i)})
	}
	select {
	case <-s.turn:
	case <-ctx.Done():
		return failed(context.Cause(ctx))
	}
	defer func() { s.turn <- struct{}{} }()
	var results []*result
	var err error
	serr := s.db.Gate(ctx, func() error {
		var wrote bool
		if results, wrote, err = s.run(ctx, sql); wrote && s.l.SyncEach {
			return nil
		}
		return errUngated
	})
	switch {
	case serr == nil || serr == errUngated:
	case err == nil:
		err = unsynced{serr}
	default:
		err = errors.Join(err, unsynced{serr})
	}
	return s.answer(results, err), err
}

// errUngated: nothing is to be synced.
var errUngated = errors.New("nothing to sync")

// answer is the JSON of a call.
func (s *session) answer(results []*result, err error) json.RawMessage {
	switch {
	case s.l.Multi:
		if results == nil {
			results = []*result{}
		}
		return marshal(struct {
			Results []*result `json:"results"`
			Error   *Error    `json:"error,omitempty"`
		}{results, public(err)})
	case err == nil:
		return results[0].json()
	}
	var r *result // it was done, but is not synced
	if len(results) > 0 {
		r = results[0]
	}
	return marshal(struct {
		Result *result `json:"result,omitempty"`
		Error  *Error  `json:"error"`
	}{r, public(err)})
}

// run runs the statements of a call. wrote: something was committed, or may have been.
func (s *session) run(ctx context.Context, sql string) (results []*result, wrote bool, err error) {
	b := newBudget(ctx, s.ends)
	defer b.release()
	for try := 0; ; try++ {
		results, wrote, err = s.attempt(b, sql)
		if try == 0 && !wrote && errors.Is(err, driver.ErrBadConn) && b.Err() == nil { // a read-only handle has moved on
			continue
		}
		return results, wrote, err
	}
}

func (s *session) attempt(b *budget, sql string) (results []*result, wrote bool, err error) {
	s.idle.Stop()
	if s.c != nil && s.c.stale(b) {
		s.drop()
	}
	if s.c == nil {
		if s.c, err = connect(b, s.db, s.l); err != nil {
			if cause := context.Cause(b.Context); cause != nil {
				err = cause
			}
			return nil, false, err
		}
	}
	x := &execution{connection: s.c, budget: b, rows: s.l.Rows, bytes: s.l.Bytes}
	err = x.script(sql)
	if derr := x.leave(); derr != nil || x.spoiled {
		if cerr := s.drop(); err == nil {
			err = errors.Join(derr, cerr)
		}
	} else {
		s.idle.Reset(idleTime) // it is kept for the next call
	}
	return x.results, x.wrote, err
}

// connection is a contained SQLite connection.
type connection struct {
	db   *tonbo.DB
	l    Limits
	dc   driver.Conn
	raw  *sqlite3.Conn
	auth *authorizer
	page int64 // bytes
	most int64 // pages: max_page_count, 0: not set

	careful bool // progress is set to carefulSteps
	once    sync.Once
}

// connect opens a connection and contains it.
func connect(ctx context.Context, db *tonbo.DB, l Limits) (*connection, error) {
	dc, err := db.Connector().Connect(sqlite3.WithMaxMemory(ctx, l.Memory))
	if err != nil {
		return nil, err
	}
	c := &connection{db: db, l: l, dc: dc}
	err = c.safely(func() error {
		sc, ok := dc.(sqlitedriver.Conn)
		if !ok {
			return fmt.Errorf("sqltool: the driver's connection is a %T", dc)
		}
		c.raw = sc.Raw()
		return c.contain()
	})
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// contain sets what holds for the life of the connection.
func (c *connection) contain() error {
	for op, on := range map[sqlite3.DBConfig]bool{
		sqlite3.DBCONFIG_DEFENSIVE:       true, // no writes to sqlite_schema and to shadow tables
		sqlite3.DBCONFIG_WRITABLE_SCHEMA: false,
		sqlite3.DBCONFIG_TRUSTED_SCHEMA:  false, // no functions with side effects from views, triggers, defaults, ...
		sqlite3.DBCONFIG_DQS_DML:         false,
		sqlite3.DBCONFIG_DQS_DDL:         false,
	} {
		if _, err := c.raw.Config(op, on); err != nil {
			return fmt.Errorf("sqltool: configure %d: %w", op, err)
		}
	}
	if err := c.raw.Exec(`PRAGMA cache_size = -2000; PRAGMA temp_store = FILE; /* in memory a sort is one step */ PRAGMA writable_schema = RESET /* the schema is read anew: shadow tables are known as such only when their module is */`); err != nil {
		return err
	}
	if err := setProgress(c.raw, progressSteps); err != nil {
		return err
	}
	c.raw.SoftHeapLimit(c.l.Memory * 3 / 4) // the page cache gives way
	if c.l.ReadOnly {
		if err := c.raw.Exec(`PRAGMA query_only = ON`); err != nil {
			return err
		}
	}
	page, err := c.integer(`PRAGMA page_size`)
	if err != nil {
		return err
	}
	c.page = page
	if err := replaceFunctions(c.raw, c.l.ValueBytes); err != nil {
		return err
	}
	modules, err := c.strings(`SELECT lower(name) FROM pragma_module_list`)
	if err != nil {
		return err
	}
	c.auth = newAuthorizer(c.l, modules)
	if err := c.raw.SetAuthorizer(c.auth.authorize); err != nil {
		return err
	}
	for what, most := range map[sqlite3.LimitCategory]int{
		sqlite3.LIMIT_LENGTH:          c.l.ValueBytes,
		sqlite3.LIMIT_SQL_LENGTH:      max(c.l.SQLBytes, c.l.ValueBytes), // the schema's own texts too
		sqlite3.LIMIT_EXPR_DEPTH:      200,
		sqlite3.LIMIT_COMPOUND_SELECT: 100,
		sqlite3.LIMIT_VDBE_OP:         250_000,
		sqlite3.LIMIT_ATTACHED:        0,
		sqlite3.LIMIT_FUNCTION_ARG:    100,
		sqlite3.LIMIT_TRIGGER_DEPTH:   100,
		sqlite3.LIMIT_WORKER_THREADS:  0,
	} {
		c.raw.Limit(what, most)
	}
	return nil
}

// safely runs fn. The driver panics when SQLite runs out of memory; the connection is not to be used after that.
func (c *connection) safely(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked{p}
		}
	}()
	return fn()
}

// stale tells whether the connection is of no use any more.
func (c *connection) stale(ctx context.Context) bool {
	r, ok := c.dc.(driver.SessionResetter)
	return ok && r.ResetSession(ctx) != nil
}

// close ends what is open, also after a panic, and closes the connection.
func (c *connection) close() (err error) {
	c.once.Do(func() {
		if c.raw != nil {
			err = c.settle()
		}
		err = errors.Join(err, c.safely(c.dc.Close))
	})
	return err
}

// settle finalizes statements and rolls an open transaction back, whatever has become of the call's context.
func (c *connection) settle() error {
	c.raw.SetInterrupt(context.Background())
	return c.safely(func() error {
		var open []*sqlite3.Stmt
		for s := range c.raw.Stmts() {
			open = append(open, s)
		}
		for _, s := range open {
			s.Close() // its error is that of the step before
		}
		if c.raw.GetAutocommit() {
			return nil
		}
		return c.inner(`ROLLBACK`)
	})
}

// inner runs our own SQL, past the authorizer.
func (c *connection) inner(sql string) error {
	defer c.auth.pass()()
	return c.raw.Exec(sql)
}

func (c *connection) integer(sql string) (n int64, err error) {
	err = c.each(sql, func(s *sqlite3.Stmt) { n = s.ColumnInt64(0) })
	return n, err
}

func (c *connection) strings(sql string) (all []string, err error) {
	err = c.each(sql, func(s *sqlite3.Stmt) { all = append(all, s.ColumnText(0)) })
	return all, err
}

// each runs a query of our own, past the authorizer.
func (c *connection) each(sql string, row func(*sqlite3.Stmt)) error {
	defer c.auth.pass()()
	s, _, err := c.raw.Prepare(sql)
	if err != nil {
		return err
	}
	defer s.Close()
	for s.Step() {
		row(s)
	}
	return s.Err()
}
