// Command tonbo works on the databases of an account from a shell: straight on a bucket or a directory, without a server.
//
//	export TONBO_URL='s3://my-bucket/agents?region=eu-central-1'
//	tonbo database create run-42 --ttl 1h --metadata task=42
//	tonbo log run-42
//	tonbo query run-42@step-7 "select count(*) from steps"
//	tonbo diff run-42@step-6 run-42@step-7
//	tonbo janitor --every 15m
//
// It is a thin layer over package tonbo: each command is a call or two of it. Only the answer is written to stdout, as a table or text for people, or with --json as one JSON document, or one on each line for lists; all else goes to
// stderr. docs/cli.md describes commands, fields and exit codes.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second ^C ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, isTerminal))
}

// run is main with everything that it touches as arguments: it returns the exit code. terminal tells whether one of the streams is a terminal.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, terminal func(stream any) bool) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, terminal: terminal}
	root := a.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	a.progress.clear()
	if err == nil {
		return exitOK
	}
	if !a.running { // flags and arguments are checked before a command runs
		err = &usageError{err: err, command: cmd.CommandPath()}
	}
	return a.fail(ctx, err, args)
}
