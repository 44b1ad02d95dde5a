package main

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
	"strconv"
	"strings"
	"time"

	"github.com/tonbo-go/tonbo"
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

// child is a sandbox's process, seen from the orchestrator.
type child struct {
	number int
	dir    string // all that it has on this machine
	events chan event
	cmd    *exec.Cmd
	stdin  io.Closer // the sandbox lives until this is closed
	stderr tail

	last   event // last one read
	ended  bool
	result error // of the process, once ended
}

// stopTimeout is what a sandbox gets to close its database before it is killed.
const stopTimeout = 5 * time.Second

// startChild starts this program again as a sandbox that does the given number of steps, with nothing on the machine but the directory dir.
func startChild(ctx context.Context, number int, dir, url, name string, src stdlib.Source, steps int) (*child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	env, err := sandboxEnv(dir, url)
	if err != nil {
		return nil, err
	}
	c := &child{number: number, dir: dir, events: make(chan event, steps+8)} // a sandbox that nobody follows for a while is not held up
	c.cmd = exec.CommandContext(ctx, exe, "sandbox", "--number", strconv.Itoa(number), "--name", name, "--goroot", src.GOROOT, "--packages", strconv.Itoa(steps))
	c.cmd.Env, c.cmd.Dir, c.cmd.Stderr = env, dir, &c.stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	c.cmd.Cancel, c.cmd.WaitDelay = c.stdin.Close, stopTimeout
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start sandbox %d: %w", number, err)
	}
	go func() { // ends with the process; next and wait wait for it
		defer close(c.events)
		for dec := json.NewDecoder(out); ; {
			var e event
			if dec.Decode(&e) != nil { // the end, or a line that a kill has cut
				io.Copy(io.Discard, out)
				return
			}
			c.events <- e
		}
	}()
	return c, nil
}

// sandboxEnv is a clean environment: where the remote and the local copy are, and what reaching a remote can need.
func sandboxEnv(dir, url string) ([]string, error) {
	tmp := filepath.Join(dir, "tmp")
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return nil, err
	}
	env := []string{"TONBO_URL=" + url, "TONBO_DIR=" + filepath.Join(dir, "tonbo"), "TMPDIR=" + tmp, "TEMP=" + tmp, "TMP=" + tmp}
	for _, kv := range os.Environ() {
		switch name, _, _ := strings.Cut(kv, "="); strings.ToUpper(name) {
		case "HOME", "USERPROFILE", "SYSTEMROOT", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY":
			env = append(env, kv)
		default:
			if strings.HasPrefix(name, "AWS_") {
				env = append(env, kv)
			}
		}
	}
	return env, nil
}

// errEnded is returned by next when the sandbox has ended.
var errEnded = errors.New("ended")

// next returns the sandbox's next event.
func (c *child) next(ctx context.Context) (event, error) {
	select {
	case e, ok := <-c.events:
		if ok {
			c.last = e
			return e, nil
		}
		if err := c.wait(); err != nil {
			return event{}, fmt.Errorf("sandbox %d %w: %w%s", c.number, errEnded, err, c.stderr.String())
		}
		return event{}, fmt.Errorf("sandbox %d %w", c.number, errEnded)
	case <-ctx.Done():
		return event{}, ctx.Err()
	}
}

// kill ends the process as a lost machine would: at once, with nothing flushed or closed. (SIGKILL; on Windows TerminateProcess.)
func (c *child) kill() error { return c.cmd.Process.Kill() }

// stop tells the sandbox to close its database and end, and waits for it.
func (c *child) stop() error {
	c.stdin.Close()
	if err := c.wait(); err != nil {
		return fmt.Errorf("sandbox %d: %w%s", c.number, err, c.stderr.String())
	}
	return nil
}

// wait waits for the end of the process. Events that were not read are dropped.
func (c *child) wait() error {
	for range c.events {
	}
	if !c.ended {
		c.result, c.ended = c.cmd.Wait(), true
	}
	return c.result
}

// tail keeps the end of what a sandbox writes to its standard error.
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
