package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/examples/internal/child"
	"github.com/tonbo-go/tonbo/examples/internal/show"
	"github.com/tonbo-go/tonbo/examples/internal/stdlib"
)

type orchestratorOptions struct {
	url, name, goroot, search string
	packages                  int // 0: all
}

// orchestrator runs sandboxes, and remembers what they acknowledged.
type orchestrator struct {
	o        orchestratorOptions
	dir      string // for all that is on this machine; removed at the end
	source   stdlib.Source
	packages []string
	out      *show.Show

	sandboxes []*sandbox
	acked     map[int]ack // by step
}

// ack is a step that a sandbox said to be acknowledged: from then on it must never be lost.
type ack struct {
	sandbox int
	pkg     string
}

// orchestrate is the whole run. An error says what did not work.
func orchestrate(ctx context.Context, o orchestratorOptions, out *show.Show) (err error) {
	r := &orchestrator{o: o, out: out, acked: map[int]ack{}}
	if r.source, err = stdlib.Find(ctx, o.goroot); err != nil {
		return err
	}
	if r.packages, err = r.source.Packages(o.packages); err != nil {
		return err
	}
	if r.dir, err = os.MkdirTemp("", "agentrun-"); err != nil {
		return err
	}
	defer func() {
		r.endSandboxes()
		if rerr := os.RemoveAll(r.dir); err == nil {
			err = rerr
		}
	}()

	if err := r.create(ctx); err != nil {
		return err
	}
	n := len(r.packages)
	killAt, takeoverAt := n/4, n/2
	first, err := r.loseMachine(ctx, killAt)
	if err != nil {
		return err
	}
	second, err := r.resume(ctx, first, takeoverAt)
	if err != nil {
		return err
	}
	third, err := r.takeOver(ctx, second)
	if err != nil {
		return err
	}
	// The third does the rest, closes its database and ends.
	if _, err := r.follow(ctx, third, func(e event) bool { return e.Kind == "done" }); err != nil {
		return err
	}
	if err := third.Stop(); err != nil {
		return err
	}
	r.out.Say("sandbox 3 did the rest, to step %d", n)
	return r.examine(ctx)
}

// create makes the database, in the remote that the options name or in a directory.
func (r *orchestrator) create(ctx context.Context) error {
	if r.o.url == "" {
		r.o.url = show.FileURL(filepath.Join(r.dir, "remote"))
	}
	if r.o.name == "" {
		r.o.name = "agentrun-" + time.Now().UTC().Format("20060102-150405")
	}
	if _, err := tonbo.Create(ctx, r.o.name, r.options("orchestrator")); err != nil {
		return fmt.Errorf("create a database in %s: %w", r.o.url, err)
	}
	r.out.Say("created %s in %s; %d packages in %s are %d steps", r.o.name, r.o.url, len(r.packages), filepath.Join(r.source.GOROOT, "src"), len(r.packages))
	return nil
}

// options are those of a process with a directory of its own.
func (r *orchestrator) options(who string) tonbo.Options {
	return tonbo.Options{URL: r.o.url, Dir: filepath.Join(r.dir, who), Owner: who}
}

// start starts the next sandbox, in a new directory.
func (r *orchestrator) start(ctx context.Context) (*sandbox, error) {
	number := len(r.sandboxes) + 1
	c, err := startSandbox(ctx, number, r.dir, r.o.url, r.o.name, r.source, len(r.packages))
	if err != nil {
		return nil, err
	}
	r.sandboxes = append(r.sandboxes, c)
	return c, nil
}

// follow takes in what a sandbox reports until stop says that this was the event waited for, which it returns.
func (r *orchestrator) follow(ctx context.Context, c *sandbox, stop func(event) bool) (event, error) {
	for {
		e, err := c.next(ctx)
		if err != nil {
			return e, err
		}
		if e.Kind == "step" {
			if was, twice := r.acked[e.Step]; twice || e.Package != r.packages[e.Step-1] {
				return e, fmt.Errorf("sandbox %d acknowledged step %d (%s) again: sandbox %d had (%s)", c.number, e.Step, e.Package, was.sandbox, was.pkg)
			}
			r.acked[e.Step] = ack{c.number, e.Package}
			r.out.Step(e.Step, len(r.packages), "step %d  sandbox %d  %s", e.Step, c.number, e.Package)
		}
		if stop(e) {
			return e, nil
		}
	}
}

