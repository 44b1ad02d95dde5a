package mcpserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/sqltool"
)

// The names of the tools.
const (
	RunSQL         = "run_sql"
	DescribeSchema = "describe_schema"
	Checkpoint     = "checkpoint"
	Rewind         = "rewind"
	Diff           = "diff"
)

// Options of New. The zero value offers all tools that db is good for.
type Options struct {
	Limits sqltool.Limits // of run_sql; describe_schema and diff take Time, Memory and Triggers' like from it. A read-only db makes it ReadOnly

	// Tools are those that are offered; nil: all, but for checkpoint and rewind where nothing can be written.
	Tools []string
	// LabelPrefix comes before each label that a model chooses or names, so that it reaches none of the program's.
	LabelPrefix string
	// Start is what diff compares with without a label; nil: a label must be given.
	Start tonbo.Source

	Version string       // of the server, for clients
	Logger  *slog.Logger // what clients are not told: errors of the program's, panics; nil: nothing
}

// Server offers a database. Its sessions share it: what one does, the others see.
type Server struct {
	c     *tonbo.Client
	db    *tonbo.DB
	o     Options
	mcp   *mcp.Server
	tools []*sqltool.Tool

	base context.Context // of all calls: Close ends it
	end  context.CancelCauseFunc

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup // Add under mu, while not closed
	broken chan struct{}  // closed at the first panic
	first  any            // its value, and where
	once   sync.Once
}

// errClosed ends the calls of a server that is closed.
var errClosed = errors.New("the server is closed")

// New makes a server of db, which must be a database of c. Close it before db. Errors, for errors.Is: [tonbo.ErrInvalid].
func New(c *tonbo.Client, db *tonbo.DB, o Options) (*Server, error) {
	if c == nil || db == nil {
		return nil, fmt.Errorf("mcpserver: %w: the client or the database is nil", tonbo.ErrInvalid)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if db.Status().ReadOnly {
		o.Limits.ReadOnly = true
	}
	s := &Server{c: c, db: db, o: o, broken: make(chan struct{})}
	if err := s.makeTools(); err != nil {
		return nil, err
	}
	s.base, s.end = context.WithCancelCause(context.Background())
	s.mcp = mcp.NewServer(&mcp.Implementation{Name: "tonbo", Title: "A SQLite database", Version: cmp.Or(o.Version, "(devel)")}, &mcp.ServerOptions{
		Instructions: s.instructions(),
		Logger:       o.Logger,
		Capabilities: &mcp.ServerCapabilities{}, // what there is follows from what is added
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.CacheScope = "private" },
	})
	for _, t := range s.tools {
		s.mcp.AddTool(describe(t), s.handle(t))
	}
	s.addResources()
	s.mcp.AddReceivingMiddleware(s.guard)
	return s, nil
}

// makeTools makes those that are offered.
func (s *Server) makeTools() error {
	all := []string{RunSQL, DescribeSchema, Checkpoint, Rewind, Diff}
	offered := s.o.Tools
	writes := func(name string) bool { return name == Checkpoint || name == Rewind }
	if offered == nil {
		offered = slices.DeleteFunc(slices.Clone(all), func(n string) bool { return s.o.Limits.ReadOnly && writes(n) })
	}
	for _, name := range offered {
		switch {
		case !slices.Contains(all, name):
			return fmt.Errorf("mcpserver: %w: there is no tool %q: want some of %s", tonbo.ErrInvalid, name, strings.Join(all, ", "))
		case s.o.Limits.ReadOnly && writes(name):
			return fmt.Errorf("mcpserver: %w: the tool %s writes, and the database can only be read", tonbo.ErrInvalid, name)
		}
	}
	reads := sqltool.Limits{Time: s.o.Limits.Time, Memory: s.o.Limits.Memory}
	add := func(name string, make func() (*sqltool.Tool, error)) error {
		if !slices.Contains(offered, name) {
			return nil
		}
		t, err := make()
		if err == nil {
			s.tools = append(s.tools, t)
		}
		return err
	}
	return errors.Join(
		add(RunSQL, func() (*sqltool.Tool, error) { return sqltool.New(s.db, s.o.Limits) }),
		add(DescribeSchema, func() (*sqltool.Tool, error) { return sqltool.DescribeSchema(s.db, reads) }),
		add(Checkpoint, func() (*sqltool.Tool, error) { return sqltool.Checkpoint(s.db, s.o.LabelPrefix), nil }),
		add(Diff, func() (*sqltool.Tool, error) { return sqltool.Diff(s.c, s.db, s.o.LabelPrefix, s.o.Start, reads) }),
		add(Rewind, func() (*sqltool.Tool, error) { return sqltool.Rewind(s.c, s.db, s.o.LabelPrefix, s.tools...), nil }), // last: it takes the others' connections
	)
}

