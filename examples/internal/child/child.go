// Package child runs an example's own program again as a child process, on a machine of its own: a clean environment, a directory, the remote's URL. What it tells comes as lines of JSON.
package child

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// StopTimeout is what a child gets to close its database before it is killed.
const StopTimeout = 5 * time.Second

// Process is a child that tells of events E.
type Process[E any] struct {
	Name string
	Dir  string // all that it has on this machine

	events chan E
	cmd    *exec.Cmd
	stdin  io.Closer // the child lives until this is closed
	stderr tail
	ended  bool
	result error // of the process, once ended
}

// Start starts this program again with args, with nothing on its machine but the directory dir. It may tell room events before somebody reads them.
func Start[E any](ctx context.Context, name, dir, url string, room int, args ...string) (*Process[E], error) {
	return StartWith[E](ctx, name, dir, url, "", nil, room, args...)
}

// StartWith is Start with a key of a server: the child holds that, its home is dir, and nothing of this process's environment is in it but where certificates are. change, if there is one, has the last word on how it is started.
func StartWith[E any](ctx context.Context, name, dir, url, key string, change func(*exec.Cmd), room int, args ...string) (*Process[E], error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	env, err := environment(dir, url, key)
	if err != nil {
		return nil, err
	}
	p := &Process[E]{Name: name, Dir: dir, events: make(chan E, room)}
	p.cmd = exec.CommandContext(ctx, exe, args...)
	p.cmd.Env, p.cmd.Dir, p.cmd.Stderr = env, dir, &p.stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	p.cmd.Cancel, p.cmd.WaitDelay = p.stdin.Close, StopTimeout
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if change != nil {
		change(p.cmd)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { // ends with the process; Next and Wait wait for it
		defer close(p.events)
		for dec := json.NewDecoder(out); ; {
			var e E
			if dec.Decode(&e) != nil { // the end, or a line that a kill has cut
				io.Copy(io.Discard, out)
				return
			}
			p.events <- e
		}
	}()
	return p, nil
}

// environment is a clean one: where the remote and the local copy are, and what reaching a remote can need.
func environment(dir, url, key string) ([]string, error) {
	tmp := filepath.Join(dir, "tmp")
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return nil, err
	}
	env := []string{"TONBO_URL=" + url, "TONBO_DIR=" + filepath.Join(dir, "tonbo"), "TMPDIR=" + tmp, "TEMP=" + tmp, "TMP=" + tmp}
	if key != "" {
		env = append(env, "TONBO_API_KEY="+key, "HOME="+dir, "USERPROFILE="+dir)
	}
	for _, kv := range os.Environ() {
		switch name, _, _ := strings.Cut(kv, "="); strings.ToUpper(name) {
		case "SYSTEMROOT", "SSL_CERT_FILE", "SSL_CERT_DIR":
			env = append(env, kv)
		case "HOME", "USERPROFILE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY": // there may be credentials in them
			if key == "" {
				env = append(env, kv)
			}
		default:
			if key == "" && strings.HasPrefix(name, "AWS_") {
				env = append(env, kv)
			}
		}
	}
	return env, nil
}

// ErrEnded is returned by Next when the child has ended.
var ErrEnded = errors.New("ended")

// Next returns the child's next event.
func (p *Process[E]) Next(ctx context.Context) (e E, err error) {
	select {
	case e, ok := <-p.events:
		if ok {
			return e, nil
		}
		if err := p.Wait(); err != nil {
			return e, fmt.Errorf("%s %w: %w%s", p.Name, ErrEnded, err, p.stderr.String())
		}
		return e, fmt.Errorf("%s %w", p.Name, ErrEnded)
	case <-ctx.Done():
		return e, ctx.Err()
	}
}

// Kill ends the process as a lost machine would: at once, with nothing flushed or closed. (SIGKILL; on Windows TerminateProcess.)
func (p *Process[E]) Kill() error { return p.cmd.Process.Kill() }

// Stop tells the child to close its database and end, and waits for it.
func (p *Process[E]) Stop() error {
	p.stdin.Close()
	if err := p.Wait(); err != nil {
		return fmt.Errorf("%s: %w%s", p.Name, err, p.stderr.String())
	}
	return nil
}

// Wait waits for the end of the process. Events that were not read are dropped.
func (p *Process[E]) Wait() error {
	for range p.events {
	}
	if !p.ended {
		p.result, p.ended = p.cmd.Wait(), true
	}
	return p.result
}

// ExitCode is the process's, once it has ended.
func (p *Process[E]) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// End ends the process, in an orderly way if it can, and waits for it.
func (p *Process[E]) End() {
	p.stdin.Close()
	late := time.AfterFunc(StopTimeout, func() { p.Kill() })
	defer late.Stop()
	p.Wait()
}

// Context is what a child works in: it ends when the parent lets go, by closing the child's standard input.
func Context(stdin io.Reader) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // until then, or until the process ends
		io.Copy(io.Discard, stdin)
		cancel()
	}()
	return ctx, cancel
}

// tail keeps the end of what a child writes to its standard error.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-4096):]
	return len(p), nil
}

func (t *tail) String() string {
	if s := bytes.TrimSpace(t.b); len(s) > 0 {
		return ": " + string(s)
	}
	return ""
}
