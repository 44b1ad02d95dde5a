package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/examples/internal/show"
)

type options struct {
	url, name string
	orders    int
}

// shop has the golden database.
type shop struct {
	*show.Stage
	client *tonbo.Client
	out    *show.Show
}

// harness is the program around the model.
func harness(ctx context.Context, o options, out *show.Show) (err error) {
	stage, err := show.NewStage("tool", o.url, o.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stage.End()) }()
	s := &shop{Stage: stage, out: out}
	if s.client, err = tonbo.NewClient(stage.Machine("harness")); err != nil {
		return err
	}
	if err := s.fill(ctx, o.orders); err != nil {
		return err
	}
	before, err := s.golden(ctx)
	if err != nil {
		return err
	}
	err = tonbo.Scratch(ctx, s.client, s.Name, "why are refunds stuck?", func(ctx context.Context, db *tonbo.DB) error { return s.session(ctx, db, o.orders) })
	if err != nil {
		return err
	}
	after, err := s.golden(ctx)
	if err != nil {
		return err
	}
	s.out.Say("the golden database: %s", after)
	s.out.Check("the golden database is what it was, byte by byte", before == after, "%s, was %s", after, before)
	n, err := s.client.Count(ctx, tonbo.Filter{Metadata: map[string]string{tonbo.MetadataGolden: s.Name}})
	s.out.Check("nothing is left of the fork", n == 0, "%d databases are", n)
	return err
}

// fill makes the golden database.
func (s *shop) fill(ctx context.Context, orders int) (err error) {
	if _, err := s.client.Create(ctx, s.Name, tonbo.CreateOptions{}); err != nil {
		return err
	}
	db, err := s.client.Open(ctx, s.Name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for _, q := range []string{
		`CREATE TABLE orders(id INTEGER PRIMARY KEY, customer TEXT NOT NULL, cents INTEGER NOT NULL, status TEXT NOT NULL, refund_status TEXT)`,
		fmt.Sprintf(`INSERT INTO orders SELECT value, 'customer ' || value %% 9973, value * 37 %% 100000, iif(value %% 50, 'paid', 'pending'), iif(value %% 50, NULL, 'stuck') FROM generate_series(1, %d)`, orders),
		`CREATE TABLE refunds(order_id INTEGER PRIMARY KEY, cents INTEGER NOT NULL)`,
		`INSERT INTO refunds SELECT id, cents FROM orders WHERE refund_status = 'stuck' AND id % 100 = 0`,
	} {
		if _, err := db.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	return db.Synced(ctx)
}

// golden is the golden database in one line: the checksum of the file that it is, and what is in it.
func (s *shop) golden(ctx context.Context) (string, error) {
	sum := sha256.New()
	if err := s.client.Export(ctx, s.Name, nil, sum); err != nil {
		return "", err
	}
	db, err := tonbo.OpenReadOnly(ctx, s.Name, s.Machine("auditor"))
	if err != nil {
		return "", err
	}
	var orders, refunds int
	err = db.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM refunds)`).Scan(&orders, &refunds)
	return fmt.Sprintf("%d orders, %d refunds, SHA-256 %x", orders, refunds, sum.Sum(nil)[:8]), errors.Join(err, db.Close())
}

// session lets the model work on the fork.
func (s *shop) session(ctx context.Context, db *tonbo.DB, orders int) (err error) {
	d, err := s.client.Get(ctx, db.Status().Name)
	if err != nil {
		return err
	}
	start := tonbo.Ref{Client: s.client, Name: s.Name, At: tonbo.Slot(d.Parent.Slot)} // where the fork began
	all, closeAll, err := functions(s.client, db, start)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	s.out.Say("the model gets %d functions, and asks itself why refunds are stuck", len(all))
	var said strings.Builder
	for i, t := range recording {
		var call toolCall
		if err := json.Unmarshal([]byte(t.call), &call); err != nil {
			return err
		}
		text, err := dispatch(ctx, all, call)
		if err != nil {
			return err
		}
		said.WriteString(text)
		s.out.Step(i+1, len(recording), "%s", call.Name)
		s.out.Say("  model: %s", t.thought)
		s.out.Say("    %s %s", call.Name, show.Clip(string(call.Arguments), 100))
		s.out.Say("    -> %s", show.Clip(text, 140))
	}
	s.out.Check("a wrong name is explained", strings.Contains(said.String(), `did you mean orders.refund_status?`), "it is not")
	s.out.Check("what reaches beyond the database is refused", strings.Count(said.String(), "not available")+strings.Count(said.String(), "unknown property")+strings.Count(said.String(), "no such tool") >= 5, "it is not")
	s.out.Check("what runs away is stopped", strings.Contains(said.String(), "stopped: a call may take"), "it is not")
	s.out.Check("nothing tells the model which database it has", !strings.Contains(said.String(), s.Name), "something does")

	changes, err := tonbo.Diff(ctx, start, db, tonbo.DiffOptions{Keep: 3})
	if err != nil {
		return err
	}
	for line := range strings.Lines(changes.String()) {
		s.out.Say("  diff: %s", show.Clip(line, 110))
	}
	_, _, deleted := changes.Count()
	s.out.Check("the model has deleted everything, and was let", deleted >= int64(orders), "%d of %d orders", deleted, orders)
	return nil
}
