//go:build unix

package dir

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// publish gives the temporary file its name if nobody has it: link(2) is exclusive on every file system that has it. The
// temporary name may stay.
func publish(temp, file string) error {
	err := os.Link(temp, file)
	if noLinks(err) {
		return renameExclusive(temp, file)
	}
	return err
}

// noLinks tells that a file system has no hard links. Some say so by EPERM.
func noLinks(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS)
}

func replace(temp, file string) error { return os.Rename(temp, file) }

func syncFolder(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	err = f.Sync()
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

func tryLock(f *os.File) (bool, error) {
	for {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err {
		case nil:
			return true, nil
		case syscall.EINTR:
		case syscall.EWOULDBLOCK:
			return false, nil
		default:
			return false, &os.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
	}
}

func isFull(err error) bool      { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
func isReadOnly(err error) bool  { return errors.Is(err, unix.EROFS) }
func isNotFolder(err error) bool { return errors.Is(err, unix.ENOTDIR) }
func isBusy(error) bool          { return false }

// isUnfit tells that the file system can do neither exclusive publication, or that the store spans two file systems.
func isUnfit(err error) bool { return errors.Is(err, errNoExclusive) || errors.Is(err, unix.EXDEV) }

var errNoExclusive = errors.New("the file system has neither hard links nor an exclusive rename: use a directory on another one")
