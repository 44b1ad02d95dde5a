package cache_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo/cache"
	"github.com/tonbo-go/tonbo/internal/pageset"
)

// childMain is the child process: it does job in a directory, saying on standard output what it is at, and dies at the given fault step.
func childMain(job string) {
	f := strings.Split(job, "|")
	what, root := f[0], f[1]
	die, _ := strconv.Atoi(f[2]) // at which fault step, from 1; 0: never
	seen := 0
	o := cache.Options{Fault: func(step string) error {
		if seen++; seen == die {
			fmt.Println("killed at", step)
			kill()
		}
		return nil
	}}
	var err error
	switch what {
	case "script":
		err = script(root, o, func(i int, _ *cache.Dir) { fmt.Println("op", i) })
	case "recover":
		err = withDir(root, o, func(d *cache.Dir) error {
			rec, err := d.Recover(context.Background(), nil)
			if err == nil && len(rec.Damaged) > 0 {
				err = errors.New(rec.Reason)
			}
			return err
		})
	case "hold":
		err = withDir(root, o, func(*cache.Dir) error {
			fmt.Println("held")
			_, err := io.Copy(io.Discard, os.Stdin)
			return err
		})
	case "write":
		err = writeForEver(filepath.Join(root, dbOf, "db"))
	}
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println("done", seen)
}

// kill ends this process as SIGKILL does: nothing is flushed, nothing deferred runs.
func kill() {
	p, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		panic(err)
	}
	select {}
}

func withDir(root string, o cache.Options, do func(*cache.Dir) error) error {
	d, err := cache.Open(root, dbOf, o)
	if err != nil {
		return err
	}
	return errors.Join(do(d), d.Close())
}

// child starts the test binary as a child.
func child(t testing.TB, job string) (*exec.Cmd, *bufio.Scanner, io.WriteCloser) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+job)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out), in
}

// run runs a child to its end and returns its lines.
func run(t testing.TB, job string) (lines []string) {
	t.Helper()
	cmd, out, in := child(t, job)
	for out.Scan() {
		lines = append(lines, out.Text())
	}
	in.Close()
	cmd.Wait() // killed, mostly
	if len(lines) == 0 || strings.HasPrefix(lines[len(lines)-1], "error") {
		t.Fatalf("child %s: %v", job, lines)
	}
	return lines
}

// scriptFile is the database file that goes with a state of the script.
func scriptFile(tag byte) []byte { return bytes.Repeat([]byte{tag}, 3*512) }

// script changes a state in every way there is. before is called before each of its operations, and once at the end.
func script(root string, o cache.Options, before func(i int, d *cache.Dir)) error {
	d, err := cache.Open(root, dbOf, o)
	if err != nil {
		return err
	}
	defer d.Close()
	begin := func(tag byte) error {
		if err := os.WriteFile(d.Path(), scriptFile(tag), 0o600); err != nil {
			return err
		}
		sums := sumsOf(scriptFile(tag), 512)
		return d.Begin(cache.State{Name: dbOf, Store: "mem://x", ID: [16]byte{tag}, Generation: uint64(tag), Slot: 1, PageSize: 512, Sums: pageset.SumsOf(sums), Checksum: xor(sums)})
	}
	shipped := func(count uint32, from uint32) error {
		s := d.State()
		x := s.Checksum
		var pages []cache.PageSum
		for p := from; p <= count; p++ {
			if int(p) <= s.Sums.Len() {
				x ^= s.Sums.At(p)
			}
			pages = append(pages, cache.PageSum{Page: p, Sum: uint64(p) * 77})
			x ^= uint64(p) * 77
		}
		d.Captured(s.Slot + 1)
		return d.Shipped(s.Slot+1, count, x, pages)
	}
	ops := []func() error{
		d.Reset,
		func() error { return begin(1) },
		func() error { return shipped(5, 2) },
		func() error { return d.Spilled([]cache.PageSum{{Page: 3, Sum: 9}, {Page: 5, Sum: 8}}) },
		func() error { return d.Shrunk(4) },
		func() error { return d.SetGeneration(7, 40) },
		func() error {
			path, err := d.KeepAside(7, func(w io.Writer) error { _, err := w.Write(scriptFile(1)); return err })
			if err != nil {
				return err
			}
			return d.SetLost(path)
		},
		func() error { return shipped(100_000, 3) },
		func() error { return shipped(100_000, 9) },
		func() error { return shipped(100_000, 9) },
		func() error { return shipped(100_000, 9) }, // by now the journal is due for a rewrite
		d.Reset,
		func() error { return begin(2) },
		func() error { return shipped(5, 2) },
	}
	for i, op := range ops {
		before(i, d)
		if err := op(); err != nil {
			return fmt.Errorf("op %d: %w", i, err)
		}
	}
	before(len(ops), d)
	return nil
}

