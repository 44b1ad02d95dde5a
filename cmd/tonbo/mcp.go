package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/sqltool"
	"github.com/tonbo-go/tonbo/sqltool/mcpserver"
)

// mcpFlags say which database is offered, with what, and how.
type mcpFlags struct {
	database, scratch, task string
	readOnly, takeOver      bool
	http                    string
	remote                  bool
	origins                 []string
	tools                   []string
	labels                  string
	limits                  sqltool.Limits
	time                    duration
}

func (a *app) mcp() *cobra.Command {
	var m mcpFlags
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Offer one database to a model, as a server of the Model Context Protocol",
		Long: `Offer one database to a model, as a server of the Model Context Protocol: tools run_sql, describe_schema, checkpoint, rewind and diff, resources schema and history. The database is the one that is named here, and no client can choose another one or learn its name. What a model runs is contained and bounded; docs/sqltool.md tells how.

  --database run-42         opens it, which takes it over; refused when somebody has it open, but with --take-over
  --database run-42@step-7  a point: it can only be read
  --scratch golden          a fork of golden for this run of the command, deleted at its end; golden is not touched

It speaks over stdin and stdout, with one client, until that closes stdin; or with --http over streamable HTTP, with any number of clients that share the database, until it is interrupted (exit 0). HTTP is for this machine alone and knows no users: who reaches the port has the database.

At the end what was done is shipped. While it runs it is shipped a second later, or with --sync-each before a call is answered.

A scratch fork is deleted when the client hangs up, the command is interrupted (SIGINT, SIGTERM), or fails. When it is killed, the fork expires within an hour, and tonbo janitor deletes it.`,
		Example: `  tonbo mcp --database run-42
  tonbo mcp --scratch golden --task "why do refunds fail"
  tonbo mcp --database run-42 --read-only --http 127.0.0.1:8931`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m.limits.Time = time.Duration(m.time)
			return a.serveMCP(cmd.Context(), &m)
		},
	}
	f := cmd.Flags()
	f.StringVar(&m.database, "database", "", "the database: NAME, or NAME@POINT to read as of a point")
	f.StringVar(&m.scratch, "scratch", "", "fork this database, offer the fork, and delete it at the end")
	f.StringVar(&m.task, "task", "tonbo mcp", "what the fork is for, in its metadata; with --scratch")
	f.BoolVar(&m.readOnly, "read-only", false, "nothing can be changed; the database is not taken over, and calls see what its owner has shipped")
	addTakeOver(cmd, &m.takeOver)
	f.BoolVar(&m.limits.SyncEach, "sync-each", false, "ship what a call has written before it is answered")
	f.StringVar(&m.http, "http", "", "serve streamable HTTP on this loopback address, at /mcp: 127.0.0.1:8931; port 0: any")
	f.BoolVar(&m.remote, "allow-remote", false, "let --http be an address that other machines reach: put something before it that knows who may")
	f.StringSliceVar(&m.origins, "allow-origin", nil, "also serve browsers' requests of pages of this origin: https://app.example.com; can be given several times")
	f.StringSliceVar(&m.tools, "tools", nil, "offer only these of run_sql, describe_schema, checkpoint, rewind, diff (default all, to read only the first two and diff)")
	f.StringVar(&m.labels, "label-prefix", "mcp/", "what comes before each label that the model gives or names, so that it reaches no others")
	f.IntVar(&m.limits.Rows, "max-rows", 0, "rows that a call of run_sql returns (default 200)")
	f.IntVar(&m.limits.Bytes, "max-bytes", 0, "bytes of JSON that they take (default 65536)")
	f.IntVar(&m.limits.CellBytes, "max-cell-bytes", 0, "bytes of a value, before it is cut (default 4096)")
	f.Var(&m.time, "max-time", "how long a call may take (default 10s)")
	f.Int64Var(&m.limits.Steps, "max-steps", 0, "steps of SQLite's machine in a call (default 1000000000)")
	f.Int64Var(&m.limits.Memory, "max-memory", 0, "bytes of memory that SQLite may use for a call (default 48 MiB)")
	f.Int64Var(&m.limits.GrowBytes, "max-growth", 0, "bytes by which the database may grow in a call (default 256 MiB)")
	f.BoolVar(&m.limits.Multi, "multi", false, "a call may have several statements, and a transaction around them")
	f.BoolVar(&m.limits.Triggers, "triggers", false, "the model may create triggers")
	cmd.RegisterFlagCompletionFunc("database", a.names(0))
	cmd.RegisterFlagCompletionFunc("scratch", a.names(0))
	return cmd
}

