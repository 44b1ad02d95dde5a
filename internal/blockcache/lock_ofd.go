//go:build linux || darwin

package blockcache

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// lockRange takes a lock on bytes of the open file f without waiting: false when another open file has one of them, in this process or another. The kernel lets go of
// it when the file is closed, also by the death of the process.
func lockRange(f *os.File, at, n int64) (bool, error) {
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: at, Len: n}
	for {
		err := unix.FcntlFlock(f.Fd(), setLock, &l)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
			return false, nil
		}
		return false, err
	}
}