// TestKilledAtAnyStepTheStateIsOldOrNew: a process killed at any step of Begin, Shipped, Spilled, a rewrite, Reset or KeepAside leaves the state of before the
// operation or after it, never a directory that looks foreign, never half a file kept aside, and nothing temporary.
func TestKilledAtAnyStepTheStateIsOldOrNew(t *testing.T) {
	var states []*cache.State
	var steps []string
	err := script(t.TempDir(), cache.Options{Fault: func(s string) error { steps = append(steps, s); return nil }}, func(_ int, d *cache.Dir) { states = append(states, d.State()) })
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"cache:begin:renamed", "cache:shipped:appended", "cache:spilled:append", "cache:reset:vacant", "cache:aside:linked", "cache:rewrite:synced"} {
		if !slices.Contains(steps, s) {
			t.Errorf("the script has no step %s", s)
		}
	}
	for i, step := range steps {
		root := t.TempDir()
		lines := run(t, fmt.Sprintf("script|%s|%d", root, i+1))
		if last := lines[len(lines)-1]; last != "killed at "+step {
			t.Fatalf("step %d: %q, want %s", i, last, step)
		}
		at := 0
		if len(lines) > 1 {
			fmt.Sscanf(lines[len(lines)-2], "op %d", &at)
		}
		d, err := cache.Open(root, dbOf, cache.Options{})
		if err != nil {
			t.Fatalf("%s in op %d: %v", step, at, err)
		}
		got := d.State()
		if d.Damaged() != "" {
			t.Errorf("%s in op %d: damaged: %s", step, at, d.Damaged())
		}
		if !sameState(got, states[at], root) && !(at+1 < len(states) && sameState(got, states[at+1], root)) {
			t.Errorf("%s in op %d: the state is neither the old nor the new one: %+v", step, at, got)
		}
		if got != nil {
			if b, err := os.ReadFile(d.Path()); err != nil || !bytes.Equal(b, scriptFile(got.ID[0])) {
				t.Errorf("%s in op %d: the database file is not the state's (%d bytes, %v)", step, at, len(b), err)
			}
		}
		checkTidy(t, root)
		// And it goes on from there.
		if err := d.Reset(); err != nil {
			t.Errorf("%s in op %d: %v", step, at, err)
		}
		d.Close()
		if err := script(root, cache.Options{}, func(int, *cache.Dir) {}); err != nil {
			t.Errorf("%s in op %d: once more: %v", step, at, err)
		}
		if n := checkTidy(t, root); n != 1 {
			t.Errorf("%s in op %d: %d files kept aside, want 1: the same commits", step, at, n)
		}
	}
}

// checkTidy fails when there is anything in root but whole files; it counts those kept aside.
func checkTidy(t *testing.T, root string) (aside int) {
	t.Helper()
	for _, dir := range []string{root, filepath.Join(root, dbOf)} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.Contains(e.Name(), "tmp") {
				t.Errorf("%s is left", e.Name())
			}
			if strings.Contains(e.Name(), ".lost-") {
				aside++
				if b, err := os.ReadFile(filepath.Join(dir, e.Name())); err != nil || !bytes.Equal(b, scriptFile(1)) {
					t.Errorf("%s is not whole", e.Name())
				}
			}
		}
	}
	return aside
}

func sameState(a, b *cache.State, root string) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	if (x.Lost == "") == (y.Lost == "") {
		x.Lost, y.Lost = "", "" // another root
	}
	same := slices.Equal(x.Sums.Slice(), y.Sums.Slice())
	x.Sums, y.Sums = pageset.Sums{}, pageset.Sums{}
	return same && reflect.DeepEqual(x, y)
}

