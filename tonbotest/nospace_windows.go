package tonbotest

import "syscall"

const noSpace = syscall.Errno(112) // ERROR_DISK_FULL
