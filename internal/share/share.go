// Package share bounds what a server gives out at once, bytes of memory or places for work, over all and for each key.
package share

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Pool is so much of something. One key has at most half of it, rounded up, so that no key keeps the others out. Safe for concurrent use.
type Pool struct {
	size int64

	mu      sync.Mutex
	used    int64
	by      map[string]int64
	changed chan struct{} // closed and renewed when there is more room
}

// New returns a pool of that size.
func New(size int64) *Pool {
	return &Pool{size: size, by: map[string]int64{}, changed: make(chan struct{})}
}

// ErrFull is no room for as long as was waited.
var ErrFull = errors.New("no room")

// Hold is a part of a pool that somebody has. Release it once.
type Hold struct {
	p   *Pool
	key string
	n   int64
}

// Acquire waits until there is room for n more of a key: for at most so long, then [ErrFull], and no longer than ctx.
func (p *Pool) Acquire(ctx context.Context, key string, n int64, wait time.Duration) (*Hold, error) {
	var expired <-chan time.Time
	for {
		p.mu.Lock()
		if p.used+n <= p.size && p.by[key]+n <= p.size-p.size/2 {
			p.used += n
			p.by[key] += n
			p.mu.Unlock()
			return &Hold{p, key, n}, nil
		}
		changed := p.changed
		p.mu.Unlock()
		if expired == nil {
			t := time.NewTimer(wait)
			defer t.Stop()
			expired = t.C
		}
		select {
		case <-changed:
		case <-expired:
			return nil, ErrFull
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Release gives all of it back.
func (h *Hold) Release() { h.Shrink(0) }

// Shrink gives back what is beyond n.
func (h *Hold) Shrink(n int64) {
	p := h.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if n >= h.n {
		return
	}
	p.used -= h.n - n
	if p.by[h.key] -= h.n - n; p.by[h.key] == 0 {
		delete(p.by, h.key)
	}
	h.n = n
	close(p.changed)
	p.changed = make(chan struct{})
}
