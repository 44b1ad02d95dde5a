package tonbo

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	sqlitedriver "github.com/ncruces/go-sqlite3/driver"
	"github.com/ncruces/go-sqlite3/ext/fts5"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
)

// ErrReadOnly is a call that a read-only handle does not have.
var ErrReadOnly = errors.New("handle is read-only")

// reader is what a read-only DB shares with its connections: a local file that is one point of the database's history.
type reader struct {
	h    *handle
	at   At
	root string // directory of its own, removed at the end

	turn sync.Mutex // one Refresh at a time

	mu     sync.Mutex
	path   string // of the file that new connections open
	entry  *fence.Entry
	sums   []uint64
	n      int // of the file
	closed bool
}

// OpenReadOnly opens a database without taking it over: it claims nothing, fences nobody and writes nothing to the remote. Options.At picks a point,
// the head by default; Options.Follow > 0 looks for newer ones that often; [DB.Refresh] does so at once. Writes fail with SQLite's READONLY. Any number of handles
// may be open, beside an owner too: each has a local file of its own, which Close removes.
//
// Errors, for errors.Is: [ErrNotFound], [ErrPointGone], [ErrCorrupt], [ErrUnauthorized], [ErrForbidden].
func OpenReadOnly(ctx context.Context, name string, o Options) (*DB, error) {
	if err := ValidateName(name); err != nil {
		return nil, err
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, wrap(name, "open", err)
	}
	if o.Follow > 0 && o.At != nil {
		return nil, wrap(name, "open", errors.New("Options.Follow is for the head: leave Options.At unset"))
	}
	store, err := openStore(ctx, o)
	if err != nil {
		return nil, wrap(name, "open", err)
	}
	h := newHandle(name, o, store)
	r := &reader{h: h, at: o.At}
	if err := r.open(ctx); err != nil {
		h.stop()
		return nil, wrap(name, "open", err)
	}
	h.ro = r
	pool := sql.OpenDB(&roConnector{r})
	pool.SetMaxIdleConns(maxIdleConns)
	pool.SetConnMaxIdleTime(maxConnIdleTime)
	if o.Follow > 0 {
		h.background.Add(1)
		go r.follow(o.Follow)
	}
	return &DB{pool, h}, nil
}

func (r *reader) open(ctx context.Context) (err error) {
	_, e, err := r.h.resolve(ctx, r.at)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.h.o.Dir, 0o700); err != nil {
		return fmt.Errorf("%w; set Options.Dir or $TONBO_DIR", err)
	}
	if r.root, err = os.MkdirTemp(r.h.o.Dir, "readonly-*"); err != nil {
		return fmt.Errorf("%w; set Options.Dir or $TONBO_DIR", err)
	}
	path := filepath.Join(r.root, "0.db")
	sums, err := r.h.restoreTo(ctx, path, e)
	if err != nil {
		os.RemoveAll(r.root)
		return err
	}
	r.path, r.entry, r.sums = path, e, sums
	return nil
}

// restoreTo makes the file at path the state after e.
func (h *handle) restoreTo(ctx context.Context, path string, e *fence.Entry) ([]uint64, error) {
	if e.Payload == nil && e.PayloadSize > 0 {
		var err error
		if e, err = h.log.Read(ctx, e.Slot); errors.Is(err, remote.ErrNotFound) {
			return nil, ErrPointGone
		} else if err != nil {
			return nil, err
		}
	}
	t := h.newTail(e)
	if err := t.load(ctx, 0); err != nil {
		return nil, err
	}
	rs, err := h.newRestorer(path, e.State, t, nil)
	if err != nil {
		return nil, err
	}
	if err := rs.run(ctx, 0); err != nil {
		return nil, err
	}
	return rs.sums, nil
}

// Refresh moves a read-only handle that is at the head to the present head. Queries under way go on in the state that they began in.
func (db *DB) Refresh(ctx context.Context) error {
	if db.h.ro == nil {
		return wrap(db.h.name, "refresh", errors.New("this handle owns the database: it is always at the head"))
	}
	return wrap(db.h.name, "refresh", db.h.ro.refresh(ctx))
}

