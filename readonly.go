package tonbo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/layout"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// ErrReadOnly is a call that a read-only handle does not have.
var ErrReadOnly = errors.New("handle is read-only")

// reader is what a read-only DB shares with its connections: a point of the database's history, and after a Refresh another one.
type reader struct {
	h  *handle
	at At

	turn  chan struct{} // held by who moves to another point
	pages *pageStore

	lastFetch atomic.Pointer[error] // why a page could not be read

	mu     sync.Mutex
	now    *snapshot              // what new connections see
	live   map[*snapshot]struct{} // in use
	closed bool
}

// OpenReadOnly opens a database without taking it over: it claims nothing, fences nobody and writes nothing to the remote. Options.At picks a point,
// the head by default; Options.Follow > 0 looks for newer ones that often; [DB.Refresh] does so at once. Writes fail with SQLite's READONLY. Any number of handles
// may be open, beside an owner too: each has a local file of its own, which Close removes.
//
// It needs a handful of requests, whatever the size of the database; pages are fetched when they are read, and as Options.Hydration says. A connection sees one point
// as long as it lives; after a Refresh the pool makes new ones. When what a point needs was collected meanwhile, reads of pages that are not here fail with
// [ErrPointGone]; a handle at the head has then moved on to the present one: the pool runs a query that is in no transaction and had returned no row again
// by itself, others can be run again.
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
	r := &reader{h: h, at: o.At, turn: make(chan struct{}, 1), live: map[*snapshot]struct{}{}}
	h.ro = r
	h.share("") // its own file goes with it
	if err := r.open(ctx); err != nil {
		return nil, wrap(name, "open", errors.Join(err, r.close()))
	}
	pool := sql.OpenDB(&roConnector{r})
	pool.SetMaxIdleConns(maxIdleConns)
	pool.SetConnMaxIdleTime(maxConnIdleTime)
	if o.Follow > 0 {
		h.background.Add(1)
		go r.follow(o.Follow)
	}
	return &DB{DB: pool, h: h}, nil
}

func (r *reader) open(ctx context.Context) error {
	return r.retried(ctx, func() (*fence.Entry, error) {
		_, e, err := r.h.resolve(ctx, r.at)
		if err != nil {
			return nil, err
		}
		if r.pages == nil {
			if !segment.ValidPageSize(int(e.State.PageSize)) {
				return e, fmt.Errorf("%w: the log of %s says page size %d", ErrCorrupt, r.h.name, e.State.PageSize)
			}
			if r.pages, err = newPageStore(r.h.o.Dir, int(e.State.PageSize)); err != nil {
				return e, err
			}
		}
		return e, r.move(ctx, e, nil)
	})
}

// retried runs do again while it finds that an object is missing, until that is so at the same point twice: what was read about has been collected meanwhile.
func (r *reader) retried(ctx context.Context, do func() (*fence.Entry, error)) error {
	var before *fence.Entry
	for {
		e, err := do()
		if err == nil || !errors.Is(err, layout.ErrMissing) || e == nil || before != nil && before.Slot == e.Slot || ctx.Err() != nil {
			return err
		}
		before = e
	}
}

// move makes the point after e the present one. from is the present one, nil: none. The turn is held, or nobody else is there.
func (r *reader) move(ctx context.Context, e *fence.Entry, from *snapshot) error {
	h := r.h
	// (1) What carries its pages.
	if e.Payload == nil && e.PayloadSize > 0 {
		full, err := h.log.Read(ctx, e.Slot)
		if errors.Is(err, remote.ErrNotFound) {
			return fmt.Errorf("%w: %w", layout.ErrMissing, err)
		}
		if err != nil {
			return err
		}
		e = full
	}
	t := h.newTail(e)
	if from != nil {
		if l := from.loc.Load(); l.base != nil && from.entry.Base == e.Base && !e.Whole {
			t.base, t.packs = l.base, l.packs.Load()
		}
		straight := e.Generation == from.entry.Generation // a rewind begins a generation
		if !straight {
			var err error
			if straight, err = t.straight(ctx, from.entry.Slot); err != nil {
				return err
			}
		}
		if !straight {
			from = nil
		}
	}
	floor := uint64(0)
	if from != nil {
		floor = from.entry.Slot
	}
	t.fresh = from == nil && h.lazily(e.State)
	if err := t.load(ctx, floor); err != nil {
		return err
	}
	// (2) The point. Nobody sees it yet.
	s, err := r.newSnapshot(ctx, e, t, from)
	if err != nil {
		return err
	}
	r.mu.Lock()
	s.users = 1
	r.live[s] = struct{}{}
	r.mu.Unlock()
	if !h.lazily(e.State) {
		if err := s.hydrated(ctx); err != nil {
			s.stop()
			s.workers.Wait()
			r.release(s)
			return err
		}
	}
	// (3) New connections see it. Those that are in use keep what they have.
	r.mu.Lock()
	old, closed := r.now, r.closed
	if !closed {
		r.now, s.shown = s, true
	}
	r.mu.Unlock()
	if closed {
		r.release(s)
		return ErrClosed
	}
	h.epoch.Add(1) // idle connections are not given out again
	if old != nil {
		old.halt()
		r.release(old)
	}
	if h.o.Hydration == HydrateBackground {
		s.hydrate()
	}
	return nil
}

