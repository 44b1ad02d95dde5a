// Command scratch shows a model at work on databases that it may ruin.
//
//	go run ./examples/scratch                                      a remote in a temporary directory
//	go run ./examples/scratch --url 's3://bucket/prefix?region=…'  the same in a bucket
//
// The production database holds the exported API of Go's standard library. A model is asked to improve it, and decides itself what SQL to run (model.go has three sessions that were recorded). Each session works on a scratch
// fork ([tonbo.Scratch]), which is gone afterwards whatever the model did. What it changed is compared with what it started from ([tonbo.Diff]), reviewed, and brought to production in one transaction if it is approved
// ([tonbo.Promote]):
//
//   - the first session deletes everything, in good faith. The review refuses it; production never knew.
//   - the second one is good. It is promoted, although production has gone on meanwhile.
//   - the third one changes a row that production has changed as well: that is a conflict, and nothing happens.
//
// Read review.go first. With --url the production database stays in the remote.
package main

import (
	"context"
	"flag"
	"io"
	"os"

	"github.com/tonbo-go/tonbo/examples/internal/show"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main with everything that it touches as arguments.
func run(args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("scratch", flag.ContinueOnError)
	flags.StringVar(&o.url, "url", "", "remote: s3://bucket/prefix or file:///dir (default: a temporary directory, removed at the end)")
	flags.StringVar(&o.name, "name", "", "name of the production database (default scratch-<time>)")
	flags.StringVar(&o.goroot, "goroot", "", "Go installation whose src is read (default: this one's)")
	flags.IntVar(&o.packages, "packages", 0, "read only the first n packages (default: all)")
	return show.Main(flags, args, stdout, stderr, func(ctx context.Context, out *show.Show) error { return review(ctx, o, out) })
}
