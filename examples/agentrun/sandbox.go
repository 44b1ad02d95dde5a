package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/examples/internal/child"
	"github.com/tonbo-go/tonbo/examples/internal/stdlib"
)

// schema of the run's database. A step's row is written in the transaction that does the step's work: it is there if and only if the work is.
const schema = `
CREATE TABLE IF NOT EXISTS steps(
	id        INTEGER PRIMARY KEY,  -- 1, 2, 3, ... without a gap
	package   TEXT NOT NULL UNIQUE, -- import path
	sandbox   INTEGER NOT NULL,     -- who did it
	synopsis  TEXT NOT NULL,
	functions INTEGER NOT NULL,     -- exported functions and methods
	symbols   INTEGER NOT NULL      -- rows in symbols
);
CREATE TABLE IF NOT EXISTS symbols(
	id        INTEGER PRIMARY KEY,
	step      INTEGER NOT NULL REFERENCES steps(id),
	package   TEXT NOT NULL,
	name      TEXT NOT NULL,        -- Reader, Reader.Read
	kind      TEXT NOT NULL,        -- const, var, type, func, method
	signature TEXT NOT NULL,
	doc       TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS symbols_step ON symbols(step);
CREATE VIRTUAL TABLE IF NOT EXISTS search USING fts5(package, name, doc, content='symbols', content_rowid='id', tokenize='porter');
`

// agent is a sandbox's program: it does the steps of a run, one after the other.
type agent struct {
	number   int // of the sandbox
	source   stdlib.Source
	packages []string // step n reads packages[n-1]
	db       *tonbo.DB
	report   *json.Encoder // events for the orchestrator
	stats    stats
}