// check tells what cannot be about the flags. name and at are of --database.
func (m *mcpFlags) check() (name string, at tonbo.At, err error) {
	switch {
	case (m.database == "") == (m.scratch == ""):
		return "", nil, &usageError{err: errors.New("which database? --database NAME, or --scratch NAME for a fork of it that is deleted at the end"), command: "tonbo mcp"}
	case m.scratch != "" && (m.readOnly || m.takeOver):
		return "", nil, usagef("--read-only and --take-over are for --database: a scratch fork is nobody else's")
	case m.http == "" && (m.remote || m.origins != nil):
		return "", nil, usagef("--allow-remote and --allow-origin are for --http")
	case m.limits.Rows < 0 || m.limits.Bytes < 0 || m.limits.CellBytes < 0 || m.limits.Steps < 0 || m.limits.Memory < 0 || m.limits.GrowBytes < 0:
		return "", nil, usagef("a limit below zero: 0 is the default")
	}
	if m.http != "" {
		host, _, err := net.SplitHostPort(m.http)
		if err != nil {
			return "", nil, usagef("--http %q: want an address and a port, such as 127.0.0.1:8931", m.http)
		}
		if !mcpserver.Loopback(host) && !m.remote {
			return "", nil, usagef("--http %s can be reached from other machines, and there is no authentication: want 127.0.0.1, [::1] or localhost, or --allow-remote", m.http)
		}
	}
	if m.scratch != "" {
		return m.scratch, nil, tonbo.ValidateName(m.scratch)
	}
	name, at, err = parseNameAt(m.database)
	if err != nil {
		return "", nil, err
	}
	if at != nil {
		if m.takeOver {
			return "", nil, usagef("--take-over: a point is only read")
		}
		m.readOnly = true
	}
	if m.readOnly {
		if m.limits.SyncEach || m.takeOver {
			return "", nil, usagef("--sync-each and --take-over write, and the database can only be read")
		}
		if i := slices.IndexFunc(m.tools, func(t string) bool { return t == mcpserver.Checkpoint || t == mcpserver.Rewind }); i >= 0 {
			return "", nil, usagef("--tools %s: it writes, and the database can only be read", m.tools[i])
		}
	}
	return name, at, nil
}

// serveMCP opens what is to be offered, serves it, and closes it.
func (a *app) serveMCP(ctx context.Context, m *mcpFlags) (err error) {
	name, at, err := m.check()
	if err != nil {
		return err
	}
	a.subject = name
	o, err := a.options()
	if err != nil {
		return err
	}
	if m.scratch == "" && !m.readOnly {
		o.SyncEvery = time.Second
	}
	c, err := a.clientOf(o)
	if err != nil {
		return err
	}
	var serve func(context.Context, *tonbo.DB, tonbo.Source) error
	if m.http == "" {
		serve = func(ctx context.Context, db *tonbo.DB, start tonbo.Source) error {
			s, err := a.newMCP(c, db, m, start)
			if err != nil {
				return err
			}
			err = s.ServeStdio(ctx, a.stdin, a.stdout)
			return errors.Join(err, s.Close())
		}
	} else {
		// The port before the database: another server on it is found before anything is taken over.
		l, err := net.Listen("tcp", m.http)
		if err != nil {
			return err
		}
		defer l.Close()
		serve = func(ctx context.Context, db *tonbo.DB, start tonbo.Source) error {
			s, err := a.newMCP(c, db, m, start)
			if err != nil {
				return err
			}
			if err := a.listening(l.Addr()); err != nil {
				return errors.Join(err, s.Close())
			}
			return s.ServeHTTP(ctx, l, atMCP(s.Handler(m.origins)))
		}
	}
	switch {
	case m.scratch != "":
		err = a.onScratch(ctx, c, m, serve)
	case m.readOnly:
		o.At = at
		err = onReadOnly(ctx, name, o, serve)
	default:
		err = onDatabase(ctx, c, name, m.takeOver, serve)
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) && onlyInterrupted(err) {
		return nil // that is how it is stopped
	}
	return err
}

