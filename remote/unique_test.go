package remote_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

const segment = "db/x/seg/1-abc"

func TestUniqueObjectIsStoredWhateverHappensToTheTries(t *testing.T) {
	for name, faults := range map[string]func(*tonbotest.Store){
		"nothing":             func(*tonbotest.Store) {},
		"lost":                func(s *tonbotest.Store) { s.Lose(tonbotest.Match{}, 2) },
		"answer dropped":      func(s *tonbotest.Store) { s.DropAnswer(tonbotest.Match{}, 1) },
		"dropped, then lost":  func(s *tonbotest.Store) { s.DropAnswer(tonbotest.Match{}, 1); s.Lose(tonbotest.Match{}, 1) },
		"held":                func(s *tonbotest.Store) { s.Hold(tonbotest.Match{}, 1) },
		"earlier call's":      func(s *tonbotest.Store) { s.Create(context.Background(), segment, []byte("body")) },
		"throttled for a bit": func(s *tonbotest.Store) { s.Fail(tonbotest.Match{}, 2, remote.ErrUnknown) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := mem.New("account")
				s := tonbotest.NewStore(inner)
				faults(s)
				if err := remote.CreateUnique(t.Context(), s, segment, []byte("body")); err != nil {
					t.Fatal(err)
				}
				if o, err := inner.Get(t.Context(), segment, remote.GetOptions{}); err != nil || string(o.Body) != "body" {
					t.Errorf("%q, %v", o.Body, err)
				}
			})
		})
	}
}

func TestAnotherObjectInTheUniquePlaceIsAnError(t *testing.T) {
	s := mem.New("account")
	if _, err := s.Create(t.Context(), segment, []byte("other")); err != nil {
		t.Fatal(err)
	}
	if err := remote.CreateUnique(t.Context(), s, segment, []byte("body")); !errors.Is(err, remote.ErrExists) {
		t.Errorf("got %v", err)
	}
}

func TestDefiniteRefusalIsNotRepeated(t *testing.T) {
	for _, kind := range []error{remote.ErrDenied, remote.ErrUnauthorized, remote.ErrQuota, remote.ErrUnfit, remote.ErrNoBucket} {
		s := tonbotest.NewStore(mem.New("account"))
		s.Fail(tonbotest.Match{}, -1, kind)
		if err := remote.CreateUnique(t.Context(), s, segment, nil); !errors.Is(err, kind) || len(s.Calls()) != 1 {
			t.Errorf("got %v after %d calls", err, len(s.Calls()))
		}
	}
}

func TestTriesAreSpacedAndHonourRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tonbotest.NewStore(mem.New("account"))
		s.Fail(tonbotest.Match{}, 1, &remote.Error{Op: "create", Kind: remote.ErrUnknown, Status: 429, RetryAfter: 7 * time.Second})
		start := time.Now()
		if err := remote.CreateUnique(t.Context(), s, segment, nil); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != 7*time.Second {
			t.Errorf("tried again after %v, asked for 7s", d)
		}

		s.Partition(true)
		s.ResetCalls()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := remote.CreateUnique(ctx, s, segment+"2", nil)
		if !errors.Is(err, remote.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if n := len(s.Calls()); n < 30 || n > 50 { // 50 ms doubling to 2 s
			t.Errorf("%d tries in a minute", n)
		}
	})
}
