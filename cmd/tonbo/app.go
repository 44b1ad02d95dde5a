package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tonbo-go/tonbo"
)

// app is one run of the command.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	terminal       func(stream any) bool

	// flags of every command
	url, dir string
	json     bool
	verbose  bool

	running  bool // flags and arguments are right
	makes    bool // the command may make the remote's directory
	progress *progressLine

	// what the command is about: hints name it
	subject string // the database
	key     string // the instance
}

// root makes the command tree. It belongs to this run: nothing of it is kept between runs.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "tonbo",
		Short: "SQLite databases that outlive their machine",
		Long: `tonbo works on the databases of an account, straight on a bucket or a directory, or through a server (--url https://host, the key in $TONBO_API_KEY).

A point of a database's history is written behind its name:
  run-42                              the head
  run-42@step-7                       the newest point with this label
  run-42@slot:17                      the point after this slot of the log
  run-42@time:2026-11-30T10:00:00Z    the newest point at or before this time
  run-42@point:...                    a point as --json spells it
  run-42@label:slot:17                a label that looks like one of these
A name with an @ in it is ended by another one where a point may follow: team@x@ is the head of team@x.

Exit codes: 0 ok, 1 failure, 2 usage, 3 over a threshold, 4 not found, 5 fenced or conflict.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			a.running = true
			a.progress = newProgressLine(a.stderr, a.terminal(a.stderr))
		},
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	f := root.PersistentFlags()
	f.StringVar(&a.url, "url", "", "where databases live: s3://bucket/prefix?region=..., file:///dir, or a server: https://host, unix:///socket (default $TONBO_URL)")
	f.StringVar(&a.dir, "dir", "", "directory of local copies (default $TONBO_DIR, else the user's cache directory + /tonbo)")
	f.BoolVar(&a.json, "json", false, "answer with one JSON document, lists with one on each line")
	f.BoolVarP(&a.verbose, "verbose", "v", false, "log events to stderr")
	root.AddCommand(
		a.database(), a.fork(), a.rewind(), a.checkpoint(), a.log(), a.diff(), a.query(), a.instance(), a.janitor(), a.usage(), a.verify(), a.apiKey(), a.serve(), a.mcp(), a.version(),
	)
	group(root)
	root.SetHelpCommand(helpCommand())
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			group(c)
		}
	}
	return root
}

// helpCommand is cobra's, but for a topic that there is not: that is an error here.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about any command",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return &usageError{err: fmt.Errorf("there is no command %q", strings.Join(args, " ")), command: cmd.Root().CommandPath()}
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// exactly wants n arguments, and says which.
func exactly(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return fmt.Errorf("%d arguments: want %s", len(args), cmd.UseLine())
		}
		return nil
	}
}

// group makes a command that only has others below it say so when none of them is named.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var names []string
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() && c.Name() != "help" {
				names = append(names, c.Name())
			}
		}
		return &usageError{err: fmt.Errorf("which command? %s", strings.Join(names, ", ")), command: cmd.CommandPath()}
	}
	return cmd
}

// options are what the flags say.
func (a *app) options() (tonbo.Options, error) {
	o := tonbo.Options{URL: a.url, Dir: a.dir, Hydration: tonbo.HydrateNone, Progress: a.progress.bytes}
	if o.URL == "" {
		o.URL = os.Getenv("TONBO_URL")
	}
	if o.URL == "" {
		return o, &usageError{err: errors.New("no remote: give --url or set $TONBO_URL (s3://bucket/prefix, file:///dir, https://host)")}
	}
	if err := a.reachable(o.URL); err != nil {
		return o, err
	}
	if a.verbose {
		o.Logger = slog.New(slog.NewTextHandler(a.progress.above(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return o, nil
}

// reachable refuses a remote that this command would find empty whatever is wrong with its name.
func (a *app) reachable(remote string) error {
	u, err := url.Parse(remote)
	if err != nil { // NewClient says so
		return nil
	}
	switch {
	case u.Scheme == "mem":
		return usagef("--url %s: what is in memory ends with the command that put it there; name a directory, file:///dir, or a bucket", remote)
	case u.Scheme != "file" || a.makes:
		return nil
	}
	path := u.Path
	if runtime.GOOS == "windows" {
		path = strings.TrimPrefix(path, "/")
	}
	if _, err := os.Stat(filepath.FromSlash(path)); errors.Is(err, fs.ErrNotExist) {
		return usagef("there is no directory %s: is it the right --url? tonbo database create makes it, with the first database", path)
	}
	return nil
}

// client is the account's.
func (a *app) client() (*tonbo.Client, error) {
	o, err := a.options()
	if err != nil {
		return nil, err
	}
	return a.clientOf(o)
}

func (a *app) clientOf(o tonbo.Options) (*tonbo.Client, error) {
	c, err := tonbo.NewClient(o)
	if err == nil {
		return c, nil
	}
	var path *fs.PathError
	if errors.As(err, &path) || errors.Is(err, tonbo.ErrForbidden) || errors.Is(err, tonbo.ErrUnauthorized) {
		return nil, err
	}
	return nil, &usageError{err: err} // no request was sent: it is the URL
}

// about returns the client, and notes which database the command is about.
func (a *app) about(name string) (*tonbo.Client, error) {
	a.subject = name
	if err := tonbo.ValidateName(name); err != nil {
		return nil, err
	}
	return a.client()
}

// names completes an argument with the names of databases.
func (a *app) names(position ...int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		at := false
		for _, p := range position {
			at = at || p == len(args)
		}
		if !at {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		a.progress = newProgressLine(a.stderr, false)
		c, err := a.client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		const patience, most = 3 * time.Second, 100
		ctx, cancel := context.WithTimeout(cmd.Context(), patience)
		defer cancel()
		var names []string
		for d, err := range c.List(ctx, tonbo.Filter{Prefix: typed, NamesOnly: true, Limit: most}) {
			if err != nil {
				return nil, cobra.ShellCompDirectiveError
			}
			names = append(names, d.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
