package tonbo

import (
	"context"
	"errors"
	"fmt"
)

// opening is one opening of a member, for all who wait for it. It has a context of its own, which ends when nobody waits any more.
type opening struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended
	err    error         // then

	// Guarded by the registry's mu:
	waiting int           // uses
	left    bool          // nobody waits: it is on its way to fail
	queued  bool          // there is no place
	full    chan struct{} // closed when queued becomes true; nil: there is a place
}

// placeWaiter waits for a place: it gets nil, or a member whose place it has once that is closed.
type placeWaiter struct {
	o   *opening
	got chan *member
}

// open begins to open a member, or to open it anew. The caller holds r.mu.
func (r *Registry) open(ctx context.Context, m *member, outer *use) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	o := &opening{cancel: cancel, done: make(chan struct{}), full: make(chan struct{})}
	m.opening = o
	r.work.Go(func() {
		defer cancel()
		defer context.AfterFunc(r.life, cancel)()
		r.run(ctx, m, o, &use{m: m, outer: outer})
	})
}

// run opens a member and tells those who wait for it.
func (r *Registry) run(ctx context.Context, m *member, o *opening, u *use) {
	old := m.db
	placed := old != nil // it has one
	var db *DB
	var err error
	if placed {
		r.placed(o)
		r.letGo(m)
	} else {
		err = r.place(ctx, o)
		placed = err == nil
	}
	if err == nil {
		db, err = r.bring(ctx, u)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		var cerr error
		if err == nil {
			r.mu.Unlock()
			cerr = db.Close()
			r.mu.Lock()
		}
		err = errors.Join(r.closedError(m.name), cerr)
	}
	m.opening, o.err = nil, err
	if err != nil {
		delete(r.all, m.name)
		if placed {
			r.vacate()
		}
	} else {
		m.db, m.pooled, m.tries = db, u.pooled, 0
		m.users += o.waiting
		r.users += o.waiting
		if old != nil {
			r.stats.Replaced++
		}
		if db.Status().ColdStart {
			r.stats.OpenedCold++
		} else {
			r.stats.OpenedWarm++
		}
		if m.users == 0 {
			r.rest(m)
		}
	}
	close(o.done)
}

// bring opens the database of u, which Create makes and Prepare prepares.
func (r *Registry) bring(ctx context.Context, u *use) (*DB, error) {
	name := u.m.name
	db, err := r.openOne(ctx, name)
	if errors.Is(err, ErrNotFound) && r.o.Create != nil {
		if err := r.o.Create(context.WithValue(ctx, useKey{r}, u), name); err != nil && !errors.Is(err, ErrExists) { // another process was as quick
			return nil, err
		}
		db, err = r.openOne(ctx, name)
	}
	if err != nil {
		return nil, err
	}
	u.pooled = &pooled{c: r.conns, pool: db.DB}
	db.h.pooled.Store(u.pooled)
	if r.o.Prepare != nil {
		if err := r.o.Prepare(context.WithValue(ctx, useKey{r}, u), db); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return db, nil
}

func (r *Registry) openOne(ctx context.Context, name string) (*DB, error) {
	select {
	case r.turns <- struct{}{}:
		defer func() { <-r.turns }()
		return r.c.Open(ctx, name)
	case <-ctx.Done():
		return nil, fmt.Errorf("database %s: open: %w", name, ctx.Err())
	}
}

// place waits for a place, and closes what has to go for it.
func (r *Registry) place(ctx context.Context, o *opening) error {
	for {
		r.mu.Lock()
		if err := ctx.Err(); err != nil {
			r.mu.Unlock()
			return err
		}
		if r.places < r.o.MaxOpen {
			r.places++
			o.queued, o.full = false, nil
			r.mu.Unlock()
			return nil
		}
		first := r.idle.Front()
		if first != nil {
			m := first.Value.(*member)
			r.close(m)
			r.mu.Unlock()
			if r.finish(m, &r.stats.Evicted) {
				r.placed(o)
				return nil
			}
			continue
		}
		w := &placeWaiter{o, make(chan *member, 1)}
		at := r.queue.PushBack(w)
		if !o.queued {
			o.queued = true
			close(o.full)
		}
		r.mu.Unlock()
		select {
		case m := <-w.got:
			if m == nil || r.finish(m, &r.stats.Evicted) {
				r.placed(o)
				return nil
			}
		case <-ctx.Done():
			r.mu.Lock()
			select {
			case m := <-w.got:
				r.giveBack(m)
			default:
				r.queue.Remove(at)
			}
			r.mu.Unlock()
			return ctx.Err()
		}
	}
}

// placed: the opening has a place.
func (r *Registry) placed(o *opening) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.queued, o.full = false, nil
}

// giveBack gives back what a waiter got that does not wait any more. The caller holds r.mu.
func (r *Registry) giveBack(m *member) {
	if m == nil {
		r.vacate()
		return
	}
	close(m.closing)
	m.closing = nil
	r.rest(m)
}

// vacate gives a place up, to the first who waits for one. The caller holds r.mu.
func (r *Registry) vacate() {
	if w := r.next(); w != nil {
		w.got <- nil
		return
	}
	r.places--
}

// next takes the first of those who wait for a place out of their queue; nil: nobody does. The caller holds r.mu.
func (r *Registry) next() *placeWaiter {
	first := r.queue.Front()
	if first == nil {
		return nil
	}
	return r.queue.Remove(first).(*placeWaiter)
}

// rest: nobody uses m any more. The caller holds r.mu.
func (r *Registry) rest(m *member) {
	if r.closed {
		return
	}
	if m.tries > 0 {
		if commits, _ := m.db.h.pending(); commits > 0 {
			r.keep(m)
			return
		}
		m.tries, m.err = 0, nil
	}
	if w := r.next(); w != nil {
		r.close(m)
		w.got <- m
		return
	}
	r.wait(m)
}
