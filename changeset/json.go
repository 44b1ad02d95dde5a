package changeset

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// version of the JSON. Another one is refused.
const version = 1

type setJSON struct {
	Version  int            `json:"version"`
	From     Side           `json:"from"`
	To       Side           `json:"to"`
	Encoding string         `json:"encoding"`
	Schema   []SchemaChange `json:"schema"`
	Tables   []TableChange  `json:"tables"`
	Triggers []Trigger      `json:"triggers,omitempty"`
}

// MarshalJSON loses nothing. In rows, text is a string, NULL null, an integer a number without and a real one with a point or an exponent; what other readers of JSON would
// round or refuse is an object: {"integer":"9007199254740993"}, {"real":"+Inf"}, {"blob":"<base64>"}, and {"text":"<base64>"} for a text that is not UTF-8.
func (s *Set) MarshalJSON() ([]byte, error) {
	for i := range s.Tables {
		if s.Tables[i].Omitted != nil {
			return nil, s.check()
		}
	}
	return json.Marshal(setJSON{version, s.From, s.To, s.Encoding, s.Schema, s.Tables, s.Triggers})
}

// UnmarshalJSON reads what MarshalJSON wrote. Ops and types that it does not know are refused. Whether the SQL is what the set shows is checked when it is to be run.
func (s *Set) UnmarshalJSON(b []byte) error {
	var j setJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	if j.Version != version {
		return fmt.Errorf("change set of version %d: this program reads version %d", j.Version, version)
	}
	read := Set{j.From, j.To, j.Encoding, j.Schema, j.Tables, j.Triggers}
	if err := read.check(); err != nil {
		return err
	}
	*s = read
	return nil
}

// check tells what cannot be right about a table that was read.
func (t *TableChange) check() error {
	for _, k := range t.Key {
		if !slices.Contains(t.Columns, k) {
			return fmt.Errorf("key column %q is none of its columns %q", k, t.Columns)
		}
	}
	if t.KeyCollations != nil && len(t.KeyCollations) != len(t.Key) {
		return fmt.Errorf("%d collations of %d key columns", len(t.KeyCollations), len(t.Key))
	}
	for _, names := range [][]string{{t.Name}, t.Columns, t.KeyCollations} {
		if strings.ContainsRune(strings.Join(names, ""), 0) {
			return fmt.Errorf("a name with a NUL: %q", names)
		}
	}
	if len(t.Columns) == 0 || t.Name == sequenceTable && len(t.Columns) != 2 {
		return fmt.Errorf("%d columns", len(t.Columns))
	}
	return nil
}

// check tells what cannot be right about a row that was read.
func (r *RowChange) check(columns int, key bool) error {
	before, after := r.Op == Update || r.Op == Delete, r.Op == Update || r.Op == Insert
	switch {
	case !before && !after:
		return fmt.Errorf("op %q: want insert, update or delete", r.Op)
	case (r.Before != nil) != before || (r.After != nil) != after:
		return fmt.Errorf("op %s: before and after do not fit it", r.Op)
	case before && len(r.Before) != columns || after && len(r.After) != columns:
		return fmt.Errorf("want %d values", columns)
	case r.keyed() && !key:
		return fmt.Errorf("op %s: how many copies, of a row without a key", r.Op)
	case r.CopiesBefore < 0 || r.CopiesAfter < 0 || r.Op == Update && !r.keyed():
		return fmt.Errorf("op %s of %d to %d copies", r.Op, r.CopiesBefore, r.CopiesAfter)
	case !r.keyed() && (r.Op == Insert) != (r.CopiesAfter > r.CopiesBefore):
		return fmt.Errorf("op %s of %d to %d copies", r.Op, r.CopiesBefore, r.CopiesAfter)
	}
	return nil
}

type rowJSON struct {
	Op     Op        `json:"op"`
	Before values    `json:"before,omitempty"`
	After  values    `json:"after,omitempty"`
	Copies *[2]int64 `json:"copies,omitempty"`
}

// MarshalJSON implements [json.Marshaler].
func (r RowChange) MarshalJSON() ([]byte, error) {
	j := rowJSON{Op: r.Op, Before: r.Before, After: r.After}
	if !r.keyed() {
		j.Copies = &[2]int64{r.CopiesBefore, r.CopiesAfter}
	}
	return json.Marshal(j)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (r *RowChange) UnmarshalJSON(b []byte) error {
	var j rowJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*r = RowChange{Op: j.Op, Before: j.Before, After: j.After}
	if j.Copies != nil {
		r.CopiesBefore, r.CopiesAfter = j.Copies[0], j.Copies[1]
	}
	return nil
}

// values are those of a row.
type values []any

// special is a value that JSON has no way of its own for.
type special struct {
	Integer *string `json:"integer,omitempty"`
	Real    *string `json:"real,omitempty"`
	Blob    *[]byte `json:"blob,omitempty"`
	Text    *[]byte `json:"text,omitempty"`
}

// exactInt bounds the integers that a reader with doubles keeps.
const exactInt = 1 << 53

func (vs values) MarshalJSON() ([]byte, error) {
	out := make([]any, len(vs))
	for i, v := range vs {
		switch v := v.(type) {
		case int64:
			if out[i] = v; v > exactInt || v < -exactInt {
				s := strconv.FormatInt(v, 10)
				out[i] = special{Integer: &s}
			}
		case float64:
			s := strconv.FormatFloat(v, 'g', -1, 64)
			switch {
			case math.IsInf(v, 0):
				out[i] = special{Real: &s}
			case strings.ContainsAny(s, ".e"):
				out[i] = json.RawMessage(s)
			default:
				out[i] = json.RawMessage(s + ".0")
			}
		case []byte:
			out[i] = special{Blob: &v}
		case string:
			if out[i] = v; !utf8.ValidString(v) {
				b := []byte(v)
				out[i] = special{Text: &b}
			}
		case nil:
		default:
			return nil, fmt.Errorf("value of type %T: want nil, int64, float64, string or []byte", v)
		}
	}
	return json.Marshal(out)
}

func (vs *values) UnmarshalJSON(b []byte) error {
	var raw []json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	if raw == nil {
		return nil
	}
	*vs = make(values, len(raw))
	for i, r := range raw {
		v, err := parseValue(bytes.TrimSpace(r))
		if err != nil {
			return fmt.Errorf("value %.60s: %w", r, err)
		}
		(*vs)[i] = v
	}
	return nil
}

func parseValue(r []byte) (any, error) {
	switch {
	case string(r) == "null":
		return nil, nil
	case r[0] == '"':
		var s string
		err := json.Unmarshal(r, &s)
		return s, err
	case r[0] == '{':
		var s special
		d := json.NewDecoder(bytes.NewReader(r))
		d.DisallowUnknownFields()
		if err := d.Decode(&s); err != nil {
			return nil, err
		}
		switch {
		case s.Integer != nil:
			return strconv.ParseInt(*s.Integer, 10, 64)
		case s.Real != nil:
			return strconv.ParseFloat(*s.Real, 64)
		case s.Blob != nil:
			return append([]byte{}, *s.Blob...), nil
		case s.Text != nil:
			return string(*s.Text), nil
		}
		return nil, fmt.Errorf("want integer, real, blob or text")
	case bytes.ContainsAny(r, ".eE"):
		return strconv.ParseFloat(string(r), 64)
	}
	return strconv.ParseInt(string(r), 10, 64)
}
