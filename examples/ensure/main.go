// Command ensure shows a support desk with one database for each customer, and eight processes that answer at once.
//
//	go run ./examples/ensure                                      a remote in a temporary directory
//	go run ./examples/ensure --url 's3://bucket/prefix?region=…'  the same in a bucket
//
// The customers are packages of the standard library, their messages its exported functions, the answers what the documentation says of them. Messages come from a queue that delivers each one to every process, each in its
// own order, as queues do that promise "at least once". A process (desk.go) keeps no table of customers: [tonbo.Instances.Ensure] returns the database of a key, making it for the first who asks, and
// [tonbo.DB.Step] answers a message once for its id. At the end it is checked that each customer has one database, that exactly one process made it, and that each message was answered once, and to all in the same words.
//
// Read desk.go first. With --url the databases stay in the remote.
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

// run is main with everything that it touches as arguments. The first argument "desk" makes this process one of the eight.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "desk" {
		return deskMain(args[1:], stdin, stdout, stderr)
	}
	var o options
	flags := flag.NewFlagSet("ensure", flag.ContinueOnError)
	flags.StringVar(&o.url, "url", "", "remote: s3://bucket/prefix or file:///dir (default: a temporary directory, removed at the end)")
	flags.StringVar(&o.prefix, "prefix", "", "what the customers' keys begin with (default customer-<time>)")
	flags.StringVar(&o.goroot, "goroot", "", "Go installation whose src is read (default: this one's)")
	flags.IntVar(&o.processes, "processes", 8, "processes at once")
	flags.IntVar(&o.customers, "customers", 12, "customers")
	flags.IntVar(&o.messages, "messages", 4, "messages of each customer, at most")
	return show.Main(flags, args, stdout, stderr, func(ctx context.Context, out *show.Show) error {
		if o.processes < 1 || o.customers < 1 || o.messages < 1 {
			return fmt.Errorf("--processes %d --customers %d --messages %d: want 1 at least", o.processes, o.customers, o.messages)
		}
		return open(ctx, o, out)
	})
}