func (s *Server) instructions() string {
	i := "One SQLite database, the one of this task."
	if s.o.Limits.ReadOnly {
		return i + " It can only be read."
	}
	return i + " It may be read and changed."
}

// describe is a tool as clients see it. What it does stays within the database, so its world is closed.
func describe(t *sqltool.Tool) *mcp.Tool {
	no := false
	destructive := t.Destructive
	titles := map[string]string{RunSQL: "Run SQL", DescribeSchema: "Describe the schema", Checkpoint: "Give the present state a label", Rewind: "Go back to a label", Diff: "What has changed"}
	return &mcp.Tool{
		Name: t.Name, Title: titles[t.Name], Description: t.Description, InputSchema: t.Schema,
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: t.ReadOnly, DestructiveHint: &destructive, IdempotentHint: t.ReadOnly || t.Name != RunSQL, OpenWorldHint: &no},
	}
}

// handle makes the tool a handler. The model's errors are answers, and the program's too, in words for the model; only the log tells more.
func (s *Server) handle(t *sqltool.Tool) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.refresh(ctx)
		in := req.Params.Arguments
		if string(in) == "null" { // some clients spell no arguments so
			in = nil
		}
		out, err := t.Call(ctx, in)
		s.note(ctx, t.Name, err)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(out)}}, IsError: err != nil}, nil
	}
}

// refresh moves a read-only handle to the head. One at a point stays there. When it fails, the call sees the state that there is.
func (s *Server) refresh(ctx context.Context) {
	if !s.db.Status().ReadOnly {
		return
	}
	if err := s.db.Refresh(ctx); err != nil {
		s.note(ctx, "refresh", err)
	}
}

// note logs what is the program's to know.
func (s *Server) note(ctx context.Context, what string, err error) {
	var model *sqltool.Error
	if err == nil || errors.As(err, &model) && !errors.Is(err, tonbo.ErrUnsynced) || ctx.Err() != nil {
		return
	}
	s.o.Logger.Error("a call failed", "call", what, "error", err)
}

// guard is around each request: it counts, ends with the server, and does not let a panic end the process before the program has tidied up.
func (s *Server) guard(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		ctx, leave, ok := s.enter(ctx)
		if !ok {
			return nil, errClosed
		}
		defer leave()
		defer func() {
			if p := recover(); p != nil {
				s.once.Do(func() {
					s.first = fmt.Sprintf("%v\n%s", p, debug.Stack())
					close(s.broken)
				})
				res, err = nil, errors.New("the server failed")
			}
		}()
		return next(ctx, method, req)
	}
}

// enter begins a call, which ends with ctx or with the server; Close waits until the caller leaves. Not ok: it is closed.
func (s *Server) enter(ctx context.Context) (_ context.Context, leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, false
	}
	s.calls.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.base, func() { cancel(context.Cause(s.base)) })
	return ctx, func() {
		stop()
		cancel(nil)
		s.calls.Done()
	}, true
}

// MCP is the server itself: to add tools of the program's own, or to serve it over another transport.
func (s *Server) MCP() *mcp.Server { return s.mcp }

// Broken is closed when a call has panicked. The server answers on, but what state its database's handle is in is not known: close both. Panic tells what it was.
func (s *Server) Broken() <-chan struct{} { return s.broken }

// Panic is the value that the first call that panicked did so with, and its stack; nil: none has.
func (s *Server) Panic() any {
	select {
	case <-s.broken:
		return s.first
	default:
		return nil
	}
}

// Close ends all sessions and calls, waits for them, and gives the tools' connections back to the database.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end(errClosed)
	for session := range s.mcp.Sessions() {
		session.Close()
	}
	s.calls.Wait()
	var errs []error
	for _, t := range s.tools {
		errs = append(errs, t.Close())
	}
	return errors.Join(errs...)
}
