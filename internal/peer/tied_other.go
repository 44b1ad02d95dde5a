//go:build !linux

package peer

import "os/exec"

// startTied starts cmd below a shell that ends it when its standard input closes: when this process closes it, or dies.
func startTied(cmd *exec.Cmd) (stop func(), err error) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		return nil, err
	}
	script := `"$@" </dev/null & p=$!; cat >/dev/null; kill -9 $p; wait $p`
	cmd.Args = append([]string{"sh", "-c", script, "sh"}, cmd.Args...)
	cmd.Path = sh
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() { _ = in.Close() }, nil
}
