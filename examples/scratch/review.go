package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/examples/internal/show"
	"github.com/tonbo-go/tonbo/examples/internal/stdlib"
)

type options struct {
	url, name, goroot string
	packages          int // 0: all
}

// office has the production database, and lets models propose changes to it.
type office struct {
	options
	*show.Stage
	out        *show.Show
	client     *tonbo.Client
	production *tonbo.DB
}

// review is the whole run.
func review(ctx context.Context, o options, out *show.Show) (err error) {
	source, err := stdlib.Find(ctx, o.goroot)
	if err != nil {
		return err
	}
	s := &office{options: o, out: out}
	if s.Stage, err = show.NewStage("scratch", o.url, o.name); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.End()) }()
	if s.client, err = tonbo.NewClient(tonbo.Options{URL: s.URL, Dir: filepath.Join(s.Dir, "office")}); err != nil {
		return err
	}
	if err := s.fill(ctx, source); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.production.Close()) }()
	for _, chapter := range []func(context.Context) error{s.disaster, s.improvement, s.conflict, s.examine} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

// fill makes the production database.
func (s *office) fill(ctx context.Context, source stdlib.Source) error {
	packages, err := source.Packages(s.packages)
	if err != nil {
		return err
	}
	if _, err := s.client.Create(ctx, s.Name, tonbo.CreateOptions{}); err != nil {
		return err
	}
	if s.production, err = s.client.Open(ctx, s.Name); err != nil {
		return err
	}
	err = s.change(ctx, `CREATE TABLE symbols(package TEXT, name TEXT, kind TEXT, signature TEXT, doc TEXT, PRIMARY KEY(package, name)) WITHOUT ROWID`)
	for i := 0; i < len(packages) && err == nil; i++ {
		var api *stdlib.Package
		if api, err = source.Extract(ctx, packages[i]); err != nil {
			break
		}
		var tx *sql.Tx
		if tx, err = s.production.BeginTx(ctx, nil); err != nil {
			break
		}
		for _, sym := range api.Symbols {
			if _, err = tx.ExecContext(ctx, `INSERT OR IGNORE INTO symbols VALUES(?, ?, ?, ?, ?)`, api.Path, sym.Name, sym.Kind, sym.Signature, sym.Doc); err != nil {
				return errors.Join(err, tx.Rollback(), s.production.Close())
			}
		}
		err = tx.Commit()
	}
	if err == nil {
		err = s.production.Synced(ctx)
	}
	if err != nil {
		return errors.Join(err, s.production.Close())
	}
	n, err := s.count(ctx, `SELECT count(*) FROM symbols`)
	s.out.Say("production has %d names of %d packages", n, len(packages))
	return err
}

// change is somebody at work on production.
func (s *office) change(ctx context.Context, q string, args ...any) error {
	if _, err := s.production.ExecContext(ctx, q, args...); err != nil {
		return err
	}
	return s.production.Synced(ctx)
}

func (s *office) count(ctx context.Context, q string) (n int, err error) {
	err = s.production.QueryRowContext(ctx, q).Scan(&n)
	return n, err
}

// propose lets a model work on a scratch fork of production, and returns what it changed. The fork is gone then.
func (s *office) propose(ctx context.Context, m session) (changes *tonbo.ChangeSet, err error) {
	s.out.Say("a model is asked: %s", m.task)
	err = tonbo.Scratch(ctx, s.client, s.Name, m.task, func(ctx context.Context, db *tonbo.DB) error {
		// The fork began at a point of production. It is compared with that point, not with what production has become since.
		d, err := s.client.Get(ctx, db.Status().Name)
		if err != nil {
			return err
		}
		if err := m.work(ctx, db, s.out.Say); err != nil {
			return err
		}
		changes, err = tonbo.Diff(ctx, tonbo.Ref{Client: s.client, Name: s.Name, At: tonbo.Slot(d.Parent.Slot)}, db)
		return err
	})
	return changes, err
}

