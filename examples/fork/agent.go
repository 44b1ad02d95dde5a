package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/tonbo-go/tonbo"
)

// hazards are what the agents look for: full-text searches in FTS5's syntax, one each.
var hazards = []string{
	"panic", "deadlock", "deprecated", "race", "overflow", "nil", "undefined", "leak", "insecure", "blocks",
	"concurrent", "invalid", "truncated", "negative", "unsafe", "timeout", "goroutine", "duplicate", "empty", "close",
}

// agent works on a fork of its own.
type agent struct {
	number int
	hazard string
	fork   string // its database
	golden *golden

	findings int
	began    string      // digest of the golden's rows as the fork had them at its beginning
	point    tonbo.Point // that its work was acknowledged at

	forkCost tonbo.Requests
	forkTime time.Duration
	openCost tonbo.Requests // a cold start, to the first row
	openTime time.Duration
	workCost tonbo.Requests // its own writes
}

// run is an agent's life.
func (a *agent) run(ctx context.Context, o tonbo.Options) (err error) {
	// (1) The fork: a few requests and a few kilobytes, however large the golden is. Nobody is disturbed by it.
	client, err := tonbo.NewClient(o)
	if err != nil {
		return err
	}
	start := time.Now()
	d, err := client.Fork(ctx, a.golden.name, a.fork, tonbo.ForkOptions{CreateOptions: tonbo.CreateOptions{Metadata: map[string]string{"hazard": a.hazard}}})
	if err != nil {
		return err
	}
	a.forkTime, a.forkCost = time.Since(start), client.Requests()
	if d.Parent == nil || d.Parent.ID != a.golden.head.ID {
		return fmt.Errorf("%s is a fork of %+v, want %v", a.fork, d.Parent, a.golden.head)
	}

	// (2) From here on it is a database like any other.
	start = time.Now()
	db, err := client.Open(ctx, a.fork)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := db.Close(); err == nil {
			err = cerr
		}
	}()
	var first string
	if err := db.QueryRowContext(ctx, "SELECT name FROM symbols WHERE id = 1").Scan(&first); err != nil {
		return err
	}
	a.openTime, a.openCost = time.Since(start), db.Status().Requests
	if a.began, _, err = digest(ctx, db.DB); err != nil {
		return err
	}

	// (3) The work: it reads the golden's rows and writes its own.
	if a.findings, err = a.search(ctx, db.DB); err != nil {
		return err
	}

	// (4) The acknowledgement, and a name for the point.
	before := db.Status().Requests
	if a.point, err = db.Checkpoint(ctx, "searched"); err != nil {
		return err
	}
	a.workCost = less(db.Status().Requests, before)
	return nil
}

// search writes a finding for each doc comment that names the hazard.
func (a *agent) search(ctx context.Context, db *sql.DB) (int, error) {
	res, err := db.ExecContext(ctx, `INSERT INTO findings(agent, hazard, symbol, quote)
		SELECT ?, ?, rowid, snippet(search, 2, '[', ']', '...', 12) FROM search WHERE search MATCH 'doc : ' || ? ORDER BY rowid`, a.number, a.hazard, a.hazard)
	if err != nil {
		return 0, fmt.Errorf("search for %s: %w", a.hazard, err)
	}
	n, err := res.RowsAffected()
	return int(n), err
}

// less is what was spent between two counts.
func less(now, before tonbo.Requests) tonbo.Requests {
	return tonbo.Requests{
		Put: now.Put - before.Put, Get: now.Get - before.Get, Head: now.Head - before.Head, List: now.List - before.List, Delete: now.Delete - before.Delete,
		BytesUp: now.BytesUp - before.BytesUp, BytesDown: now.BytesDown - before.BytesDown,
	}
}
