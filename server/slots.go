package server

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// slots bound the requests that need much memory, disk or time at once: queries, exports, checkpoints, the usage of the account. One key has at most half of them, so that a sandbox does not take them from all others.
type slots struct {
	n int

	mu      sync.Mutex
	taken   int
	by      map[string]int // key's id
	changed chan struct{}  // closed and renewed when a slot is given back
}

func newSlots(n int) *slots {
	return &slots{n: n, by: map[string]int{}, changed: make(chan struct{})}
}

// patience is how long a request waits for a slot.
const patience = 5 * time.Second

// take waits for a slot and returns what gives it back.
func (s *slots) take(ctx context.Context, key string) (release func(), err error) {
	t := time.NewTimer(patience)
	defer t.Stop()
	for {
		s.mu.Lock()
		if s.taken < s.n && s.by[key] < (s.n+1)/2 {
			s.taken++
			s.by[key]++
			s.mu.Unlock()
			return func() { s.release(key) }, nil
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-t.C:
			return nil, unavailable("overloaded", "the server is at work on as many queries, exports and checkpoints as it may, or as one key may have", patience)
		}
	}
}

func (s *slots) release(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	if s.by[key]--; s.by[key] == 0 {
		delete(s.by, key)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// crowd counts the requests of narrowed keys on the control plane that are under way. Each costs requests to the store for up to Options.Timeout, so without a bound a stolen key collects as many as it has connections.
type crowd struct {
	mu sync.Mutex
	by map[string]int // key's id
}

// maxUnderWay is how many one narrowed key has at once.
const maxUnderWay = 256

// enter counts one more, if there is room; leave counts it off.
func (c *crowd) enter(key string) (leave func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by[key] >= maxUnderWay {
		return nil, &problem{Status: http.StatusTooManyRequests, Code: "too_many_requests", Detail: "the key has as many requests under way as it may", RetryAfter: time.Second}
	}
	if c.by == nil {
		c.by = map[string]int{}
	}
	c.by[key]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.by[key]--; c.by[key] == 0 {
			delete(c.by, key)
		}
	}, nil
}
