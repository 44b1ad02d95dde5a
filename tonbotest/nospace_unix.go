//go:build unix

package tonbotest

import "syscall"

const noSpace = syscall.ENOSPC
