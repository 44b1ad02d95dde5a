package tonbo

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/ncruces/go-sqlite3"
	sqlitedriver "github.com/ncruces/go-sqlite3/driver"
	"github.com/ncruces/go-sqlite3/ext/fts5"

	"github.com/tonbo-go/tonbo/vfs"
)

// roConnector connects to the reader's present point.
type roConnector struct{ r *reader }

func (c *roConnector) Driver() driver.Driver { return sqlDriver{&connector{h: c.r.h}} }

func (c *roConnector) Close() error { return c.r.close() }

func (c *roConnector) Connect(ctx context.Context) (driver.Conn, error) {
	h := c.r.h
	epoch := h.epoch.Load() // before the point: a connection may look older than it is, never newer
	s, err := c.r.present()
	if err != nil {
		return nil, err
	}
	inner, err := h.connectTo(ctx, s.vfs)
	if err != nil {
		c.r.release(s)
		return nil, h.reason(err)
	}
	return &conn{Conn: inner, h: h, epoch: epoch, done: func() { c.r.release(s) }}, nil
}

// connectTo opens a SQLite connection to a point.
func (h *handle) connectTo(ctx context.Context, s *vfs.Snapshot) (sqlitedriver.Conn, error) {
	d, err := (&sqlitedriver.SQLite{}).OpenConnector(fileURI(s.Path(), "vfs="+vfs.SnapshotName+"&mode=ro&immutable=1&"+h.pragmas()))
	if err != nil {
		return nil, err
	}
	inner, err := d.Connect(ctx)
	if err != nil {
		return nil, err
	}
	sc := inner.(sqlitedriver.Conn)
	if err := fts5.Register(sc.Raw()); err != nil {
		sc.Close()
		return nil, err
	}
	return sc, nil
}

// Reason implements reasons.
func (r *reader) Reason(code sqlite3.ExtendedErrorCode) error {
	if p := r.lastFetch.Load(); p != nil && code == vfs.CodeFetch {
		return *p
	}
	return nil
}

// movedOn is ErrPointGone of a handle that has moved on to a newer point. To the pool the connection is of no use any more: outside of transactions it runs the statement
// again on a new one.
type movedOn struct{ error }

func (e movedOn) Unwrap() error { return e.error }

// Is makes errors.Is see driver.ErrBadConn.
func (e movedOn) Is(target error) bool { return target == driver.ErrBadConn }

func (r *reader) moved(err error) error {
	if r.at == nil && errors.Is(err, ErrPointGone) {
		return movedOn{err}
	}
	return err
}

// begun returns rows whose first one has been read: its error comes while the pool can still run the query again.
func begun(r *rows) (driver.Rows, error) {
	b := &begunRows{rows: r, first: make([]driver.Value, len(r.Columns()))}
	if b.err = r.Next(b.first); errors.Is(b.err, driver.ErrBadConn) {
		r.Close()
		return nil, b.err
	}
	return b, nil
}

type begunRows struct {
	*rows
	first []driver.Value // until it has been given out
	err   error
}

func (b *begunRows) Next(dest []driver.Value) error {
	if b.first == nil {
		return b.rows.Next(dest)
	}
	copy(dest, b.first)
	b.first = nil
	return b.err
}
