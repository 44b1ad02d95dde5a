package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/s3test"
)

// childEnv makes the test binary the command itself.
const childEnv = "TONBO_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		main()
	}
	os.Unsetenv("TONBO_URL")
	os.Unsetenv("TONBO_DIR")
	os.Unsetenv("TONBO_API_KEY")
	if os.Getenv("TONBO_TEST_S3") != "" { // the connections to a store that a URL names stay as long as the process
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(m)
}

// shell runs commands on an account of its own.
type shell struct {
	t        *testing.T
	url, dir string
	stdin    string
	terminal bool
}

// newShell is one of an empty account: a directory, or a place in the S3 store that $TONBO_TEST_S3 names.
func newShell(t *testing.T) *shell {
	t.Helper()
	if os.Getenv("TONBO_TEST_S3") == "" {
		return newDirShell(t)
	}
	p := s3test.At(t)
	for _, e := range p.Env {
		k, v, _ := strings.Cut(e, "=")
		t.Setenv(k, v)
	}
	return &shell{t: t, url: p.URL, dir: t.TempDir()}
}

func newDirShell(t *testing.T) *shell {
	t.Helper()
	return &shell{t: t, url: "file://" + filepath.ToSlash(t.TempDir()), dir: t.TempDir()}
}

type result struct {
	code     int
	out, err string
}

// run runs one command to its end.
func (s *shell) run(args ...string) result {
	s.t.Helper()
	return s.runIn(s.t.Context(), args...)
}

func (s *shell) runIn(ctx context.Context, args ...string) result {
	var out, errs bytes.Buffer
	code := run(ctx, s.args(args...), strings.NewReader(s.stdin), &out, &errs, func(any) bool { return s.terminal })
	return result{code, out.String(), errs.String()}
}

func (s *shell) args(args ...string) []string {
	return append([]string{"--url", s.url, "--dir", s.dir}, args...)
}

// ok runs a command that is to succeed, and returns what it answers.
func (s *shell) ok(args ...string) string {
	s.t.Helper()
	r := s.run(args...)
	if r.code != exitOK || r.err != "" {
		s.t.Fatalf("tonbo %s: exit %d, stderr %q", strings.Join(args, " "), r.code, r.err)
	}
	return r.out
}

// document runs a command with --json that is to succeed, and decodes its one document.
func (s *shell) document(into any, args ...string) {
	s.t.Helper()
	out := s.ok(append(args, "--json")...)
	d := json.NewDecoder(strings.NewReader(out))
	if err := d.Decode(into); err != nil {
		s.t.Fatalf("tonbo %s: %v: %s", strings.Join(args, " "), err, out)
	}
	if d.More() || !strings.HasSuffix(out, "\n") {
		s.t.Fatalf("tonbo %s: want one document and the end of the line: %q", strings.Join(args, " "), out)
	}
}

// lines runs a command with --json that lists, and decodes each line.
func (s *shell) lines(args ...string) []map[string]any {
	s.t.Helper()
	var all []map[string]any
	for line := range strings.Lines(s.ok(append(args, "--json")...)) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			s.t.Fatalf("tonbo %s: %v: %q", strings.Join(args, " "), err, line)
		}
		all = append(all, v)
	}
	return all
}

// open takes a database over, as another program would.
func (s *shell) open(name string) *tonbo.DB {
	s.t.Helper()
	db, err := tonbo.Open(s.t.Context(), name, tonbo.Options{URL: s.url, Dir: s.t.TempDir(), Owner: "agent"})
	if err != nil {
		s.t.Fatal(err)
	}
	return db
}

// agent makes run-42 and takes two steps on it, with a label each.
func (s *shell) agent() {
	s.t.Helper()
	s.ok("database", "create", "run-42", "--metadata", "task=42")
	db := s.open("run-42")
	defer db.Close()
	for _, step := range []struct{ label, sql string }{
		{"step-6", `CREATE TABLE steps(id INTEGER PRIMARY KEY, done TEXT, at DATETIME); INSERT INTO steps VALUES(6, 'search', '2026-11-30 10:00:00')`},
		{"step-7", `INSERT INTO steps VALUES(7, 'answer', '2026-11-30 10:01:00')`},
	} {
		if _, err := db.Exec(step.sql); err != nil {
			s.t.Fatal(err)
		}
		if _, err := db.Checkpoint(s.t.Context(), step.label); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// watched is a writer that tells when something was written.
type watched struct {
	mu   sync.Mutex
	b    bytes.Buffer
	once sync.Once
	is   string        // to be waited for
	seen chan struct{} // closed then
}

func watch(is string) *watched { return &watched{is: is, seen: make(chan struct{})} }

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b.Write(p)
	if strings.Contains(w.b.String(), w.is) {
		w.once.Do(func() { close(w.seen) })
	}
	return len(p), nil
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}
