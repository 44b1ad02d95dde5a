//go:build unix

package main

import (
	"os"
	"syscall"
)

// stopSignals are those by which a process is told to stop.
var stopSignals = []os.Signal{syscall.SIGTERM, os.Interrupt}
