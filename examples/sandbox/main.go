// Command sandbox shows that a sandbox needs to hold nothing worth stealing: one URL and one key, that reaches its run's database and dies with it.
//
//	go run ./examples/sandbox                                      a remote in a temporary directory
//	go run ./examples/sandbox --url 's3://bucket/prefix?region=…'  the same in a bucket
//	go run ./examples/sandbox --netns                              sandboxes that have no network at all, but for the socket (Linux)
//
// The orchestrator (orchestrator.go) holds the account: it serves it on a unix socket, as tonbo serve does, creates the run's database, and makes a key that is narrowed to it. The sandboxes (sandbox.go) are child processes with a directory
// and three variables: TONBO_URL with the socket, TONBO_API_KEY, TONBO_DIR; no credentials of the bucket, and another home. The first one is killed after some steps, the second goes on where it was. Then a thief has the key, and tries what it can.
// At last the run is deleted, and the key with it.
//
// Read sandbox.go first: a program in a sandbox is written like any other.
package main

import (
	"context"
	"flag"
	"io"
	"os"

	"github.com/tonbo-go/tonbo/examples/internal/show"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is main with everything that it touches as arguments. The first argument "work" or "steal" makes this process a sandbox.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 2 && (args[0] == "work" || args[0] == "steal") {
		return sandboxMain(args[0], args[1], stdin, stdout, stderr)
	}
	var url, name string
	var netns bool
	flags := flag.NewFlagSet("sandbox", flag.ContinueOnError)
	flags.StringVar(&url, "url", "", "remote: s3://bucket/prefix or file:///dir (default: a temporary directory, removed at the end)")
	flags.StringVar(&name, "name", "", "name of the run's new database (default run-<time>)")
	flags.BoolVar(&netns, "netns", false, "each sandbox in a network namespace of its own, without any network (Linux)")
	return show.Main(flags, args, stdout, stderr, func(ctx context.Context, out *show.Show) error { return orchestrate(ctx, url, name, netns, out) })
}
