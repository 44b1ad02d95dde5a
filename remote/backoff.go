package remote

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"time"
)

// Backoff paces the tries of one request: 50 ms, doubling to 2 s, with up to a quarter of jitter, or longer when the store
// asked for it (Error.RetryAfter). The zero value is ready. It is for one goroutine.
type Backoff struct {
	next time.Duration
}

const (
	backoffMin = 50 * time.Millisecond
	backoffMax = 2 * time.Second
)

// Wait waits before the next try after err. It returns nil, or ctx's error as soon as ctx ends.
func (b *Backoff) Wait(ctx context.Context, err error) error {
	if b.next == 0 {
		b.next = backoffMin
	}
	d := b.next - jitter(b.next/4)
	b.next = min(2*b.next, backoffMax)
	var e *Error
	if errors.As(err, &e) {
		d = max(d, e.RetryAfter)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// jitter is a random share of d. The randomness is crypto/rand's, like that of nonces: a test that sets it (testing/cryptotest) has its waits repeat too.
func jitter(d time.Duration) time.Duration {
	var r [8]byte
	rand.Read(r[:])
	return time.Duration(binary.LittleEndian.Uint64(r[:]) % uint64(d))
}
