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

	"github.com/tonbo-go/tonbo/fence"
)

// lease is what a DB of Ensure has, which shares its handle with others: its own pool, and its own end.
type lease struct {
	pool  *sql.DB
	since *since
	gone  atomic.Bool             // it is being closed, or is: its connections take nothing more
	leave func(gently bool) error // gives the reference back, once
	done  chan struct{}           // for Done; guarded by the handle's mu
}

// lease makes a DB of the handle from the reference that the caller has. Its Close acknowledges what was committed before it, as every Close does, and gives the reference back.
func (i *Instances) lease(id fence.ID, h *sharing) *DB {
	own := h.db.h
	l := &lease{since: new(since), done: make(chan struct{})}
	l.since.now(own)
	l.pool = newPool(&connector{h: own, lease: l, closes: true})
	db := &DB{DB: l.pool, h: own, lease: l, since: l.since}
	var once sync.Once
	var err error
	l.leave = func(gently bool) error {
		once.Do(func() {
			// (1) Nothing more comes of it: what commits in one of its transactions from here on is refused.
			l.gone.Store(true)
			l.pool.Close()
			own.dismiss(l)
			// (2) What it has committed, the remote has; or its error says what not.
			if gently {
				err = db.settle()
			}
			// (3) The last one closes the handle.
			if cerr := i.release(id, h); err == nil {
				err = cerr
			}
		})
		return err
	}
	own.admit(l)
	return db
}

// settle acknowledges what a lease has committed.
func (db *DB) settle() error {
	err := db.outdated()
	if commits, _ := db.h.pending(); err == nil && commits > 0 {
		if ended := db.h.ended(); ended != nil {
			err = db.h.unsynced("close", ended)
		} else {
			ctx, cancel := context.WithTimeout(context.Background(), db.h.o.SyncTimeout)
			err = db.h.unsynced("close", db.acknowledged(func() error { return db.h.synced(ctx) }))
			cancel()
		}
	}
	if err == nil { // a whole Reopen may have come in between
		err = db.outdated()
	}
	var fenced *FencedError
	if ended := db.h.ended(); err == nil && errors.As(ended, &fenced) && (fenced.Lost != "" || fenced.aside != nil) {
		err = ended
	}
	return err
}

// over returns ErrClosed when the lease has been closed. nil: it is none, or open.
func (l *lease) over(h *handle) error {
	if l == nil || !l.gone.Load() {
		return nil
	}
	return fmt.Errorf("database %s: %w", h.name, ErrClosed)
}

// live returns ErrClosed when the DB has been closed while others go on with its handle.
func (db *DB) live() error { return db.lease.over(db.h) }

// admit counts a lease among those that are told of the handle's end.
func (h *handle) admit(l *lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		close(l.done)
	}
	if h.leases == nil {
		h.leases = map[*lease]struct{}{}
	}
	h.leases[l] = struct{}{}
}

// dismiss ends a lease's part in the handle.
func (h *handle) dismiss(l *lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		close(l.done)
	}
	delete(h.leases, l)
}

// pools are those that may hold connections.
func (h *handle) pools(pool *sql.DB) []*sql.DB {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[*sql.DB]struct{}{pool: {}}
	if h.pool != nil {
		all[h.pool] = struct{}{}
	}
	for l := range h.leases {
		all[l.pool] = struct{}{}
	}
	return slices.Collect(maps.Keys(all))
}
