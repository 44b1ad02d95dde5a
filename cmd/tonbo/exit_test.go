package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
)

func TestExitCodesAndErrorCodes(t *testing.T) {
	s := newShell(t)
	s.agent()
	s.ok("database", "create", "kept", "--protected")
	s.ok("database", "create", "golden", "--frozen")
	s.ok("database", "create", "short", "--ttl", "1ns")
	s.ok("database", "create", "once", "--idempotency-key", "k")
	for _, c := range []struct {
		args string
		exit int
		code string
		says string
	}{
		{"", exitUsage, "usage", "which command?"},
		{"bogus", exitUsage, "usage", "tonbo --help"},
		{"database", exitUsage, "usage", "create"},
		{"database bogus", exitUsage, "usage", "tonbo database --help"},
		{"help bogus", exitUsage, "usage", "bogus"},
		{"help database bogus", exitUsage, "usage", "bogus"},
		{"completion", exitUsage, "usage", "bash"},
		{"completion bogus", exitUsage, "usage", "bogus"},
		{"database create", exitUsage, "usage", "create NAME"},
		{"database create a b", exitUsage, "usage", "create NAME"},
		{"database create a --bogus", exitUsage, "usage", "--bogus"},
		{"database create a --ttl 0", exitUsage, "usage", "7d"},
		{"database create a --ttl -1h", exitUsage, "usage", "7d"},
		{"database create a --ttl 1y", exitUsage, "usage", "7d"},
		{"database create a --ttl 99999999999d", exitUsage, "usage", "7d"},
		{"database create a --metadata task", exitUsage, "usage", "key=value"},
		{"database create a --metadata a=1 --metadata a=2", exitUsage, "usage", "twice"},
		{"database create a --expires-at tomorrow", exitUsage, "usage", "2026-11-30T10:00:00Z"},
		{"database create a --expires-at 2020-01-01T00:00:00Z", exitUsage, "invalid_option", "past"},
		{"database create a --expires-at 2120-01-01T00:00:00Z --ttl 1h", exitUsage, "invalid_option", "TTL"},
		{"database create a --page-size 1000", exitUsage, "invalid_option", "PageSize"},
		{"database create a/b", exitUsage, "invalid_name", "letters"},
		{"database create run-42", exitConflict, "name_taken", "--if-not-exists"},
		{"database create other --idempotency-key k", exitConflict, "idempotency_conflict", "key"},
		{"database get nope", exitNotFound, "not_found", "database list"},
		{"database list --state gone", exitUsage, "invalid_option", "State"},
		{"database list --limit -1", exitUsage, "usage", "--limit"},
		{"database count --max 3", exitThreshold, "over_threshold", "5 databases, more than 3"},
		{"database count --max -1", exitUsage, "usage", "--max"},
		{"database update run-42", exitUsage, "usage", "--ttl"},
		{"database update run-42 --metadata a=b --remove-metadata a", exitUsage, "usage", "\"a\""},
		{"database update run-42 --expires-at soon", exitUsage, "usage", "never"},
		{"database update nope --ttl 1h", exitNotFound, "not_found", "nope"},
		{"database delete run-42", exitUsage, "usage", "--yes"},
		{"database delete nope --yes", exitNotFound, "not_found", "nope"},
		{"database delete kept --yes", exitConflict, "protected", "tonbo database update kept --protected=false"},
		{"database export run-42 - --json", exitUsage, "usage", "standard output"},
		{"database export nope x.db", exitNotFound, "not_found", "nope"},
		{"database import a no-such-file", exitFailed, "failed", "no-such-file"},
		{"database import a exit_test.go", exitFailed, "corrupt", "exit_test.go"},
		{"database freeze nope", exitNotFound, "not_found", "nope"},
		{"fork nope other", exitNotFound, "not_found", "nope"},
		{"fork run-42@never other", exitNotFound, "point_gone", "tonbo log run-42"},
		{"fork run-42 kept", exitConflict, "name_taken", "kept"},
		{"fork run-42 a/b", exitUsage, "invalid_name", "a/b"},
		{"rewind run-42", exitUsage, "usage", "run-42@LABEL"},
		{"rewind golden@slot:1", exitConflict, "frozen", "tonbo database thaw golden"},
		{"rewind run-42@slot:99", exitNotFound, "point_gone", "slot 99"},
		{"checkpoint run-42 " + strings.Repeat("x", 201), exitUsage, "usage", "200 bytes"},
		{"checkpoint golden x", exitConflict, "frozen", "thaw golden"},
		{"checkpoint short x", exitConflict, "expired", "tonbo database update short --ttl"},
		{"checkpoint nope x", exitNotFound, "not_found", "nope"},
		{"log nope", exitNotFound, "not_found", "nope"},
		{"log run-42 --limit -1", exitUsage, "usage", "--limit"},
		{"diff run-42 golden@never", exitNotFound, "point_gone", "tonbo log NAME"},
		{"diff run-42 run-42@never", exitNotFound, "point_gone", "tonbo log run-42"},
		{"diff run-42 nope", exitNotFound, "not_found", "nope"},
		{"diff run-42 run-42 --sql --summary", exitUsage, "usage", "--sql"},
		{"diff run-42@step-6", exitUsage, "usage", "NAME[@POINT]"},
		{"query nope x", exitNotFound, "not_found", "nope"},
		{"query run-42@slot:0 x", exitUsage, "usage", "slot"},
		{"query run-42@slot:x x", exitUsage, "usage", "slot"},
		{"query run-42@time:noon x", exitUsage, "usage", "2026-11-30T10:00:00Z"},
		{"query run-42@point:x x", exitUsage, "usage", "point"},
		{"query run-42@label: x", exitUsage, "usage", "label"},
		{"query @step-6 x", exitUsage, "invalid_name", "@step-6"},
		{"query run-42 x", exitFailed, "sql_error", "syntax"},
		{"query run-42 x --limit -1", exitUsage, "usage", "--limit"},
		{"instance get nope", exitNotFound, "not_found", "nope"},
		{"instance adopt k nope", exitNotFound, "not_found", "nope"},
		{"instance replace k --from step-6", exitNotFound, "not_found", "k"},
		{"instance replace k --from slot:x", exitUsage, "usage", "--from"},
		{"instance replace k --from a --template b", exitUsage, "usage", "--template"},
		{"instance replace k --delete-old", exitUsage, "usage", "--yes"},
		{"instance ensure k --template nope", exitNotFound, "not_found", "nope"},
		{"instance ensure k --expect-id 00", exitConflict, "target_changed", "instance get k"},
		{"janitor --older-than 1h", exitUsage, "invalid_option", "Prefix"},
		{"janitor --max 0", exitUsage, "usage", "--max"},
		{"janitor --dry-run --max 1", exitThreshold, "over_threshold", "left"},
		{"janitor --every 0s", exitUsage, "usage", "15m"},
		{"usage nope", exitNotFound, "not_found", "nope"},
		{"usage --runs-per-day 3", exitUsage, "usage", "--price-file"},
		{"usage --kept 1d", exitUsage, "usage", "--runs-per-day"},
		{"usage --price-file no-such-file", exitFailed, "failed", "no-such-file"},
		{"verify nope", exitNotFound, "not_found", "nope"},
		{"version x", exitUsage, "usage", "version --help"},
		{"log run-42 --url gopher://x", exitUsage, "usage", "s3://bucket/prefix"},
		{"log run-42 --url https://example.com", exitFailed, "unauthorized", "TONBO_API_KEY"}, // nothing is asked without one
	} {
		args := strings.Fields(c.args)
		text := s.run(args...)
		if strings.Contains(c.args, "--json") {
			if text.code != c.exit || !strings.Contains(text.err, c.says) {
				t.Errorf("tonbo %s: %+v", c.args, text)
			}
			continue
		}
		if text.code != c.exit || !strings.HasPrefix(text.err, "tonbo: ") || strings.Count(text.err, "\n") != 1 || !strings.Contains(text.err, c.says) {
			t.Errorf("tonbo %s: exit %d, %q, want exit %d and a line with %q", c.args, text.code, text.err, c.exit, c.says)
		}
		r := s.run(append(args, "--json")...)
		var v struct {
			Error struct{ Code, Message string }
		}
		if err := json.Unmarshal([]byte(r.err), &v); err != nil || r.code != c.exit || v.Error.Code != c.code || !strings.Contains(v.Error.Message, c.says) {
			t.Errorf("tonbo %s --json: exit %d, %q, %v, want exit %d, code %s", c.args, r.code, r.err, err, c.exit, c.code)
		}
		if threshold := c.exit == exitThreshold; (text.out != "") != threshold && !strings.HasPrefix(c.args, "log") && !strings.HasPrefix(c.args, "database list") {
			t.Errorf("tonbo %s: answers %q", c.args, text.out)
		}
	}
	if r := run(t.Context(), []string{"log", "run-42"}, strings.NewReader(""), io.Discard, io.Discard, func(any) bool { return false }); r != exitUsage {
		t.Errorf("without a URL: exit %d", r)
	}
}

