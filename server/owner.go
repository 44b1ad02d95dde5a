package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tonbo-go/tonbo/server/internal/access"
)

// ErrHasOwner is an account that has its first owner key already.
var ErrHasOwner = access.ErrHasOwner

// MakeOwner makes the account's first owner key, and returns its secret: the only time that anybody sees it. [ErrHasOwner] when it was made before and is not revoked. Servers that do it at once make one.
func (s *Server) MakeOwner(ctx context.Context) (secret string, err error) {
	return s.keys.MakeOwner(ctx)
}

// OwnerFile makes the secret in a file that of the account's first owner key, so that several servers can be started with one file. create: a file that is not there is made first, with a new secret, for nobody but its owner to read.
// [ErrHasOwner]: the account has another one, or this one was rotated.
func (s *Server) OwnerFile(ctx context.Context, path string, create bool) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && create {
		b = []byte(access.NewOwnerSecret() + "\n")
		if err = writeNew(path, b); errors.Is(err, fs.ErrExist) { // another one was faster
			b, err = os.ReadFile(path)
		}
	}
	if err != nil {
		return fmt.Errorf("owner key: %w", err)
	}
	if err := s.keys.RegisterOwner(ctx, strings.TrimSpace(string(b))); err != nil {
		return fmt.Errorf("owner key in %s: %w", path, err)
	}
	return nil
}

// writeNew makes a file that was not there, whole: whoever reads it beside us reads all of it.
func writeNew(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tonbo-key-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), path)
}
