package dir_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/dir"
)

// The test binary is its own child process: TONBO_DIR_TEST says what to do and in which directory.
func TestMain(m *testing.M) {
	if job, d, ok := strings.Cut(os.Getenv("TONBO_DIR_TEST"), " "); ok {
		if err := child(job, d); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

const raceKeys = 60

func raceKey(i int) string { return fmt.Sprintf("race/%d/log/%d", i%7, i) }

func child(job, d string) error {
	ctx := context.Background()
	s, err := dir.Open(d)
	if err != nil {
		return err
	}
	in := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	switch job {
	case "create": // compete for all keys; tell which were won
		for i := range raceKeys {
			body := fmt.Appendf(nil, "%d %s", os.Getpid(), strings.Repeat("x", 5000))
			etag, err := s.Create(ctx, raceKey(i), body)
			if err == nil {
				fmt.Println("won", i, os.Getpid(), etag)
			} else if !errors.Is(err, remote.ErrExists) {
				return err
			}
		}
	case "add": // a counter, incremented by compare and swap
		for range 40 {
			for {
				o, err := s.Get(ctx, "counter", remote.GetOptions{})
				if err != nil {
					return err
				}
				var n int
				fmt.Sscan(string(o.Body), &n)
				_, err = s.Swap(ctx, "counter", o.ETag, fmt.Append(nil, n+1))
				if err == nil {
					break
				}
				if !errors.Is(err, remote.ErrChanged) {
					return err
				}
			}
		}
	case "endless": // create objects until killed; tell each that is stored
		for i := 0; ; i++ {
			key := fmt.Sprintf("many/%d/%d-%d", i%5, os.Getpid(), i)
			if _, err := s.Create(ctx, key, []byte(key+strings.Repeat("x", 20000))); err != nil {
				return err
			}
			fmt.Println(key)
		}
	case "hold": // see TestLockIsWaitedForUntilTheContextEnds
		unlock, err := dir.Lock(ctx, s)
		if err != nil {
			return err
		}
		defer unlock()
		fmt.Println("held")
		io.Copy(io.Discard, in)
	case "denied": // with another user's rights
		_, errCreate := s.Create(ctx, "a/new", []byte("x"))
		_, errFolder := s.Create(ctx, "new/k", []byte("x"))
		errDelete := s.Delete(ctx, "a/k")
		for _, err := range []error{errCreate, errFolder, errDelete} {
			if !errors.Is(err, remote.ErrDenied) {
				return fmt.Errorf("got %w, want ErrDenied", err)
			}
		}
		if _, err := s.Get(ctx, "a/k", remote.GetOptions{}); err != nil {
			return err
		}
		if _, err := dir.Open(filepath.Join(d, "sub")); !errors.Is(err, remote.ErrDenied) {
			return fmt.Errorf("open: got %w, want ErrDenied", err)
		}
	}
	return nil
}

type process struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// start starts a child and waits until it is ready; begin lets it go.
func start(t *testing.T, job, d string) *process {
	t.Helper()
	p := prepare(t, job, d)
	p.run()
	if job == "hold" {
		p.begin()
		p.want("held")
	}
	return p
}

func prepare(t *testing.T, job, d string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(exe)}
	p.cmd.Env = append(os.Environ(), "TONBO_DIR_TEST="+job+" "+d)
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	return p
}

func (p *process) run() {
	p.t.Helper()
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	})
	p.want("ready")
}

func (p *process) want(line string) {
	p.t.Helper()
	if !p.out.Scan() || p.out.Text() != line {
		p.t.Fatalf("child said %q, want %q", p.out.Text(), line)
	}
}

func (p *process) begin() { fmt.Fprintln(p.in) }

// end returns the lines that the child has written when it ends by itself.
func (p *process) end() (lines []string) {
	p.t.Helper()
	for p.out.Scan() {
		lines = append(lines, p.out.Text())
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Fatalf("child: %v %q", err, lines)
	}
	return lines
}

func (p *process) kill() (lines []string) {
	p.cmd.Process.Kill()
	for p.out.Scan() {
		lines = append(lines, p.out.Text())
	}
	p.cmd.Wait()
	return lines
}

func TestOneOfManyProcessesCreatesAKey(t *testing.T) {
	d := t.TempDir()
	var children []*process
	for range 6 {
		children = append(children, start(t, "create", d))
	}
	for _, c := range children {
		c.begin()
	}
	winner := make(map[int]string)
	for _, c := range children {
		for _, line := range c.end() {
			var i int
			var pid, etag string
			if _, err := fmt.Sscanf(line, "won %d %s %s", &i, &pid, &etag); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if winner[i] != "" {
				t.Errorf("key %d was won twice", i)
			}
			winner[i] = pid + " " + etag
		}
	}
	s := open(t, d)
	for i := range raceKeys {
		o, err := s.Get(t.Context(), raceKey(i), remote.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pid, _, _ := strings.Cut(string(o.Body), " ")
		if got := pid + " " + o.ETag; got != winner[i] || len(o.Body) != len(pid)+5001 {
			t.Errorf("key %d holds %s, was won by %s", i, got, winner[i])
		}
	}
}

func TestSwapsOfManyProcessesLoseNone(t *testing.T) {
	d := t.TempDir()
	s := open(t, d)
	if _, err := s.Create(t.Context(), "counter", []byte("0")); err != nil {
		t.Fatal(err)
	}
	var children []*process
	for range 4 {
		children = append(children, start(t, "add", d))
	}
	for _, c := range children {
		c.begin()
	}
	for _, c := range children {
		c.end()
	}
	if o, err := s.Get(t.Context(), "counter", remote.GetOptions{}); err != nil || string(o.Body) != "160" {
		t.Errorf("got %s, %v, want 160", o.Body, err)
	}
}

func TestAKilledWriterLeavesWholeObjectsOrNothing(t *testing.T) {
	d := t.TempDir()
	var stored []string
	for range 8 {
		c := start(t, "endless", d)
		c.begin()
		for range 5 { // well under way
			if !c.out.Scan() {
				t.Fatal("child ended")
			}
			stored = append(stored, c.out.Text())
		}
		stored = append(stored, c.kill()...)
	}
	s := open(t, d)
	found := make(map[string]bool)
	page, more, err := s.List(t.Context(), "", remote.ListOptions{})
	for ; err == nil; page, more, err = s.List(t.Context(), "", remote.ListOptions{After: page[len(page)-1].Key}) {
		for _, i := range page {
			found[i.Key] = true
			o, err := s.Get(t.Context(), i.Key, remote.GetOptions{IfMatch: i.ETag})
			if err != nil || string(o.Body) != i.Key+strings.Repeat("x", 20000) {
				t.Errorf("%s: %d bytes, %v", i.Key, len(o.Body), err)
			}
		}
		if !more {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range stored {
		if !found[key] {
			t.Errorf("%s was reported stored and is not there", key)
		}
	}
}
