package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/view"
)

// answer writes what a command was asked for: v as JSON, or what text writes for people, in columns that are set apart by tabs.
func (a *app) answer(v any, text func(io.Writer)) error {
	a.progress.clear()
	if a.json {
		return encode(a.stdout, v)
	}
	t := table(a.stdout)
	text(t)
	return t.Flush()
}

func encode(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func table(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// described answers with a database.
func (a *app) described(d *tonbo.Database) error {
	v := view.DatabaseOf(d)
	return a.answer(v, func(w io.Writer) {
		fmt.Fprintf(w, "name\t%s\n", v.Name)
		fmt.Fprintf(w, "id\t%s\n", v.ID)
		fmt.Fprintf(w, "state\t%s%s\n", v.State, marks(v))
		fmt.Fprintf(w, "created\t%s by %s\n", v.CreatedAt, plain(v.CreatedBy))
		fmt.Fprintf(w, "expires\t%s\n", v.ExpiresAt)
		if len(v.Metadata) > 0 {
			fmt.Fprintf(w, "metadata\t%s\n", spellPairs(v.Metadata))
		}
		if v.Parent != nil {
			fmt.Fprintf(w, "forked from\t%s@slot:%d\n", v.ParentName, v.Parent.Slot)
		}
		if v.Head != nil {
			fmt.Fprintf(w, "head\tslot %d, generation %d, %s\n", v.Head.Slot, v.Head.Generation, v.Head.Time)
			fmt.Fprintf(w, "stored\t%s\n", size(*v.Bytes))
		}
	})
}

// marks are what is unusual about a database, behind its state.
func marks(d view.Database) string {
	s := ""
	if d.Frozen {
		s += ", frozen"
	}
	if d.Protected {
		s += ", protected"
	}
	return s
}

// spellPairs is metadata in one line.
func spellPairs(m map[string]string) string {
	if len(m) == 0 {
		return "-"
	}
	var s []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		s = append(s, plain(k+"="+m[k]))
	}
	return strings.Join(s, " ")
}

// plain keeps what somebody else wrote from breaking a line or a column, steering the terminal, or turning the text around.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' {
			return '\ufffd'
		}
		return r
	}, s)
}

// several spells a number of things.
func several(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

// size spells bytes for people.
func size(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for ; f >= unit && i < 4; i++ {
		f /= unit
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTP"[i])
}
