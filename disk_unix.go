//go:build unix

package tonbo

import (
	"errors"
	"syscall"
)

// isDiskFull tells that the local disk, a quota on it or a limit of the process has no room.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}
