package sqltool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tonbo-go/tonbo"
)

// Tool is what a harness offers to a model. The fields have the shape that the common SDKs ask for; change them as you like before you offer it.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage // JSON Schema of Call's input: one object, no additional properties
	ReadOnly    bool            // it changes nothing
	Destructive bool            // it may remove data

	call  func(context.Context, json.RawMessage) (json.RawMessage, error)
	close func() error
}

// Call runs the tool. input is what the model wrote.
//
// out is JSON for the model and never nil, also with an error. The error is an [*Error] when the model's input was at fault or a limit was reached: the program has nothing to do but to hand out over. Any other error is the
// program's: ctx's, what [tonbo.DB.Synced] or a COMMIT returned, a damaged database. Then out only says that there is a problem.
//
// Calls of one tool run one after the other.
func (t *Tool) Call(ctx context.Context, input json.RawMessage) (out json.RawMessage, err error) {
	return t.call(ctx, input)
}

// Close gives the tool's connection back. The next Call makes a new one. A connection that was not used for a second is closed by itself; close the tool before its database.
func (t *Tool) Close() error {
	if t.close == nil {
		return nil
	}
	return t.close()
}

// New returns the tool run_sql of db. It errors with [tonbo.ErrInvalid] when a limit makes no sense.
func New(db *tonbo.DB, l Limits) (*Tool, error) {
	l, err := l.withDefaults()
	if err != nil {
		return nil, err
	}
	s := newSession(db, l)
	return &Tool{
		Name:        "run_sql",
		Description: describe(l),
		Schema:      schema(property{name: "sql", description: "SQLite's SQL"}),
		ReadOnly:    l.ReadOnly,
		Destructive: !l.ReadOnly,
		call: func(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
			in, err := decode(input, maxInput(l), "sql")
			if err != nil {
				return failed(err)
			}
			return s.call(ctx, in["sql"])
		},
		close: s.Close,
	}, nil
}

// describe is the tool's description.
func describe(l Limits) string {
	var b strings.Builder
	if l.Multi {
		fmt.Fprintf(&b, "Runs SQL statements (SQLite's dialect, up to %d, separated by semicolons) on the database of this task.", maxStatements)
	} else {
		b.WriteString("Runs one SQL statement (SQLite's dialect) on the database of this task.")
	}
	if l.ReadOnly {
		b.WriteString(" The database can only be read.")
	} else {
		b.WriteString(" It may read and write, and change the schema.")
	}
	fmt.Fprintf(&b, " Returns JSON: columns and rows, at most %d (truncated says that there were more; use LIMIT, WHERE or aggregates), and for writes the number of changes.", l.Rows)
	if l.Multi {
		b.WriteString(" A transaction must end in the call in which it begins; temporary tables end with it.")
	} else {
		b.WriteString(" No BEGIN, COMMIT, temporary tables or parameters.")
	}
	fmt.Fprintf(&b, " A call may take %v. The schema: SELECT name, sql FROM sqlite_schema.", l.Time)
	return b.String()
}

type property struct {
	name, description string
	optional          bool
}

// schema is the JSON Schema of an object of strings.
func schema(props ...property) json.RawMessage {
	required := []string{}
	all := map[string]any{}
	for _, p := range props {
		if !p.optional {
			required = append(required, p.name)
		}
		all[p.name] = map[string]string{"type": "string", "description": p.description}
	}
	object := map[string]any{"type": "object", "properties": all, "additionalProperties": false}
	if len(required) > 0 { // older drafts want one at least
		object["required"] = required
	}
	s, err := json.Marshal(object)
	if err != nil { // never, for these types
		panic(err)
	}
	return s
}

func maxInput(l Limits) int { return 6*l.SQLBytes + 1024 } // each byte of SQL may be written as \u00xx

// failed is the answer to a call that ran nothing.
func failed(err error) (json.RawMessage, error) {
	return marshal(struct {
		Error *Error `json:"error"`
	}{public(err)}), err
}

func marshal(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil { // never, for our types
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}
