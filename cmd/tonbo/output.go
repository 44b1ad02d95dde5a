package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/tonbo-go/tonbo"
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

// point is a tonbo.Point as --json spells it.
type point struct {
	Point      string `json:"point"` // behind name@point:
	ID         string `json:"id"`
	Slot       uint64 `json:"slot"`
	Generation uint64 `json:"generation"`
	Time       stamp  `json:"time"`
	Label      string `json:"label"`
}

func pointOf(p tonbo.Point) point {
	return point{p.String(), p.ID, p.Slot, p.Generation, stamp(p.Time), p.Label}
}

// stamp is a time: null in JSON when there is none.
type stamp time.Time

// MarshalJSON implements json.Marshaler.
func (s stamp) MarshalJSON() ([]byte, error) {
	if time.Time(s).IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal(time.Time(s).UTC().Format(time.RFC3339Nano))
}

// String is for people: - when there is none.
func (s stamp) String() string {
	if time.Time(s).IsZero() {
		return "-"
	}
	return time.Time(s).UTC().Format(time.RFC3339)
}

// database is a tonbo.Database as --json spells it. Listed ones have no head and no bytes.
type database struct {
	Name       string            `json:"name"`
	ID         string            `json:"id"`
	State      string            `json:"state"`
	CreatedAt  stamp             `json:"created_at"`
	CreatedBy  string            `json:"created_by"`
	ExpiresAt  stamp             `json:"expires_at"`
	Metadata   map[string]string `json:"metadata"`
	Protected  bool              `json:"protected"`
	Frozen     bool              `json:"frozen"`
	ParentName string            `json:"parent_name,omitempty"`
	Parent     *parent           `json:"parent,omitempty"`
	Head       *point            `json:"head,omitempty"`
	Bytes      *int64            `json:"bytes,omitempty"`
	Replayed   bool              `json:"replayed,omitempty"`
}

// parent is the point that a fork began from.
type parent struct {
	ID   string `json:"id"`
	Slot uint64 `json:"slot"`
}

func databaseOf(d *tonbo.Database) database {
	out := database{
		Name: d.Name, ID: d.ID, State: d.State, CreatedAt: stamp(d.CreatedAt), CreatedBy: d.CreatedBy, ExpiresAt: stamp(d.ExpiresAt), Metadata: d.Metadata,
		Protected: d.Protected, Frozen: d.Frozen, ParentName: d.ParentName, Replayed: d.Replayed,
	}
	if out.Metadata == nil {
		out.Metadata = map[string]string{}
	}
	if d.Parent != nil {
		out.Parent = &parent{d.Parent.ID, d.Parent.Slot}
	}
	if d.Head.Slot > 0 {
		head, bytes := pointOf(d.Head), d.Bytes
		out.Head, out.Bytes = &head, &bytes
	}
	return out
}

// described answers with a database.
func (a *app) described(d *tonbo.Database) error {
	v := databaseOf(d)
	return a.answer(v, func(w io.Writer) {
		fmt.Fprintf(w, "name\t%s\n", v.Name)
		fmt.Fprintf(w, "id\t%s\n", v.ID)
		fmt.Fprintf(w, "state\t%s%s\n", v.State, v.marks())
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
func (d *database) marks() string {
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
