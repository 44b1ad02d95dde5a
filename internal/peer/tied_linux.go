package peer

import (
	"os/exec"
	"syscall"
)

// startTied starts cmd so that it dies with the calling thread. stop ends it.
func startTied(cmd *exec.Cmd) (stop func(), err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() { _ = cmd.Process.Kill() }, nil // an error: it has ended already
}
