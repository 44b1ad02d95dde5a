package dir

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// lock takes the store's lock, which excludes every other holder in this process and in others. It ends with the process, and
// is waited for until ctx ends. A holder that is stopped holds up swaps and deletes alone.
func (s *Store) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case s.swapping <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() {
		if err != nil {
			<-s.swapping
		}
	}()
	f, err := s.openLock()
	if err != nil {
		return nil, err
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		got, err := tryLock(f)
		if err == nil && !got {
			err = wait(ctx, pause)
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		if got {
			return func() {
				f.Close() // lets go of it
				<-s.swapping
			}, nil
		}
	}
}

func (s *Store) openLock() (*os.File, error) {
	file := filepath.Join(s.root, hidden, "lock")
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o666)
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.makeHidden(); err != nil {
			return nil, err
		}
		f, err = os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o666)
	}
	return f, err
}