// work opens the database, does the steps that are left, and stays until ctx ends or another sandbox takes over.
func (a *agent) work(ctx context.Context, name string) (err error) {
	// (1) Open takes the database over from whoever had it. Where it is ($TONBO_URL) and where the local copy goes ($TONBO_DIR)
	// come from the environment that the orchestrator gave us.
	start := time.Now()
	a.db, err = tonbo.Open(ctx, name, tonbo.Options{Owner: fmt.Sprintf("sandbox %d", a.number)})
	if err != nil {
		return err
	}
	defer func() { // a fenced handle has nothing to ship any more, and closes without complaint
		if cerr := a.db.Close(); err == nil {
			err = cerr
		}
	}()

	// (2) Resume. The database itself says what has been done: all that was acknowledged, and nothing by halves.
	if _, err := a.db.ExecContext(ctx, schema); err != nil {
		return err
	}
	var done int
	if err := a.db.QueryRowContext(ctx, "SELECT coalesce(max(id), 0) FROM steps").Scan(&done); err != nil {
		return err
	}
	a.stats.FirstRow = time.Since(start)
	if err := a.tell(event{Kind: "opened", Step: done}); err != nil {
		return err
	}

	// (3) The steps that are left.
	for n := done + 1; n <= len(a.packages); n++ {
		err := a.step(ctx, n, a.packages[n-1])
		if err != nil && ctx.Err() != nil && !errors.Is(err, tonbo.ErrFenced) { // told to stop in the middle of a step
			return nil
		}
		if err != nil {
			return fmt.Errorf("step %d (%s): %w", n, a.packages[n-1], err)
		}
	}
	if err := a.tell(event{Kind: "done", Step: len(a.packages)}); err != nil {
		return err
	}

	// (4) Idle. Synced asks the remote whether this is still the owner, also when there is nothing to ship.
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := a.acknowledge(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// step does step n. When it returns nil, the remote holds the step, and no other sandbox had taken over before.
func (a *agent) step(ctx context.Context, n int, path string) error {
	// (1) What only reads, and takes long: outside the transaction.
	api, err := a.source.Extract(ctx, path)
	if err != nil {
		return err
	}
	// (2) The work and its record, in one transaction. COMMIT is local, and fails with ErrFenced once this handle knows that it was taken over.
	if err := a.record(ctx, n, api); err != nil {
		return err
	}
	// (3) The acknowledgement. Until here the step can be lost with this machine; from here on it cannot.
	if err := a.acknowledge(ctx); err != nil {
		return err
	}
	// (4) Only now may the outside hear of it.
	a.stats.Steps++
	return a.tell(event{Kind: "step", Step: n, Package: path})
}

func (a *agent) record(ctx context.Context, n int, api *stdlib.Package) error {
	tx, err := a.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	if _, err := tx.ExecContext(ctx, "INSERT INTO steps(id, package, sandbox, synopsis, functions, symbols) VALUES(?, ?, ?, ?, ?, ?)",
		n, api.Path, a.number, api.Synopsis, api.Functions(), len(api.Symbols)); err != nil {
		return err
	}
	symbol, err := tx.PrepareContext(ctx, "INSERT INTO symbols(step, package, name, kind, signature, doc) VALUES(?, ?, ?, ?, ?, ?)")
	if err != nil {
		return err
	}
	defer symbol.Close()
	for _, s := range api.Symbols {
		if _, err := symbol.ExecContext(ctx, n, api.Path, s.Name, s.Kind, s.Signature, s.Doc); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO search(rowid, package, name, doc) SELECT id, package, name, doc FROM symbols WHERE step = ?", n); err != nil {
		return err
	}
	return tx.Commit()
}

// acknowledge calls Synced. It does not give up at the first outage: ErrUnsynced means that the commits are still here and that the call may be
// repeated. ErrFenced and ErrDeleted are final.
func (a *agent) acknowledge(ctx context.Context) error {
	s := a.db.Status()
	a.stats.Commits += s.PendingCommits
	a.stats.Written += s.PendingBytes
	for try := 1; ; try++ {
		err := a.db.Synced(ctx)
		if !errors.Is(err, tonbo.ErrUnsynced) || ctx.Err() != nil || try == 3 {
			return err
		}
		fmt.Fprintf(os.Stderr, "sandbox %d: try %d: %v\n", a.number, try, err)
	}
}

// tell reports to the orchestrator.
func (a *agent) tell(e event) error {
	e.Stats = a.stats
	s := a.db.Status()
	e.Stats.Requests, e.Stats.ColdStart = s.Requests, s.ColdStart
	return a.report.Encode(e)
}

// sandboxMain is the main function of a sandbox's process. It lives until its standard input ends: when the orchestrator closes it, or is gone.
func sandboxMain(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("sandbox", flag.ContinueOnError)
	flags.SetOutput(stderr)
	number := flags.Int("number", 0, "number of this sandbox")
	name := flags.String("name", "", "database")
	goroot := flags.String("goroot", "", "Go installation")
	limit := flags.Int("packages", 0, "read only the first n packages")
	if err := flags.Parse(args); err != nil {
		return exitUsage
	}
	// A terminal sends ^C to the whole group; what becomes of this process is the orchestrator's decision.
	signal.Ignore(os.Interrupt)
	ctx, cancel := child.Context(stdin)
	defer cancel()

	a := &agent{number: *number, source: stdlib.Source{GOROOT: *goroot}, report: json.NewEncoder(stdout)}
	var err error
	if a.packages, err = a.source.Packages(*limit); err == nil {
		err = a.work(ctx, *name)
	}
	var fenced *tonbo.FencedError
	switch {
	case errors.As(err, &fenced):
		// Another sandbox has the database: nothing is left to do here but to say so. What it does not have yet is in the file fenced.Lost.
		if rerr := a.tell(event{Kind: "fenced", Error: err.Error(), Lost: fenced.Lost}); rerr != nil {
			fmt.Fprintln(stderr, rerr)
		}
		return exitFenced
	case err != nil:
		fmt.Fprintln(stderr, err)
		return exitFailed
	}
	return 0
}
