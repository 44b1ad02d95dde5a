package tonbo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// wait lists m as idle. The caller holds r.mu.
func (r *Registry) wait(m *member) {
	m.last = time.Now()
	m.at = r.idle.PushBack(m)
	r.conns.add(m)
	r.arm()
}

// keep lists m as idle and not to be closed before it is tried again. The caller holds r.mu.
func (r *Registry) keep(m *member) {
	m.at = r.stuck.PushBack(m)
	r.conns.add(m)
	r.arm()
}

// unlist: m is not idle any more, nor on its way to be closed. The caller holds r.mu.
func (r *Registry) unlist(m *member) {
	m.going = nil
	if m.at == nil {
		return
	}
	if m.tries > 0 {
		r.stuck.Remove(m.at)
	} else {
		r.idle.Remove(m.at)
	}
	m.at = nil
	r.conns.remove(m)
}

// going is one try to close a member that nobody uses. While it is not firm the member is shipped and can be used, which ends the try.
type going struct {
	m     *member
	db    *DB           // the member's when it began: used meanwhile, it may have been opened anew
	firm  bool          // who wants to use the member waits
	ended chan struct{} // for that; made when it becomes firm
}

// close begins to close m, which nobody uses: finish does it. The caller holds r.mu.
func (r *Registry) close(m *member, firm bool) *going {
	r.unlist(m)
	m.going = &going{m: m, db: m.db}
	if firm {
		m.going.close()
	}
	return m.going
}

// close makes it firm. The caller holds r.mu.
func (g *going) close() { g.firm, g.ended = true, make(chan struct{}) }

// ended: the try is over. false: it had been, since the member has been used. The caller holds r.mu.
func (r *Registry) ended(g *going) bool {
	if g.m.going != g {
		return false
	}
	if g.firm {
		close(g.ended)
	}
	g.m.going = nil
	return true
}

// finish closes what is going. gone: its place is the caller's; used: it is not, since it was used meanwhile. Otherwise it could not be closed, and is kept. why counts it.
func (r *Registry) finish(g *going, why *int64) (gone, used bool) {
	gone, used, err := r.try(g, why)
	r.trim()
	if err != nil {
		r.report(g.m.name, !gone, err)
	}
	return gone, used
}

