package tonbo_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tonbo-go/tonbo"
)

// state reads a point of a database, and checks that it is sound.
func (l *soakLife) state(name string, at tonbo.At) ([]commit, error) {
	o := l.o
	o.At = at
	db, err := tonbo.OpenReadOnly(l.t.Context(), name, o)
	if err != nil {
		return nil, err
	}
	found, err := inspectFork(l.t.Context(), db.DB)
	l.reads.Add(1)
	return found, errors.Join(err, db.Close())
}

// is checks that a point is a state exactly.
func (l *soakLife) is(db *soakDB, at tonbo.At, want []commit, when string) {
	got, err := l.state(db.name, at)
	if err != nil || !slices.Equal(got, want) {
		l.broken("%s at %v %s: %d transactions, want %d: %v", db.name, at, when, len(got), len(want), err)
	}
}

// look reads the head of a database that no agent has open.
func (l *soakLife) look(db *soakDB, when string) {
	found, err := l.state(db.name, nil)
	if err != nil {
		l.broken("%s %s: %v", db.name, when, err)
		return
	}
	l.holds(db, found, when)
	db.must = found
}

// holds checks that a state begins with what was acknowledged, and goes on with what was tried.
func (l *soakLife) holds(db *soakDB, found []commit, when string) {
	if !begins(found, db.must) {
		l.broken("%s %s has %d transactions, and not the %d acknowledged ones", db.name, when, len(found), len(db.must))
		return
	}
	for _, c := range found[len(db.must):] {
		if !l.tried[c] {
			l.broken("%s %s: transaction %d of generation %d was never made", db.name, when, c.Seq, c.Gen)
		}
	}
}

// point reads a labelled point.
func (l *soakLife) point(db *soakDB) {
	if len(db.labels) > 0 {
		label := db.label()
		l.is(db, tonbo.Label(label), db.labels[label], "by its label")
		l.points.Add(1)
	}
}

// export reads the head as a plain file.
func (l *soakLife) export(db *soakDB) {
	path := filepath.Join(l.base, db.name+".export")
	f, err := os.Create(path)
	if err != nil {
		l.broken("%v", err)
		return
	}
	err = l.c.Export(l.t.Context(), db.name, nil, f)
	err = errors.Join(err, f.Close())
	found, ierr := inspectFileBy(l.t.Context(), path, inspectFork)
	if err = errors.Join(err, ierr, os.Remove(path)); err != nil || !slices.Equal(found, db.must) {
		l.broken("export of %s: %d transactions, want %d: %v", db.name, len(found), len(db.must), err)
	}
	l.exports.Add(1)
}

// hear takes in what agents have said that needs no look at the database.
func (l *soakLife) hear(db *soakDB, agents ...*soakAgent) {
	for _, p := range agents {
		for _, e := range p.all {
			switch e.What {
			case "try":
				l.tried[e.commit] = true
			case "commit":
				l.commits.Add(1)
			case "ack":
				l.acks.Add(1)
			case "label":
				l.acks.Add(1)
				l.labels.Add(1)
			case "open":
				if e.Warm {
					l.warm.Add(1)
				} else {
					l.cold.Add(1)
				}
			case "broken", "error":
				l.broken("agent of %s in %s: %s: %s (%s)\n%s", db.name, p.m.dir, e.What, e.Err, p.last(), p.trace.b)
			}
		}
	}
}

// ended holds what agents have said against the database, when all of them have ended: its head, or the point where another history begins.
func (l *soakLife) ended(db *soakDB, at tonbo.At, agents ...*soakAgent) {
	l.hear(db, agents...)
	if l.t.Failed() {
		return
	}
	if p, ok := at.(tonbo.Point); ok && p.ID == "" {
		at = nil
	}
	found, err := l.state(db.name, at)
	if err != nil {
		l.broken("%s: %v", db.name, err)
		return
	}
	l.holds(db, found, "after its agents")
	has := func(c commit) bool { return c.Seq <= len(found) && found[c.Seq-1] == c }
	for _, p := range agents {
		before := p.m.left[db.name] // this agent finds it there
		var own []commit
		opened, closed := -1, false
		for _, e := range p.all {
			switch e.What {
			case "open":
				opened = e.Seq
				if e.Seq < len(db.must) {
					l.broken("%s: an agent has opened it with %d transactions, and %d are acknowledged", db.name, e.Seq, len(db.must))
				}
			case "commit":
				own = append(own, e.commit)
			case "closed":
				closed = true
			case "ack", "label":
				if e.Seq > len(found) {
					l.broken("%s: transaction %d of generation %d is acknowledged, and %d are there", db.name, e.Seq, e.Gen, len(found))
					return
				}
				for i := opened; i < e.Seq; i++ {
					if found[i] != (commit{i + 1, e.Gen}) {
						l.broken("%s: transaction %d of generation %d is acknowledged, and there is that of %d", db.name, i+1, e.Gen, found[i].Gen)
						return
					}
				}
				if e.What == "label" {
					db.labels[e.Path] = slices.Clone(found[:e.Seq])
				}
			}
		}
		rest := slices.DeleteFunc(slices.Concat(before, own), has)
		switch {
		case closed && len(slices.DeleteFunc(slices.Clone(own), has)) > 0 && p.heard("fenced") == nil:
			l.broken("%s: it was closed well, and %v are missing", db.name, rest)
		case opened >= 0 && db.home == p.m && slices.ContainsFunc(db.kept, func(c commit) bool { return !has(c) && c.Seq > opened }):
			l.broken("%s: nobody else has had it, and of %v %d were found", db.name, db.kept, opened)
		}
		if opened >= 0 && !p.killed { // what is not in the log is in a file
			rest = l.setAside(db, p.m, rest)
			if len(rest) > 0 {
				l.broken("%s: %v, committed in %s, is neither in the log nor in a file set aside: %s\n%s", db.name, rest, p.m.dir, p.last(), p.trace.b)
			}
		}
		p.m.left[db.name] = rest
		if opened >= 0 {
			if db.home != p.m { // what it found from before it has set aside
				db.home, db.kept = p.m, nil
			}
			db.kept = slices.DeleteFunc(slices.Concat(db.kept, own), has)
		} else if db.home != p.m { // it may have claimed it
			db.home = nil
		}
	}
	db.must = found
}

