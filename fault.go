package tonbo

import (
	"os"
	"strings"
	"syscall"
)

// fault is a failpoint, named after the protocol's step. In a test's child process $TONBO_FAULT=<name> kills the process there, as kill -9 would;
// <name>@stop stops it until it is continued. Elsewhere the name is compared with an empty string.
func fault(point string) {
	if faultPoint != "" {
		hit(point)
	}
}

var faultPoint = os.Getenv("TONBO_FAULT")

func hit(point string) {
	name, how, _ := strings.Cut(faultPoint, "@")
	if name != point {
		return
	}
	p, err := os.FindProcess(os.Getpid())
	if err != nil {
		return
	}
	if how == "stop" {
		stopProcess(p)
		return
	}
	p.Signal(syscall.SIGKILL)
	select {}
}

// cacheFault makes the cache directory's steps failpoints as well.
var cacheFault = func() func(string) error {
	if faultPoint == "" {
		return nil
	}
	return func(step string) error { fault(step); return nil }
}()