// What no command of a healthy account comes to.
func TestEveryErrorHasAnOutcome(t *testing.T) {
	a := &app{}
	for _, c := range []struct {
		err  error
		exit int
		code string
	}{
		{&tonbo.FencedError{Name: "run-42"}, exitConflict, "fenced"},
		{&tonbo.FencedError{Name: "run-42", Deleted: true}, exitConflict, "deleted"},
		{&tonbo.LockedError{Name: "run-42"}, exitConflict, "locked"},
		{&tonbo.ConflictError{}, exitConflict, "conflict"},
		{&tonbo.RestartingError{Err: tonbo.ErrCorrupt}, exitFailed, "instance_restarting"},
		{errors.Join(tonbo.ErrUnsynced, tonbo.ErrUnauthorized), exitFailed, "unsynced"},
		{tonbo.ErrUnauthorized, exitFailed, "unauthorized"},
		{tonbo.ErrForbidden, exitFailed, "forbidden"},
		{tonbo.ErrQuota, exitFailed, "quota"},
		{tonbo.ErrLimit, exitFailed, "database_limit"},
		{tonbo.ErrStoreUnfit, exitFailed, "store_unfit"},
		{tonbo.ErrRemoteLost, exitFailed, "remote_lost"},
		{tonbo.ErrForeignFile, exitFailed, "foreign_file"},
		{tonbo.ErrUnsupported, exitFailed, "unsupported"},
		{context.DeadlineExceeded, exitFailed, "timeout"},
		{fmt.Errorf("get: %w", remote.ErrUnknown), exitFailed, "unreachable"},
		{fmt.Errorf("%w: %w", tonbo.ErrNotFound, remote.ErrNoBucket), exitFailed, "no_bucket"},
		{errors.New("else"), exitFailed, "failed"},
	} {
		if exit, code, message := a.outcome(t.Context(), c.err); exit != c.exit || code != c.code || strings.Contains(message, "%") {
			t.Errorf("%v: exit %d, code %s, %q, want %d, %s", c.err, exit, code, message, c.exit, c.code)
		}
	}
	for _, o := range outcomes {
		if exit, code, _ := a.outcome(t.Context(), o.err); exit != o.exit || code != o.code {
			t.Errorf("%v comes to %d %s: another row is in front of it", o.err, exit, code)
		}
	}
}

