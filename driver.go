package tonbo

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ncruces/go-sqlite3"
	sqlitedriver "github.com/ncruces/go-sqlite3/driver"
	"github.com/ncruces/go-sqlite3/ext/fts5"

	"github.com/tonbo-go/tonbo/vfs"
)

func init() { sql.Register("tonbo", sqlDriver{}) }

// sqlDriver is the database/sql driver "tonbo". Its data source name is "tonbo:<name>?url=...&dir=...&strict=...&sync_every=...&pragma=name(value)".
type sqlDriver struct{ c *connector }

// Open implements [driver.Driver].
func (d sqlDriver) Open(dsn string) (driver.Conn, error) {
	return nil, errors.New("tonbo: use sql.Open or tonbo.Open")
}

// OpenConnector implements [driver.DriverContext]. The database is opened with the first connection.
func (d sqlDriver) OpenConnector(dsn string) (driver.Connector, error) {
	name, o, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	return &connector{name: name, o: o, closes: true}, nil
}

// parseDSN reads a data source name.
func parseDSN(dsn string) (name string, o Options, err error) {
	rest, ok := strings.CutPrefix(dsn, "tonbo:")
	if !ok {
		return "", o, fmt.Errorf("data source name %q: want tonbo:<name>?url=...&dir=...", dsn)
	}
	name, query, _ := strings.Cut(rest, "?")
	name = strings.TrimPrefix(name, "///")
	if name, err = url.PathUnescape(name); err != nil {
		return "", o, fmt.Errorf("data source name: %w", err)
	}
	if err := ValidateName(name); err != nil {
		return "", o, err
	}
	q, err := url.ParseQuery(query)
	if err != nil {
		return "", o, fmt.Errorf("data source name: %w", err)
	}
	for k, v := range q {
		val := v[len(v)-1]
		var err error
		switch k {
		case "url":
			o.URL = val
		case "dir":
			o.Dir = val
		case "owner":
			o.Owner = val
		case "strict":
			switch val {
			case "1", "true":
				o.Strict = true
			case "0", "false":
			default:
				err = errors.New("want true or false")
			}
		case "sync_every":
			o.SyncEvery, err = time.ParseDuration(val)
		case "sync_timeout":
			o.SyncTimeout, err = time.ParseDuration(val)
		case "shared_cache":
			o.SharedCache, err = strconv.ParseInt(val, 10, 64)
		case "hydration":
			switch val {
			case "background":
				o.Hydration = HydrateBackground
			case "none":
				o.Hydration = HydrateNone
			case "full":
				o.Hydration = HydrateFull
			default:
				err = errors.New("want background, none or full")
			}
		case "if_idle":
			o.IfIdle, err = time.ParseDuration(val)
		case "pragma":
			o.Pragmas = map[string]string{}
			for _, p := range v {
				n, arg, ok := strings.Cut(strings.TrimSuffix(p, ")"), "(")
				if !ok {
					err = errors.New("want pragma=name(value)")
				}
				o.Pragmas[n] = arg
			}
		default:
			err = errors.New("unknown; known are url, dir, shared_cache, hydration, owner, strict, sync_every, sync_timeout, if_idle, pragma")
		}
		if err != nil {
			return "", o, fmt.Errorf("data source name: parameter %s=%q: %w", k, val, err)
		}
	}
	return name, o, nil
}

// From returns the DB behind a pool that sql.Open("tonbo", ...) or [Open] made, nil for any other. A database that is not open yet is opened: ping it before to
// see why that fails, since From returns nil then, too.
func From(db *sql.DB) *DB {
	if db == nil {
		return nil
	}
	d, ok := db.Driver().(sqlDriver)
	if !ok || d.c == nil {
		return nil
	}
	h, err := d.c.handle(context.Background())
	if err != nil {
		return nil
	}
	found := &DB{DB: db, h: h, lease: d.c.lease}
	if found.lease != nil {
		found.since = found.lease.since
	}
	return found
}

// connector connects to one database.
type connector struct {
	closes bool   // Close closes the handle, or gives the lease back
	lease  *lease // whose connections it makes; nil: none's

	name string // opened with the first connection, when h is nil
	o    Options
	mu   sync.Mutex
	h    *handle
}

func (c *connector) Driver() driver.Driver { return sqlDriver{c} }

func (c *connector) handle(ctx context.Context) (*handle, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.h == nil {
		o, err := c.o.withDefaults()
		if err != nil {
			return nil, wrap(c.name, "open", err)
		}
		h, err := openHandle(ctx, c.name, o)
		if err != nil {
			return nil, wrap(c.name, "open", err)
		}
		c.h = h
	}
	return c.h, nil
}

