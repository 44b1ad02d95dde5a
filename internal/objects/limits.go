package objects

import (
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/tonbo-go/tonbo/internal/objectwire"
)

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