// TestRecoverKilledAtAnyStepCanBeRepeated: the next Recover finds what the killed one would have.
func TestRecoverKilledAtAnyStepCanBeRepeated(t *testing.T) {
	l := newLive(t, 1024)
	l.exec(insert("t", 1, 10, 100))
	l.ship()
	l.exec("DELETE FROM t WHERE id>20; VACUUM; " + insert("u", 1, 30, 100))
	root := l.crash()
	want := recovered(t, filepath.Join(root, dbOf))
	lines := run(t, fmt.Sprintf("recover|%s|0", copyRoot(t, root)))
	var steps int
	fmt.Sscanf(lines[len(lines)-1], "done %d", &steps)
	if steps < 10 {
		t.Fatalf("steps: %v", lines)
	}
	for i := 1; i <= steps; i++ {
		root := copyRoot(t, root)
		lines := run(t, fmt.Sprintf("recover|%s|%d", root, i))
		if !strings.HasPrefix(lines[len(lines)-1], "killed") {
			t.Fatalf("step %d: %v", i, lines)
		}
		d, rec := recoverDir(t, root)
		if len(rec.Damaged) > 0 {
			t.Errorf("%s: damaged: %s", lines[len(lines)-1], rec.Reason)
			continue
		}
		got, err := os.ReadFile(d.Path())
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: another file (%v)", lines[len(lines)-1], err)
		}
		if un := differing(l.shipped, sumsOf(want, 1024)); !slices.Equal(rec.Unshipped, un) {
			t.Errorf("%s: unshipped: got %v, want %v", lines[len(lines)-1], rec.Unshipped, un)
		}
		d.Close()
	}
}

func copyRoot(t testing.TB, root string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(root)); err != nil {
		t.Fatal(err)
	}
	return to
}

func writeForEver(path string) error {
	c, err := openPath(path)
	if err != nil {
		return err
	}
	if err := c.Exec("PRAGMA cache_size=10; PRAGMA wal_autocheckpoint=0"); err != nil {
		return err
	}
	for i := 0; ; i++ {
		if err := c.Exec(insert("t", i%100, i%100+40, 200+i%50)); err != nil {
			return err
		}
		if i == 1 { // a reader: checkpoints go up to its snapshot, and the WAL is never reset, for which Spilled would be needed
			r, err := openPath(path)
			if err != nil {
				return err
			}
			if err := r.Exec("BEGIN; SELECT count(*) FROM t"); err != nil {
				return err
			}
		}
		if i%7 == 2 {
			if err := c.Exec("PRAGMA wal_checkpoint(PASSIVE)"); err != nil {
				return err
			}
		}
		fmt.Println("committed", i)
	}
}

// TestKilledWriterLosesNoCommit: a real writer is killed with commits in the WAL; Recover finds what SQLite finds.
func TestKilledWriterLosesNoCommit(t *testing.T) {
	for _, after := range []int{1, 2, 3, 17} {
		l := newLive(t, 4096)
		l.exec("UPDATE t SET v=1 WHERE id=1")
		l.ship()
		root := l.crash()
		cmd, out, in := child(t, fmt.Sprintf("write|%s|0", root))
		n := 0
		for n < after && out.Scan() {
			if strings.HasPrefix(out.Text(), "error") {
				t.Fatal(out.Text())
			}
			n++
		}
		cmd.Process.Kill()
		for out.Scan() {
		}
		in.Close()
		cmd.Wait()
		mustRecover(t, root, 4096, l.shipped)
	}
}

// TestLockedByAnotherProcess: the second process is refused and told the pid of the first; when that dies, the lock is free at once.
func TestLockedByAnotherProcess(t *testing.T) {
	root := t.TempDir()
	cmd, out, in := child(t, fmt.Sprintf("hold|%s|0", root))
	defer in.Close()
	if !out.Scan() || out.Text() != "held" {
		t.Fatal(out.Text())
	}
	_, err := cache.Open(root, dbOf, cache.Options{})
	var locked *cache.LockedError
	if !errors.Is(err, cache.ErrLocked) || !errors.As(err, &locked) || locked.PID != cmd.Process.Pid {
		t.Fatalf("got %v, want ErrLocked with pid %d", err, cmd.Process.Pid)
	}
	if !strings.Contains(err.Error(), strconv.Itoa(cmd.Process.Pid)) {
		t.Errorf("the message names no pid: %v", err)
	}
	other, err := cache.Open(root, "other", cache.Options{})
	if err != nil {
		t.Fatalf("another database under the same root: %v", err)
	}
	other.Close()
	cmd.Process.Kill()
	cmd.Wait()
	d, err := cache.Open(root, dbOf, cache.Options{})
	if err != nil {
		t.Fatalf("after the holder was killed: %v", err)
	}
	if _, err := cache.Open(root, dbOf, cache.Options{}); !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Errorf("a second handle of this process: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	d = open(t, root)
	d.Close()
}
