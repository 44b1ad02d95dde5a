package server

import (
	"context"
	"time"
	"unicode"
	"unicode/utf8"
)

// slots bound the requests that need much memory or disk at once: queries, exports, checkpoints.
type slots chan struct{}

// patience is how long a request waits for a slot.
const patience = 5 * time.Second

// take waits for a slot and returns what gives it back.
func (s slots) take(ctx context.Context) (release func(), err error) {
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-t.C:
		return nil, unavailable("overloaded", "the server is at work on as many queries, exports and checkpoints as it may", patience)
	}
}

func printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
