package changeset

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// cellWidth is how much of a value WriteText shows, in characters.
const cellWidth = 60

// String is what WriteText writes.
func (s *Set) String() string {
	var b strings.Builder
	s.WriteText(&b)
	return b.String()
}

// WriteText tells a person what differs: the schema, then for each table how many rows come (+), change (~) and go (-), and which. SQL is shown as a whole, and long values are cut.
func (s *Set) WriteText(to io.Writer) error {
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, "%s -> %s\n", visible(s.From.String()), visible(s.To.String()))
	if s.Empty() && len(s.Triggers) == 0 {
		fmt.Fprintln(w, "no difference")
		return w.Flush()
	}
	if len(s.Schema) > 0 {
		fmt.Fprintln(w, "schema:")
	}
	for i := range s.Schema {
		s.Schema[i].writeText(w)
	}
	if len(s.Triggers) > 0 {
		fmt.Fprintln(w, "triggers that do not fire, and stay as they are (a script takes them away and creates them anew):")
	}
	for _, t := range s.Triggers {
		fmt.Fprintf(w, "  = trigger %s: %s\n", visible(t.Name), block(t.SQL))
	}
	for i := range s.Tables {
		s.Tables[i].writeText(w)
	}
	return w.Flush()
}

func (sc *SchemaChange) writeText(w io.Writer) {
	what := visible(sc.Type) + " " + visible(sc.Name)
	switch sc.Op {
	case Drop:
		fmt.Fprintf(w, "  - %s\n", what)
	case Create:
		fmt.Fprintf(w, "  + %s: %s\n", what, block(sc.After))
	case Alter:
		fmt.Fprintf(w, "  ~ %s: %s\n", what, block(strings.Join(sc.Statements, ";\n")))
		return // these are its statements
	case Setting:
		fmt.Fprintf(w, "  ~ %s: %s -> %s\n", visible(strings.TrimPrefix(sc.Table+"."+sc.Name, ".")), block(orNone(sc.Before)), block(sc.After))
	case Rebuild:
		fmt.Fprintf(w, "  ~ %s: built anew from its table\n", what)
	default:
		fmt.Fprintf(w, "  ! %s of %s\n", visible(string(sc.Op)), what)
	}
	if want, err := sc.derive(); err != nil || !slices.Equal(want, sc.Statements) {
		for _, q := range sc.Statements {
			fmt.Fprintf(w, "    ! refused, since it is not what makes this change: %s\n", block(q))
		}
	}
}

// block shows SQL as a whole. Its lines stay lines, so that a comment hides nothing, and are marked, so that none passes for another change.
func block(sql string) string {
	lines := strings.Split(strings.ReplaceAll(strings.TrimSpace(sql), "\r\n", "\n"), "\n")
	for i, l := range lines {
		lines[i] = visible(strings.ReplaceAll(strings.TrimRight(l, " \t"), "\t", "    "))
	}
	return strings.Join(lines, "\n    | ")
}

// String is the name, and the point.
func (s Side) String() string {
	if s.Name == "" {
		return "?"
	}
	out := s.Name
	if s.Slot > 0 {
		out += "@" + strconv.FormatUint(s.Slot, 10)
	}
	if s.Unshipped {
		out += "+"
	}
	return out
}

func (t *TableChange) writeText(w io.Writer) {
	n, u, d := t.Count()
	fmt.Fprintf(w, "%s: +%d ~%d -%d\n", visible(t.Name), n, u, d)
	inKey := make([]bool, len(t.Columns))
	for i, c := range t.Columns {
		for _, k := range t.Key {
			inKey[i] = inKey[i] || c == k
		}
	}
	for i := range t.Rows {
		r := &t.Rows[i]
		sign := map[Op]string{Insert: "+", Update: "~", Delete: "-"}[r.Op]
		var out []string
		for j, c := range t.Columns {
			switch {
			case r.Op != Update:
				out = append(out, visible(c)+"="+cell(r.values()[j], cellWidth))
			case !same(r.Before[j], r.After[j]):
				out = append(out, visible(c)+"="+cell(r.Before[j], cellWidth)+" -> "+cell(r.After[j], cellWidth))
			case inKey[j]:
				out = append(out, visible(c)+"="+cell(r.Before[j], cellWidth))
			}
		}
		times := ""
		if !r.keyed() && r.CopiesBefore+r.CopiesAfter > 1 {
			times = fmt.Sprintf(" (%d -> %d copies)", r.CopiesBefore, r.CopiesAfter)
		}
		fmt.Fprintf(w, "  %s %s%s\n", sign, strings.Join(out, ", "), times)
	}
	if o := t.Omitted; o != nil {
		fmt.Fprintf(w, "  ... and %d more\n", o.Inserted+o.Updated+o.Deleted)
	}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func oneLine(sql string) string { return cut(visible(strings.Join(strings.Fields(sql), " ")), 100) }

// visible leaves no control character through: names and values are shown on terminals.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '.'
		}
		return r
	}, s)
}

func cut(s string, width int) string {
	n := 0
	for i := range s {
		if n == width {
			return s[:i] + "..."
		}
		n++
	}
	return s
}

// cell spells a value in about so many characters.
func cell(v any, width int) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		s := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(s, ".eIN") {
			s += ".0"
		}
		return s
	case []byte:
		if len(v) > width/2 {
			return fmt.Sprintf("x'%s...' (%d bytes)", hex.EncodeToString(v[:width/2]), len(v))
		}
		return "x'" + hex.EncodeToString(v) + "'"
	case string:
		s := visible(v[:min(len(v), 4*width)])
		return "'" + cut(s, width) + "'"
	}
	return fmt.Sprint(v)
}
