//go:build unix

package tonbo

import (
	"os"
	"os/signal"
	"syscall"
)

// stopProcess stops this process. The caller goes no further before it is continued, although other threads may for a moment.
func stopProcess(p *os.Process) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGCONT)
	defer signal.Stop(c)
	p.Signal(syscall.SIGSTOP)
	<-c
}
