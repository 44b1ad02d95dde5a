package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tonbo-go/tonbo"
)

// mcpChild starts the command as a process of its own, and connects to it over its standard input and output.
func (s *shell) mcpChild(args ...string) (*mcp.ClientSession, *exec.Cmd) {
	s.t.Helper()
	cmd := exec.Command(os.Args[0], s.args(append([]string{"mcp"}, args...)...)...)
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.Stderr = os.Stderr
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(context.Background(), &mcp.CommandTransport{Command: cmd, TerminateDuration: time.Minute}, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { session.Close() })
	return session, cmd
}

// runSQL is a call of run_sql, and whether its answer is an error.
func runSQL(t *testing.T, session *mcp.ClientSession, sql string) (string, bool) {
	t.Helper()
	return callTool(t, session, "run_sql", map[string]any{"sql": sql})
}

func callTool(t *testing.T, session *mcp.ClientSession, tool string, args map[string]any) (string, bool) {
	t.Helper()
	res, err := session.CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatal(err)
	}
	return res.Content[0].(*mcp.TextContent).Text, res.IsError
}

func tools(t *testing.T, session *mcp.ClientSession) string {
	t.Helper()
	var names []string
	for tool, err := range session.Tools(context.Background(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	return strings.Join(names, " ")
}

func TestMCPOverStdioKeepsWhatItsClientDid(t *testing.T) {
	s := newShell(t)
	s.agent()
	session, cmd := s.mcpChild("--database", "run-42", "--max-rows", "1")
	if got := tools(t, session); got != "checkpoint describe_schema diff rewind run_sql" {
		t.Errorf("tools: %s", got)
	}
	if out, bad := runSQL(t, session, `INSERT INTO steps VALUES(8, 'write', NULL) RETURNING id`); bad {
		t.Fatal(out)
	}
	if out, bad := runSQL(t, session, `SELECT id FROM steps`); bad || !strings.Contains(out, `"rows":[[6]],"truncated":true`) {
		t.Errorf("got %s", out)
	}
	if out, bad := callTool(t, session, "diff", map[string]any{"label": ""}); bad || !strings.Contains(out, `"inserted":1`) || strings.Contains(out, "run-42") {
		t.Errorf("got %s", out)
	}
	if out, bad := callTool(t, session, "checkpoint", map[string]any{"label": "done"}); bad {
		t.Errorf("got %s", out)
	}
	if out, bad := callTool(t, session, "rewind", map[string]any{"label": "step-6"}); !bad { // the agent's
		t.Errorf("got %s", out)
	}
	if r := s.run("mcp", "--database", "run-42"); r.code != exitConflict || !strings.Contains(r.err, "--take-over") {
		t.Errorf("while it is open: exit %d, %s", r.code, r.err)
	}
	if err := session.Close(); err != nil { // it closes its standard input, and waits
		t.Error(err)
	}
	if code := cmd.ProcessState.ExitCode(); code != exitOK {
		t.Errorf("exit %d", code)
	}
	contains(t, s.ok("query", "run-42@mcp/done", "SELECT count(*) FROM steps"), "3")
	contains(t, s.ok("log", "run-42", "--limit", "1"), "close")
}

func TestMCPScratchForkIsGoneWhenItsClientHangsUp(t *testing.T) {
	s := newShell(t)
	s.agent()
	session, cmd := s.mcpChild("--scratch", "run-42", "--task", "delete everything")
	forks := s.lines("database", "list", "--metadata", "kind="+tonbo.ScratchKind)
	if len(forks) != 1 || forks[0]["expires_at"] == nil || forks[0]["metadata"].(map[string]any)["task"] != "delete everything" {
		t.Fatalf("forks: %v", forks)
	}
	if out, bad := runSQL(t, session, `DELETE FROM steps`); bad || out != `{"changes":2}` {
		t.Errorf("got %s", out)
	}
	if out, bad := callTool(t, session, "diff", map[string]any{"label": ""}); bad || !strings.Contains(out, `"deleted":2`) || strings.Contains(out, "run-42") {
		t.Errorf("got %s", out)
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
	if code := cmd.ProcessState.ExitCode(); code != exitOK {
		t.Errorf("exit %d", code)
	}
	s.noScratch()
	contains(t, s.ok("query", "run-42", "SELECT count(*) FROM steps"), "2")
}

// noScratch fails when a scratch database is left, in the remote or here.
func (s *shell) noScratch() {
	s.t.Helper()
	if forks := s.lines("database", "list", "--metadata", "kind="+tonbo.ScratchKind); len(forks) > 0 {
		s.t.Errorf("left: %v", forks)
	}
	files, err := os.ReadDir(s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range files {
		if strings.Contains(f.Name(), "scratch") {
			s.t.Errorf("left: %s", f.Name())
		}
	}
}

func TestMCPScratchForkIsGoneWhenTheProcessIsToldToStop(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no SIGTERM; TestMCPOverHTTP cancels the command instead, here too")
	}
	for _, signal := range stopSignals {
		t.Run(signal.String(), func(t *testing.T) {
			s := newShell(t)
			s.agent()
			session, cmd := s.mcpChild("--scratch", "run-42")
			go session.CallTool(context.Background(), &mcp.CallToolParams{Name: "run_sql", Arguments: map[string]any{"sql": `SELECT count(*) FROM generate_series(1, 1e15)`}}) // perhaps under way
			if out, bad := callTool(t, session, "describe_schema", nil); bad {
				t.Fatal(out)
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			session.Wait()
			session.Close()
			if code := cmd.ProcessState.ExitCode(); code != exitOK {
				t.Errorf("exit %d", code)
			}
			s.noScratch()
		})
	}
}

func TestMCPOverHTTPServesUntilItIsInterrupted(t *testing.T) {
	s := newShell(t)
	s.agent()
	for name, test := range map[string]struct {
		args  []string
		tools string
	}{
		"scratch":   {[]string{"--scratch", "run-42"}, "checkpoint describe_schema diff rewind run_sql"},
		"database":  {[]string{"--database", "run-42", "--tools", "run_sql,checkpoint", "--sync-each"}, "checkpoint run_sql"},
		"read-only": {[]string{"--database", "run-42", "--read-only"}, "describe_schema diff run_sql"},
		"point":     {[]string{"--database", "run-42@step-6"}, "describe_schema diff run_sql"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			out, errs := watch("\n"), watch("\n")
			done := make(chan int, 1)
			go func() {
				done <- run(ctx, s.args(append([]string{"mcp", "--http", "127.0.0.1:0", "--json"}, test.args...)...), strings.NewReader(""), out, errs, func(any) bool { return false })
			}()
			select {
			case <-out.seen:
			case <-errs.seen:
				t.Fatal(errs)
			}
			var at struct{ URL string }
			if err := json.Unmarshal([]byte(out.String()), &at); err != nil || !strings.HasSuffix(at.URL, "/mcp") {
				t.Fatalf("answered %q: %v", out, err)
			}
			session, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(ctx, &mcp.StreamableClientTransport{Endpoint: at.URL}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			if got := tools(t, session); got != test.tools {
				t.Errorf("tools: %s", got)
			}
			text, bad := runSQL(t, session, `DELETE FROM steps WHERE id = 7`)
			if readOnly := name == "read-only" || name == "point"; bad != readOnly {
				t.Errorf("got %s", text)
			}
			cancel()
			if code := <-done; code != exitOK || errs.String() != "" {
				t.Errorf("exit %d: %s", code, errs)
			}
			s.noScratch()
		})
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	contains(t, s.ok("query", "run-42", "SELECT count(*) FROM steps"), "1")
}

func TestMCPFlagsThatMakeNoSenseAreExplained(t *testing.T) {
	s := newDirShell(t)
	s.agent()
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"", exitUsage, "--database NAME, or --scratch NAME"},
		{"--database run-42 --scratch run-42", exitUsage, "--database NAME, or --scratch NAME"},
		{"--database nope", exitNotFound, "tonbo database list"},
		{"--scratch nope", exitNotFound, "tonbo database list"},
		{"--database run-42@nope", exitNotFound, "tonbo log"},
		{"--database a/b", exitUsage, "invalid name"},
		{"--scratch run-42@step-6", exitNotFound, "no such database"}, // a name may have an @
		{"--scratch run-42 --read-only", exitUsage, "--database"},
		{"--database run-42@step-6 --take-over", exitUsage, "only read"},
		{"--database run-42 --read-only --sync-each", exitUsage, "only be read"},
		{"--database run-42 --read-only --tools rewind", exitUsage, "only be read"},
		{"--database run-42 --tools drop", exitUsage, "no tool"},
		{"--database run-42 --http 8080", exitUsage, "127.0.0.1:8931"},
		{"--database run-42 --http :8080", exitUsage, "--allow-remote"},
		{"--database run-42 --http 0.0.0.0:8080", exitUsage, "no authentication"},
		{"--database run-42 --http 192.0.2.1:1 --allow-remote", exitFailed, "192.0.2.1"},
		{"--database run-42 --allow-remote", exitUsage, "--http"},
		{"--database run-42 --max-rows -1", exitUsage, "below zero"},
		{"--database run-42 --max-memory 5", exitUsage, "Memory"},
		{"--database run-42 --max-time 0", exitUsage, "duration above zero"},
	} {
		r := s.run(append([]string{"mcp"}, strings.Fields(test.args)...)...)
		if r.code != test.code || !strings.Contains(r.err, test.want) || r.out != "" {
			t.Errorf("tonbo mcp %s: exit %d, want %d; %q, want %q; stdout %q", test.args, r.code, test.code, r.err, test.want, r.out)
		}
	}
	// Nothing of that took the database over.
	if out := s.ok("log", "run-42", "--limit", "1"); !strings.Contains(out, "close") {
		t.Errorf("the log: %s", out)
	}
}
