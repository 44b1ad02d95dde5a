package tonbo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/s3test"
	"github.com/tonbo-go/tonbo/remote"
)

// world is one database, the processes that work on it, and what they have said: what is promised is checked against that.
type world struct {
	t     testing.TB
	url   string
	env   []string
	store remote.Store // nil: by url
	base  string       // machines' directories
	n     int          // of them

	mu        sync.Mutex
	tried     map[commit]bool
	committed map[commit]string // in which directory
	acked     map[commit]bool
	gens      []uint64        // in the order in which they were opened
	told      map[string]bool // files set aside that an error or a Status named
	fences    int
	diary     []string // everything, in the order in which it was heard
}

const worldName = "crash"

// newWorld creates a database in a fresh account: a directory, or a place in the S3 store that $TONBO_TEST_S3 names.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := emptyWorld(t)
	if os.Getenv("TONBO_TEST_S3") != "" {
		p := s3test.At(t)
		w.url, w.env, w.store = p.URL, p.Env, p.Open(t)
	} else {
		w.url = (&url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(w.base, "remote"))}).String()
	}
	w.begin()
	return w
}

func emptyWorld(t testing.TB) *world {
	return &world{t: t, base: t.TempDir(), tried: map[commit]bool{}, committed: map[commit]string{}, acked: map[commit]bool{}, told: map[string]bool{}}
}

// begin creates the database.
func (w *world) begin() {
	t := w.t
	t.Helper()
	o := w.options(w.dir())
	t.Cleanup(func() {
		if t.Failed() { // the last of what happened
			t.Log(strings.Join(w.diary[max(0, len(w.diary)-300):], "\n"))
		}
	})
	if _, err := tonbo.Create(t.Context(), worldName, o); err != nil {
		t.Fatal(err)
	}
	db, err := tonbo.Open(t.Context(), worldName, o)
	if err != nil {
		t.Fatal(err)
	}
	defer closeDB(t, db)
	exec1(t, db, schema)
	synced(t, db)
	w.gens = append(w.gens, db.Status().Generation)
}

func exec1(t testing.TB, db *tonbo.DB, q string) {
	t.Helper()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec(q); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// dir is the directory of a new machine.
func (w *world) dir() string {
	w.n++
	return filepath.Join(w.base, fmt.Sprint("machine-", w.n))
}

func (w *world) options(dir string) tonbo.Options {
	return tonbo.Options{URL: w.url, Remote: w.store, Dir: dir, SyncTimeout: time.Minute, Logger: slog.New(slog.NewTextHandler(diary{w}, nil))}
}

// diary is where this process's handles log.
type diary struct{ w *world }

func (d diary) Write(b []byte) (int, error) {
	d.w.note(strings.TrimSpace(string(b)))
	return len(b), nil
}

// note puts a line into the diary.
func (w *world) note(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.diary = append(w.diary, line)
}

// hear takes in what a process says.
func (w *world) hear(dir string, e event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.diary = append(w.diary, fmt.Sprintf("%s: %s %d of generation %d %s", filepath.Base(dir), e.What, e.Seq, e.Gen, e.Path+e.Err))
	switch e.What {
	case "open":
		w.gens = append(w.gens, e.Gen)
		w.tell(e.Path)
	case "try":
		w.tried[e.commit] = true
	case "commit":
		w.committed[e.commit] = dir
	case "ack":
		w.acked[e.commit] = true
	case "fenced":
		w.tell(e.Path)
		w.fences++
	case "broken", "error":
		w.t.Errorf("child in %s: %s: %s", filepath.Base(dir), e.What, e.Err)
	}
}

func (w *world) tell(path string) {
	if path != "" {
		w.told[path] = true
	}
}

// process is a running child.
type process struct {
	w         *world
	dir       string
	cmd       *osexec.Cmd
	in        io.WriteCloser
	events    chan event    // closed at its end
	trace     bytes.Buffer  // standard error
	continued bool          // after it had been stopped
	stopped   chan struct{} // closed when it has come to its @stop
	err       error         // of Wait, once events is closed
}

// start runs a job in a child process, with $TONBO_FAULT = fault.
func (w *world) start(j job, fault string) *process {
	w.t.Helper()
	j.Name, j.URL = worldName, w.url
	raw, err := json.Marshal(j)
	if err != nil {
		w.t.Fatal(err)
	}
	w.note(fmt.Sprintf("start %s %s", raw, fault))
	exe, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	p := &process{w: w, dir: j.Dir, cmd: osexec.Command(exe), events: make(chan event, 1<<14), stopped: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), w.env...), jobEnv+"="+string(raw), "TONBO_FAULT="+fault, "GOMAXPROCS=2")
	p.cmd.Stderr = p
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		w.t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() { // until the process ends; its reader waits for that
		defer close(p.events)
		eachEvent(out, func(e event) {
			w.hear(p.dir, e)
			p.events <- e
		})
		p.err = p.cmd.Wait()
	}()
	w.t.Cleanup(p.kill)
	return p
}

