package blockcache

// setLock is the open file description lock (F_OFD_SETLK of <sys/fcntl.h>): of the open file, not of the process.
const setLock = 90