// Close implements io.Closer: the pool is closed.
func (c *connector) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.closes || c.h == nil:
		return nil
	case c.lease == nil:
		return c.h.close()
	case c.lease.gone.Load(): // that is who closes the pool
		return nil
	}
	return c.lease.leave(true)
}

// Connect implements [driver.Connector].
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	h, err := c.handle(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.lease.over(h); err != nil {
		return nil, err
	}
	epoch, err := h.enter(ctx)
	if err != nil {
		return nil, err
	}
	inner, err := h.connect(ctx)
	if err != nil {
		h.disconnected()
		if errors.Is(err, sqlite3.CANTOPEN) { // the file is not observed now: closed or re-opened meanwhile, or a Reopen failed
			if ended := h.ended(); ended != nil {
				return nil, ended
			}
		}
		return nil, h.reason(err)
	}
	return &conn{Conn: inner, h: h, epoch: epoch, lease: c.lease, done: h.disconnected}, nil
}

// enter counts a connection that is about to be made, when there is no Reopen.
func (h *handle) enter(ctx context.Context) (epoch int64, err error) {
	for {
		h.mu.Lock()
		moving := h.moving
		switch {
		case h.closed:
			h.mu.Unlock()
			return 0, fmt.Errorf("database %s: %w", h.name, ErrClosed)
		case moving == nil:
			h.conns.Add(1)
			epoch = h.epoch.Load()
			h.mu.Unlock()
			return epoch, nil
		}
		h.mu.Unlock()
		select {
		case <-moving:
		case <-ctx.Done():
			return 0, fmt.Errorf("database %s is being reopened: %w", h.name, ctx.Err())
		}
	}
}

// disconnected counts a connection that is closed.
func (h *handle) disconnected() {
	if h.conns.Add(-1) == 0 {
		h.rest()
	}
}

// rest gives up, when no connection is open, what an idle database can do without: with the last connection, and after what was done without one.
func (h *handle) rest() {
	if h.conns.Load() > 0 || h.ro != nil {
		return
	}
	if _, vdb := h.current(); vdb != nil {
		vdb.Rest()
	}
	h.dir.Rest()
}

// connect opens a SQLite connection to the local copy.
func (h *handle) connect(ctx context.Context) (sqlitedriver.Conn, error) {
	h.mu.Lock()
	vdb, checkpoints := h.vdb, h.checkpoints
	h.mu.Unlock()
	if checkpoints != nil {
		leave, err := checkpoints.enter(ctx)
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	d, err := (&sqlitedriver.SQLite{}).OpenConnector(fileURI(vdb.Path(), "vfs="+vfs.Name+"&tonbo="+vdb.Token()+"&"+h.pragmas()))
	if err != nil {
		return nil, err
	}
	c, err := d.Connect(ctx)
	if err != nil {
		return nil, err
	}
	sc := c.(sqlitedriver.Conn)
	if err := fts5.Register(sc.Raw()); err != nil {
		sc.Close()
		return nil, err
	}
	if checkpoints != nil {
		sc.Raw().WALHook(checkpoints.committed)
	}
	return sc, nil
}

// pragmas spells the connection's pragmas as parameters of the driver; with only, no others than these.
func (h *handle) pragmas(only ...string) string {
	pragmas := map[string]string{"busy_timeout": "60000", "synchronous": "normal"}
	for k, v := range h.o.Pragmas {
		if k = strings.ToLower(k); k != "page_size" { // the database has its own
			pragmas[k] = v
		}
	}
	if len(only) > 0 {
		maps.DeleteFunc(pragmas, func(k, _ string) bool { return !slices.Contains(only, k) })
	}
	var query []string
	names := slices.Sorted(maps.Keys(pragmas))
	if i := slices.Index(names, "busy_timeout"); i > 0 { // the others may have to wait
		names = slices.Insert(slices.Delete(names, i, i+1), 0, "busy_timeout")
	}
	for _, k := range names {
		query = append(query, "_pragma="+url.QueryEscape(k+"("+pragmas[k]+")"))
	}
	return strings.Join(query, "&")
}

// fileURI spells a path as SQLite's URI. https://sqlite.org/uri.html
func fileURI(path, query string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") { // a Windows drive
		path = "/" + path
	}
	u := url.URL{Path: path}
	return "file:" + u.EscapedPath() + "?" + query
}

// reasons knows the errors behind the private result codes of package vfs.
type reasons interface {
	Reason(code sqlite3.ExtendedErrorCode) error
}

