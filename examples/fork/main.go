// Command fork shows twenty agents at work on forks of one golden database.
//
//	go run ./examples/fork                                      a remote in a temporary directory
//	go run ./examples/fork --url 's3://bucket/prefix?region=…'  the same in a bucket
//
// The golden database holds the exported API and doc comments of Go's standard library, with a full-text index. It is frozen: nobody can write to it, anybody can
// fork it, and a fork copies nothing. Each agent (agent.go) forks it, opens its fork in a directory of its own as another machine would, looks for its own
// hazard in the documentation, and writes what it finds. The fork with most findings is promoted (promote.go): a frozen fork of it is the next golden, and the
// agents' forks are deleted. Every fork is checked to hold the golden's rows and no other agent's.
//
// Read agent.go first. With --url the two goldens stay in the remote, and after an error or ^C what the agents had.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/examples/internal/show"
	"github.com/tonbo-go/tonbo/examples/internal/stdlib"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main with everything that it touches as arguments.
func run(args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("fork", flag.ContinueOnError)
	flags.StringVar(&o.url, "url", "", "remote: s3://bucket/prefix or file:///dir (default: a temporary directory, removed at the end)")
	flags.StringVar(&o.name, "name", "", "name of the golden database; the others' names begin with it (default golden-<time>)")
	flags.StringVar(&o.goroot, "goroot", "", "Go installation whose src is read (default: this one's)")
	flags.IntVar(&o.packages, "packages", 0, "read only the first n packages (default: all)")
	return show.Main(flags, args, stdout, stderr, func(ctx context.Context, out *show.Show) error { return forks(ctx, o, out) })
}

type options struct {
	url, name, goroot string
	packages          int // 0: all
}

// story is one run.
type story struct {
	options
	*show.Stage
	out    *show.Show
	client *tonbo.Client

	golden golden
	agents []*agent
}

// forks is the whole run. An error says what did not work.
func forks(ctx context.Context, o options, out *show.Show) (err error) {
	source, err := stdlib.Find(ctx, o.goroot)
	if err != nil {
		return err
	}
	s := &story{options: o, out: out}
	if s.Stage, err = show.NewStage("golden", o.url, o.name); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.End()) }()
	if s.client, err = tonbo.NewClient(s.Machine("client")); err != nil {
		return err
	}
	for _, chapter := range []func(context.Context) error{
		func(ctx context.Context) error { return s.makeGolden(ctx, source) },
		s.work,
		s.examine,
		s.promote,
		s.tables,
	} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

// work lets all agents work at once.
func (s *story) work(ctx context.Context) error {
	s.out.Say("%d agents fork it at once", len(hazards))
	g, gctx := errgroup.WithContext(ctx)
	done := make(chan *agent)
	for i, h := range hazards {
		a := &agent{number: i + 1, hazard: h, golden: &s.golden, fork: fmt.Sprintf("%s.agent-%d", s.Name, i+1)}
		s.agents = append(s.agents, a)
		g.Go(func() error {
			if err := a.run(gctx, s.Machine(fmt.Sprintf("agent-%d", a.number))); err != nil {
				return fmt.Errorf("agent %d: %w", a.number, err)
			}
			select {
			case done <- a:
				return nil
			case <-gctx.Done():
				return gctx.Err()
			}
		})
	}
	go func() { g.Wait(); close(done) }() // the channel's end is seen below
	n := 0
	for a := range done {
		n++
		s.out.Step(n, len(s.agents), "agent %d: %q is in %d doc comments", a.number, a.hazard, a.findings)
	}
	return g.Wait()
}
