// Command agentrun shows a run's database surviving its machine.
//
//	go run ./examples/agentrun                                      a remote in a temporary directory
//	go run ./examples/agentrun --url 's3://bucket/prefix?region=…'  the same in a bucket
//
// An orchestrator (orchestrator.go) creates a database and starts sandboxes: child processes with an environment and a directory of their own. A sandbox
// (sandbox.go) works as an agent does, step by step: it reads one package of the standard library's source, writes its exported API and doc
// comments into the database, records the step in the same transaction, and calls Synced. The orchestrator kills the first sandbox and deletes its
// directory; the second goes on after the last acknowledged step; the third takes over while the second still runs, and the second is refused.
// At the end it is checked that no acknowledged step is missing and none was done twice.
//
// Read sandbox.go first: it is what a program that uses tonbo looks like. With --url the database stays in the remote; nothing else stays.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/tonbo-go/tonbo/examples/internal/show"
)

// Exit codes, of the orchestrator and of a sandbox.
const (
	exitFailed = show.ExitFailed
	exitUsage  = show.ExitUsage
	exitFenced = 5
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is main with everything that it touches as arguments. The first argument "sandbox" makes this process a sandbox.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "sandbox" {
		return sandboxMain(args[1:], stdin, stdout, stderr)
	}
	var o orchestratorOptions
	flags := flag.NewFlagSet("agentrun", flag.ContinueOnError)
	flags.StringVar(&o.url, "url", "", "remote: s3://bucket/prefix or file:///dir (default: a temporary directory, removed at the end)")
	flags.StringVar(&o.name, "name", "", "name of the new database (default agentrun-<time>)")
	flags.StringVar(&o.goroot, "goroot", "", "Go installation whose src is read (default: this one's)")
	flags.IntVar(&o.packages, "packages", 0, "read only the first n packages, at least 6 (default: all)")
	flags.StringVar(&o.search, "search", "context canceled", "full-text search at the end, in FTS5's syntax")
	// ^C ends the context; the orchestrator then stops its sandboxes and removes its directories.
	return show.Main(flags, args, stdout, stderr, func(ctx context.Context, out *show.Show) error {
		if o.packages != 0 && o.packages < 6 {
			return fmt.Errorf("--packages %d: want at least 6, so that a sandbox can be killed midway, or 0 for all", o.packages)
		}
		return orchestrate(ctx, o, out)
	})
}
