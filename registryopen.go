package tonbo

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
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
	firm    bool          // a use has kept from its end what was to be closed for it
	unheard error         // why its database could not be closed well when it was not to be opened after all
	full    chan struct{} // closed when queued becomes true; nil: there is a place
}

// placeWaiter waits for a place: it gets nil, or what is to be closed for it, by itself.
type placeWaiter struct {
	o   *opening
	got chan *going
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
	var err, lost error
	if placed {
		r.placed(o)
		lost = r.shut(old)
	} else {
		err = r.place(ctx, o)
		placed = err == nil
	}
	if err == nil {
		db, err = r.bring(ctx, o, u)
	}
	r.mu.Lock()
	if r.closed && err == nil {
		r.mu.Unlock()
		err = r.discard(o, db, r.closedError(m.name))
		r.mu.Lock()
	}
	if r.closed && ctx.Err() != nil && err != nil && !errors.Is(err, ErrClosed) {
		err = fmt.Errorf("%w (%w)", r.closedError(m.name), err)
	}
	m.opening, o.err = nil, err
	if err != nil {
		delete(r.all, m.name)
		if placed {
			r.vacate()
		}
	} else {
		m.db, m.tries = db, 0
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
	unheard := lost
	if o.waiting == 0 {
		unheard = errors.Join(lost, o.unheard)
	}
	if unheard != nil {
		r.stats.FailedCloses++
	}
	close(o.done)
	r.mu.Unlock()
	r.trim()
	if unheard != nil {
		r.report(m.name, false, unheard)
	}
}

// bring opens the database of u, which Create makes and Prepare prepares.
func (r *Registry) bring(ctx context.Context, o *opening, u *use) (*DB, error) {
	name := u.m.name
	within := context.WithValue(ctx, useKey{r}, u)
	db, err := r.openOne(ctx, name)
	if errors.Is(err, ErrNotFound) && r.o.Create != nil {
		err = called(name, "Create", func() error { return r.o.Create(within, name) })
		if err == nil || errors.Is(err, ErrExists) { // another process was as quick
			db, err = r.openOne(ctx, name)
		}
	}
	if err != nil || r.o.Prepare == nil {
		return db, err
	}
	if err := called(name, "Prepare", func() error { return r.o.Prepare(within, db) }); err != nil {
		return nil, r.discard(o, db, err)
	}
	return db, nil
}

// discard closes what has been opened and is not to be used, because of err.
func (r *Registry) discard(o *opening, db *DB, err error) error {
	cerr := r.shut(db)
	r.mu.Lock()
	defer r.mu.Unlock()
	o.unheard = cerr
	return errors.Join(err, cerr)
}

// called runs a function of the program. Its panic, or the end of its goroutine (runtime.Goexit, as by testing.T's FailNow), is an error: those who wait for the database are to hear of it.
func called(name, what string, fn func() error) (err error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("database %s: RegistryOptions.%s panicked: %v\n%s", name, what, p, debug.Stack())
			}
		}()
		err = fmt.Errorf("database %s: RegistryOptions.%s ended its goroutine (runtime.Goexit)", name, what)
		err = fn()
	}()
	<-ended
	return err
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

// place waits for a place, and closes what has to go for it: firmly when a use has kept that from its end before, so that those who are not open get their turn.
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
		var g *going
		if first := r.idle.Front(); first != nil {
			g = r.close(first.Value.(*member), o.firm)
			r.mu.Unlock()
		} else {
			w, at := r.enqueue(o)
			r.mu.Unlock()
			var err error
			if g, err = r.queued(ctx, w, at); err != nil {
				return err
			}
		}
		if g == nil || r.evict(ctx, o, g) {
			r.placed(o)
			return nil
		}
	}
}

// enqueue makes an opening wait for a place. The caller holds r.mu.
func (r *Registry) enqueue(o *opening) (*placeWaiter, *list.Element) {
	w := &placeWaiter{o, make(chan *going, 1)}
	if !o.queued {
		o.queued = true
		close(o.full)
	}
	return w, r.queue.PushBack(w)
}

// queued waits in the queue, for a place (nil) or for what is to be closed for one.
func (r *Registry) queued(ctx context.Context, w *placeWaiter, at *list.Element) (*going, error) {
	select {
	case g := <-w.got:
		return g, nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case g := <-w.got:
		r.giveBack(g)
	default:
		r.queue.Remove(at)
	}
	return nil, ctx.Err()
}

// evict closes a member for an opening. true: its place is the opening's. One that takes long is left to itself, since another place may be had sooner: it is then free for whoever waits.
func (r *Registry) evict(ctx context.Context, o *opening, g *going) bool {
	ended := make(chan struct{})
	var gone, left bool // guarded by r.mu
	r.work.Go(func() {
		defer close(ended)
		itIs, used := r.finish(g, &r.stats.Evicted)
		r.mu.Lock()
		defer r.mu.Unlock()
		gone, o.firm = itIs, o.firm || used
		if gone && left {
			r.vacate()
		}
	})
	t := time.NewTimer(evictPatience)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	left = true
	return gone
}

// placed: the opening has a place.
func (r *Registry) placed(o *opening) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.queued, o.full = false, nil
}

// giveBack gives back what a waiter got that does not wait any more. The caller holds r.mu.
func (r *Registry) giveBack(g *going) {
	if g == nil {
		r.vacate()
		return
	}
	if r.ended(g) {
		r.rest(g.m)
	}
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
		w.got <- r.close(m, w.o.firm)
		return
	}
	r.wait(m)
}
