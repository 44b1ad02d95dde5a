package tonbo

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tonbo-go/tonbo/remote"
)

// DB is a *sql.DB whose commits can be made durable. Safe for concurrent use.
//
// A COMMIT returns as soon as the local copy has it (Options.Strict: when the remote has it). [DB.Synced] is the acknowledgement.
type DB struct {
	*sql.DB
	h     *handle
	lease *lease // set by Ensure: the handle is shared
	since *since // nil: it does not tell apart those who use it
}

// since is where that begins which a DB answers for, one of several that share a handle and do not know of each other's Reopen.
type since struct {
	losses     atomic.Int64  // the handle's, which it has nothing to do with
	generation atomic.Uint64 // the writer's
}

// now makes it begin now. The caller holds the round, or has committed nothing yet.
func (s *since) now(h *handle) {
	owner, _ := h.current()
	s.losses.Store(h.losses.Load())
	s.generation.Store(owner.Generation())
}

// fromNow returns a DB of the same handle and pool that answers for what is committed from now on.
func (db *DB) fromNow() *DB {
	own := *db
	if db.h.ro == nil {
		own.since = new(since)
		own.since.now(db.h)
	}
	return &own
}

// outdated tells that commits which this DB may have made were set aside, and that the handle was taken back since by somebody else (another Ensure of the key, another use of a registry): what it is asked to acknowledge is not in the remote.
func (db *DB) outdated() error {
	h := db.h
	if db.since == nil || h.losses.Load() == db.since.losses.Load() {
		return nil
	}
	var fenced *FencedError
	if err := h.ended(); errors.As(err, &fenced) && (fenced.Lost != "" || fenced.aside != nil) { // it says so itself. Fenced once more since, it would not
		return err
	}
	return db.lossError()
}

// lossError says that commits were set aside, and the handle taken back.
func (db *DB) lossError() error {
	h := db.h
	var generation uint64
	if db.since != nil {
		generation = db.since.generation.Load()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return &FencedError{Name: h.name, Generation: generation, ByGeneration: h.owner.Generation(), By: h.o.Owner, At: h.owner.Entry().Time, Lost: h.lost}
}

// syncedSince is Synced for a commit that was made in an epoch of the handle: a Reopen since may have set it aside.
func (db *DB) syncedSince(ctx context.Context, epoch int64) error {
	err := db.Synced(ctx)
	if err == nil && db.h.epoch.Load() != epoch {
		err = &dbError{db.h.name, "sync", ErrUnsynced, errors.New("the database was reopened meanwhile, and what was committed before may have been set aside; try again")}
	}
	return err
}

// Connections of a pool: few stay open, and none in an idle database, since each needs about a megabyte.
const (
	maxIdleConns    = 2
	maxConnIdleTime = time.Minute
)

func newDB(h *handle) *DB {
	h.pool = newPool(&connector{h: h, closes: true})
	return &DB{DB: h.pool, h: h}
}

func newPool(c *connector) *sql.DB {
	db := sql.OpenDB(c)
	db.SetMaxIdleConns(maxIdleConns)
	db.SetConnMaxIdleTime(maxConnIdleTime)
	return db
}

// Synced returns nil only when the remote durably holds every commit that returned before the call, and a round trip that began after the
// call found this process still the owner. It makes that round trip also when there is nothing to ship. Concurrent calls share one.
//
// Errors, for errors.Is: [ErrFenced], [ErrDeleted] and [ErrExpired] (a [*FencedError] that names the file with what was not shipped): it is over, see
// [DB.Reopen]. [ErrUnsynced]: not acknowledged, the commits are kept; call it again. It comes with its cause: ctx's error, [ErrUnauthorized], [ErrForbidden],
// [ErrQuota]. [ErrCorrupt]: the local file was changed underneath. A ctx without a deadline gets Options.SyncTimeout.
//
// On a read-only handle there is nothing to acknowledge: [ErrReadOnly].
func (db *DB) Synced(ctx context.Context) error {
	if db.h.ro != nil {
		return wrap(db.h.name, "sync", ErrReadOnly)
	}
	return db.acknowledge(func() error { return db.h.synced(ctx) })
}

// acknowledge runs sync, which asks the remote, and lets its nil stand only if nothing was set aside meanwhile: a Reopen that runs beside it, or that it waits for, may have done that with the caller's commits.
func (db *DB) acknowledge(sync func() error) error {
	if err := db.live(); err != nil {
		return err
	}
	return db.acknowledged(sync)
}

func (db *DB) acknowledged(sync func() error) error {
	losses := db.h.losses.Load()
	if err := db.outdated(); err != nil {
		return err
	}
	var fenced *FencedError
	if err := db.h.ended(); errors.As(err, &fenced) { // it is over; should it be taken back at this moment, then without these commits
		return err
	}
	if err := sync(); err != nil {
		return err
	}
	if db.h.losses.Load() != losses {
		return db.lossError()
	}
	return db.outdated()
}

func (h *handle) synced(ctx context.Context) error {
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.o.SyncTimeout)
		defer cancel()
	}
	return h.unsynced("sync", h.group.do(ctx))
}

