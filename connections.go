package tonbo

import (
	"container/list"
	"context"
	"database/sql"
	"fmt"
	"sync"
)

// connections bounds the SQLite connections of a registry's databases, over all of their pools. Where one is needed and all are open, the pool whose connections have been idle longest closes them.
//
// A database that has none waits while all are in use: whoever asks holds none then. One that has a connection, or whose caller is using another database as well, does not wait, since the connection that it would wait for may be
// its own: it gets one beyond the bound, and that is closed when it is given back.
type connections struct {
	max int

	mu     sync.Mutex // guards what follows; held over no call of a pool
	open   int
	beyond int64     // how often one was opened beyond max
	idle   list.List // of *pooled that have idle ones; the one that has been idle longest first
	queue  list.List // of *connWaiter; while there is one, nothing is idle but what is being closed
}

// pooled is a database's part in connections.
type pooled struct {
	c    *connections
	pool *sql.DB

	open, rest int           // connections, and those of them that are idle or being closed; guarded by c.mu
	nested     int           // uses that are within others, or have others within them; guarded by c.mu
	at         *list.Element // in c.idle; guarded by c.mu

	mu  sync.Mutex
	dry bool // the pool keeps no idle connections, until it opens one again; guarded by mu
}

type connWaiter struct {
	p   *pooled
	got chan struct{} // closed when a connection may be opened
}

// take waits until a connection of p may be opened.
func (p *pooled) take(ctx context.Context) error {
	if p == nil {
		return nil
	}
	if err := p.c.take(ctx, p); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dry {
		p.dry = false
		p.pool.SetMaxIdleConns(maxIdleConns)
		p.c.mu.Lock()
		defer p.c.mu.Unlock()
		if p.rest > 0 && p.at == nil { // it was being given back while the others were closed
			p.at = p.c.idle.PushBack(p)
		}
	}
	return nil
}

func (c *connections) take(ctx context.Context, p *pooled) error {
	for {
		c.mu.Lock()
		if c.open < c.max {
			c.open++
			p.open++
			c.mu.Unlock()
			return nil
		}
		if first := c.idle.Front(); first != nil {
			v := first.Value.(*pooled)
			v.unlist()
			c.mu.Unlock()
			v.drain()
			continue
		}
		if p.open > p.rest || p.nested > 0 {
			c.open++
			c.beyond++
			p.open++
			c.mu.Unlock()
			return nil
		}
		w := &connWaiter{p, make(chan struct{})}
		at := c.queue.PushBack(w)
		c.mu.Unlock()
		select {
		case <-w.got:
			return nil
		case <-ctx.Done():
		}
		c.mu.Lock()
		select {
		case <-w.got:
			p.dropLocked(false)
		default:
			c.queue.Remove(at)
		}
		c.mu.Unlock()
		return fmt.Errorf("all %d connections of the registry are in use (RegistryOptions.MaxConns): %w", c.max, ctx.Err())
	}
}

// drain closes the idle connections, and those that come back before the next one is opened.
func (p *pooled) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dry = true
	p.pool.SetMaxIdleConns(-1)
}

// +checklocks:p.c.mu
func (p *pooled) unlist() {
	if p.at != nil {
		p.c.idle.Remove(p.at)
		p.at = nil
	}
}

// back: a connection is given back to the pool. false: it is to be closed.
func (p *pooled) back() (keep bool) {
	c := p.c
	c.mu.Lock()
	defer c.mu.Unlock()
	p.rest++
	if c.queue.Len() > 0 || c.open > c.max {
		return false
	}
	p.unlist()
	p.at = c.idle.PushBack(p)
	return true
}

// again: an idle connection is used.
func (p *pooled) again() {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.awake()
}

// +checklocks:p.c.mu
func (p *pooled) awake() {
	if p.rest--; p.rest == 0 {
		p.unlist()
	}
}

// gone: a connection is closed, or was not opened after all. resting: it had been given back.
func (p *pooled) gone(resting bool) {
	if p == nil {
		return
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.dropLocked(resting)
}

// +checklocks:p.c.mu
func (p *pooled) dropLocked(resting bool) {
	c := p.c
	p.open--
	if resting {
		p.awake()
	}
	next := c.queue.Front()
	if next == nil || c.open > c.max {
		c.open--
		return
	}
	w := next.Value.(*connWaiter)
	c.queue.Remove(next)
	w.p.open++
	close(w.got)
}

// nest counts, by more, a use that is within others for each of their databases.
func (c *connections) nest(more int, ps ...*pooled) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range ps {
		p.nested += more
	}
}