func (r *Registry) try(g *going, why *int64) (gone, used bool, err error) {
	r.turns <- struct{}{} // what has one ends by itself
	defer func() { <-r.turns }()
	m := g.m
	// (1) All of it is shipped while it can be used.
	if !g.firm {
		err = r.ship(g.db)
		r.mu.Lock()
		switch {
		case m.going != g:
			r.mu.Unlock()
			return false, true, nil // what could not be shipped is its user's again
		case err != nil:
			defer r.mu.Unlock()
			r.kept(g, err)
			return false, false, err
		}
		g.close()
		r.mu.Unlock()
	}
	// (2) Nobody uses it from here on: most often there is nothing to ship any more.
	err = r.quiesce(g.db)
	kept := err != nil
	if !kept {
		err = r.shut(g.db)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if kept {
		r.kept(g, err)
		return false, false, err
	}
	if err != nil {
		r.stats.FailedCloses++
	}
	r.ended(g)
	*why++
	delete(r.all, m.name)
	return true, false, err
}

// kept: it could not be closed, and is tried again later. The caller holds r.mu.
func (r *Registry) kept(g *going, err error) {
	m := g.m
	r.ended(g)
	r.stats.FailedCloses++
	m.tries, m.err = m.tries+1, err
	m.retry = time.Now().Add(min(closeRetry<<min(m.tries-1, 10), closeRetryMax))
	r.keep(m)
}

// ship has the remote hold what a database has committed. An error: that failed, and may succeed later.
func (r *Registry) ship(db *DB) error {
	if commits, _ := db.h.pending(); commits == 0 {
		return nil
	}
	return r.rushed(db, db.Synced)
}

// quiesce is ship, and then nothing is committed any more.
func (r *Registry) quiesce(db *DB) error {
	return r.rushed(db, func(ctx context.Context) error { return db.quiesce(ctx, false) })
}

func (r *Registry) rushed(db *DB, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(r.rush, db.h.o.SyncTimeout)
	defer cancel()
	err := fn(ctx)
	if db.Err() != nil { // it is over: Close says what of it is lost
		return nil
	}
	return err
}

// shut closes a database for good.
func (r *Registry) shut(db *DB) error {
	h := db.h
	h.mu.Lock()
	h.drop, h.patience = h.drop || r.o.Suspend, r.rush
	h.mu.Unlock()
	return db.Close()
}

// report tells OnError, which may use the registry: in a goroutine that holds nothing. The caller is part of r.work.
func (r *Registry) report(name string, kept bool, err error) {
	r.c.o.Logger.Warn("idle database not closed well", "event", "close_failed", "database", name, "kept_open", kept, "error", err)
	if r.o.OnError != nil {
		r.work.Go(func() { r.o.OnError(name, err) })
	}
}

// arm sets the timer for what is due next. The caller holds r.mu.
func (r *Registry) arm() {
	if r.closed {
		return
	}
	var next time.Time
	if first := r.idle.Front(); first != nil && r.o.MaxIdle > 0 {
		next = first.Value.(*member).last.Add(r.o.MaxIdle)
	}
	for at := r.stuck.Front(); at != nil; at = at.Next() {
		if m := at.Value.(*member); next.IsZero() || m.retry.Before(next) {
			next = m.retry
		}
	}
	if next.IsZero() || r.armed && (!next.Before(r.alarm) || !r.timer.Stop()) {
		return
	}
	r.armed, r.alarm = true, next
	r.timer = time.AfterFunc(time.Until(next), r.tend)
}

// due takes the next member that is to be closed; nil: there is none. The caller holds r.mu.
func (r *Registry) due() *going {
	if r.closed {
		return nil
	}
	now := time.Now()
	if first := r.idle.Front(); first != nil && r.o.MaxIdle > 0 {
		if m := first.Value.(*member); !m.last.Add(r.o.MaxIdle).After(now) {
			return r.close(m, false)
		}
	}
	for at := r.stuck.Front(); at != nil; at = at.Next() {
		if m := at.Value.(*member); !m.retry.After(now) {
			return r.close(m, false)
		}
	}
	return nil
}

// tend closes what is due, a few at once: openings have the other turns.
func (r *Registry) tend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed = false
	for due := r.due(); due != nil; due = r.due() {
		r.work.Go(func() {
			r.tenders <- struct{}{}
			defer func() { <-r.tenders }()
			if gone, _ := r.finish(due, &r.stats.Expired); gone {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.vacate()
			}
		})
	}
	r.arm()
}

// Close waits until no database is in use, and closes all of them: each ships what is unshipped, for at most Options.SyncTimeout. Use returns [ErrClosed] from the call on, and so do those that wait for a database to be opened.
//
// When ctx ends, those that are still in use are closed too (what their users COMMIT from then on is refused), and what is not shipped by then stays in the local copies, where the next [Open] in this directory finds it. The errors are joined; each names
// its database. Create and Prepare, whose contexts end, and OnError are waited for, whatever ctx says. A second Close waits for the first one, and returns nil. Within a Use it would wait for itself: that is an error.
func (r *Registry) Close(ctx context.Context) error {
	if ctx.Value(useKey{r}) != nil {
		return errors.New("close the registry: it was called from within a Use")
	}
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		select {
		case <-r.gone:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("the registry is being closed: %w", ctx.Err())
		}
	}
	r.closed = true
	defer close(r.gone)
	if r.armed {
		r.timer.Stop()
	}
	unused := make(chan struct{})
	if r.users > 0 {
		r.unused = unused
	} else {
		close(unused)
	}
	r.mu.Unlock()
	// (1) Nothing is opened any more, and what is being closed ends with ctx.
	r.stop()
	defer r.hold()
	defer context.AfterFunc(ctx, r.hold)()
	// (2) Nobody uses any.
	select {
	case <-unused:
	case <-ctx.Done():
	}
	r.work.Wait()
	// (3) What is left is open.
	r.mu.Lock()
	left := slices.SortedFunc(maps.Values(r.all), func(a, b *member) int { return cmp.Compare(a.name, b.name) })
	errs := make([]error, 2*len(left))
	for i, m := range left {
		if m.users > 0 {
			errs[2*i] = fmt.Errorf("database %s: it was still in use: %w", m.name, ctx.Err())
		}
	}
	r.mu.Unlock()
	var g errgroup.Group
	g.SetLimit(registryTurns)
	for i, m := range left {
		g.Go(func() error {
			errs[2*i+1] = r.shut(m.db)
			return nil
		})
	}
	g.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.all)
	r.places = 0
	return errors.Join(errs...)
}
