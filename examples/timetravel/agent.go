package main

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/examples/internal/stdlib"
)

const schema = `
CREATE TABLE steps(id INTEGER PRIMARY KEY, package TEXT NOT NULL UNIQUE, plan TEXT NOT NULL);
CREATE TABLE symbols(
	package   TEXT NOT NULL,
	name      TEXT NOT NULL,
	signature TEXT NOT NULL,
	step      INTEGER NOT NULL REFERENCES steps(id),
	PRIMARY KEY(package, name)
) WITHOUT ROWID;
CREATE TABLE totals(kind TEXT PRIMARY KEY, symbols INTEGER NOT NULL) WITHOUT ROWID;
`

// plan says which package is read next: the first one in this order that has not been read.
type plan struct {
	name  string
	order func(a, b *stdlib.Package) int
}

var (
	byName  = plan{"by name", func(a, b *stdlib.Package) int { return cmp.Compare(a.Path, b.Path) }}
	largest = plan{"largest first", func(a, b *stdlib.Package) int {
		return cmp.Or(len(b.Symbols)-len(a.Symbols), cmp.Compare(a.Path, b.Path))
	}}
	smallest = plan{"smallest first", func(a, b *stdlib.Package) int {
		return cmp.Or(len(a.Symbols)-len(b.Symbols), cmp.Compare(a.Path, b.Path))
	}}
)

// next is the package that a plan reads after others.
func (p plan) next(pool []*stdlib.Package, read map[string]bool) *stdlib.Package {
	left := slices.DeleteFunc(slices.Clone(pool), func(a *stdlib.Package) bool { return read[a.Path] })
	return slices.MinFunc(left, p.order)
}

// work does the steps from the first that is not done up to the last, each with a Checkpoint. It returns the points, by step.
func (s *story) work(ctx context.Context, db *tonbo.DB, p plan, label string) (map[int]tonbo.Point, error) {
	read, err := readPackages(ctx, db.DB) // the database itself says what is done
	if err != nil {
		return nil, err
	}
	points := map[int]tonbo.Point{}
	for n := len(read) + 1; n <= s.steps; n++ {
		pkg := p.next(s.pool, read)
		if err := step(ctx, db.DB, n, p, pkg); err != nil {
			return nil, fmt.Errorf("step %d (%s): %w", n, pkg.Path, err)
		}
		point, err := db.Checkpoint(ctx, fmt.Sprint(label, n)) // from here on the step cannot be lost, and its state has a name
		if err != nil {
			return nil, err
		}
		points[n], read[pkg.Path] = point, true
		s.out.Step(n, s.steps, "%s: %s (%s)", point.Label, pkg.Path, p.name)
		if label == firstLabel {
			if s.states[n], err = digest(ctx, db.DB); err != nil {
				return nil, err
			}
		}
	}
	return points, nil
}

func readPackages(ctx context.Context, db *sql.DB) (map[string]bool, error) {
	rows, err := db.QueryContext(ctx, "SELECT package FROM steps")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	read := map[string]bool{}
	for rows.Next() {
		var path string
		if err := rows.Scan(&path); err != nil {
			return nil, err
		}
		read[path] = true
	}
	return read, rows.Err()
}

// step does one step, in one transaction.
func step(ctx context.Context, db *sql.DB, n int, p plan, pkg *stdlib.Package) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	if _, err := tx.ExecContext(ctx, "INSERT INTO steps VALUES(?, ?, ?)", n, pkg.Path, p.name); err != nil {
		return err
	}
	for _, y := range pkg.Symbols {
		if _, err := tx.ExecContext(ctx, "INSERT INTO symbols VALUES(?, ?, ?, ?)", pkg.Path, y.Name, y.Signature, n); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO totals VALUES(?, 1) ON CONFLICT(kind) DO UPDATE SET symbols = symbols + 1", y.Kind); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// expected computes, without a database, what the tables hold after the plans' steps: the first until step back, the second after it.
func (s *story) expected(first, second plan) tables {
	t := tables{"steps": {}, "symbols": {}, "totals": {}}
	read, totals := map[string]bool{}, map[string]int{}
	for n := 1; n <= s.steps; n++ {
		p := first
		if n > s.back {
			p = second
		}
		pkg := p.next(s.pool, read)
		read[pkg.Path] = true
		t["steps"][fmt.Sprintf("%03d", n)] = pkg.Path + " | " + p.name
		for _, y := range pkg.Symbols {
			t["symbols"][pkg.Path+" "+y.Name] = fmt.Sprint(y.Signature, " | ", n)
			totals[y.Kind]++
		}
	}
	for kind, n := range totals {
		t["totals"][kind] = fmt.Sprint(n)
	}
	return t
}