// setAside looks into the files set aside, and removes them as whoever has read them does. It returns the commits that are in none.
func (l *soakLife) setAside(db *soakDB, m *soakMachine, rest []commit) []commit {
	for _, f := range m.aside(db.name) {
		in, err := inspectFileBy(l.t.Context(), f, inspectFork)
		if err = errors.Join(err, os.Remove(f)); err != nil {
			l.broken("%s: %v", f, err)
			continue
		}
		l.aside.Add(1)
		there := map[commit]bool{}
		for _, c := range in {
			if there[c] = true; !l.tried[c] {
				l.broken("%s: transaction %d of generation %d was never made", f, c.Seq, c.Gen)
			}
		}
		rest = slices.DeleteFunc(rest, func(c commit) bool { return there[c] })
	}
	return rest
}

// resident is the supervisor's own database: open all the time, but for a moment now and then, beside a handle that follows it. It has as many rows as it ever had.
func (s *soaking) resident(ctx context.Context) {
	if err := s.reside(ctx); err != nil && ctx.Err() == nil {
		s.broken("resident: %v", err)
	}
}

const (
	residentName = "resident"
	residentRows = 500
)

func (s *soaking) reside(ctx context.Context) (err error) {
	if _, err := s.c.Create(ctx, residentName, tonbo.CreateOptions{}); err != nil {
		return err
	}
	db, err := s.c.Open(ctx, residentName)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.ExecContext(ctx, "CREATE TABLE r(id INTEGER PRIMARY KEY, k INTEGER, body BLOB)"); err != nil {
		return err
	}
	if err := db.Synced(ctx); err != nil {
		return err
	}
	o := s.o
	o.Follow = 200 * time.Millisecond
	follower, err := tonbo.OpenReadOnly(ctx, residentName, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, follower.Close()) }()
	every := time.NewTicker(100 * time.Millisecond)
	defer every.Stop()
	seen := 0
	for k := 1; ; k++ {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
		if _, err := db.ExecContext(ctx, "INSERT OR REPLACE INTO r VALUES(?,?,?)", k%residentRows, k, content(commit{Seq: k}, 300)); err != nil {
			return err
		}
		if err := db.Synced(ctx); err != nil {
			return err
		}
		s.steps.Add(1)
		if k%20 == 0 {
			acked := seen
			if k%100 == 0 {
				if err := follower.Refresh(ctx); err != nil {
					return err
				}
				acked = k
			}
			if seen, err = residentState(ctx, follower.DB, acked); err != nil {
				return fmt.Errorf("the follower: %w", err)
			}
		}
		if k%1000 == 0 { // its next owner lets others collect what it has uploaded
			if err := db.Close(); err != nil {
				return err
			}
			next, err := s.c.Open(ctx, residentName)
			if err != nil {
				return err
			}
			db = next
			if _, err := residentState(ctx, db.DB, k); err != nil {
				return err
			}
		}
	}
}

// residentState checks that the resident database holds exactly what its first steps lead to, at least so many, and tells how many.
func residentState(ctx context.Context, db *sql.DB, atLeast int) (k int, err error) {
	r, err := db.QueryContext(ctx, "SELECT id, k, body FROM r ORDER BY k DESC")
	if err != nil {
		return 0, err
	}
	defer r.Close()
	n := 0
	for ; r.Next(); n++ {
		var id, of int
		var body []byte
		if err := r.Scan(&id, &of, &body); err != nil {
			return 0, err
		}
		if k == 0 {
			k = of
		}
		if want := k - n; of != want || id != of%residentRows || string(body) != string(content(commit{Seq: of}, 300)) {
			return 0, fmt.Errorf("of %d steps, row %d is that of step %d, want %d", k, id, of, want)
		}
	}
	if err := r.Err(); err != nil {
		return 0, err
	}
	if n != min(k, residentRows) || k < atLeast {
		return 0, fmt.Errorf("%d rows of %d steps, want %d steps at least", n, k, atLeast)
	}
	return k, nil
}
