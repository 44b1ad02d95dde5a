package s3

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tonbo-go/tonbo/remote"
)

// retry decides whether a request that may be repeated (never Create or Swap) is sent again.
type retry struct {
	s         *Store
	backoff   remote.Backoff
	tries     int // failed ones since the last progress
	refreshed bool
}

// maxRetryAfter is the longest wait that a store can ask us for: beyond it the caller is told.
const maxRetryAfter = time.Minute

// again waits and returns nil when the request is to be sent again, else the error for the caller.
func (t *retry) again(ctx context.Context, f *failure) error {
	t.tries++
	if f.expired && !t.refreshed && ctx.Err() == nil {
		t.refreshed = true
		t.s.creds.refused(ctx, f.used)
		return nil
	}
	if !errors.Is(f.Kind, remote.ErrUnknown) || ctx.Err() != nil {
		return f.Error
	}
	deadline, bounded := ctx.Deadline()
	if t.tries >= t.s.o.Tries || f.RetryAfter > maxRetryAfter || bounded && time.Until(deadline) <= f.RetryAfter {
		if t.tries > 1 {
			f.Err = fmt.Errorf("gave up after %d tries: %w", t.tries, f.Err)
		}
		return f.Error
	}
	t.s.log.DebugContext(ctx, "s3: try again", "err", f.Error, "tries", t.tries)
	if err := t.backoff.Wait(ctx, f.Error); err != nil {
		f.Err = fmt.Errorf("%w after %d tries, last: %w", context.Cause(ctx), t.tries, f.Err)
		return f.Error
	}
	return nil
}

// progress starts the count of tries anew.
func (t *retry) progress() { t.tries, t.backoff = 0, remote.Backoff{} }

// until sends r until ok is nil for its answer.
func (s *Store) until(ctx context.Context, r request, ok func(answer) *failure) error {
	t := retry{s: s}
	for {
		f := s.once(ctx, r, ok)
		if f == nil {
			return nil
		}
		if err := t.again(ctx, f); err != nil {
			return err
		}
	}
}

// once sends r once.
func (s *Store) once(ctx context.Context, r request, ok func(answer) *failure) *failure {
	a, e := s.send(ctx, r)
	if e != nil {
		return s.failed(r, e)
	}
	return ok(a)
}