// onlyInterrupted tells whether an error says nothing but that the command was interrupted.
func onlyInterrupted(err error) bool {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range j.Unwrap() {
			if !onlyInterrupted(e) {
				return false
			}
		}
		return true
	}
	return err == context.Canceled
}

func (a *app) newMCP(c *tonbo.Client, db *tonbo.DB, m *mcpFlags, start tonbo.Source) (*mcpserver.Server, error) {
	level := slog.LevelError
	if a.verbose {
		level = slog.LevelDebug
	}
	return mcpserver.New(c, db, mcpserver.Options{
		Limits: m.limits, Tools: m.tools, LabelPrefix: m.labels, Start: start, Version: buildVersion(),
		Logger: slog.New(slog.NewTextHandler(a.progress.above(), &slog.HandlerOptions{Level: level})),
	})
}

func onDatabase(ctx context.Context, c *tonbo.Client, name string, takeOver bool, serve func(context.Context, *tonbo.DB, tonbo.Source) error) error {
	if !takeOver {
		if err := notOpen(ctx, c, name); err != nil {
			return err
		}
	}
	db, err := c.Open(ctx, name)
	if err != nil {
		return err
	}
	err = serve(ctx, db, tonbo.Ref{Client: c, Name: name, At: db.Status().Point})
	return errors.Join(err, db.Close())
}

func onReadOnly(ctx context.Context, name string, o tonbo.Options, serve func(context.Context, *tonbo.DB, tonbo.Source) error) error {
	db, err := tonbo.OpenReadOnly(ctx, name, o)
	if err != nil {
		return err
	}
	err = serve(ctx, db, nil)
	return errors.Join(err, db.Close())
}

// onScratch serves a fork that is gone afterwards. Nothing that goes wrong in a call leaves it behind, only the end of the process at once: then it expires.
func (a *app) onScratch(ctx context.Context, c *tonbo.Client, m *mcpFlags, serve func(context.Context, *tonbo.DB, tonbo.Source) error) error {
	return tonbo.Scratch(ctx, c, m.scratch, m.task, func(ctx context.Context, db *tonbo.DB) error {
		d, err := c.Get(ctx, db.Status().Name)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(ctx)
		kept := make(chan struct{})
		go func() {
			defer close(kept)
			a.keepAlive(ctx, c, d)
		}()
		defer func() { cancel(); <-kept }()
		return serve(ctx, db, tonbo.Ref{Client: c, Name: m.scratch, At: tonbo.Slot(d.Parent.Slot)})
	})
}

// keepAlive moves the expiry of a scratch fork, which is for those whose process has died, while this one lives.
func (a *app) keepAlive(ctx context.Context, c *tonbo.Client, d *tonbo.Database) {
	ttl := time.Until(d.ExpiresAt)
	if d.ExpiresAt.IsZero() || ttl <= 0 {
		return
	}
	tick := time.NewTicker(ttl / 4)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if _, err := c.Update(ctx, d.Name, tonbo.UpdateOptions{TTL: &ttl}); err != nil && ctx.Err() == nil {
			_, code, message := a.outcome(ctx, err)
			a.complain(code, message, nil)
		}
	}
}

// atMCP serves h at /mcp.
func atMCP(h http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	return mux
}

// listening answers with the URL, before the first request.
func (a *app) listening(at net.Addr) error {
	url := fmt.Sprintf("http://%s/mcp", at)
	a.progress.clear()
	if a.json {
		return encode(a.stdout, struct {
			URL string `json:"url"`
		}{url})
	}
	_, err := fmt.Fprintln(a.stdout, url)
	return err
}
