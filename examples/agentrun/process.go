package main

import (
	"context"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/examples/internal/child"
	"github.com/tonbo-go/tonbo/examples/internal/stdlib"
)

// event is one line of JSON that a sandbox writes to its standard output.
type event struct {
	Kind    string // "opened", "step": a step is acknowledged, "done": all are, "fenced": refused and gone
	Step    int    // "opened": the last one found done
	Package string
	Error   string // "fenced"
	Lost    string // "fenced": file with commits that were not shipped
	Stats   stats
}

// stats of one sandbox so far.
type stats struct {
	Steps, Commits int
	Written        int64 // bytes of the pages that the commits changed
	Requests       tonbo.Requests
	ColdStart      bool
	FirstRow       time.Duration // from the call of Open to the first row of the first query
}

// sandbox is a sandbox's process, seen from the orchestrator.
type sandbox struct {
	*child.Process[event]
	number int
	last   event // last one read
}

// startSandbox starts this program again as a sandbox that does the given number of steps, with nothing on the machine but a directory below dir.
func startSandbox(ctx context.Context, number int, dir, url, name string, src stdlib.Source, steps int) (*sandbox, error) {
	who := "sandbox " + strconv.Itoa(number)
	p, err := child.Start[event](ctx, who, filepath.Join(dir, "sandbox-"+strconv.Itoa(number)), url, steps+8, // a sandbox that nobody follows for a while is not held up
		"sandbox", "--number", strconv.Itoa(number), "--name", name, "--goroot", src.GOROOT, "--packages", strconv.Itoa(steps))
	if err != nil {
		return nil, err
	}
	return &sandbox{Process: p, number: number}, nil
}

// next returns the sandbox's next event.
func (s *sandbox) next(ctx context.Context) (event, error) {
	e, err := s.Next(ctx)
	if err == nil {
		s.last = e
	}
	return e, err
}
