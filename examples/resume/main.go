// Command resume shows an agent that is killed at random and does each step exactly once all the same.
//
//	go run ./examples/resume                                      a remote in a temporary directory
//	go run ./examples/resume --url 's3://bucket/prefix?region=…'  the same in a bucket
//
// The agent (agent.go) reads the standard library's packages, one a step. Each step is a [tonbo.DB.Step]: what it writes and its result are one transaction, acknowledged by the remote. The supervisor
// (supervisor.go) starts the agent, kills it at a random moment, and starts it again, in turns on the same machine and on a new one that has nothing. The agent keeps no notes: it asks for all steps from the first one on,
// and those that were taken return their recorded result. At the end it is checked that each step took effect once, and that no result that was acknowledged has changed.
//
// Read agent.go first. With --url the database stays in the remote.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/tonbo-go/tonbo/examples/internal/show"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is main with everything that it touches as arguments. The first argument "agent" makes this process an agent.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "agent" {
		return agentMain(args[1:], stdin, stdout, stderr)
	}
	var o options
	flags := flag.NewFlagSet("resume", flag.ContinueOnError)
	flags.StringVar(&o.url, "url", "", "remote: s3://bucket/prefix or file:///dir (default: a temporary directory, removed at the end)")
	flags.StringVar(&o.name, "name", "", "name of the new database (default resume-<time>)")
	flags.StringVar(&o.goroot, "goroot", "", "Go installation whose src is read (default: this one's)")
	flags.IntVar(&o.packages, "packages", 60, "read the first n packages; 0: all")
	flags.IntVar(&o.kills, "kills", 8, "how often the agent is killed, at most")
	return show.Main(flags, args, stdout, stderr, func(ctx context.Context, out *show.Show) error {
		if o.packages < 0 || o.kills < 0 {
			return fmt.Errorf("--packages %d --kills %d: want no negative number", o.packages, o.kills)
		}
		return supervise(ctx, o, out)
	})
}
