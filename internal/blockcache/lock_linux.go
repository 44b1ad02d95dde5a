package blockcache

import "golang.org/x/sys/unix"

// setLock is the open file description lock: of the open file, not of the process.
const setLock = unix.F_OFD_SETLK
