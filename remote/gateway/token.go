package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// tokens keeps what Options.Token said last.
type tokens struct {
	ask func(context.Context) (string, error)

	fixed bool // asking again is of no use

	mu      sync.Mutex
	current string
	renewed bool          // current was asked for after a refusal, and has not been accepted yet
	asking  chan struct{} // closed when the one who asks has been answered; nil: nobody asks
}

// get returns the token to send.
func (t *tokens) get(ctx context.Context) (string, error) {
	for {
		t.mu.Lock()
		if t.current != "" {
			defer t.mu.Unlock()
			return t.current, nil
		}
		asking := t.asking
		if asking == nil {
			asking = make(chan struct{})
			t.asking = asking
			t.mu.Unlock()
			token, err := t.answer(ctx)
			t.mu.Lock()
			t.current, t.asking = token, nil
			t.mu.Unlock()
			close(asking)
			return token, err
		}
		t.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

func (t *tokens) answer(ctx context.Context) (string, error) {
	token, err := t.ask(ctx)
	if err != nil {
		return "", fmt.Errorf("ask for the token: %w", err)
	}
	if err := checkToken(token); err != nil {
		return "", err
	}
	return token, nil
}

// refused forgets a token that the server has refused. It tells whether another one may be taken: not when this one was asked for because of a refusal.
func (t *tokens) refused(token string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fixed {
		return false
	}
	if t.current != token {
		return true
	}
	t.current = ""
	again := !t.renewed
	t.renewed = true
	return again
}

// accepted notes that the server has taken a token.
func (t *tokens) accepted(token string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current == token {
		t.renewed = false
	}
}

// checkToken refuses what would break the header. It says nothing of what is in it.
func checkToken(token string) error {
	if token == "" {
		return errors.New("no API key: set TONBO_API_KEY or Options.APIKey")
	}
	for _, c := range []byte(token) {
		if c <= ' ' || c >= 0x7f {
			return errors.New("the API key holds a byte that no key has (a space or line break behind it?)")
		}
	}
	return nil
}
