package sqltool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ncruces/go-sqlite3"

	"github.com/tonbo-go/tonbo"
)

// Diff returns the tool diff: it tells what has changed in db, which must be a database of c, since a state that [Checkpoint] labelled with the same prefix, or without a label since start: the point that a scratch fork began at, say; nil: there must be a label. tonbo's own tables are left out. Of l, Rows (default 50), Bytes, CellBytes, Time and Memory count; all rows that differ are counted, whatever is shown.
func Diff(c *tonbo.Client, db *tonbo.DB, prefix string, start tonbo.Source, l Limits) (*Tool, error) {
	l.Rows = cmp.Or(l.Rows, 50)
	l, err := l.withDefaults()
	if err != nil {
		return nil, err
	}
	d := &differ{c: c, db: db, prefix: prefix, start: start, l: l, ends: newEnds(l), turn: make(chan struct{}, 1)}
	d.turn <- struct{}{}
	label := "as given to checkpoint"
	if start != nil {
		label += "; without: since the beginning of the task"
	}
	return &Tool{
		Name:        "diff",
		Description: fmt.Sprintf("Tells what has changed in the database of this task since the state that has this label, as JSON: changes of the schema, and for each table how many rows were inserted, updated and deleted, with at most %d of them.", l.Rows),
		Schema:      schema(property{name: "label", description: label, optional: start != nil}),
		ReadOnly:    true,
		call: func(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
			in, bad := decode(input, maxLabel, "label")
			if bad != nil && start != nil {
				if none, err := decode(input, maxLabel); err == nil {
					in, bad = none, nil
				}
			}
			if bad != nil {
				return failed(bad)
			}
			return d.call(ctx, in["label"])
		},
	}, nil
}

// differ is the tool's state.
type differ struct {
	c      *tonbo.Client
	db     *tonbo.DB
	prefix string
	start  tonbo.Source
	l      Limits
	ends   *ends
	turn   chan struct{} // one call at a time
}

func (d *differ) call(ctx context.Context, label string) (json.RawMessage, error) {
	select {
	case <-d.turn:
	case <-ctx.Done():
		return failed(context.Cause(ctx))
	}
	defer func() { d.turn <- struct{}{} }()
	since := d.start
	if label != "" || since == nil {
		since = tonbo.Ref{Client: d.c, Name: d.db.Status().Name, At: tonbo.Label(d.prefix + label)}
	}
	b := newBudget(ctx, d.ends)
	defer b.release()
	set, err := d.compare(b, since)
	switch {
	case err == nil:
		return d.answer(set), nil
	case errors.Is(err, tonbo.ErrTooLarge), errors.Is(err, sqlite3.NOMEM):
		err = &Error{Message: fmt.Sprintf("out of memory: a call may use %d MiB", d.l.Memory>>20), Hint: "the changes are too large to be shown: look at the tables with queries"}
	case errors.Is(err, tonbo.ErrUnsupported):
		err = &Error{Message: "a virtual table differs whose rows cannot be compared"}
	case b.Context.Err() != nil:
		err = context.Cause(b)
	case label == "" && errors.Is(err, tonbo.ErrPointGone):
		err = &Error{Message: "the state at the beginning is not kept any more", Hint: "give a label"}
	default:
		err = noCheckpoint(err, label)
	}
	return failed(err)
}

// compare is tonbo.Diff within the limits. The driver panics when SQLite runs out of memory.
func (d *differ) compare(ctx context.Context, since tonbo.Source) (set *tonbo.ChangeSet, err error) {
	defer func() {
		if p := recover(); p != nil {
			if err = (panicked{p}); (panicked{p}).outOfMemory() {
				err = sqlite3.NOMEM
			}
		}
	}()
	return tonbo.Diff(sqlite3.WithMaxMemory(ctx, d.l.Memory), since, d.db, tonbo.DiffOptions{Keep: d.l.Rows, MaxBytes: d.l.Memory / 8})
}

// answer is the JSON of what differs. doc.go has its form.
func (d *differ) answer(set *tonbo.ChangeSet) json.RawMessage {
	w := &changes{cell: d.l.CellBytes, left: d.l.Bytes}
	b := append([]byte(nil), `{"schema":[`...)
	first := true
	for _, c := range set.Schema {
		if isOurs(c.Name) || isOurs(c.Table) {
			continue
		}
		sql := c.After
		if c.Op == "drop" {
			sql = c.Before
		}
		v := struct {
			Op   string          `json:"op"`
			Type string          `json:"type"`
			Name string          `json:"name"`
			SQL  json.RawMessage `json:"sql,omitempty"`
		}{string(c.Op), c.Type, clip(c.Name, 256), appendText(nil, []byte(sql), d.l.CellBytes)}
		b, first = w.element(b, first, marshal(v))
	}
	b, first = append(b, `],"tables":[`...), true
	for i := range set.Tables {
		if t := &set.Tables[i]; !isOurs(t.Name) {
			b, first = w.table(b, first, t)
		}
	}
	b = append(b, ']')
	if w.cut {
		b = append(b, `,"truncated":true`...)
	}
	return append(b, '}')
}

// changes writes as much as there is room for.
type changes struct {
	cell, left int // bytes
	cut        bool
}

// element appends one to a list.
func (w *changes) element(b []byte, first bool, e []byte) ([]byte, bool) {
	if w.left -= len(e) + 1; w.left < 0 {
		w.cut = true
		return b, first
	}
	if !first {
		b = append(b, ',')
	}
	return append(b, e...), false
}

func (w *changes) table(b []byte, first bool, t *tonbo.TableChange) ([]byte, bool) {
	inserted, updated, deleted := t.Count()
	columns := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		columns[i] = clip(c, 256)
	}
	head := marshal(struct {
		Table    string   `json:"table"`
		Inserted int64    `json:"inserted"`
		Updated  int64    `json:"updated"`
		Deleted  int64    `json:"deleted"`
		Columns  []string `json:"columns"`
	}{clip(t.Name, 256), inserted, updated, deleted, columns})
	if w.left -= len(head) + 12; w.left < 0 {
		w.cut = true
		return b, first
	}
	if !first {
		b = append(b, ',')
	}
	b = append(append(b, head[:len(head)-1]...), `,"rows":[`...)
	w.cut = w.cut || t.Omitted != nil
	none := true
	for i := range t.Rows {
		r := &t.Rows[i]
		e := append(append([]byte(`{"op":"`), r.Op...), '"')
		if r.Before != nil {
			e = w.values(append(e, `,"before":`...), r.Before)
		}
		if r.After != nil {
			e = w.values(append(e, `,"after":`...), r.After)
		}
		if r.CopiesBefore+r.CopiesAfter > 1 {
			e = fmt.Appendf(e, `,"copies":[%d,%d]`, r.CopiesBefore, r.CopiesAfter)
		}
		b, none = w.element(b, none, append(e, '}'))
	}
	return append(b, "]}"...), false
}

func (w *changes) values(b []byte, row []any) []byte {
	b = append(b, '[')
	for i, v := range row {
		if i > 0 {
			b = append(b, ',')
		}
		switch v := v.(type) {
		case string:
			b = appendText(b, []byte(v), w.cell)
		case []byte:
			b = appendBinary(append(b, `{"blob":`...), v, w.cell)
		default:
			b = appendCell(b, v, w.cell)
		}
	}
	return append(b, ']')
}