// approve is the review: a rule here, where a person could be asked.
func (s *office) approve(cs *tonbo.ChangeSet) error {
	var b strings.Builder
	if err := cs.WriteText(&b); err != nil {
		return err
	}
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	for i, line := range lines {
		if i == 6 {
			s.out.Say("  diff: ... and %d lines more", len(lines)-i)
			break
		}
		s.out.Say("  diff: %s", show.Clip(line, 110))
	}
	deleted := 0
	for _, t := range cs.Tables {
		for _, r := range t.Rows {
			if r.After == nil {
				deleted++
			}
		}
	}
	if deleted > 0 {
		return fmt.Errorf("the review refuses it: it deletes %d rows", deleted)
	}
	return nil
}

// disaster is the session that deletes everything.
func (s *office) disaster(ctx context.Context) error {
	before, err := s.count(ctx, `SELECT count(*) FROM symbols`)
	if err != nil {
		return err
	}
	changes, err := s.propose(ctx, sessions[0])
	if err != nil {
		return err
	}
	_, err = tonbo.Promote(ctx, s.production, changes, tonbo.PromoteOptions{Approve: s.approve})
	s.out.Say("%v", err)
	s.out.Check("what deletes everything is refused", err != nil && strings.Contains(err.Error(), "refuses it"), "%v", err)
	after, err := s.count(ctx, `SELECT count(*) FROM symbols`)
	s.out.Check("production never knew of it", before == after, "%d names, %d before", after, before)
	return err
}

// improvement is a session that is promoted, while production goes on.
func (s *office) improvement(ctx context.Context) error {
	changes, err := s.propose(ctx, sessions[1])
	if err != nil {
		return err
	}
	if err := s.change(ctx, `INSERT INTO symbols(package, name, kind, signature, doc) VALUES('example', 'Added', 'func', 'func Added()', 'Added while the model was at work.')`); err != nil {
		return err
	}
	p, err := tonbo.Promote(ctx, s.production, changes, tonbo.PromoteOptions{Approve: s.approve})
	if err != nil {
		return err
	}
	s.out.Say("promoted in one transaction; the remote has it at slot %d", p.Slot)
	marked, err := s.count(ctx, `SELECT count(*) FROM symbols WHERE deprecated`)
	if err != nil {
		return err
	}
	wanted, err := s.count(ctx, `SELECT count(*) FROM symbols WHERE doc LIKE '%Deprecated:%'`)
	if err != nil {
		return err
	}
	s.out.Check("what is good is promoted", marked == wanted, "%d names are marked, %d are deprecated", marked, wanted)
	added, err := s.count(ctx, `SELECT count(*) FROM suggestions WHERE name = 'Added'`)
	s.out.Check("what production did meanwhile is there too", added == 1, "%d rows", added)
	return err
}

// conflict is a session that changes what production changes as well.
func (s *office) conflict(ctx context.Context) error {
	changes, err := s.propose(ctx, sessions[2])
	if err != nil {
		return err
	}
	const builder = `package = 'bytes' AND name = 'Buffer' OR name = 'Builder'`
	if err := s.change(ctx, `UPDATE symbols SET doc = 'Rewritten by a person.' WHERE `+builder); err != nil {
		return err
	}
	_, err = tonbo.Promote(ctx, s.production, changes, tonbo.PromoteOptions{Approve: s.approve})
	var conflict *tonbo.ConflictError
	if errors.As(err, &conflict) {
		for _, r := range conflict.Rows {
			s.out.Say("  conflict: %s", show.Clip(r.String(), 110))
		}
	}
	s.out.Check("a row that both have changed is a conflict", conflict != nil && len(conflict.Rows) > 0, "%v", err)
	n, err := s.count(ctx, `SELECT count(*) FROM symbols WHERE doc LIKE '[not safe%'`)
	s.out.Check("and nothing of it is promoted", n == 0, "%d rows are", n)
	return err
}

// examine checks that nothing is left of the scratch databases.
func (s *office) examine(ctx context.Context) error {
	n, err := s.client.Count(ctx, tonbo.Filter{Metadata: map[string]string{tonbo.MetadataKind: tonbo.ScratchKind}})
	s.out.Check("no scratch database is left", n == 0, "%d are", n)
	return err
}
