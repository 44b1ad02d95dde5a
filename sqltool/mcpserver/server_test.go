package mcpserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/sqltool"
	"github.com/tonbo-go/tonbo/sqltool/mcpserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// account is a new one with a database run-42.
func account(t *testing.T, sql ...string) (*tonbo.Client, *tonbo.DB, remote.Store) {
	t.Helper()
	ctx := context.Background()
	store := mem.New("test")
	c, err := tonbo.NewClient(tonbo.Options{Remote: store, Dir: t.TempDir(), Owner: "secret-host"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(ctx, "run-42", tonbo.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	db, err := c.Open(ctx, "run-42")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	for _, q := range sql {
		if _, err := db.Exec(q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	return c, db, store
}

// connect makes a server, and a client of it in memory.
func connect(t *testing.T, c *tonbo.Client, db *tonbo.DB, o mcpserver.Options) (*mcpserver.Server, *mcp.ClientSession) {
	t.Helper()
	s, err := mcpserver.New(c, db, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, client(t, s)
}

func client(t *testing.T, s *mcpserver.Server) *mcp.ClientSession {
	t.Helper()
	ctx := context.Background()
	near, far := mcp.NewInMemoryTransports()
	if _, err := s.MCP().Connect(ctx, far, nil); err != nil {
		t.Fatal(err)
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(ctx, near, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	return session
}

// call is a call of a tool, and whether its answer is an error.
func call(t *testing.T, session *mcp.ClientSession, tool string, args any) (string, bool) {
	t.Helper()
	res, err := session.CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	if len(res.Content) != 1 {
		t.Fatalf("%s: %d contents", tool, len(res.Content))
	}
	return res.Content[0].(*mcp.TextContent).Text, res.IsError
}

func read(t *testing.T, session *mcp.ClientSession, uri string) string {
	t.Helper()
	res, err := session.ReadResource(context.Background(), &mcp.ReadResourceParams{URI: uri})
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Contents) != 1 || res.Contents[0].MIMEType != "application/json" || res.Contents[0].URI != uri {
		t.Fatalf("%s: got %+v", uri, res.Contents)
	}
	return res.Contents[0].Text
}

type args map[string]any

func TestClientWorksOnTheOneDatabase(t *testing.T) {
	c, db, _ := account(t, `CREATE TABLE t(a)`)
	if _, err := db.Checkpoint(context.Background(), "program"); err != nil {
		t.Fatal(err)
	}
	_, session := connect(t, c, db, mcpserver.Options{LabelPrefix: "mcp/", Start: tonbo.Ref{Client: c, Name: "run-42", At: tonbo.Label("program")}})
	for _, step := range []struct {
		tool string
		args args
		want string
		bad  bool
	}{
		{"run_sql", args{"sql": `INSERT INTO t VALUES(1), (2)`}, `{"changes":2}`, false},
		{"checkpoint", args{"label": "two"}, `{"checkpoint":"two"}`, false},
		{"run_sql", args{"sql": `DELETE FROM t`}, `{"changes":2}`, false},
		{"diff", args{"label": "two"}, `{"schema":[],"tables":[{"table":"t","inserted":0,"updated":0,"deleted":2,"columns":["a"],"rows":[{"op":"delete","before":[1]},{"op":"delete","before":[2]}]}]}`, false},
		{"diff", args{"label": ""}, `{"schema":[],"tables":[]}`, false},
		{"rewind", args{"label": "two"}, `{"rewound":"two"}`, false},
		{"run_sql", args{"sql": `SELECT count(*) AS n FROM t`}, `{"columns":["n"],"rows":[[2]]}`, false},
		{"describe_schema", args{}, `{"columns":["type","name","sql"],"rows":[["table","t","CREATE TABLE t(a)"]]}`, false},
		{"rewind", args{"label": "program"}, `{"error":{"message":"there is no checkpoint \"program\""}}`, true},
		{"run_sql", args{"sql": `SELECT b FROM t`}, `{"error":{"message":"no such column: b","near":"b FROM t","line":1,"column":8,"hint":"did you mean t.a?"}}`, true},
		{"run_sql", args{"sql": `ATTACH 'x' AS y`}, `{"error":{"message":"ATTACH, DETACH and VACUUM are not available"}}`, true},
		{"run_sql", args{"sql": `SELECT 1`, "database": "other"}, `{"error":{"message":"unknown property \"database\": the input must be a JSON object with exactly these properties, all strings: sql"}}`, true},
		{"run_sql", nil, `{"error":{"message":"the input must be a JSON object with exactly these properties, all strings: sql"}}`, true},
	} {
		if out, bad := call(t, session, step.tool, step.args); out != step.want || bad != step.bad {
			t.Errorf("%s %v: error %v\n got %s\nwant %s", step.tool, step.args, bad, out, step.want)
		}
	}
	if got := read(t, session, mcpserver.SchemaURI); !strings.Contains(got, "CREATE TABLE t(a)") {
		t.Errorf("schema: %s", got)
	}
	var history []mcpserver.HistoryEntry
	text := read(t, session, mcpserver.HistoryURI)
	if err := json.Unmarshal([]byte(text), &history); err != nil {
		t.Fatal(err)
	}
	labels := []string{}
	for _, e := range history {
		if e.Label != "" {
			labels = append(labels, e.Label)
		}
	}
	if !slices.ContainsFunc(history, func(e mcpserver.HistoryEntry) bool { return e.Kind == "rewind" }) || !slices.Equal(labels, []string{"two"}) {
		t.Errorf("history: %s", text)
	}
	for _, secret := range []string{"run-42", "secret-host", "program"} {
		if strings.Contains(text, secret) {
			t.Errorf("the history tells %q: %s", secret, text)
		}
	}
	if _, err := session.ReadResource(context.Background(), &mcp.ReadResourceParams{URI: "tonbo://other/schema"}); err == nil {
		t.Error("another resource can be read")
	}
}

func TestToolsAreAnnotatedAndOfferedAsTheDatabaseIsGoodFor(t *testing.T) {
	ctx := context.Background()
	c, db, store := account(t, `CREATE TABLE t(a)`)
	if err := db.Synced(ctx); err != nil {
		t.Fatal(err)
	}
	reader, err := tonbo.OpenReadOnly(ctx, "run-42", tonbo.Options{Remote: store, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for name, test := range map[string]struct {
		db   *tonbo.DB
		o    mcpserver.Options
		want string
	}{
		"all":       {db, mcpserver.Options{}, "checkpoint additive idempotent, describe_schema reads, diff reads, rewind destructive idempotent, run_sql destructive"},
		"some":      {db, mcpserver.Options{Tools: []string{"run_sql"}}, "run_sql destructive"},
		"limits":    {db, mcpserver.Options{Limits: sqltool.Limits{ReadOnly: true}}, "describe_schema reads, diff reads, run_sql reads"},
		"read-only": {reader, mcpserver.Options{}, "describe_schema reads, diff reads, run_sql reads"},
	} {
		t.Run(name, func(t *testing.T) {
			_, session := connect(t, c, test.db, test.o)
			var got []string
			for tool, err := range session.Tools(ctx, nil) {
				if err != nil {
					t.Fatal(err)
				}
				a := tool.Annotations
				what := tool.Name
				switch {
				case a.ReadOnlyHint:
					what += " reads"
				case *a.DestructiveHint:
					what += " destructive"
				default:
					what += " additive"
				}
				if a.IdempotentHint && !a.ReadOnlyHint {
					what += " idempotent"
				}
				got = append(got, what)
				schema := tool.InputSchema.(map[string]any)
				if props := schema["properties"].(map[string]any); len(props) > 1 || schema["additionalProperties"] != false || *a.OpenWorldHint || tool.Title == "" || tool.Description == "" {
					t.Errorf("got %+v", tool)
				}
			}
			if s := strings.Join(got, ", "); s != test.want {
				t.Errorf("got %s, want %s", s, test.want)
			}
			if out, bad := call(t, session, "run_sql", args{"sql": `SELECT count(*) AS n FROM t`}); bad || out != `{"columns":["n"],"rows":[[0]]}` {
				t.Errorf("got %s", out)
			}
		})
	}
	for _, o := range []mcpserver.Options{{Tools: []string{"drop_database"}}, {Tools: []string{"rewind"}, Limits: sqltool.Limits{ReadOnly: true}}, {Limits: sqltool.Limits{Rows: -1}}} {
		if _, err := mcpserver.New(c, db, o); !errors.Is(err, tonbo.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestReadOnlyServerSeesWhatTheOwnerHasShipped(t *testing.T) {
	ctx := context.Background()
	c, db, store := account(t, `CREATE TABLE t(a)`)
	if err := db.Synced(ctx); err != nil {
		t.Fatal(err)
	}
	reader, err := tonbo.OpenReadOnly(ctx, "run-42", tonbo.Options{Remote: store, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	_, session := connect(t, c, reader, mcpserver.Options{})
	for n, want := range []string{`[[0]]`, `[[1]]`} {
		if out, bad := call(t, session, "run_sql", args{"sql": `SELECT count(*) FROM t`}); bad || !strings.Contains(out, want) {
			t.Errorf("after %d: %s", n, out)
		}
		if _, err := db.Exec(`INSERT INTO t VALUES(1)`); err != nil {
			t.Fatal(err)
		}
		if err := db.Synced(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if out, bad := call(t, session, "run_sql", args{"sql": `DELETE FROM t`}); !bad || !strings.Contains(out, "can only be read") {
		t.Errorf("got %s", out)
	}
}

func TestErrorsOfTheProgramsAreLoggedAndNotTold(t *testing.T) {
	ctx := context.Background()
	c, db, store := account(t, `CREATE TABLE t(a)`)
	if err := db.Synced(ctx); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	_, session := connect(t, c, db, mcpserver.Options{Limits: sqltool.Limits{SyncEach: true}, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))})
	other, err := tonbo.Open(ctx, "run-42", tonbo.Options{Remote: store, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	out, bad := call(t, session, "run_sql", args{"sql": `INSERT INTO t VALUES(1)`})
	if !bad {
		t.Errorf("got %s", out)
	}
	for _, secret := range []string{"run-42", "secret-host", "generation", "fenced", "/"} {
		if strings.Contains(out, secret) {
			t.Errorf("the client is told %q: %s", secret, out)
		}
	}
	if !strings.Contains(log.String(), "run_sql") || !strings.Contains(log.String(), "run-42") {
		t.Errorf("logged: %s", log.String())
	}
}

func TestPanicEndsTheServerAndNotTheProcess(t *testing.T) {
	c, db, _ := account(t)
	s, session := connect(t, c, db, mcpserver.Options{})
	s.MCP().AddTool(&mcp.Tool{Name: "broken", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { panic("secret-host") })
	if s.Panic() != nil {
		t.Error(s.Panic())
	}
	if _, err := session.CallTool(context.Background(), &mcp.CallToolParams{Name: "broken"}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
	<-s.Broken()
	if p, _ := s.Panic().(string); !strings.HasPrefix(p, "secret-host\n") || !strings.Contains(p, "server_test.go") {
		t.Errorf("got %s", p)
	}
}

func TestCloseEndsCallsUnderWay(t *testing.T) {
	c, db, _ := account(t)
	s, session := connect(t, c, db, mcpserver.Options{})
	running := make(chan struct{})
	s.MCP().AddTool(&mcp.Tool{Name: "waits", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		close(running)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	done := make(chan error, 1)
	go func() {
		_, err := session.CallTool(context.Background(), &mcp.CallToolParams{Name: "waits"})
		done <- err
	}()
	<-running
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err == nil {
		t.Error("no error")
	}
}
