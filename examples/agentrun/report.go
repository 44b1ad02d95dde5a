package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tonbo-go/tonbo"
)

// progress writes how the run goes: a bar on a terminal, else a line now and then.
type progress struct {
	w        io.Writer
	terminal bool
	total    int
	start    time.Time
	open     bool // the bar's line is not ended
}

func newProgress(w io.Writer, total int) *progress {
	p := &progress{w: w, total: total, start: time.Now()}
	if f, ok := w.(*os.File); ok {
		fi, err := f.Stat()
		p.terminal = err == nil && fi.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// step shows that a step has been acknowledged.
func (p *progress) step(sandbox int, e event) {
	if p.terminal {
		const width = 40
		full := width * e.Step / p.total
		fmt.Fprintf(p.w, "\r\x1b[K  [%s%s] %d/%d  sandbox %d  %s", strings.Repeat("#", full), strings.Repeat(".", width-full), e.Step, p.total, sandbox, e.Package)
		p.open = true
		return
	}
	if every := max(1, p.total/12); e.Step%every == 0 || e.Step == p.total {
		fmt.Fprintf(p.w, "  step %3d/%d  sandbox %d  %s\n", e.Step, p.total, sandbox, e.Package)
	}
}

// say writes a line of the story, with the seconds since the start before it.
func (p *progress) say(format string, args ...any) {
	p.endLine()
	fmt.Fprintf(p.w, "%5.1fs %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

func (p *progress) endLine() {
	if p.open {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.open = false
	}
}

// check is a promise and whether it was kept.
type check struct {
	what string
	why  string // it was not; "" when it was
}

func (r *orchestrator) check(what string, ok bool, format string, args ...any) {
	c := check{what: what}
	if !ok {
		c.why = fmt.Sprintf(format, args...)
	}
	r.checks = append(r.checks, c)
}

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
	r.out.say("the finished database, opened on a machine that has nothing of it: %.1f MB, first row after %s, %d requests, %.1f MB read",
		mega(fileSize(ctx, db.DB)), firstRow.Round(time.Millisecond), requests(s.Requests), mega(s.Requests.BytesDown))
	r.check("the cold start used nothing but the remote", s.ColdStart, "it found a local copy")
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
	r.check(fmt.Sprintf("no acknowledged step is missing or done by another (%d)", len(r.acked)), missing == "", "%s", missing)
	r.check("no step is done twice", twice == "", "%s", twice)
	gap := ""
	for i, pkg := range r.packages {
		if done[i+1].pkg != pkg {
			gap = fmt.Sprintf("step %d is %q, want %s", i+1, done[i+1].pkg, pkg)
		}
	}
	r.check("every step is there", gap == "" && len(done) == len(r.packages), "%d steps; %s", len(done), gap)
	return nil
}

// checkContent looks for half a step, and for damage.
func (r *orchestrator) checkContent(ctx context.Context, db *tonbo.DB) error {
	var half int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM steps WHERE symbols <> (SELECT count(*) FROM symbols WHERE step = steps.id)").Scan(&half); err != nil {
		return err
	}
	r.check("no step is half done", half == 0, "%d are", half)
	var integrity string
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&integrity); err != nil {
		return err
	}
	r.check("integrity_check", integrity == "ok", "%s", integrity)
	_, err := db.ExecContext(ctx, "INSERT INTO search(search, rank) VALUES('integrity-check', 1)") // https://sqlite.org/fts5.html#the_integrity_check_command
	r.check("the full-text index agrees with the table", err == nil, "%v", err)
	err = db.Synced(ctx)
	r.check("this process is the owner now", err == nil, "%v", err)
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
	fmt.Fprintf(r.out.w, "\n%s\n", title)
	w := tabwriter.NewWriter(r.out.w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  "+header)
	values := make([]string, strings.Count(header, "\t")+1)
	dest := make([]any, len(values))
	for i := range values {
		dest[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		for i, v := range values { // one line each
			if v = strings.Join(strings.Fields(v), " "); len([]rune(v)) > 76 {
				v = string([]rune(v)[:75]) + "…"
			}
			values[i] = v
		}
		fmt.Fprintln(w, "  "+strings.Join(values, "\t"))
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return w.Flush()
}

// table writes what each sandbox did and what it cost.
func (r *orchestrator) table() error {
	fmt.Fprintln(r.out.w)
	w := tabwriter.NewWriter(r.out.w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "sandbox\tsteps\tcommits\twritten locally\tshipped\tPUT\tGET, HEAD\tLIST\tfirst row\t")
	var sum stats
	row := func(name, firstRow string, s stats) {
		q := s.Requests
		fmt.Fprintf(w, "%s\t%d\t%d\t%.2f MB\t%.2f MB\t%d\t%d\t%d\t%s\t\n", name, s.Steps, s.Commits, mega(s.Written), mega(q.BytesUp), q.Put, q.Get+q.Head, q.List, firstRow)
	}
	for _, c := range r.children {
		s := c.last.Stats
		row(fmt.Sprint(c.number), s.FirstRow.Round(100*time.Microsecond).String(), s)
		sum.Steps, sum.Commits, sum.Written = sum.Steps+s.Steps, sum.Commits+s.Commits, sum.Written+s.Written
		t, q := &sum.Requests, s.Requests
		t.Put, t.Get, t.Head, t.List, t.BytesUp = t.Put+q.Put, t.Get+q.Get, t.Head+q.Head, t.List+q.List, t.BytesUp+q.BytesUp
	}
	row("all", "", sum)
	fmt.Fprintln(w)
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(r.out.w, "written locally: pages that the commits changed; shipped: bodies of requests; first row: of the first query on a cold start, from the call of Open;")
	_, err := fmt.Fprintln(r.out.w, "all as of a sandbox's last report: the first was killed after it.")
	return err
}

// verdict writes the checks, and returns an error if one failed.
func (r *orchestrator) verdict(took time.Duration) error {
	fmt.Fprintln(r.out.w)
	failed := 0
	for _, c := range r.checks {
		if c.why == "" {
			fmt.Fprintf(r.out.w, "  ok    %s\n", c.what)
			continue
		}
		failed++
		fmt.Fprintf(r.out.w, "  FAIL  %s: %s\n", c.what, c.why)
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(r.checks))
	}
	fmt.Fprintf(r.out.w, "\n%d checks passed, %.1f s\n", len(r.checks), took.Seconds())
	return nil
}

// fileSize is the size of the database in bytes.
func fileSize(ctx context.Context, db *sql.DB) (n int64) {
	if db.QueryRowContext(ctx, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").Scan(&n) != nil {
		return 0
	}
	return n
}

func requests(q tonbo.Requests) int64 { return q.Put + q.Get + q.Head + q.List + q.Delete }

func mega(bytes int64) float64 { return float64(bytes) / 1e6 }
