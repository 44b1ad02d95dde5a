package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// CreateUnique creates an object whose key only this caller can ever write (a segment, a base, a pin: the key carries a
// nonce), and repeats an unknown outcome until it is known or ctx ends.
//
// The key being the caller's own is what makes a repeat safe: found taken after an unknown try, it was that try which took
// it. Taken at the very first try, the object is read back: the same body is success (an earlier call's), another one is
// [ErrExists]. A definite refusal is returned at once. When ctx ends first, the error is [ErrUnknown] and ctx's, and the
// object may be stored at any time later.
//
// Never use it for a log slot: there a taken slot means to read it.
func CreateUnique(ctx context.Context, s Store, key string, body []byte) error {
	var b Backoff
	for try := 0; ; try++ {
		_, err := s.Create(ctx, key, body)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrExists) && try > 0:
			return nil
		case errors.Is(err, ErrExists):
			return sameBody(ctx, s, key, body, err)
		case !errors.Is(err, ErrUnknown):
			return err
		}
		if ctxErr := b.Wait(ctx, err); ctxErr != nil {
			return &Error{Op: "create", Store: s.String(), Key: key, Kind: ErrUnknown,
				Err: fmt.Errorf("gave up after %d tries: %w, last: %w", try+1, ctxErr, err)}
		}
	}
}

func sameBody(ctx context.Context, s Store, key string, body []byte, exists error) error {
	o, err := s.Get(ctx, key, GetOptions{})
	if err != nil {
		return fmt.Errorf("read back the object in the way: %w (%w)", err, exists)
	}
	if !bytes.Equal(o.Body, body) {
		return fmt.Errorf("another object is in the place of one with a unique key: %w", exists)
	}
	return nil
}