// translate replaces the private result codes of package vfs by the errors behind them.
func translate(name string, r reasons, err error) error {
	if err == nil || err == io.EOF || err == driver.ErrSkip || err == driver.ErrBadConn {
		return err
	}
	var code sqlite3.ExtendedErrorCode
	if !errors.As(err, &code) || code != vfs.CodeRefused && code != vfs.CodeUnsupported && code != vfs.CodeFetch {
		return err
	}
	why := r.Reason(code)
	if why == nil {
		return err
	}
	doing := "commit"
	switch code {
	case vfs.CodeUnsupported:
		doing = "execute"
	case vfs.CodeFetch:
		doing = "read"
	}
	return wrap(name, doing, fmt.Errorf("%w (%w)", why, err))
}

// conn is a connection whose errors are ours.
type conn struct {
	sqlitedriver.Conn
	h     *handle
	epoch int64
	done  func() // when it is closed
	lease *lease // that it is of; nil: none
	steps stepStmts
}

var (
	_ sqlitedriver.Conn        = (*conn)(nil)
	_ driver.ExecerContext     = (*conn)(nil)
	_ driver.NamedValueChecker = (*conn)(nil)
	_ driver.SessionResetter   = (*conn)(nil)
	_ driver.Validator         = (*conn)(nil)
)

func (c *conn) stale() bool { return c.epoch != c.h.epoch.Load() || c.over() != nil }

// over returns ErrClosed when the DB that the connection is of has been closed and the handle has not, which would refuse by itself.
func (c *conn) over() error { return c.lease.over(c.h) }

// ResetSession keeps connections from before a re-open out of use.
func (c *conn) ResetSession(context.Context) error {
	if c.stale() {
		return driver.ErrBadConn
	}
	return nil
}

// IsValid tells the pool whether to keep the connection, which is being given back.
func (c *conn) IsValid() bool { return !c.stale() }

// Reason is for who works on the SQLite connection itself (sql.Conn's Raw): it makes an error of that connection one that says what is behind it.
func (c *conn) Reason(err error) error { return c.h.reason(err) }

func (c *conn) Close() error {
	defer c.done()
	return errors.Join(c.steps.close(), c.Conn.Close())
}

func (c *conn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if err := c.over(); err != nil {
		return nil, err
	}
	t, err := c.Conn.BeginTx(ctx, o)
	if err != nil {
		return nil, c.h.reason(err)
	}
	return tx{t, c}, nil
}

func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.over(); err != nil {
		return nil, err
	}
	s, err := c.Conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, c.h.reason(err)
	}
	return &stmt{s.(sqliteStmt), c}, nil
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.over(); err != nil {
		return nil, err
	}
	r, err := c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
	if err != nil {
		return nil, c.h.reason(err)
	}
	return r, nil
}

func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	return c.Conn.(driver.NamedValueChecker).CheckNamedValue(v)
}

type tx struct {
	driver.Tx
	c *conn
}

func (t tx) Commit() error {
	if err := t.c.over(); err != nil {
		return errors.Join(err, t.Rollback())
	}
	return t.c.h.reason(t.Tx.Commit())
}

// sqliteStmt is what the driver's statements implement.
type sqliteStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
	driver.NamedValueChecker
}

type stmt struct {
	sqliteStmt
	c *conn
}

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.c.over(); err != nil {
		return nil, err
	}
	r, err := s.sqliteStmt.ExecContext(ctx, args)
	if err != nil {
		return nil, s.c.h.reason(err)
	}
	return r, nil
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.c.over(); err != nil {
		return nil, err
	}
	r, err := s.sqliteStmt.QueryContext(ctx, args)
	if err != nil {
		return nil, s.c.h.reason(err)
	}
	rs := &rows{r.(sqliteRows), s.c.h}
	if s.c.h.ro != nil {
		return begun(rs)
	}
	return rs, nil
}

// sqliteRows is what the driver's rows implement.
type sqliteRows interface {
	driver.Rows
	driver.RowsColumnTypeDatabaseTypeName
	driver.RowsColumnTypeNullable
	driver.RowsColumnTypeScanType
}

// rows may end in a COMMIT (INSERT ... RETURNING).
type rows struct {
	sqliteRows
	h *handle
}

func (r *rows) Next(dest []driver.Value) error {
	if err := r.sqliteRows.Next(dest); err != nil {
		return r.h.reason(err)
	}
	return nil
}

func (r *rows) Close() error { return r.h.reason(r.sqliteRows.Close()) }
