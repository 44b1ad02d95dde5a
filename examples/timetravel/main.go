// Command timetravel goes back in a run's past.
//
//	go run ./examples/timetravel                                      a remote in a temporary directory
//	go run ./examples/timetravel --url 's3://bucket/prefix?region=…'  the same in a bucket
//
// An agent (agent.go) reads packages of the standard library, one a step, and ends each step with a Checkpoint: the step is acknowledged and its state has a
// name. Then (travel.go) the state of a step in the middle is read by its label, its slot, its point and its time, and exported as a plain SQLite file. The run is rewound
// to it and goes on in another way; a fork at the same label goes on in a third. The two are compared row by row (compare.go), the rewind is undone, and
// the history printed. That each state is what it should be is checked against what was recorded, and against a computation that does without tonbo.
//
// Read travel.go first. With --url the databases are deleted at the end, and stay there after an error or ^C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/examples/internal/show"
	"github.com/tonbo-go/tonbo/examples/internal/stdlib"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main with everything that it touches as arguments.
func run(args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("timetravel", flag.ContinueOnError)
	flags.StringVar(&o.url, "url", "", "remote: s3://bucket/prefix or file:///dir (default: a temporary directory, removed at the end)")
	flags.StringVar(&o.name, "name", "", "name of the run's database (default timetravel-<time>)")
	flags.StringVar(&o.goroot, "goroot", "", "Go installation whose src is read (default: this one's)")
	flags.IntVar(&o.steps, "steps", 24, "steps of the run")
	flags.IntVar(&o.back, "back", 8, "step to go back to")
	return show.Main(flags, args, stdout, stderr, func(ctx context.Context, out *show.Show) error { return timetravel(ctx, o, out) })
}

type options struct {
	url, name, goroot string
	steps, back       int
}

// story is one run of the program.
type story struct {
	options
	*show.Stage
	out    *show.Show
	client *tonbo.Client
	pool   []*stdlib.Package // what the agents read, by name

	db     *tonbo.DB           // of the run
	past   map[int]tonbo.Point // of the run's steps, as Checkpoint returned them
	states map[int]string      // digests of the state after each
	before tonbo.Point         // the rewind: the head was this
}

// timetravel is the whole run. An error says what did not work.
func timetravel(ctx context.Context, o options, out *show.Show) (err error) {
	if o.back < 2 || o.back >= o.steps {
		return fmt.Errorf("--back %d --steps %d: want to go back to a step from 2 to the one before the last", o.back, o.steps)
	}
	s := &story{options: o, out: out, past: map[int]tonbo.Point{}, states: map[int]string{}}
	if err := s.readPool(ctx); err != nil {
		return err
	}
	if s.Stage, err = show.NewStage("timetravel", o.url, o.name); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.End()) }()
	if s.client, err = tonbo.NewClient(s.Machine("client")); err != nil {
		return err
	}
	if _, err := s.client.Create(ctx, s.Name, tonbo.CreateOptions{}); err != nil {
		return fmt.Errorf("create a database in %s: %w", s.URL, err)
	}
	if s.db, err = tonbo.Open(ctx, s.Name, s.Machine("agent")); err != nil {
		return err
	}
	defer s.db.Close() // does nothing after the Close at the end
	for _, chapter := range []func(context.Context) error{s.firstRun, s.lookBack, s.export, s.rewind, s.branch, s.undo, s.history, s.end} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

// readPool reads twice as many packages as there are steps, so that different plans read different ones.
func (s *story) readPool(ctx context.Context) error {
	source, err := stdlib.Find(ctx, s.goroot)
	if err != nil {
		return err
	}
	paths, err := source.Packages(0)
	if err != nil {
		return err
	}
	for _, path := range paths {
		p, err := source.Extract(ctx, path)
		if err != nil {
			return err
		}
		if len(p.Symbols) > 0 {
			s.pool = append(s.pool, p)
		}
		if len(s.pool) == 2*s.steps {
			return nil
		}
	}
	return fmt.Errorf("--steps %d: %d packages are too few for that", s.steps, len(s.pool))
}
