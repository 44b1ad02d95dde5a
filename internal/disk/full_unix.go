//go:build unix

package disk

import (
	"errors"
	"syscall"
)

// Full tells that the local disk, a quota on it or a limit of the process has no room.
func Full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}
