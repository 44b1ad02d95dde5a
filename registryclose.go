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
	r.arm()
}

// keep lists m as idle and not to be closed before it is tried again. The caller holds r.mu.
func (r *Registry) keep(m *member) {
	m.at = r.stuck.PushBack(m)
	if r.armed && r.timer.Stop() { // it may be due sooner
		r.armed = false
	}
	r.arm()
}

// unlist: m is not idle any more. The caller holds r.mu.
func (r *Registry) unlist(m *member) {
	if m.at == nil {
		return
	}
	if m.tries > 0 {
		r.stuck.Remove(m.at)
	} else {
		r.idle.Remove(m.at)
	}
	m.at = nil
}

// close begins to close m, which nobody uses: finish does it. The caller holds r.mu.
func (r *Registry) close(m *member) {
	r.unlist(m)
	m.closing = make(chan struct{})
}

// finish closes m. false: it could not be, and is kept. Its place is the caller's. why counts it.
func (r *Registry) finish(m *member, why *int64) (gone bool) {
	r.turns <- struct{}{} // what has one ends by itself
	err, kept := r.ship(m.db)
	if !kept {
		err = r.shut(m.db)
	}
	<-r.turns
	if err != nil {
		r.report(m.name, kept, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	close(m.closing)
	m.closing = nil
	if err != nil {
		r.stats.FailedCloses++
	}
	if kept {
		m.tries, m.err = m.tries+1, err
		m.retry = time.Now().Add(min(closeRetry<<min(m.tries-1, 10), closeRetryMax))
		r.keep(m)
		return false
	}
	*why++
	delete(r.all, m.name)
	return true
}

// letGo closes m's handle, which is over.
func (r *Registry) letGo(m *member) {
	if err := r.shut(m.db); err != nil {
		r.report(m.name, false, err)
		r.mu.Lock()
		r.stats.FailedCloses++
		r.mu.Unlock()
	}
}

// ship has the remote hold what a database has committed, and nothing be committed any more. kept: that failed, and may succeed later.
func (r *Registry) ship(db *DB) (err error, kept bool) {
	ctx, cancel := context.WithTimeout(r.rush, db.h.o.SyncTimeout)
	defer cancel()
	if err = db.quiesce(ctx, false); err == nil || db.Err() != nil {
		return nil, false // if it is over, Close says what of it is lost
	}
	return err, true
}

// shut closes a database for good.
func (r *Registry) shut(db *DB) error {
	h := db.h
	h.mu.Lock()
	h.drop, h.patience = h.drop || r.o.Suspend, r.rush
	h.mu.Unlock()
	return db.Close()
}

func (r *Registry) report(name string, kept bool, err error) {
	r.c.o.Logger.Warn("idle database not closed well", "event", "close_failed", "database", name, "kept_open", kept, "error", err)
	if r.o.OnError != nil {
		r.o.OnError(name, err)
	}
}

// arm sets the timer for what is due next. The caller holds r.mu.
func (r *Registry) arm() {
	if r.closed || r.armed || r.tending {
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
	if next.IsZero() {
		return
	}
	r.armed = true
	r.timer = time.AfterFunc(time.Until(next), r.tend)
}

// due takes the next member that is to be closed; nil: there is none. The caller holds r.mu.
func (r *Registry) due() *member {
	if r.closed {
		return nil
	}
	now := time.Now()
	if first := r.idle.Front(); first != nil && r.o.MaxIdle > 0 {
		if m := first.Value.(*member); !m.last.Add(r.o.MaxIdle).After(now) {
			r.close(m)
			return m
		}
	}
	for at := r.stuck.Front(); at != nil; at = at.Next() {
		if m := at.Value.(*member); !m.retry.After(now) {
			r.close(m)
			return m
		}
	}
	return nil
}

// tend closes what is due, in the timer's goroutine and in a few beside it.
func (r *Registry) tend() {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return
	}
	r.armed, r.tending = false, true
	r.work.Add(1)
	r.mu.Unlock()
	defer r.work.Done()
	var g errgroup.Group
	g.SetLimit(registryTurns / 2) // openings have the others
	for {
		r.mu.Lock()
		m := r.due()
		r.mu.Unlock()
		if m == nil {
			break
		}
		g.Go(func() error {
			if r.finish(m, &r.stats.Expired) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.vacate()
			}
			return nil
		})
	}
	g.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tending = false
	r.arm()
}

// Close waits until no database is in use, and closes all of them: each ships what is unshipped, for at most Options.SyncTimeout. Use returns [ErrClosed] from the call on, and so do those that wait for a database to be opened.
//
// When ctx ends, those that are still in use are closed too (what their users COMMIT from then on is refused), and what is not shipped by then stays in the local copies, where the next [Open] in this directory finds it. The errors are joined; each names
// its database. A second Close does nothing. Within a Use it would wait for itself: that is an error.
func (r *Registry) Close(ctx context.Context) error {
	if ctx.Value(useKey{r}) != nil {
		return errors.New("close the registry: it was called from within a Use")
	}
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
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
