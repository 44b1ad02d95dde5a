//go:build unix

package main

import (
	"syscall"
	"time"
)

// processor is the time that this process has spent on the processors: the proxy's and the server's share are not in it, since they are processes of their own. Unlike the time by the clock it depends
// little on what else the machine does.
func processor() time.Duration {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
