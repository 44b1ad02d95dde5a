// Command tool shows the tools that a model gets, in the shape in which agent SDKs want them, and what becomes of a database when it deletes everything.
//
//	go run ./examples/tool                                      a remote in a temporary directory
//	go run ./examples/tool --url 's3://bucket/prefix?region=…'  the same in a bucket
//
// The golden database holds the orders of a shop. A model is asked why refunds are stuck, and has five functions: run_sql, describe_schema, checkpoint, rewind, diff (package sqltool). functions.go is all that stands between them
// and an SDK for agents: name, description, JSON schema, and a function from raw JSON to text. The model is a recording (model.go): tool calls of a debugging session, in the JSON in which they came. It clears "the stuck rows", looks
// for ways out of the database when it does not understand what it sees, and in the end deletes everything.
//
// It does so on a scratch fork ([tonbo.Scratch]), which is shown and then gone. The golden database is compared byte by byte with what it was.
//
// Read functions.go first. With --url the golden database stays in the remote. An agent that speaks MCP gets the same from `tonbo mcp --scratch golden`.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/tonbo-go/tonbo/examples/internal/show"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main with everything that it touches as arguments.
func run(args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("tool", flag.ContinueOnError)
	flags.StringVar(&o.url, "url", "", "remote: s3://bucket/prefix or file:///dir (default: a temporary directory, removed at the end)")
	flags.StringVar(&o.name, "name", "", "name of the golden database (default tool-<time>)")
	flags.IntVar(&o.orders, "orders", 184203, "how many orders it has")
	return show.Main(flags, args, stdout, stderr, func(ctx context.Context, out *show.Show) error {
		if o.orders < 1 {
			return fmt.Errorf("--orders %d: want at least one", o.orders)
		}
		return harness(ctx, o, out)
	})
}
