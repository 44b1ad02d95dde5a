package changeset

import (
	"fmt"
	"strings"
)

// ConflictError is [ErrConflict]: the target is neither as it was when the changes were found nor as they make it. Nothing was changed.
type ConflictError struct {
	Rows []Conflict // the first ones, up to 1,000
	More bool       // there are others
}

// maxConflicts bounds the list.
const maxConflicts = 1000

// Conflict is one row, or one object of the schema, that is in the way.
type Conflict struct {
	Table   string   // or the object's name
	Type    string   // "row", or the object's type
	Op      Op       // what was to be done
	Columns []string // of Expected, Found and Wanted
	Key     []any    // of a row with one
	// Rows as they were when the changes were found, as they are, and as they were to be; nil: none. Of an object, each is its SQL.
	Expected, Found, Wanted []any
	// Copies of a row without a key.
	CopiesExpected, CopiesFound, CopiesWanted int64
	Reason                                    string // when it is another one
}

func (e *ConflictError) Error() string {
	var b strings.Builder
	n := fmt.Sprint(len(e.Rows))
	if e.More {
		n = "more than " + n
	}
	fmt.Fprintf(&b, "%v: %s", ErrConflict, n)
	if len(e.Rows) == 1 && !e.More {
		b.WriteString(" row or object: ")
	} else {
		b.WriteString(" rows or objects: ")
	}
	for i := range e.Rows {
		if i == 3 {
			b.WriteString("; ...")
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(e.Rows[i].String())
	}
	b.WriteString(". Compare anew, and look at what the other side did")
	return b.String()
}

// Is makes errors.Is see ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// String tells it in a line.
func (c *Conflict) String() string {
	var b strings.Builder
	if c.Type != "row" {
		fmt.Fprintf(&b, "%s of %s %s", c.Op, c.Type, c.Table)
	} else {
		fmt.Fprintf(&b, "%s in %s", c.Op, c.Table)
		if c.Key != nil {
			fmt.Fprintf(&b, " of %s", cells(c.Key, 3))
		}
	}
	side := func(name string, row []any, copies int64) {
		switch {
		case row == nil:
			fmt.Fprintf(&b, ", %s none", name)
		case copies > 1:
			fmt.Fprintf(&b, ", %s %d of %s", name, copies, cells(row, 6))
		case c.Type != "row":
			fmt.Fprintf(&b, ", %s %s", name, cell(row[0], 100))
		default:
			fmt.Fprintf(&b, ", %s %s", name, cells(row, 6))
		}
	}
	if c.Reason != "" {
		fmt.Fprintf(&b, ": %s", c.Reason)
		return b.String()
	}
	side("expected", c.Expected, c.CopiesExpected)
	side("found", c.Found, c.CopiesFound)
	side("wanted", c.Wanted, c.CopiesWanted)
	return b.String()
}

// cells spells values for a message.
func cells(row []any, most int) string {
	var out []string
	for i, v := range row {
		if i == most {
			out = append(out, "...")
			break
		}
		out = append(out, cell(v, 24))
	}
	return "(" + strings.Join(out, ", ") + ")"
}