// present returns the present point, and counts a user of it.
func (r *reader) present() (*snapshot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, fmt.Errorf("database %s: %w", r.h.name, ErrClosed)
	}
	r.now.users++
	return r.now, nil
}

// release counts a user less. A point that nobody uses gives its pages up.
func (r *reader) release(s *snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	delete(r.live, s)
	s.vfs.Detach()
	s.stop()
	if r.closed { // and with it all pages are
		return
	}
	r.h.background.Go(func() { // not here: it may be one of its own fetches that found it to be gone
		s.workers.Wait()
		s.free()
	})
}

// Refresh moves a read-only handle that is at the head to the present head. Queries under way go on in the state that they began in.
func (db *DB) Refresh(ctx context.Context) error {
	if db.h.ro == nil {
		return wrap(db.h.name, "refresh", errors.New("this handle owns the database: it is always at the head"))
	}
	return wrap(db.h.name, "refresh", db.h.ro.refresh(ctx))
}

func (r *reader) refresh(ctx context.Context) error {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if r.at != nil {
		return nil // a fixed point
	}
	return r.retried(ctx, func() (*fence.Entry, error) {
		s, err := r.present()
		if err != nil {
			return nil, err
		}
		defer r.release(s)
		head, err := r.h.log.Head(ctx)
		if err != nil {
			return nil, err
		}
		if head == nil || head.Ends() || head.ID != s.entry.ID {
			return nil, ErrDeleted
		}
		if head.Slot == s.entry.Slot {
			return head, nil
		}
		return head, r.move(ctx, head, s)
	})
}

// collected is called when an object is missing that the pages of a point are in. It returns what to tell whoever reads them, nil: that the object is missing, since
// the point should be there.
func (r *reader) collected(ctx context.Context, s *snapshot) error {
	r.mu.Lock()
	now, shown := r.now, s.shown
	r.mu.Unlock()
	if !shown { // whoever makes it tries another one
		return nil
	}
	if r.at != nil {
		_, _, err := r.h.resolve(ctx, Slot(s.entry.Slot))
		return err
	}
	if now == s {
		if err := r.refresh(ctx); err != nil {
			return err
		}
	}
	r.mu.Lock()
	now = r.now
	r.mu.Unlock()
	if now == s {
		return nil
	}
	return &dbError{r.h.name, "read", ErrPointGone, fmt.Errorf("slot %d, which this query reads, was collected; the handle has moved on to slot %d: run the query again", s.entry.Slot, now.entry.Slot)}
}

// hydrated waits until every page of the present point is here, whichever that is by then.
func (r *reader) hydrated(ctx context.Context) error {
	for {
		s, err := r.present()
		if err != nil {
			return err
		}
		err = s.hydrated(ctx)
		moved := s.bg.Err() != nil
		r.release(s)
		if err == nil || !moved || r.h.life.Err() != nil {
			return err
		}
	}
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

// close ends the handle. Connections that are still in use cannot read any more.
func (r *reader) close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	live := slices.Collect(maps.Keys(r.live))
	r.mu.Unlock()
	r.h.stop()
	r.h.background.Wait()
	for _, s := range live {
		s.workers.Wait()
	}
	r.h.unshare()
	r.h.end(fmt.Errorf("database %s: %w", r.h.name, ErrClosed), "")
	if r.now != nil {
		r.release(r.now)
	}
	if r.pages == nil {
		return nil
	}
	return r.pages.close()
}

func (r *reader) status() Status {
	r.mu.Lock()
	s := r.now
	r.mu.Unlock()
	pages := int64(s.entry.State.PageCount)
	return Status{
		Name: r.h.name, ID: s.entry.ID.String(), Generation: s.entry.Generation, Slot: s.entry.Slot, Point: pointOf(s.entry),
		Pages: pages, PagesLocal: pages - int64(s.left()), ColdStart: true, ReadOnly: true, Requests: r.h.counter.Counts(), Err: r.h.ended(),
	}
}
