package dir

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func renameExclusive(temp, file string) error {
	err := unix.RenamexNp(temp, file, unix.RENAME_EXCL)
	switch err {
	case nil:
		return nil
	case unix.EINVAL, unix.ENOSYS, unix.ENOTSUP:
		return fmt.Errorf("%s: %w (%w)", file, errNoExclusive, err)
	}
	return &os.LinkError{Op: "rename", Old: temp, New: file, Err: err}
}
