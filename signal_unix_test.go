//go:build unix

package tonbo_test

import (
	"os"
	"syscall"
)

// suspend stops a process; false: it cannot be.
func suspend(p *os.Process) bool { return p.Signal(syscall.SIGSTOP) == nil }

func resume(p *os.Process) { p.Signal(syscall.SIGCONT) }
