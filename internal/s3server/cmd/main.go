// Command cmd runs the S3 server for tests. Without arguments it prints the environment to use and serves until interrupted;
// with some it runs them as a command in that environment, and ends with it. Start it as scripts/s3server.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/tonbo-go/tonbo/internal/s3server"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "s3server:", err)
	}
	os.Exit(code)
}

func run(args []string) (int, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := s3server.Run(ctx)
	if err != nil {
		return 1, err
	}
	defer s.Stop()
	env := append(s.Env(), "TONBO_TEST_S3="+s.Endpoint+"/"+s.Bucket)
	if len(args) == 0 {
		for _, v := range env {
			fmt.Println("export", v)
		}
		fmt.Fprintln(os.Stderr, "s3server: runs until interrupted")
		<-ctx.Done()
		return 0, nil
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}
