package server

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/tonbo-go/tonbo/internal/share"
)

// patience is how long a request waits for a slot.
const patience = 5 * time.Second

// slot waits for a slot and returns what gives it back. Slots bound the requests that need much memory, disk or time at once: queries, exports, checkpoints, the usage of the account.
func (s *Server) slot(c *call) (release func(), err error) {
	h, err := s.slots.Acquire(c.ctx, c.key.ID, 1, patience)
	if errors.Is(err, share.ErrFull) {
		return nil, unavailable("overloaded", "the server is at work on as many queries, exports and checkpoints as it may, or as one key may have", patience)
	}
	if err != nil {
		return nil, err
	}
	return h.Release, nil
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