// Gate runs fn, then Synced, and returns nil only if both did: wrap what leaves the process in it. An error of fn is returned as it is, and
// nothing is synced then. Should somebody take the database back meanwhile ([DB.Reopen]) without what fn has committed, the error is a [*FencedError].
func (db *DB) Gate(ctx context.Context, fn func() error) error {
	if err := notNil("fn", fn == nil); err != nil {
		return wrap(db.h.name, "gate", err)
	}
	own := db.fromNow()
	if err := fn(); err != nil {
		return err
	}
	if err := own.Synced(ctx); err != nil {
		return err
	}
	return db.outdated()
}

// Done is closed when this handle can no longer commit; Err tells why. After Reopen, Done returns a new channel.
func (db *DB) Done() <-chan struct{} {
	db.h.mu.Lock()
	defer db.h.mu.Unlock()
	if db.lease != nil {
		return db.lease.done
	}
	return db.h.done
}

// Err returns nil while this handle can commit, as far as it knows, and then why it cannot: a [*FencedError], [ErrClosed], [ErrCorrupt].
func (db *DB) Err() error {
	if err := db.live(); err != nil {
		return err
	}
	return db.h.ended()
}

// Connector returns a connector to the same database, for sql.OpenDB and what wraps it (tracing, metrics). Close its pools before the DB; closing them
// does not close the DB.
func (db *DB) Connector() driver.Connector {
	if db.h.ro != nil {
		return sharedConnector{&roConnector{db.h.ro}}
	}
	return &connector{h: db.h, lease: db.lease}
}

// sharedConnector hides the Close of a connector whose pool does not own the handle.
type sharedConnector struct{ driver.Connector }

// Close closes the connections, ships what is unshipped (for at most Options.SyncTimeout) and lets go of the local copy. An error says what was not shipped; it stays
// in the local copy, where the next Open in this directory finds it. A second Close does nothing.
func (db *DB) Close() error {
	if db.lease != nil {
		return db.lease.leave(true)
	}
	err := db.DB.Close() // closes the connector, if this is its pool
	if db.h.ro != nil {
		return errors.Join(err, db.h.ro.close())
	}
	if cerr := db.h.close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = db.outdated()
	}
	return err
}

// Requests counts requests, retries included, and bytes of bodies.
type Requests = remote.Counts

// Point is one state in a database's history.
type Point struct {
	ID         string // incarnation
	Slot       uint64
	Generation uint64
	Time       time.Time
	Label      string
}

// Status is a snapshot of a handle.
type Status struct {
	Name, ID       string
	Generation     uint64 // ours
	Slot           uint64 // last slot known to be stored
	Point          Point  // of that slot
	PendingCommits int    // committed here, not yet shipped
	PendingBytes   int64  // pages of these, in bytes
	Pages          int64  // size of the database
	PagesLocal     int64  // of these, present in the local copy
	ColdStart      bool   // the local copy was rebuilt from the remote
	Lost           string // the newest file with commits that were set aside, until it is moved away; "" none
	Requests       Requests
	Strict         bool
	ReadOnly       bool
	Err            error // as DB.Err
}

// Status describes the handle. It sends no request.
func (db *DB) Status() Status {
	h := db.h
	if h.ro != nil {
		return h.ro.status()
	}
	h.mu.Lock()
	owner, vdb := h.owner, h.vdb
	s := Status{Name: h.name, ColdStart: h.cold, Lost: h.lost, Strict: h.o.Strict, Err: h.err}
	h.mu.Unlock()
	if err := db.live(); err != nil {
		s.Err = err
	}
	last := owner.Last()
	s.ID, s.Generation, s.Slot = owner.ID().String(), owner.Generation(), owner.Slot()
	s.Point = Point{ID: s.ID, Slot: last.Slot, Generation: last.Generation, Time: last.Time, Label: last.Label}
	s.PendingCommits, s.PendingBytes = vdb.Pending()
	s.Pages = int64(vdb.PageCount())
	s.PagesLocal = s.Pages
	if l := h.source(); l != nil {
		s.PagesLocal = max(0, s.Pages-int64(l.left()))
	}
	s.Requests = h.counter.Counts()
	return s
}

