package dir

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// publish gives the temporary file its name if nobody has it, and has the rename written through to the disk.
func publish(temp, file string) error { return move(temp, file, windows.MOVEFILE_WRITE_THROUGH) }

func replace(temp, file string) error {
	return move(temp, file, windows.MOVEFILE_WRITE_THROUGH|windows.MOVEFILE_REPLACE_EXISTING)
}

func move(temp, file string, flags uint32) error {
	from, err := windows.UTF16PtrFromString(temp)
	if err != nil {
		return err
	}
	to, err := windows.UTF16PtrFromString(file)
	if err != nil {
		return err
	}
	if err := windows.MoveFileEx(from, to, flags); err != nil {
		return &os.LinkError{Op: "move", Old: temp, New: file, Err: err}
	}
	return nil
}

// syncFolder does nothing: Windows flushes no folders. NTFS journals names in order, and a rename that is written through comes
// after the folders that it needs.
func syncFolder(string) error { return nil }

func tryLock(f *os.File) (bool, error) {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, new(windows.Overlapped))
	switch err {
	case nil:
		return true, nil
	case windows.ERROR_LOCK_VIOLATION, windows.ERROR_IO_PENDING:
		return false, nil
	}
	return false, &os.PathError{Op: "lock", Path: f.Name(), Err: err}
}

func isFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) ||
		errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED)
}
func isReadOnly(err error) bool  { return errors.Is(err, windows.ERROR_WRITE_PROTECT) }
func isNotFolder(err error) bool { return errors.Is(err, windows.ERROR_DIRECTORY) }
func isBusy(err error) bool {
	return errors.Is(err, windows.ERROR_SHARING_VIOLATION) || errors.Is(err, windows.ERROR_ACCESS_DENIED)
}

// isUnfit tells that the store spans two volumes.
func isUnfit(err error) bool { return errors.Is(err, windows.ERROR_NOT_SAME_DEVICE) }
