// Command bench runs the benchmarks beside tonbo's peers, which are in the module bench/peers: its arguments are theirs.
//
//	go run ./bench -list
//
// The peers' module is built into a temporary directory, and run where this command was called.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		code = 1
	}
	os.Exit(code)
}

func run(args []string) (code int, err error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return 0, fmt.Errorf("find the module (run it in a clone of tonbo): %w", err)
	}
	dir := filepath.Join(strings.TrimSpace(string(root)), "bench", "peers")
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		return 0, fmt.Errorf("run it in a clone of tonbo: %w", err)
	}
	tmp, err := os.MkdirTemp("", "tonbo-bench-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	bin := filepath.Join(tmp, "bench.exe")
	if err := attached(exec.Command("go", "-C", dir, "build", "-o", bin, ".")).Run(); err != nil {
		return 0, fmt.Errorf("build %s: %w", dir, err)
	}
	signal.Notify(make(chan os.Signal, 1), os.Interrupt) // the benchmarks get it too, and tidy up
	var failed *exec.ExitError
	if err := attached(exec.Command(bin, args...)).Run(); errors.As(err, &failed) {
		return failed.ExitCode(), nil
	} else if err != nil {
		return 0, err
	}
	return 0, nil
}

func attached(c *exec.Cmd) *exec.Cmd {
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	return c
}
