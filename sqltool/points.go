package sqltool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tonbo-go/tonbo"
)

const maxLabel = 4 << 10 // bytes of input

// DescribeSchema returns the tool describe_schema of db: the SQL of its tables, views, indexes and triggers, tonbo's own left out, in the form of a query's result. It takes no input. Of l, Time, Memory and Bytes count; Rows has a default of 5,000, Bytes of 256 KiB.
func DescribeSchema(db *tonbo.DB, l Limits) (*Tool, error) {
	l.Rows, l.Bytes, l.CellBytes = cmp.Or(l.Rows, 5000), cmp.Or(l.Bytes, 256<<10), cmp.Or(l.CellBytes, 32<<10)
	l.ReadOnly, l.Multi, l.SyncEach = true, false, false
	l, err := l.withDefaults()
	if err != nil {
		return nil, err
	}
	s := newSession(db, l)
	return &Tool{
		Name:        "describe_schema",
		Description: "Returns the schema of the database of this task, as JSON: type, name and SQL of each table, view, index and trigger.",
		Schema:      schema(),
		ReadOnly:    true,
		call: func(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
			if _, err := decode(input, maxLabel); err != nil {
				return failed(err)
			}
			return s.call(ctx, `SELECT type, name, sql FROM sqlite_schema s WHERE sql IS NOT NULL AND `+userTables+` AND tbl_name NOT LIKE '\_tonbo\_%' ESCAPE '\'
				ORDER BY type <> 'table', type <> 'view', tbl_name, name`)
		},
		close: s.Close,
	}, nil
}

// Checkpoint returns the tool checkpoint of db: it makes what was committed durable and gives the point a label, for [Rewind]. prefix comes before each label that the model chooses, so that it names none of the program's.
func Checkpoint(db *tonbo.DB, prefix string) *Tool {
	return &Tool{
		Name:        "checkpoint",
		Description: "Gives the present state of the database of this task a label, to which rewind can take it back. A label that is given again means the newer state.",
		Schema:      schema(property{name: "label", description: "a short name, such as before-migration"}),
		call: func(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
			in, bad := decode(input, maxLabel, "label")
			if bad != nil {
				return failed(bad)
			}
			if _, err := db.Checkpoint(ctx, prefix+in["label"]); err != nil {
				if errors.Is(err, tonbo.ErrInvalid) {
					err = &Error{Message: "a label has 1 to 200 bytes of printable text"}
				}
				return failed(err)
			}
			return marshal(map[string]string{"checkpoint": in["label"]}), nil
		},
	}
}

// Rewind returns the tool rewind: it takes db, which must be a database of c, back to a state that [Checkpoint] labelled with the same prefix, and reopens the handle. What came after stays in the history ([tonbo.Client.Rewind]).
// It waits for connections in use: close rows and transactions first. Those that the tools in beside keep between two calls, it takes from them.
func Rewind(c *tonbo.Client, db *tonbo.DB, prefix string, beside ...*Tool) *Tool {
	return &Tool{
		Name:        "rewind",
		Description: "Takes the database of this task back to the state that has this label. What was done since is undone.",
		Schema:      schema(property{name: "label", description: "as given to checkpoint"}),
		Destructive: true,
		call: func(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
			in, bad := decode(input, maxLabel, "label")
			if bad != nil {
				return failed(bad)
			}
			if err := db.Synced(ctx); err != nil { // what it is taken back from stays in the history
				return failed(err)
			}
			if _, err := c.Rewind(ctx, db.Status().Name, tonbo.Label(prefix+in["label"])); err != nil {
				return failed(noCheckpoint(err, in["label"]))
			}
			for _, t := range beside {
				if err := t.Close(); err != nil {
					return failed(err)
				}
			}
			if err := db.Reopen(ctx); err != nil {
				return failed(err)
			}
			return marshal(map[string]string{"rewound": in["label"]}), nil
		},
	}
}

// noCheckpoint tells the model that there is no such label, if that is what err says.
func noCheckpoint(err error, label string) error {
	if errors.Is(err, tonbo.ErrPointGone) || errors.Is(err, tonbo.ErrInvalid) {
		return &Error{Message: fmt.Sprintf("there is no checkpoint %q", clip(label, 200))}
	}
	return err
}