func (r *reader) refresh(ctx context.Context) error {
	r.turn.Lock()
	defer r.turn.Unlock()
	r.mu.Lock()
	old, entry, sums, n, closed := r.path, r.entry, r.sums, r.n, r.closed
	r.mu.Unlock()
	switch {
	case closed:
		return ErrClosed
	case r.at != nil:
		return nil // a fixed point
	}
	head, err := r.h.log.Head(ctx)
	if err != nil {
		return err
	}
	if head == nil || head.Ends() || head.ID != entry.ID {
		return ErrDeleted
	}
	if head.Slot == entry.Slot {
		return nil
	}
	path := filepath.Join(r.root, fmt.Sprintf("%d.db", n+1))
	if sums, err = r.advance(ctx, old, path, entry, head, sums); err != nil {
		os.Remove(path)
		return err
	}
	r.mu.Lock()
	r.path, r.entry, r.sums, r.n = path, head, sums, n+1
	r.mu.Unlock()
	r.h.epoch.Add(1) // idle connections are not given out again; those in use keep the old file
	os.Remove(old)   // on Windows only once they are closed: Close removes the rest
	return nil
}

// advance makes path the state after head, from a copy of the old file where that serves.
func (r *reader) advance(ctx context.Context, old, path string, entry, head *fence.Entry, sums []uint64) ([]uint64, error) {
	t := r.h.newTail(head)
	if err := t.load(ctx, entry.Slot); err != nil {
		return nil, err
	}
	if err := copyFile(path, old); err != nil {
		return nil, err
	}
	rs, err := r.h.newRestorer(path, head.State, t, append([]uint64(nil), sums...))
	if err != nil {
		return nil, err
	}
	err = rs.run(ctx, entry.Slot)
	if errors.Is(err, errSum) { // rewound in between
		if err := os.Remove(path); err != nil {
			return nil, err
		}
		return r.h.restoreTo(ctx, path, head)
	}
	return rs.sums, err
}

func copyFile(to, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}

// follow refreshes at intervals.
func (r *reader) follow(every time.Duration) {
	defer r.h.background.Done()
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-r.h.life.Done():
			return
		case <-t.C:
		}
		ctx, cancel := context.WithTimeout(r.h.life, r.h.o.SyncTimeout)
		err := r.refresh(ctx)
		cancel()
		switch {
		case errors.Is(err, ErrDeleted):
			r.h.end(wrap(r.h.name, "follow", ErrDeleted), "")
			return
		case err != nil && r.h.life.Err() == nil:
			r.h.o.Logger.Warn("not refreshed", "event", "follow_failed", "database", r.h.name, "error", err)
		}
	}
}

func (r *reader) close() error {
	r.h.stop()
	r.h.background.Wait()
	r.turn.Lock()
	defer r.turn.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	r.h.end(fmt.Errorf("database %s: %w", r.h.name, ErrClosed), "")
	return os.RemoveAll(r.root)
}

func (r *reader) status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	pages := int64(r.entry.State.PageCount)
	return Status{
		Name: r.h.name, ID: r.entry.ID.String(), Generation: r.entry.Generation, Slot: r.entry.Slot, Point: pointOf(r.entry),
		Pages: pages, PagesLocal: pages, ColdStart: true, ReadOnly: true, Requests: r.h.counter.Counts(), Err: r.h.ended(),
	}
}

// roConnector connects to the reader's present file.
type roConnector struct{ r *reader }

func (c *roConnector) Driver() driver.Driver { return sqlDriver{&connector{h: c.r.h}} }

func (c *roConnector) Close() error { return c.r.close() }

func (c *roConnector) Connect(ctx context.Context) (driver.Conn, error) {
	h := c.r.h
	epoch := h.epoch.Load()
	c.r.mu.Lock()
	path, closed := c.r.path, c.r.closed
	c.r.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("database %s: %w", h.name, ErrClosed)
	}
	d, err := (&sqlitedriver.SQLite{}).OpenConnector(fileURI(path, "mode=ro&immutable=1&"+h.pragmas()))
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
	h.conns.Add(1)
	return &conn{sc, h, epoch}, nil
}