// The library's errors that no command can come to.
var unreachable = []string{
	"ErrClosed",   // of a handle that the caller has closed
	"ErrReadOnly", // of calls that only an owner's handle has
}

func TestEveryErrorOfTheLibraryHasAnOutcome(t *testing.T) {
	files, err := filepath.Glob("../../*.go")
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("exit.go")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^(?:\t|var )(Err[A-Z][A-Za-z]*) += (?:errors\.New|changeset\.)`).FindAllStringSubmatch(string(b), -1) {
			if n++; !slices.Contains(unreachable, m[1]) && !strings.Contains(string(table), "{tonbo."+m[1]+",") {
				t.Errorf("%s: %s has no outcome", file, m[1])
			}
		}
	}
	if n < 25 {
		t.Errorf("found %d errors: the pattern does not fit", n)
	}
}

func TestInterruptedExportLeavesNoFile(t *testing.T) {
	s := newShell(t)
	s.agent()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := s.runIn(ctx, "database", "export", "run-42", filepath.Join(dir, "run-42.db"), "--json")
	if r.code != exitFailed || r.out != "" || !strings.Contains(r.err, `"code":"interrupted"`) {
		t.Errorf("interrupted: %+v", r)
	}
	for _, dir := range []string{dir, s.dir} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.Contains(e.Name(), "export") || strings.HasSuffix(e.Name(), ".db") {
				t.Errorf("left behind: %s", filepath.Join(dir, e.Name()))
			}
		}
	}
}

// full is a writer to a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestAnAnswerThatCannotBeWrittenIsAFailure(t *testing.T) {
	s := newShell(t)
	s.agent()
	s.ok("instance", "ensure", "k")
	for _, args := range []string{
		"database get run-42", "database list", "database count", "database update run-42 --ttl 1h", "database export run-42 -", "log run-42", "query run-42 VALUES(1)", "fork run-42 f", "checkpoint run-42 x",
		"diff run-42@slot:1 run-42", "diff run-42@slot:1 run-42 --sql", "diff run-42@slot:1 run-42 --summary", "rewind run-42@slot:1", "instance get k", "instance release k", "janitor", "usage", "verify run-42", "version", "database delete run-42 --yes",
	} {
		for _, json := range []string{"", " --json"} {
			if json != "" && (strings.Contains(args, " -") || strings.HasPrefix(args, "fork")) {
				continue
			}
			var errs strings.Builder
			code := run(t.Context(), s.args(strings.Fields(args+json)...), strings.NewReader(""), full{}, &errs, isTerminal)
			if code != exitFailed || !strings.Contains(errs.String(), syscall.ENOSPC.Error()) {
				t.Errorf("tonbo %s: exit %d, %q", args+json, code, &errs)
			}
		}
	}
}

func TestDeletingAsksOnATerminal(t *testing.T) {
	s := newShell(t)
	s.terminal = true
	for _, c := range []struct {
		answer string
		exit   int
	}{{"", exitFailed}, {"n\n", exitFailed}, {"delete\n", exitFailed}, {"y\n", exitOK}, {"YES\n", exitOK}} {
		s.ok("database", "create", "run-42", "--if-not-exists")
		s.stdin = c.answer
		r := s.run("database", "delete", "run-42")
		if r.code != c.exit || !strings.Contains(r.err, "delete database run-42? It cannot be undone. [y/N] ") {
			t.Errorf("answered %q: %+v, want exit %d", c.answer, r, c.exit)
		}
		left := exitOK
		if c.exit == exitOK {
			left = exitNotFound
		}
		if r := s.run("database", "get", "run-42"); r.code != left {
			t.Errorf("answered %q: then get: %+v", c.answer, r)
		}
	}
}

func TestInterruptedAtTheQuestionNothingIsDeleted(t *testing.T) {
	s := newShell(t)
	s.ok("database", "create", "run-42")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stdin, answer := io.Pipe()
	defer answer.Close()
	errs := watch("[y/N]")
	code := make(chan int)
	go func() {
		code <- run(ctx, s.args("database", "delete", "run-42"), stdin, io.Discard, errs, func(any) bool { return true })
	}()
	<-errs.seen
	cancel()
	if got := <-code; got != exitFailed || !strings.Contains(errs.String(), "interrupted: nothing was done") {
		t.Errorf("exit %d, %q", got, errs)
	}
	s.ok("database", "get", "run-42")
}

func TestInterruptedQueryEnds(t *testing.T) {
	s := newShell(t)
	s.ok("database", "create", "run-42")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, errs := watch("[3]"), watch("never")
	code := make(chan int)
	go func() {
		code <- run(ctx, s.args("query", "run-42", "with recursive n(i) as (select 1 union all select i+1 from n) select i from n", "--limit", "0", "--json"), strings.NewReader(""), out, errs, isTerminal)
	}()
	<-out.seen
	cancel()
	if got := <-code; got != exitFailed || !strings.HasPrefix(errs.String(), `{"error":{"code":"interrupted"`) {
		t.Errorf("exit %d, %q", got, errs)
	}
}

func TestJanitorGoesOnUntilItIsInterrupted(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no interrupt can be sent to a child there")
	}
	s := newShell(t)
	s.ok("database", "create", "run-42")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, errs := watch("1 database left"), watch("never")
	cmd := exec.CommandContext(ctx, os.Args[0], s.args("janitor", "--every", "15m")...)
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-out.seen:
	case <-ctx.Done():
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil || errs.String() != "" {
		t.Errorf("^C: %v, %q", err, errs)
	}
}

func TestJanitorSweepsAgainAndTellsWhatFails(t *testing.T) {
	s := newShell(t)
	s.ok("database", "create", "a")
	s.ok("database", "create", "b")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, errs := &countLines{n: 3, done: cancel}, watch("over_threshold")
	if code := run(ctx, s.args("janitor", "--every", "1ms", "--max", "1", "--json"), strings.NewReader(""), out, errs, isTerminal); code != exitOK {
		t.Errorf("exit %d", code)
	}
	select {
	case <-errs.seen:
	default:
		t.Errorf("stderr: %q", errs)
	}
}

// countLines calls done after n lines.
type countLines struct {
	n    int
	done func()
}

func (c *countLines) Write(p []byte) (int, error) {
	if c.n -= strings.Count(string(p), "\n"); c.n <= 0 {
		c.done()
	}
	return len(p), nil
}

func TestProgressIsShownOnATerminalOnly(t *testing.T) {
	s := newShell(t)
	s.agent()
	s.terminal = true
	r := s.run("verify", "run-42")
	if r.code != exitOK || !strings.HasPrefix(r.err, eraseLine+"restore  ") || !strings.HasSuffix(r.err, eraseLine) {
		t.Errorf("verify: %+v", r)
	}
	if r = s.run("janitor"); !strings.HasSuffix(r.err, "sweep  1 of 1  run-42"+eraseLine) {
		t.Errorf("janitor: %+v", r)
	}
	if strings.Contains(r.out, eraseLine) {
		t.Errorf("progress in the answer: %q", r.out)
	}
	if r = s.run("database", "export", "run-42", "-"); r.code != exitUsage {
		t.Errorf("a database for a terminal: %+v", r)
	}
}

func TestADeviceIsNoTerminal(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if isTerminal(f) || isTerminal(strings.NewReader("")) {
		t.Error("taken for a terminal")
	}
}

// TestARemoteThatIsNotThereIsNotEmpty: a directory with a wrong name is not made by who looks into it, and memory holds nothing for another command.
func TestARemoteThatIsNotThereIsNotEmpty(t *testing.T) {
	s := newDirShell(t)
	s.url += "/typo"
	for _, args := range [][]string{{"database", "list"}, {"database", "get", "run"}, {"query", "run", "select 1"}, {"janitor"}, {"usage"}, {"database", "export", "run", "x"}} {
		if r := s.run(args...); r.code != exitUsage || !strings.Contains(r.err, "there is no directory") {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if _, err := os.Stat(filepath.FromSlash(strings.TrimPrefix(s.url, "file://"))); err == nil {
		t.Error("it was made")
	}
	s.ok("database", "create", "run")
	s.ok("database", "list")
	s.url = "mem://x"
	if r := s.run("database", "create", "run"); r.code != exitUsage || !strings.Contains(r.err, "memory") {
		t.Errorf("mem://: %+v", r)
	}
}
