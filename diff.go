package tonbo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/ext/fts5"

	"github.com/tonbo-go/tonbo/changeset"
	"github.com/tonbo-go/tonbo/vfs"
)

// What a [Diff] finds, and what a [Promote] makes of it: see package changeset.
type (
	ChangeSet     = changeset.Set
	SchemaChange  = changeset.SchemaChange
	TableChange   = changeset.TableChange
	RowChange     = changeset.RowChange
	ConflictError = changeset.ConflictError
	Conflict      = changeset.Conflict
	DiffOptions   = changeset.Options
)

// Errors of Diff and Promote, for errors.Is.
var (
	ErrConflict = changeset.ErrConflict
	ErrTooLarge = changeset.ErrTooLarge
)

// Source is one side of a Diff: a [*DB], as its connections see it at the call (what an owner has committed and not shipped yet is part of it), or a [Ref].
type Source interface {
	diffSide(ctx context.Context) (*diffSide, error)
}

// Ref is a point of a database that need not be open: it is read as [OpenReadOnly] does, for the time of the call.
type Ref struct {
	Client *Client
	Name   string
	At     At // nil: the head, which has what its owner has shipped
}

// diffSide is a source that is being read.
type diffSide struct {
	h       *handle
	uri     string // that SQLite opens it by
	is      changeset.Side
	pages   sidePages
	release func() error
}

func (r Ref) diffSide(ctx context.Context) (*diffSide, error) {
	if r.Client == nil {
		return nil, wrap(r.Name, "diff", invalid("Client", "Ref.Client is not set"))
	}
	o := r.Client.o
	o.At, o.Follow, o.Hydration = r.At, 0, HydrateNone
	db, err := OpenReadOnly(ctx, r.Name, o)
	if err != nil {
		return nil, err
	}
	s, err := db.diffSide(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	release := s.release
	s.release = func() error { return errors.Join(release(), db.Close()) }
	return s, nil
}

func (db *DB) diffSide(ctx context.Context) (*diffSide, error) {
	h := db.h
	if r := h.ro; r != nil {
		p, err := r.present()
		if err != nil {
			return nil, err
		}
		return &diffSide{
			h: h, uri: fileURI(p.vfs.Path(), "vfs="+vfs.SnapshotName+"&mode=ro&immutable=1"), is: sideOf(h.name, pointOf(p.entry), false), pages: snapshotPages{p},
			release: func() error { r.release(p); return nil },
		}, nil
	}
	if err := db.live(); err != nil {
		return nil, err
	}
	if _, err := h.enter(ctx); err != nil {
		return nil, err
	}
	_, vdb := h.current()
	st := db.Status()
	return &diffSide{
		h: h, uri: fileURI(vdb.Path(), "vfs="+vfs.Name+"&mode=rw&tonbo="+vdb.Token()), is: sideOf(h.name, st.Point, st.PendingCommits > 0), pages: &ownerPages{h: h, vdb: vdb},
		release: func() error { h.disconnected(); return nil },
	}, nil
}

func sideOf(name string, p Point, unshipped bool) changeset.Side {
	return changeset.Side{Name: name, Slot: p.Slot, Point: p.String(), Unshipped: unshipped}
}

// Diff finds what turns a into b: the schema, and the rows by primary key. Two forks of one database, a fork and its source, two points of a database, or two that have nothing in common.
// Each side is read as of one commit; nothing is written to either. See [ChangeSet] for what it holds, and package changeset for what counts as a difference.
//
//	before, after := tonbo.Ref{Client: c, Name: "golden"}, fork
//	changes, err := tonbo.Diff(ctx, before, after)
//	fmt.Print(changes) // for a person; json.Marshal and WriteSQL for programs
//
// Where both have objects of the remote in common, as forks of one database have, only pages that differ are read, and rows in them: the cost follows the change. Otherwise, and when
// the pages that differ do not tell which rows do, all rows are read. Tables without a primary key are read as a whole when anything in them differs.
//
// Errors, for errors.Is: [ErrTooLarge] when more differs than DiffOptions lets into memory; [ErrUnsupported] for a virtual table that differs and whose rows cannot be read
// and written back (one without content, or of an unknown module); OpenReadOnly's, for a Ref.
func Diff(ctx context.Context, a, b Source, o ...DiffOptions) (cs *ChangeSet, err error) {
	var do DiffOptions
	if len(o) > 0 {
		do = o[0]
	}
	var sides [2]*diffSide
	for i, source := range []Source{a, b} {
		if db, ok := source.(*DB); source == nil || ok && db == nil {
			return nil, invalid([]string{"a", "b"}[i], "it is nil")
		}
		s, err := source.diffSide(ctx)
		if err != nil {
			return nil, err
		}
		sides[i] = s
		defer func() {
			if rerr := s.release(); rerr != nil && err == nil {
				cs, err = nil, rerr
			}
		}()
	}
	cs, err = compareSides(ctx, sides[0], sides[1], do)
	if err != nil {
		for _, s := range sides { // a page that could not be fetched
			err = s.h.reason(err)
		}
		return nil, wrap(sides[0].h.name, "diff with "+sides[1].h.name, err)
	}
	return cs, nil
}

// compareSides compares through one connection that has both.
func compareSides(ctx context.Context, a, b *diffSide, o DiffOptions) (*ChangeSet, error) {
	c, err := sqlite3.OpenContext(ctx, a.uri)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := fts5.Register(c); err != nil {
		return nil, err
	}
	if err := c.BusyTimeout(time.Minute); err != nil {
		return nil, err
	}
	const other = "other"
	if err := c.Exec("ATTACH '" + strings.ReplaceAll(b.uri, "'", "''") + "' AS " + other); err != nil {
		return nil, fmt.Errorf("attach %s: %w", b.h.name, err)
	}
	if err := c.Exec("PRAGMA query_only = ON"); err != nil {
		return nil, err
	}
	if o.Pages == nil {
		o.Pages = prefilter(ctx, a, b)
	}
	cs, err := changeset.Compare(ctx, c, "main", other, o)
	if err != nil {
		return nil, err
	}
	cs.From, cs.To = a.is, b.is
	return cs, nil
}
