package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/examples/internal/show"
	"github.com/tonbo-go/tonbo/examples/internal/stdlib"
)

// schema of the golden database. findings is empty in it: the agents fill it, each in its own fork.
const schema = `
CREATE TABLE packages(path TEXT PRIMARY KEY, synopsis TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE symbols(
	id        INTEGER PRIMARY KEY,
	package   TEXT NOT NULL REFERENCES packages(path),
	name      TEXT NOT NULL, -- Reader, Reader.Read
	kind      TEXT NOT NULL, -- const, var, type, func, method
	signature TEXT NOT NULL,
	doc       TEXT NOT NULL
);
CREATE VIRTUAL TABLE search USING fts5(package, name, doc, content='symbols', content_rowid='id', tokenize='porter');
CREATE TABLE findings(
	id     INTEGER PRIMARY KEY,
	agent  INTEGER NOT NULL,
	hazard TEXT NOT NULL,
	symbol INTEGER NOT NULL REFERENCES symbols(id),
	quote  TEXT NOT NULL
);
`

// golden is the database that all forks begin from.
type golden struct {
	name    string
	digest  string // of its rows
	symbols int
	pages   int64
	head    tonbo.Point
	cost    tonbo.Requests // of writing it
}

// makeGolden fills a database, gives the finished state a label, and forks it there as the frozen golden.
func (s *story) makeGolden(ctx context.Context, source stdlib.Source) error {
	draft := s.Name + ".draft"
	if _, err := s.client.Create(ctx, draft, tonbo.CreateOptions{}); err != nil {
		return fmt.Errorf("create a database in %s: %w", s.URL, err)
	}
	db, err := tonbo.Open(ctx, draft, s.Machine("builder"))
	if err != nil {
		return err
	}
	defer db.Close() // does nothing after the Close below
	if err := s.fill(ctx, db.DB, source); err != nil {
		return err
	}
	g := &s.golden
	g.name = s.Name
	if g.digest, g.symbols, err = digest(ctx, db.DB); err != nil {
		return err
	}
	if _, err := db.Checkpoint(ctx, "finished"); err != nil { // Synced, and a name for the point
		return err
	}
	status := db.Status()
	g.pages, g.cost = status.Pages, status.Requests
	if err := db.Close(); err != nil {
		return err
	}

	d, err := s.client.Fork(ctx, draft, g.name, tonbo.ForkOptions{
		CreateOptions: tonbo.CreateOptions{Frozen: true, Metadata: map[string]string{"go": source.GOROOT}},
		At:            tonbo.Label("finished"),
	})
	if err != nil {
		return err
	}
	g.head = d.Head
	if err := s.client.Delete(ctx, draft); err != nil { // the golden does not need it
		return err
	}
	_, err = tonbo.Open(ctx, g.name, s.Machine("builder"))
	s.out.Check("nobody can write to the golden: Open is refused with ErrFrozen", errors.Is(err, tonbo.ErrFrozen), "got %v", err)
	s.out.Say("%s is frozen: %d symbols in %d pages, %s shipped, in %s", g.name, g.symbols, g.pages, show.Bytes(g.cost.BytesUp), s.URL)
	return nil
}

// fill reads the standard library into a database.
func (s *story) fill(ctx context.Context, db *sql.DB, source stdlib.Source) error {
	packages, err := source.Packages(s.packages)
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	if _, err := tx.ExecContext(ctx, schema); err != nil {
		return err
	}
	insert, err := tx.PrepareContext(ctx, "INSERT INTO symbols(package, name, kind, signature, doc) VALUES(?, ?, ?, ?, ?)")
	if err != nil {
		return err
	}
	defer insert.Close()
	for i, path := range packages {
		p, err := source.Extract(ctx, path)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO packages VALUES(?, ?)", path, p.Synopsis); err != nil {
			return err
		}
		for _, y := range p.Symbols {
			if _, err := insert.ExecContext(ctx, path, y.Name, y.Kind, y.Signature, y.Doc); err != nil {
				return err
			}
		}
		s.out.Step(i+1, len(packages), "%s", path)
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO search(search) VALUES('rebuild')"); err != nil { // https://sqlite.org/fts5.html#the_rebuild_command
		return err
	}
	return tx.Commit()
}

// digest is a hash of the golden's rows, and the number of symbols. An agent's findings are not in it.
func digest(ctx context.Context, db *sql.DB) (sum string, symbols int, err error) {
	h := sha256.New()
	for _, q := range []string{
		"SELECT path, synopsis, '', '', '', '' FROM packages ORDER BY path",
		"SELECT id, package, name, kind, signature, doc FROM symbols ORDER BY id",
	} {
		symbols, err = hashRows(ctx, db, h, q)
		if err != nil {
			return "", 0, err
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)), symbols, nil
}

func hashRows(ctx context.Context, db *sql.DB, w io.Writer, query string) (n int, err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var v [6]string
		if err := rows.Scan(&v[0], &v[1], &v[2], &v[3], &v[4], &v[5]); err != nil {
			return 0, err
		}
		fmt.Fprintf(w, "%q\n", v)
		n++
	}
	return n, rows.Err()
}
