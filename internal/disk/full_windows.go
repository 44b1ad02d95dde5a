package disk

import (
	"errors"
	"syscall"
)

// Full tells that the local disk or a quota on it has no room. https://learn.microsoft.com/windows/win32/debug/system-error-codes
func Full(err error) bool {
	const handleDiskFull, diskFull, quotaExceeded = syscall.Errno(39), syscall.Errno(112), syscall.Errno(1295)
	return errors.Is(err, handleDiskFull) || errors.Is(err, diskFull) || errors.Is(err, quotaExceeded)
}
