//go:build unix

package tonbo

import (
	"os"
	"syscall"
)

func stopProcess(p *os.Process) { p.Signal(syscall.SIGSTOP) }
