package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/examples/internal/child"
	"github.com/tonbo-go/tonbo/examples/internal/show"
	"github.com/tonbo-go/tonbo/examples/internal/stdlib"
)

type options struct {
	url, name, goroot string
	packages          int // 0: all
	kills             int
}

// supervisor starts agents and remembers what they acknowledged.
type supervisor struct {
	options
	*show.Stage
	out      *show.Show
	source   stdlib.Source
	steps    []string
	results  map[string]string // of the steps that were acknowledged
	changed  []string          // steps that were acknowledged with two results
	replayed int               // steps that were asked for again
}

// supervise is the whole run.
func supervise(ctx context.Context, o options, out *show.Show) (err error) {
	s := &supervisor{options: o, out: out, results: map[string]string{}}
	if s.source, err = stdlib.Find(ctx, o.goroot); err != nil {
		return err
	}
	if s.steps, err = s.source.Packages(o.packages); err != nil {
		return err
	}
	if s.Stage, err = show.NewStage("resume", o.url, o.name); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.End()) }()
	if _, err := tonbo.Create(ctx, s.Name, s.Machine("supervisor")); err != nil {
		return err
	}
	out.Say("an agent is to take %d steps; it is killed up to %d times", len(s.steps), s.kills)
	for life := 1; ; life++ {
		done, err := s.live(ctx, life)
		if err != nil {
			return err
		}
		if done {
			break
		}
	}
	return s.examine(ctx)
}

// live is one life of the agent: until it is killed, or done.
func (s *supervisor) live(ctx context.Context, life int) (done bool, err error) {
	machine := filepath.Join(s.Dir, "machine-"+strconv.Itoa((life+1)/2)) // two lives on each
	name := fmt.Sprintf("agent %d", life)
	p, err := child.Start[event](ctx, name, machine, s.URL, len(s.steps)+1, "agent", "--name", s.Name, "--goroot", s.source.GOROOT, "--packages", strconv.Itoa(len(s.steps)))
	if err != nil {
		return false, err
	}
	defer p.End()
	// It dies a random time after it has taken a random number of new steps.
	left := 1 + rand.IntN(1+2*len(s.steps)/(s.kills+1))
	for {
		e, err := p.Next(ctx)
		if err != nil {
			return false, err
		}
		if e.Done {
			s.out.Say("agent %d took the last step", life)
			return true, p.Stop()
		}
		if s.note(e); !e.Replayed {
			left--
		}
		if left <= 0 && life <= s.kills {
			break
		}
	}
	timer := time.NewTimer(rand.N(20 * time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if err := p.Kill(); err != nil {
		return false, err
	}
	for { // what it said before it died counts
		e, err := p.Next(ctx)
		if errors.Is(err, child.ErrEnded) {
			break
		}
		if err != nil {
			return false, err
		}
		if !e.Done {
			s.note(e)
		}
	}
	what := "its machine is kept"
	if life%2 == 0 {
		what = "its machine is lost"
		if err := os.RemoveAll(machine); err != nil {
			return false, err
		}
	}
	s.out.Say("agent %d killed with %d of %d steps acknowledged; %s", life, len(s.results), len(s.steps), what)
	return false, nil
}

// note takes in an acknowledged step.
func (s *supervisor) note(e event) {
	if e.Replayed {
		s.replayed++
	}
	if was, known := s.results[e.Step]; known {
		if was != e.Result {
			s.changed = append(s.changed, fmt.Sprintf("%s: %q, then %q", e.Step, was, e.Result))
		}
		return
	}
	s.results[e.Step] = e.Result
	s.out.Step(len(s.results), len(s.steps), "%s: %s", e.Step, e.Result)
}

// examine opens the database on a machine that has nothing, and checks what was promised.
func (s *supervisor) examine(ctx context.Context) error {
	db, err := tonbo.OpenReadOnly(ctx, s.Name, s.Machine("examiner"))
	if err != nil {
		return err
	}
	defer db.Close()
	s.out.Check("all steps were acknowledged", len(s.results) == len(s.steps), "%d of %d", len(s.results), len(s.steps))
	s.out.Check("no acknowledged result has changed", len(s.changed) == 0, "%v", s.changed)
	var steps int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM _tonbo_steps`).Scan(&steps); err != nil {
		return err
	}
	s.out.Check("the database has each step once", steps == len(s.steps), "it has %d", steps)
	wrong := []string{}
	for _, path := range s.steps {
		api, err := s.source.Extract(ctx, path)
		if err != nil {
			return err
		}
		var n int
		if err := db.QueryRowContext(ctx, `SELECT count(*) FROM symbols WHERE package = ?`, path).Scan(&n); err != nil {
			return err
		}
		if n != len(api.Symbols) {
			wrong = append(wrong, fmt.Sprintf("%s: %d rows for %d symbols", path, n, len(api.Symbols)))
		}
	}
	s.out.Check("each step took effect once", len(wrong) == 0, "%v", wrong)
	s.out.Say("%d steps were asked for again after a kill, and answered from the record", s.replayed)
	return nil
}