// Write receives standard error.
func (p *process) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("stopped at")) {
		close(p.stopped)
	}
	if bytes.Contains(b, []byte("level=")) {
		p.w.note(filepath.Base(p.dir) + ": " + strings.TrimSpace(string(b)))
	}
	return p.trace.Write(b)
}

// wait waits for the end and returns what was said since the last call.
func (p *process) wait() []event {
	p.w.t.Helper()
	var said []event
	timeout := time.After(2 * time.Minute)
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		select {
		case <-again.C: // it may not have come to its stop when it was continued
			if p.continued {
				resume(p.cmd.Process)
			}
		case e, ok := <-p.events:
			if !ok {
				if s := p.trace.String(); strings.Contains(s, "panic") || strings.Contains(s, "fatal error") {
					p.w.t.Errorf("child: %s", s)
				}
				return said
			}
			said = append(said, e)
		case <-timeout:
			p.kill()
			p.w.t.Fatal("child does not end")
		}
	}
}

// until waits for an event of that kind. ok is false when the process ends before.
func (p *process) until(what string) (said []event, ok bool) {
	for e := range p.events {
		said = append(said, e)
		if e.What == what {
			return said, true
		}
	}
	return said, false
}

// kill ends the process and waits until it is gone.
func (p *process) kill() {
	p.in.Close()
	p.cmd.Process.Kill()
	for range p.events {
	}
}

func said(events []event, what string) (found []event) {
	for _, e := range events {
		if e.What == what {
			found = append(found, e)
		}
	}
	return found
}

// open opens the database in this process, in a machine's directory, and checks its content.
func (w *world) open(dir string) (*tonbo.DB, []commit) {
	w.t.Helper()
	db, err := tonbo.Open(context.Background(), worldName, w.options(dir))
	if err != nil {
		w.t.Fatalf("open in %s: %v", filepath.Base(dir), err)
	}
	w.t.Cleanup(func() { db.Close() })
	st := db.Status()
	found, err := inspect(context.Background(), db.DB)
	if err != nil {
		w.t.Fatalf("%s: %v", filepath.Base(dir), err)
	}
	w.hear(dir, event{What: "open", commit: commit{len(found), st.Generation}, Path: st.Lost, Warm: !st.ColdStart})
	w.check(found)
	return db, found
}

// work makes n transactions in this process and acknowledges them.
func (w *world) work(db *tonbo.DB, dir string, n int) {
	w.t.Helper()
	seq, err := lastSeq(db.DB)
	if err != nil {
		w.t.Fatal(err)
	}
	c := commit{seq, db.Status().Generation}
	for range n {
		c.Seq++
		w.hear(dir, event{What: "try", commit: c})
		if err := step(db.DB, c, false); err != nil {
			w.t.Fatal(err)
		}
		w.hear(dir, event{What: "commit", commit: c})
	}
	synced(w.t, db)
	w.hear(dir, event{What: "ack", commit: c})
}

// check compares a state with what was said: everything acknowledged is in it. An acknowledgement covers what
// the same generation did before; that numbers rise without a gap, inspect has seen.
func (w *world) check(found []commit) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.acked {
		if c.Seq > 0 && (c.Seq > len(found) || found[c.Seq-1].Gen > c.Gen || found[c.Seq-1] != c && w.tried[c]) {
			w.t.Errorf("acknowledged transaction %d of generation %d is not there (%d are)", c.Seq, c.Gen, len(found))
		}
	}
}

// missing lists what was committed in a directory and is not in a state.
func (w *world) missing(dir string, found []commit) []commit {
	w.mu.Lock()
	defer w.mu.Unlock()
	var m []commit
	for c, in := range w.committed {
		if in == dir && (c.Seq > len(found) || found[c.Seq-1] != c) {
			m = append(m, c)
		}
	}
	slices.SortFunc(m, func(a, b commit) int { return a.Seq - b.Seq })
	return m
}

