package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/tonbo-go/tonbo/remote"
)

func (s *Store) begin(ctx context.Context, op, key string, check func(string) error) error {
	if err := check(key); err != nil {
		return s.fail(op, key, remote.ErrUnfit, err)
	}
	if err := ctx.Err(); err != nil {
		return s.fail(op, key, remote.ErrUnknown, err)
	}
	return nil
}

func (s *Store) fail(op, key string, kind, cause error) error {
	return &remote.Error{Op: op, Store: s.String(), Key: key, Kind: kind, Err: cause}
}

// error classes what the operating system said about a file of the store.
func (s *Store) error(op, key string, err error) error {
	kind := kindOf(err)
	if kind == remote.ErrNotFound {
		// An unmounted or removed directory must not look like an empty store.
		if e := s.checkRoot(op, key); e != nil {
			return e
		}
		if op == "create" && isNotFolder(err) {
			return s.fail(op, key, remote.ErrUnfit, fmt.Errorf("%w: a folder of it is an object: %w", remote.ErrBadKey, err))
		}
		if op == "create" || op == "swap" {
			kind = remote.ErrUnknown // a file or folder of ours was taken away under our hands
		}
	}
	return s.fail(op, key, kind, err)
}

// checkRoot returns nil when the store's directory is there.
func (s *Store) checkRoot(op, key string) error {
	st, err := os.Stat(s.root)
	switch {
	case err == nil && st.IsDir():
		return nil
	case err == nil:
		err = fmt.Errorf("%s is not a directory", s.root)
	case !isAbsent(err):
		return s.fail(op, key, kindOf(err), err)
	}
	return s.fail(op, key, remote.ErrNoBucket, err)
}

// kindOf is never a definite refusal for an error that leaves the outcome open.
func kindOf(err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return remote.ErrUnknown
	case errors.Is(err, errDamaged):
		return remote.ErrDamaged
	case isUnfit(err):
		return remote.ErrUnfit
	case isFull(err):
		return remote.ErrQuota
	case errors.Is(err, fs.ErrPermission), isReadOnly(err):
		return remote.ErrDenied
	case isAbsent(err):
		return remote.ErrNotFound
	}
	return remote.ErrUnknown
}

func isAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) || isNotFolder(err) }
