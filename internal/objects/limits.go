package objects

import (
	"context"
	"errors"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/tonbo-go/tonbo/internal/objectwire"
)

// budget bounds the bytes of bodies that are in memory. One key holds at most half of it, so that no key can keep the others out.
type budget struct {
	size int64

	mu      sync.Mutex
	used    int64
	by      map[string]int64
	changed chan struct{} // closed and renewed when there is more room
}

func newBudget(size int64) *budget {
	return &budget{size: size, by: map[string]int64{}, changed: make(chan struct{})}
}

var errNoRoom = errors.New("no room in memory")

// hold is a part of the budget. release it once.
type hold struct {
	b   *budget
	key string
	n   int64
}

// acquire waits until there is room for n bytes of a key, for at most so long.
func (b *budget) acquire(ctx context.Context, key string, n int64, wait time.Duration) (*hold, error) {
	var expired <-chan time.Time
	for {
		b.mu.Lock()
		if b.used+n <= b.size && b.by[key]+n <= b.size/2 {
			b.used += n
			b.by[key] += n
			b.mu.Unlock()
			return &hold{b, key, n}, nil
		}
		changed := b.changed
		b.mu.Unlock()
		if expired == nil {
			t := time.NewTimer(wait)
			defer t.Stop()
			expired = t.C
		}
		select {
		case <-changed:
		case <-expired:
			return nil, errNoRoom
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (h *hold) release() { h.shrink(0) }

// shrink gives back what is not needed of it.
func (h *hold) shrink(n int64) {
	b := h.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if n >= h.n {
		return
	}
	b.used -= h.n - n
	if b.by[h.key] -= h.n - n; b.by[h.key] == 0 {
		delete(b.by, h.key)
	}
	h.n = n
	close(b.changed)
	b.changed = make(chan struct{})
}

func busy() *Refusal {
	return &Refusal{Status: http.StatusServiceUnavailable, Code: objectwire.Busy, Detail: "the server has no room for the body at present", RetryAfter: time.Second, Close: true}
}

// limiter bounds how many requests a second one key sends: a bucket of one second's worth for each.
type limiter struct {
	rate float64
	now  func() time.Time

	mu      sync.Mutex
	buckets map[string]*bucket
}

type bucket struct {
	left float64
	at   time.Time
}

func newLimiter(rate float64, now func() time.Time) *limiter {
	return &limiter{rate: rate, now: now, buckets: map[string]*bucket{}}
}

// maxBuckets bounds what is remembered: full ones are forgotten, which they are after a second.
const maxBuckets = 10000

// take tells whether a request of the key may go on, and else how long it should wait.
func (l *limiter) take(key string) (wait time.Duration, ok bool) {
	if l.rate < 0 {
		return 0, true
	}
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buckets[key]
	if b == nil {
		if len(l.buckets) >= maxBuckets {
			for k, b := range l.buckets {
				if now.Sub(b.at) > time.Second {
					delete(l.buckets, k)
				}
			}
		}
		b = &bucket{left: max(1, l.rate), at: now}
		l.buckets[key] = b
	}
	b.left = min(max(1, l.rate), b.left+now.Sub(b.at).Seconds()*l.rate)
	b.at = now
	if b.left < 1 {
		seconds := math.Ceil((1 - b.left) / l.rate)
		return time.Duration(seconds) * time.Second, false
	}
	b.left--
	return 0, true
}
