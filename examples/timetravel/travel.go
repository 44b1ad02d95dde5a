package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/examples/internal/show"
)

// Labels of the first run and of the run after the rewind: a label that is given again would mean the newer point.
const (
	firstLabel  = "step-"
	secondLabel = "again-"
)

func (s *story) label() tonbo.Label { return tonbo.Label(fmt.Sprint(firstLabel, s.back)) }

// firstRun does all steps.
func (s *story) firstRun(ctx context.Context) (err error) {
	if _, err := s.db.ExecContext(ctx, schema); err != nil {
		return err
	}
	if s.past, err = s.work(ctx, s.db, byName, firstLabel); err != nil {
		return err
	}
	s.out.Say("the run did %d steps %s, each a labelled point of %s in %s", s.steps, byName.name, s.Name, s.URL)
	return nil
}

// reading opens a database at a point for as long as fn runs. It claims nothing: an owner works on undisturbed.
func (s *story) reading(ctx context.Context, name string, at tonbo.At, fn func(*tonbo.DB) error) (err error) {
	o := s.Machine("reader")
	o.At = at
	db, err := tonbo.OpenReadOnly(ctx, name, o)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := db.Close(); err == nil {
			err = cerr
		}
	}()
	return fn(db)
}

// lookBack reads the state of a step in the middle in every way that names it.
func (s *story) lookBack(ctx context.Context) error {
	p, written := s.past[s.back], ""
	for _, c := range []struct {
		what string
		at   tonbo.At
		step int
	}{
		{fmt.Sprintf("label %q", p.Label), s.label(), s.back},
		{fmt.Sprintf("slot %d", p.Slot), tonbo.Slot(p.Slot), s.back},
		{"its point", p, s.back},
		{"its time", tonbo.Time(p.Time), s.back},
		{"the time just before it", tonbo.Time(p.Time.Add(-time.Nanosecond)), s.back - 1},
		{"nothing: the head", nil, s.steps},
	} {
		start := time.Now()
		err := s.reading(ctx, s.Name, c.at, func(db *tonbo.DB) error {
			got, err := digest(ctx, db.DB)
			if err != nil {
				return err
			}
			st := db.Status()
			s.out.Say("read-only at %s: slot %d, %d pages, %d requests, %s, %s", c.what, st.Slot, st.Pages, show.Requests(st.Requests),
				show.Bytes(st.Requests.BytesDown), time.Since(start).Round(time.Millisecond))
			s.out.Check(fmt.Sprintf("read-only at %s is the state of step %d", c.what, c.step), got == s.states[c.step], "it has other rows")
			if _, err = db.ExecContext(ctx, "DELETE FROM steps"); err == nil {
				written = c.what
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	s.out.Check("none of these can be written", written == "", "a DELETE succeeded at %s", written)
	err := s.db.Synced(ctx)
	s.out.Check("the run's owner was not disturbed by the readers", err == nil, "%v", err)
	return nil
}

// export writes the step's state as a plain SQLite file, and reads it with a plain driver.
func (s *story) export(ctx context.Context) (err error) {
	path := filepath.Join(s.Dir, "exported.db")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := s.client.Export(ctx, s.Name, s.label(), f); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	db, err := sql.Open("sqlite3", show.FileURL(path)+"?mode=ro")
	if err != nil {
		return err
	}
	defer db.Close()
	got, err := digest(ctx, db)
	if err != nil {
		return err
	}
	s.out.Check(fmt.Sprintf("the file exported at %q is the state of step %d", s.label(), s.back), got == s.states[s.back], "it has other rows")
	return nil
}

// rewind takes the run back, and lets it go on in another way.
func (s *story) rewind(ctx context.Context) (err error) {
	// (1) The owner is at work. Rewind fences it, as if another process had taken over.
	if s.before, err = s.client.Rewind(ctx, s.Name, s.label()); err != nil {
		return err
	}
	s.out.Say("rewound to %q; the head was slot %d", s.label(), s.before.Slot)
	err = s.db.Synced(ctx)
	s.out.Check("the owner is told that its database was rewound", errors.Is(err, tonbo.ErrFenced), "Synced returned %v", err)

	// (2) It takes the database back and finds itself in the past.
	if err := s.db.Reopen(ctx); err != nil {
		return err
	}
	got, err := digest(ctx, s.db.DB)
	if err != nil {
		return err
	}
	s.out.Check(fmt.Sprintf("after the rewind the run is at step %d", s.back), got == s.states[s.back], "it has other rows")

	// (3) And goes on from there.
	_, err = s.work(ctx, s.db, largest, secondLabel)
	return err
}

// branch forks the run at the label, lets the fork go on in a third way, and compares the two.
func (s *story) branch(ctx context.Context) error {
	name := s.Name + ".branch"
	if _, err := s.client.Fork(ctx, s.Name, name, tonbo.ForkOptions{At: s.label()}); err != nil {
		return err
	}
	db, err := tonbo.Open(ctx, name, s.Machine("branch"))
	if err != nil {
		return err
	}
	defer db.Close() // does nothing after the Close below
	got, err := digest(ctx, db.DB)
	if err != nil {
		return err
	}
	s.out.Check(fmt.Sprintf("the branch begins with the state of step %d", s.back), got == s.states[s.back], "it has other rows")
	if _, err := s.work(ctx, db, smallest, firstLabel+"b"); err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	return s.reading(ctx, name, nil, func(right *tonbo.DB) error {
		return s.reading(ctx, s.Name, tonbo.Label(fmt.Sprint(secondLabel, s.steps)), func(left *tonbo.DB) error { return s.compare(ctx, left.DB, right.DB) })
	})
}

// compare shows where the two branches differ.
func (s *story) compare(ctx context.Context, left, right *sql.DB) error {
	var first []difference
	seen := map[string]int{}
	got, err := compare(ctx, left, right, func(d difference) {
		if seen[d.table]++; seen[d.table] <= 3 {
			first = append(first, d)
		}
	})
	if err != nil {
		return err
	}
	wantLeft, wantRight := s.expected(byName, largest), s.expected(byName, smallest)
	want := compareTables(wantLeft, wantRight)
	rows := [][]string{{"table", "in both", "changed", "only in " + largest.name, "only in " + smallest.name}}
	for _, q := range queries {
		n := got[q.table]
		rows = append(rows, []string{q.table, fmt.Sprint(n.same), fmt.Sprint(n.changed), fmt.Sprint(n.left), fmt.Sprint(n.right)})
		s.out.Check("the branches differ in "+q.table+" as computed", n == want[q.table] && n.same < len(wantLeft[q.table]), "%+v, want %+v", n, want[q.table])
	}
	if err := s.out.Table(fmt.Sprintf("two branches from step %d, row by row", s.back), true, rows); err != nil {
		return err
	}
	rows = [][]string{{"table", "row", largest.name, smallest.name}}
	for _, d := range first {
		rows = append(rows, []string{d.table, show.Clip(d.key, 32), show.Clip(d.left, 46), show.Clip(d.right, 46)})
	}
	if err := s.out.Table("the first differences", false, rows); err != nil {
		return err
	}
	for _, c := range []struct {
		what string
		db   *sql.DB
		want tables
	}{{"the rewound run", left, wantLeft}, {"the branch", right, wantRight}} {
		wrong, err := matches(ctx, c.db, c.want)
		if err != nil {
			return err
		}
		s.out.Check("every row of "+c.what+" is as computed", wrong == "", "%s", wrong)
	}
	return nil
}

// undo takes the run back to where it was before it was rewound. What it did since stays in the history as well.
func (s *story) undo(ctx context.Context) error {
	if _, err := s.client.Rewind(ctx, s.Name, s.before); err != nil {
		return err
	}
	if err := s.db.Reopen(ctx); err != nil {
		return err
	}
	got, err := digest(ctx, s.db.DB)
	if err != nil {
		return err
	}
	s.out.Say("the rewind is undone")
	s.out.Check(fmt.Sprintf("after the undo the run is at step %d again, as it was", s.steps), got == s.states[s.steps], "it has other rows")
	if err := s.db.Synced(ctx); err != nil {
		return err
	}
	return s.reading(ctx, s.Name, tonbo.Label(fmt.Sprint(secondLabel, s.steps)), func(db *tonbo.DB) error {
		wrong, err := matches(ctx, db.DB, s.expected(byName, largest))
		s.out.Check("what the run did in between is still there to be read", wrong == "", "%s", wrong)
		return err
	})
}

// history shows all that has happened.
func (s *story) history(ctx context.Context) error {
	rows := [][]string{{"slot", "time", "kind", "label", "pages", "bytes", "by", ""}}
	kinds, labels := map[string]int{}, map[string]uint64{}
	for e, err := range s.client.History(ctx, s.Name) { // the newest first
		if err != nil {
			return err
		}
		kinds[e.Kind]++
		if e.Label != "" {
			labels[e.Label] = e.Slot
		}
		note := ""
		if e.Kind == "rewind" {
			note = fmt.Sprintf("to slot %d", e.RewoundTo)
		}
		rows = append(rows, []string{fmt.Sprint(e.Slot), e.Time.UTC().Format("15:04:05.000"), e.Kind, e.Label, fmt.Sprint(e.Pages), show.Bytes(e.Bytes), e.By, note})
	}
	if err := s.out.Table("history of "+s.Name, false, rows); err != nil {
		return err
	}
	missing := []string{}
	for n, p := range s.past {
		if labels[p.Label] != p.Slot {
			missing = append(missing, fmt.Sprint(n))
		}
	}
	s.out.Check("the history has every step where Checkpoint said", len(missing) == 0, "not steps %s", strings.Join(missing, ", "))
	s.out.Check("the history has both rewinds", kinds["rewind"] == 2, "%d", kinds["rewind"])
	return nil
}

// end closes the run, and deletes what was made.
func (s *story) end(ctx context.Context) error {
	if err := s.db.Close(); err != nil {
		return err
	}
	return errors.Join(s.client.Delete(ctx, s.Name), s.client.Delete(ctx, s.Name+".branch"))
}
