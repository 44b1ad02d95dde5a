package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/examples/internal/show"
)

// examine opens the finished database where nothing of it is, checks it against what was acknowledged, and queries it.
func (r *orchestrator) examine(ctx context.Context) error {
	start := time.Now()
	db, err := tonbo.Open(ctx, r.o.name, r.options("examiner"))
	if err != nil {
		return err
	}
	defer db.Close()
	var pkg string
	if err := db.QueryRowContext(ctx, "SELECT package FROM steps WHERE id = ?", len(r.packages)).Scan(&pkg); err != nil {
		return err
	}
	firstRow := time.Since(start)
	s := db.Status()
	r.out.Say("the finished database, opened on a machine that has nothing of it: %s, first row after %s, %d requests, %s read",
		show.Bytes(fileSize(ctx, db.DB)), firstRow.Round(time.Millisecond), show.Requests(s.Requests), show.Bytes(s.Requests.BytesDown))
	r.out.Check("the cold start used nothing but the remote", s.ColdStart, "it found a local copy")
	for _, f := range []func(context.Context, *tonbo.DB) error{r.checkSteps, r.checkContent, r.topPackages, r.fullText} {
		if err := f(ctx, db); err != nil {
			return err
		}
	}
	return r.table()
}

// checkSteps compares the steps with the acknowledgements.
func (r *orchestrator) checkSteps(ctx context.Context, db *tonbo.DB) error {
	rows, err := db.QueryContext(ctx, "SELECT id, package, sandbox FROM steps ORDER BY id")
	if err != nil {
		return err
	}
	defer rows.Close()
	done := map[int]ack{}
	seen := map[string]int{}
	twice := ""
	for rows.Next() {
		var id int
		var a ack
		if err := rows.Scan(&id, &a.pkg, &a.sandbox); err != nil {
			return err
		}
		if other := seen[a.pkg]; other != 0 {
			twice = fmt.Sprintf("%s is step %d and step %d", a.pkg, other, id)
		}
		seen[a.pkg], done[id] = id, a
	}
	if err := rows.Err(); err != nil {
		return err
	}
	missing := ""
	for step, a := range r.acked {
		if done[step] != a {
			missing = fmt.Sprintf("sandbox %d acknowledged step %d (%s), the database has %+v", a.sandbox, step, a.pkg, done[step])
		}
	}
	r.out.Check(fmt.Sprintf("no acknowledged step is missing or done by another (%d)", len(r.acked)), missing == "", "%s", missing)
	r.out.Check("no step is done twice", twice == "", "%s", twice)
	gap := ""
	for i, pkg := range r.packages {
		if done[i+1].pkg != pkg {
			gap = fmt.Sprintf("step %d is %q, want %s", i+1, done[i+1].pkg, pkg)
		}
	}
	r.out.Check("every step is there", gap == "" && len(done) == len(r.packages), "%d steps; %s", len(done), gap)
	return nil
}

// checkContent looks for half a step, and for damage.
func (r *orchestrator) checkContent(ctx context.Context, db *tonbo.DB) error {
	var half int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM steps WHERE symbols <> (SELECT count(*) FROM symbols WHERE step = steps.id)").Scan(&half); err != nil {
		return err
	}
	r.out.Check("no step is half done", half == 0, "%d are", half)
	var integrity string
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&integrity); err != nil {
		return err
	}
	r.out.Check("integrity_check", integrity == "ok", "%s", integrity)
	_, err := db.ExecContext(ctx, "INSERT INTO search(search, rank) VALUES('integrity-check', 1)") // https://sqlite.org/fts5.html#the_integrity_check_command
	r.out.Check("the full-text index agrees with the table", err == nil, "%v", err)
	err = db.Synced(ctx)
	r.out.Check("this process is the owner now", err == nil, "%v", err)
	return nil
}

// topPackages shows the packages with the most exported functions.
func (r *orchestrator) topPackages(ctx context.Context, db *tonbo.DB) error {
	rows, err := db.QueryContext(ctx, "SELECT package, functions, symbols, synopsis FROM steps ORDER BY functions DESC, package LIMIT 10")
	if err != nil {
		return err
	}
	return r.print("the ten packages with most exported functions and methods", "package\tfunctions\tsymbols\tsynopsis", rows)
}

// fullText shows the best hits of a full-text search in names and doc comments.
func (r *orchestrator) fullText(ctx context.Context, db *tonbo.DB) error {
	rows, err := db.QueryContext(ctx, `SELECT s.package, s.name, snippet(search, 2, '[', ']', '...', 10)
		FROM search JOIN symbols s ON s.id = search.rowid WHERE search MATCH ? ORDER BY rank LIMIT 5`, r.o.search)
	if err != nil {
		return fmt.Errorf("search for %s: %w", r.o.search, err)
	}
	return r.print("full-text search: "+r.o.search, "package\tname\tdoc", rows)
}

// print writes rows as a table.
func (r *orchestrator) print(title, header string, rows *sql.Rows) error {
	defer rows.Close()
	table := [][]string{strings.Split(header, "\t")}
	for rows.Next() {
		values := make([]string, len(table[0]))
		dest := make([]any, len(values))
		for i := range values {
			dest[i] = &values[i]
		}
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		for i, v := range values { // one line each
			values[i] = show.Clip(v, 76)
		}
		table = append(table, values)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return r.out.Table(title, false, table)
}

// table writes what each sandbox did and what it cost.
func (r *orchestrator) table() error {
	table := [][]string{strings.Split("sandbox,steps,commits,written locally,shipped,PUT,GET and HEAD,LIST,first row", ",")}
	var sum stats
	row := func(name, firstRow string, s stats) {
		q := s.Requests
		table = append(table, []string{name, fmt.Sprint(s.Steps), fmt.Sprint(s.Commits), show.Bytes(s.Written), show.Bytes(q.BytesUp),
			fmt.Sprint(q.Put), fmt.Sprint(q.Get + q.Head), fmt.Sprint(q.List), firstRow})
	}
	for _, c := range r.sandboxes {
		s := c.last.Stats
		row(fmt.Sprint(c.number), s.FirstRow.Round(100*time.Microsecond).String(), s)
		sum.Steps, sum.Commits, sum.Written = sum.Steps+s.Steps, sum.Commits+s.Commits, sum.Written+s.Written
		t, q := &sum.Requests, s.Requests
		t.Put, t.Get, t.Head, t.List, t.BytesUp = t.Put+q.Put, t.Get+q.Get, t.Head+q.Head, t.List+q.List, t.BytesUp+q.BytesUp
	}
	row("all", "", sum)
	if err := r.out.Table("what each sandbox did", true, table); err != nil {
		return err
	}
	r.out.Say("written locally: pages that the commits changed; shipped: bodies of requests; first row: of the first query on a cold start, from the call of Open;")
	r.out.Say("all as of a sandbox's last report: the first was killed after it.")
	return nil
}

// fileSize is the size of the database in bytes.
func fileSize(ctx context.Context, db *sql.DB) (n int64) {
	if db.QueryRowContext(ctx, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").Scan(&n) != nil {
		return 0
	}
	return n
}
