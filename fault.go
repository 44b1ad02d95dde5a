package tonbo

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// fault is a failpoint, named after the protocol's step. In a test's child process $TONBO_FAULT=<name> kills the process there, as kill -9 would;
// <name>#<n> does so when it comes there for the n-th time; <name>@stop says so on standard error and stops it until it is continued; "?" names each point on standard error. Elsewhere the name
// is compared with an empty string.
func fault(point string) {
	if faultPoint != "" {
		hit(point)
	}
}

var (
	faultPoint = os.Getenv("TONBO_FAULT")
	faultHits  atomic.Int64
)

func hit(point string) {
	if faultPoint == "?" {
		fmt.Fprintln(os.Stderr, "failpoint", point)
		return
	}
	name, how, _ := strings.Cut(faultPoint, "@")
	name, nth, _ := strings.Cut(name, "#")
	if name != point {
		return
	}
	n, err := strconv.ParseInt(nth, 10, 64)
	if err != nil {
		n = 1
	}
	if faultHits.Add(1) != n {
		return
	}
	p, err := os.FindProcess(os.Getpid())
	if err != nil {
		return
	}
	if how == "stop" {
		fmt.Fprintln(os.Stderr, "stopped at", point)
		stopProcess(p)
		return
	}
	p.Signal(syscall.SIGKILL)
	select {}
}

// cacheFault makes the steps of the cache directory failpoints as well.
var cacheFault = func() func(string) error {
	if faultPoint == "" {
		return nil
	}
	return func(step string) error { fault(step); return nil }
}()

// vfsFault does so for those of the VFS.
var vfsFault = func() func(string) {
	if faultPoint == "" {
		return nil
	}
	return fault
}()
