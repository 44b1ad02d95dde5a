package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/examples/internal/child"
	"github.com/tonbo-go/tonbo/examples/internal/show"
	"github.com/tonbo-go/tonbo/examples/internal/stdlib"
)

// event is a line that the agent writes: a step is acknowledged.
type event struct {
	Step     string // a package
	Result   string
	Replayed bool // it had been taken before
	Done     bool // all are
}

// work takes all steps, from the first one on. Where it was when it last died it need not know.
func work(ctx context.Context, name string, source stdlib.Source, packages []string, tell func(event) error) (err error) {
	db, err := tonbo.Open(ctx, name, tonbo.Options{})
	if err != nil {
		return err
	}
	defer func() {
		if cerr := db.Close(); err == nil {
			err = cerr
		}
	}()
	if _, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS symbols(package TEXT, name TEXT, signature TEXT)`); err != nil {
		return err
	}
	for _, path := range packages {
		// The step's id is what it is about. The function runs once for it, whatever dies: its rows and its result are there together, or neither is.
		s, err := db.Step(ctx, "read", path, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
			api, err := source.Extract(ctx, path)
			if err != nil {
				return nil, err
			}
			for _, sym := range api.Symbols {
				if _, err := tx.ExecContext(ctx, `INSERT INTO symbols VALUES(?, ?, ?)`, path, sym.Name, sym.Signature); err != nil {
					return nil, err
				}
			}
			return fmt.Appendf(nil, "%d symbols, read by process %d", len(api.Symbols), os.Getpid()), nil
		})
		if err != nil {
			return fmt.Errorf("step %s: %w", path, err)
		}
		// From here on the remote has it: it may be told.
		if err := tell(event{Step: path, Result: string(s.Result), Replayed: s.Replayed}); err != nil {
			return err
		}
	}
	return tell(event{Done: true})
}

// agentMain is the main function of the agent's process.
func agentMain(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("agent", flag.ContinueOnError)
	flags.SetOutput(stderr)
	name := flags.String("name", "", "database")
	goroot := flags.String("goroot", "", "Go installation")
	limit := flags.Int("packages", 0, "read only the first n packages")
	if err := flags.Parse(args); err != nil {
		return show.ExitUsage
	}
	signal.Ignore(os.Interrupt) // a terminal sends ^C to the whole group; what becomes of this process is the supervisor's decision
	ctx, cancel := child.Context(stdin)
	defer cancel()
	source := stdlib.Source{GOROOT: *goroot}
	packages, err := source.Packages(*limit)
	if err == nil {
		out := json.NewEncoder(stdout)
		err = work(ctx, *name, source, packages, func(e event) error { return out.Encode(e) })
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return show.ExitFailed
	}
	return 0
}
