package blockcache

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockRange takes a lock on bytes of the open file f without waiting: false when another open file has one of them, in this process or another. The system lets go of
// it when the file is closed, also by the death of the process.
func lockRange(f *os.File, at, n int64) (bool, error) {
	o := windows.Overlapped{Offset: uint32(at), OffsetHigh: uint32(at >> 32)}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, uint32(n), 0, &o)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION), errors.Is(err, windows.ERROR_IO_PENDING):
		return false, nil
	}
	return false, err
}
