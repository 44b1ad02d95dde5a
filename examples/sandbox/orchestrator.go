package main

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/examples/internal/child"
	"github.com/tonbo-go/tonbo/examples/internal/show"
	"github.com/tonbo-go/tonbo/server"
)

// orchestrate is the whole run. An error says what did not work.
func orchestrate(ctx context.Context, url, name string, netns bool, out *show.Show) (err error) {
	s, err := show.NewStage("run", url, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.End()) }()
	o := &orchestrator{stage: s, out: out}
	if netns {
		if o.change = withoutNetwork; o.change == nil {
			return errors.New("--netns: there are no network namespaces on this system")
		}
	}

	// (1) The account, on a socket: it alone knows where the bucket is. In production: tonbo serve --listen unix:///run/tonbo.sock
	stop, err := o.serve(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()

	// (2) The run's database, and another one that is none of its business.
	for _, db := range []string{"customers", s.Name} {
		if _, err := o.account.Create(ctx, db, tonbo.CreateOptions{IfNotExists: db == "customers", TTL: time.Hour}); err != nil {
			return err
		}
	}
	// (3) A key for the sandbox. It is narrowed to the run's database, and dies with it.
	key, err := o.account.Keys().Create(ctx, tonbo.KeyOptions{Name: s.Name + "-sandbox", Databases: []string{s.Name}, TTL: time.Hour})
	if err != nil {
		return err
	}
	out.Say("created %s in %s, and a key that reaches it alone", s.Name, s.URL)

	// (4) Sandboxes: the first is lost with its machine, the second goes on.
	acked, err := o.work(ctx, key.Secret, 1, steps/2)
	if err != nil {
		return err
	}
	out.Say("sandbox 1 killed after step %d was acknowledged; its disk is gone", acked)
	if acked, err = o.work(ctx, key.Secret, 2, 0); err != nil {
		return err
	}
	out.Check("every step is there", acked == steps, "%d of %d", acked, steps)

	// (5) What a stolen key is worth.
	if err := o.steal(ctx, key.Secret); err != nil {
		return err
	}

	// (6) The run is over. Its key is worth nothing any more.
	if err := o.account.Delete(ctx, s.Name); err != nil {
		return err
	}
	last, err := tonbo.NewClient(tonbo.Options{URL: o.url, APIKey: key.Secret, Dir: filepath.Join(s.Dir, "last")})
	if err != nil {
		return err
	}
	if err := o.refused(ctx, last); err != nil {
		return err
	}
	if url != "" {
		return o.account.Delete(ctx, "customers")
	}
	return nil
}

type orchestrator struct {
	stage   *show.Stage
	out     *show.Show
	url     string          // of the server
	account *tonbo.Client   // with the owner's key, through the server
	change  func(*exec.Cmd) // how sandboxes are started; nil: as other processes
}

// serve serves the account on a unix socket until stop is called.
func (o *orchestrator) serve(ctx context.Context) (stop func() error, err error) {
	srv, err := server.New(server.Options{Options: tonbo.Options{URL: o.stage.URL, Dir: filepath.Join(o.stage.Dir, "server")}})
	if err != nil {
		return nil, err
	}
	owner, err := srv.MakeOwner(ctx)
	if err != nil {
		return nil, errors.Join(err, srv.Close())
	}
	socket := filepath.Join(o.stage.Dir, "tonbo.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, errors.Join(err, srv.Close())
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it outlives what is cancelled: sandboxes close their databases through it
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ctx, l, server.ServeOptions{}) }()
	stop = func() error {
		cancel()
		return errors.Join(<-ended, srv.Close())
	}
	o.url = "unix://" + filepath.ToSlash(socket)
	if o.account, err = tonbo.NewClient(tonbo.Options{URL: o.url, APIKey: owner, Dir: filepath.Join(o.stage.Dir, "orchestrator")}); err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// work runs a sandbox, and kills it when step killAt is acknowledged; 0: it may come to its end. It returns the last step that was acknowledged.
func (o *orchestrator) work(ctx context.Context, key string, number, killAt int) (acked int, err error) {
	p, err := child.StartWith[event](ctx, "sandbox "+strconv.Itoa(number), filepath.Join(o.stage.Dir, "sandbox-"+strconv.Itoa(number)), o.url, key, o.change, steps+2, "work", o.stage.Name)
	if err != nil {
		return 0, err
	}
	defer p.End()
	for {
		e, err := p.Next(ctx)
		switch {
		case errors.Is(err, child.ErrEnded) && acked == steps:
			return acked, p.Wait()
		case err != nil:
			return acked, err
		case e.Kind == "opened":
			o.out.Say("sandbox %d opens %s at step %d", number, o.stage.Name, e.Step)
		default:
			acked = e.Step
			o.out.Step(acked, steps, "step %d acknowledged", acked)
		}
		if acked == killAt && killAt > 0 {
			return acked, p.Kill()
		}
	}
}

// steal runs a program that has the sandbox's key, and checks what it got.
func (o *orchestrator) steal(ctx context.Context, key string) error {
	p, err := child.StartWith[event](ctx, "thief", filepath.Join(o.stage.Dir, "thief"), o.url, key, o.change, 16, "steal", o.stage.Name)
	if err != nil {
		return err
	}
	defer p.End()
	want := map[string]string{
		"find something else in its environment and its home": "nothing",
		"list the databases": o.stage.Name, "read the run": "done", "open another database": tonbo.ErrNotFound.Error(), "create one": tonbo.ErrForbidden.Error(), "fork another one": tonbo.ErrNotFound.Error(),
		"delete the run": tonbo.ErrForbidden.Error(), "rewind the run": tonbo.ErrForbidden.Error(), "make a key": tonbo.ErrForbidden.Error(),
	}
	for range len(want) + 1 {
		e, err := p.Next(ctx)
		if err != nil {
			return err
		}
		if e.Kind == seeNetwork {
			if o.change != nil {
				o.out.Check("a thief tries to "+e.Kind, e.Got == "none", "%s", e.Got)
			}
			continue
		}
		o.out.Check("a thief tries to "+e.Kind, e.Got == want[e.Kind], "%s", e.Got)
	}
	return p.Wait()
}

// refused checks that the key has died with its database.
func (o *orchestrator) refused(ctx context.Context, c *tonbo.Client) error {
	_, err := c.Get(ctx, o.stage.Name)
	for late := time.Now().Add(10 * time.Second); err != nil && !errors.Is(err, tonbo.ErrUnauthorized) && time.Now().Before(late); _, err = c.Get(ctx, o.stage.Name) {
		select { // a server may use a verdict on a key again for a few seconds
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	o.out.Check("the key dies with its database", errors.Is(err, tonbo.ErrUnauthorized), "%s", kind(err))
	return nil
}