// Reopen takes the database back after it was fenced: it claims the next generation and brings the local copy up to date, in place. Connections in
// use are waited for, until ctx ends; who asks for one meanwhile waits until it has ended. On a handle that is not fenced it claims and continues all the same.
// When it fails early the handle is as it was, later it is over until a Reopen succeeds. A Synced after it does not speak for commits from before that were not shipped: if others have written meanwhile, they are in
// the file that the [*FencedError] and Status().Lost name. It is for all who use this DB to know of it; who uses another one of the same handle (of Ensure, or within another [Registry.Use]) gets the FencedError from Synced, and so does a [DB.Gate] or [DB.Step] beside it.
func (db *DB) Reopen(ctx context.Context) error {
	if db.h.ro != nil {
		return wrap(db.h.name, "reopen", ErrReadOnly)
	}
	if ctx.Value(inStep{db.h}) != nil {
		return wrap(db.h.name, "reopen", errors.New("it was called from within a transaction of this handle, a Step's or a Migrate's, which it would wait for"))
	}
	if err := db.live(); err != nil {
		return wrap(db.h.name, "reopen", err)
	}
	mine := db.since
	if db.lease != nil { // an Ensure's DB speaks for all that it has committed
		mine = nil
	}
	return wrap(db.h.name, "reopen", db.h.reopen(ctx, db.DB, mine))
}

// reopen is Reopen. mine is what the caller has seen of the handle, who learns of what was set aside by this; nil: nothing.
func (h *handle) reopen(ctx context.Context, pool *sql.DB, mine *since) error {
	for { // until none is under way with the round held, which one needs to begin
		h.stopCompaction()
		if err := h.lockRound(ctx); err != nil {
			return err
		}
		if !h.compacting() {
			break
		}
		h.unlockRound()
	}
	defer h.unlockRound()
	h.mu.Lock()
	closed, vdb := h.closed, h.vdb
	if !closed {
		h.moving = make(chan struct{})
	}
	h.mu.Unlock()
	if closed {
		return ErrClosed
	}
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		close(h.moving)
		h.moving = nil
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.opened, cancel)()
	// (1) Is it still there?
	head, err := h.log.Head(ctx)
	if err != nil {
		return err
	}
	if head == nil || head.Ends() {
		return ErrNotFound
	}
	rec := h.readRecord(ctx, head)
	defer rec.wait()
	// (2) Nobody uses the local file any more.
	vdb.Refuse(fmt.Errorf("database %s is being reopened", h.name))
	h.epoch.Add(1) // idle connections are not given out again
	if err := h.drain(ctx, pool); err != nil {
		h.accept()
		return err
	}
	// (3) As Open does it. Until that has succeeded, the handle is over.
	if err := h.detach(); err != nil {
		h.end(fmt.Errorf("database %s: Reopen failed, call it again: %w", h.name, err), "")
		return err
	}
	h.inflight, h.behind = nil, nil
	h.mu.Lock()
	h.damage = nil
	h.mu.Unlock()
	if err := h.takeOver(ctx, head, rec); err != nil {
		h.end(fmt.Errorf("database %s: Reopen failed, call it again: %w", h.name, err), "")
		return err
	}
	if mine != nil {
		mine.now(h)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.damage != nil { // found since by what fetches pages
		h.err = h.damage
		h.vdb.Refuse(h.damage)
		return h.damage
	}
	if h.err != nil {
		h.err, h.done = nil, make(chan struct{})
		for l := range h.leases {
			l.done = make(chan struct{})
		}
	}
	return nil
}

// drain waits until no SQLite connection is open.
func (h *handle) drain(ctx context.Context, pool *sql.DB) error {
	for _, p := range h.pools(pool) {
		p.SetMaxIdleConns(-1)
		defer p.SetMaxIdleConns(maxIdleConns)
	}
	t := time.NewTicker(2 * time.Millisecond)
	defer t.Stop()
	for {
		n := h.conns.Load()
		if n == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d connections are in use: close rows, statements and transactions first: %w", n, ctx.Err())
		case <-t.C:
		}
	}
}
