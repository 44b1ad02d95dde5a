package cache

import (
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/windows"
)

// lockAt is the byte that is locked, far beyond the holder's pid: a locked range cannot be read by others.
const lockAt = 1 << 30

// lockFile takes the lock of the open file f without waiting: false when another open file has it, in this process or another. The
// system lets go of it when the file is closed, also by the death of the process.
func lockFile(f *os.File) (bool, error) {
	at := windows.Overlapped{OffsetHigh: lockAt}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION), errors.Is(err, windows.ERROR_IO_PENDING):
		return false, nil
	}
	return false, &os.PathError{Op: "LockFileEx", Path: f.Name(), Err: err}
}

// unlockFile lets go of it at once.
func unlockFile(f *os.File) error {
	at := windows.Overlapped{OffsetHigh: lockAt}
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, &at)
}

// bootID is the time of this boot in Unix seconds, from the clock and the time since boot.
func bootID() string {
	return strconv.FormatInt(time.Now().Add(-windows.DurationSinceBoot()).Unix(), 10)
}

// sameBoot tells whether two boot ids are of one boot: the clock may have been set by a little in between. A clock set by more is taken for
// a reboot, which costs a rebuild and nothing else.
func sameBoot(a, b string) bool {
	x, err := strconv.ParseInt(a, 10, 64)
	if err != nil {
		return false
	}
	y, err := strconv.ParseInt(b, 10, 64)
	return err == nil && max(x-y, y-x) <= 3
}

// fileIdentity returns what changes when a file is replaced (file index); there is no change time here.
func fileIdentity(path string) (inode, changed uint64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &info); err != nil {
		return 0, 0, &os.PathError{Op: "GetFileInformationByHandle", Path: path, Err: err}
	}
	return uint64(info.FileIndexHigh)<<32 | uint64(info.FileIndexLow), 0, nil
}