// kept reopens the database in a directory in which nobody else has taken it over: all that was committed there is there.
func (w *world) kept(dir string) {
	w.t.Helper()
	db, found := w.open(dir)
	if m := w.missing(dir, found); len(m) > 0 {
		w.t.Errorf("kept disk: lost %v", m)
	}
	if st := db.Status(); st.Lost != "" {
		w.t.Errorf("kept disk: commits were set aside: %s", st.Lost)
	}
	w.work(db, dir, 2)
	closeDB(w.t, db)
}

// final opens the database on a new machine, then in each directory that is left, and compares them byte for byte. What is committed there and not in the
// history is in a file that was named.
func (w *world) final(dirs ...string) []commit {
	w.t.Helper()
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { _, err := os.Stat(dir); return err != nil })
	for _, dir := range dirs { // commits that were not shipped, and that nobody else's stand in the way of, ship now
		db, _ := w.open(dir)
		closeDB(w.t, db)
	}
	fresh := w.dir()
	db, found := w.open(fresh)
	w.complete(db)
	want := w.file(fresh)
	for _, dir := range dirs {
		db, again := w.open(dir)
		w.complete(db)
		if !slices.Equal(again, found) {
			w.t.Errorf("%s has %d transactions, a cold start %d", filepath.Base(dir), len(again), len(found))
		}
		if !bytes.Equal(w.file(dir), want) {
			w.t.Errorf("the database file in %s differs from a cold start's", filepath.Base(dir))
		}
		w.aside(dir, found)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range found { // all processes have ended, and what they said has been heard
		if !w.tried[c] {
			w.t.Errorf("transaction %d of generation %d was never made", c.Seq, c.Gen)
		}
	}
	seen := map[uint64]bool{}
	for _, g := range w.gens {
		if seen[g] {
			w.t.Errorf("generation %d was used twice", g)
		}
		seen[g] = true
	}
	return found
}

// complete closes a database when every page of it is local.
func (w *world) complete(db *tonbo.DB) {
	w.t.Helper()
	if err := db.Hydrated(context.Background()); err != nil {
		w.t.Fatal(err)
	}
	closeDB(w.t, db)
}

// aside checks the files set aside in a directory.
func (w *world) aside(dir string, found []commit) {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.lost-*.db"))
	if err != nil {
		w.t.Fatal(err)
	}
	there := map[commit]bool{}
	for _, f := range files {
		w.mu.Lock()
		told := w.told[f]
		w.mu.Unlock()
		if !told {
			w.t.Errorf("nothing named %s", f)
		}
		in, err := inspectFile(context.Background(), f)
		if err != nil {
			w.t.Errorf("%s: %v", f, err)
		}
		for _, c := range in {
			there[c] = true
		}
	}
	for f := range w.told {
		if _, err := os.Stat(f); filepath.Dir(f) == dir && err != nil {
			w.t.Errorf("%s was named: %v", f, err)
		}
	}
	for _, c := range w.missing(dir, found) {
		if !there[c] {
			w.t.Errorf("transaction %d of generation %d, committed in %s, is in no file set aside (%d files)", c.Seq, c.Gen, filepath.Base(dir), len(files))
		}
	}
}

// apart runs f and then puts the remote back as it was: what follows sees the same crash.
func (w *world) apart(f func()) {
	w.t.Helper()
	now, saved := filepath.Join(w.base, "remote"), filepath.Join(w.base, "saved")
	if err := os.CopyFS(saved, os.DirFS(now)); err != nil {
		w.t.Fatal(err)
	}
	gens := slices.Clone(w.gens)
	f()
	w.gens = gens
	if err := errors.Join(os.RemoveAll(now), os.Rename(saved, now)); err != nil {
		w.t.Fatal(err)
	}
}

// file reads a machine's database file.
func (w *world) file(dir string) []byte {
	w.t.Helper()
	if fi, err := os.Stat(filepath.Join(dir, worldName, "db-wal")); !errors.Is(err, os.ErrNotExist) && (err != nil || fi.Size() > 0) {
		w.t.Errorf("the write-ahead log is left: %v", err)
	}
	b, err := os.ReadFile(filepath.Join(dir, worldName, "db"))
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}