// loseMachine runs the first sandbox up to a step, kills it there and deletes all that it had.
func (r *orchestrator) loseMachine(ctx context.Context, at int) (*sandbox, error) {
	c, err := r.start(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := r.follow(ctx, c, func(e event) bool { return e.Kind == "step" && e.Step >= at }); err != nil {
		return nil, err
	}
	if err := c.Kill(); err != nil {
		return nil, fmt.Errorf("kill sandbox %d: %w", c.number, err)
	}
	// What it said before it died counts.
	if _, err := r.follow(ctx, c, func(event) bool { return false }); !errors.Is(err, child.ErrEnded) {
		return nil, err
	}
	if err := os.RemoveAll(c.Dir); err != nil {
		return nil, err
	}
	r.out.Say("sandbox %d killed after step %d, its directory deleted", c.number, r.lastAcked())
	return c, nil
}

// resume runs the second sandbox, on a machine that has nothing, up to a step.
func (r *orchestrator) resume(ctx context.Context, before *sandbox, at int) (*sandbox, error) {
	c, err := r.start(ctx)
	if err != nil {
		return nil, err
	}
	acked := r.lastAcked()
	opened, err := r.follow(ctx, c, func(e event) bool { return e.Kind == "opened" })
	if err != nil {
		return nil, err
	}
	r.resumedAt(before, c, opened, acked)
	_, err = r.follow(ctx, c, func(e event) bool { return e.Kind == "done" || e.Kind == "step" && e.Step >= at })
	return c, err
}

// takeOver starts the third sandbox while the second is at work, and shows what becomes of the second.
func (r *orchestrator) takeOver(ctx context.Context, second *sandbox) (*sandbox, error) {
	r.out.Say("sandbox 3 takes over while sandbox 2 goes on")
	third, err := r.start(ctx)
	if err != nil {
		return nil, err
	}
	opened, err := third.next(ctx)
	if err != nil {
		return nil, err
	}
	refused, err := r.follow(ctx, second, func(e event) bool { return e.Kind == "fenced" })
	if err != nil {
		return nil, err
	}
	err = second.Wait()
	r.out.Check("the second sandbox is refused with ErrFenced", second.ExitCode() == exitFenced, "it ended with %v", err)
	r.out.Say("sandbox 2 is refused: %s", refused.Error)
	r.resumedAt(second, third, opened, r.lastAcked())
	if refused.Lost != "" {
		return third, r.showLost(ctx, refused.Lost)
	}
	return third, nil
}

// showLost reads the file in which a refused sandbox's commits are that were not shipped. It is plain SQLite; any driver opens it.
func (r *orchestrator) showLost(ctx context.Context, path string) error {
	db, err := sql.Open("sqlite3", show.FileURL(path))
	if err != nil {
		return err
	}
	defer db.Close()
	var step int
	var pkg string
	if err := db.QueryRowContext(ctx, "SELECT id, package FROM steps ORDER BY id DESC LIMIT 1").Scan(&step, &pkg); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	r.out.Say("its file holds what it did and could not ship: step %d (%s), not acknowledged by it; sandbox 3 does it", step, pkg)
	r.out.Check("what was set aside is the step that was refused", r.acked[step].sandbox != 2, "step %d was acknowledged", step)
	return nil
}

// resumedAt checks where a sandbox goes on: after the last step that the one before it acknowledged. One more can be there: a step whose
// Synced reached the remote while its process was dying, so that nobody was told.
func (r *orchestrator) resumedAt(before, c *sandbox, opened event, acked int) {
	r.out.Say("sandbox %d resumes at step %d: sandbox %d acknowledged steps up to %d (cold start, first row after %s)",
		c.number, opened.Step+1, before.number, acked, opened.Stats.FirstRow.Round(time.Millisecond))
	if opened.Step == acked+1 {
		r.out.Say("step %d had reached the remote when its sandbox ended, and nobody had been told", opened.Step)
	}
	r.out.Check(fmt.Sprintf("sandbox %d resumes after the last acknowledged step", c.number), opened.Step == acked || opened.Step == acked+1,
		"it found %d steps done, %d were acknowledged", opened.Step, acked)
	r.out.Check(fmt.Sprintf("sandbox %d started with nothing but the remote", c.number), opened.Stats.ColdStart, "it found a local copy")
}

// lastAcked is the last step that any sandbox acknowledged, 0 for none.
func (r *orchestrator) lastAcked() (last int) {
	for step := range r.acked {
		last = max(last, step)
	}
	return last
}

// endSandboxes ends what still runs, and waits for it.
func (r *orchestrator) endSandboxes() {
	for _, c := range r.sandboxes {
		c.End()
	}
}
