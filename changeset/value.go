package changeset

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ncruces/go-sqlite3"
)

// same tells whether two values have the same type and bits.
func same(a, b any) bool {
	switch a := a.(type) {
	case nil:
		return b == nil
	case int64:
		b, ok := b.(int64)
		return ok && a == b
	case float64:
		b, ok := b.(float64)
		return ok && math.Float64bits(a) == math.Float64bits(b)
	case string:
		b, ok := b.(string)
		return ok && a == b
	case []byte:
		b, ok := b.([]byte)
		return ok && bytes.Equal(a, b)
	}
	return false
}

func sameRow(a, b []any) bool {
	if (a == nil) != (b == nil) || len(a) != len(b) {
		return false
	}
	for i := range a {
		if !same(a[i], b[i]) {
			return false
		}
	}
	return true
}

// rank orders types as SQLite does. https://sqlite.org/datatype3.html#sort_order
func rank(v any) int {
	switch v.(type) {
	case nil:
		return 0
	case int64, float64:
		return 1
	case string:
		return 2
	}
	return 3
}

// order compares values as ORDER BY v COLLATE BINARY, typeof(v) does. Equal are the same values, and 0.0 and -0.0.
func order(encoding string, a, b any) int {
	if c := orderBy(func(a, b string) int { return orderText(encoding, a, b) }, a, b); c != 0 {
		return c
	}
	_, first := a.(int64)
	_, second := b.(int64)
	switch {
	case first && !second: // "integer" < "real"
		return -1
	case !first && second:
		return 1
	}
	return 0
}

// orderBy compares values as an index does whose collation is text.
func orderBy(text func(a, b string) int, a, b any) int {
	if c := cmp.Compare(rank(a), rank(b)); c != 0 {
		return c
	}
	switch a := a.(type) {
	case int64:
		if b, ok := b.(int64); ok {
			return cmp.Compare(a, b)
		}
		return orderIntReal(a, b.(float64))
	case float64:
		if b, ok := b.(float64); ok {
			return cmp.Compare(a, b)
		}
		return -orderIntReal(b.(int64), a)
	case string:
		return text(a, b.(string))
	case []byte:
		return bytes.Compare(a, b.([]byte))
	}
	return 0
}

func orderIntReal(i int64, f float64) int {
	switch {
	case f < -1<<63:
		return 1
	case f >= 1<<63:
		return -1
	}
	whole := int64(f)
	if c := cmp.Compare(i, whole); c != 0 {
		return c
	}
	return cmp.Compare(0, f-float64(whole)) // exact: there is no fraction where float64(whole) is rounded
}

// orderText compares the bytes that the database has: the collation BINARY is memcmp. https://sqlite.org/datatype3.html#collating_sequences
func orderText(encoding, a, b string) int {
	if encoding == "UTF-8" {
		return strings.Compare(a, b)
	}
	return bytes.Compare(encoded(encoding, a), encoded(encoding, b))
}

// encoded is a text as the database stores it.
func encoded(encoding, s string) []byte {
	if encoding == "UTF-8" {
		return []byte(s)
	}
	var put binary.AppendByteOrder = binary.LittleEndian
	if encoding == "UTF-16be" {
		put = binary.BigEndian
	}
	var out []byte
	for _, u := range utf16.Encode([]rune(s)) {
		out = put.AppendUint16(out, u)
	}
	return out
}

// appendExact spells a row so that the same rows, and no others, have the same spelling.
func appendExact(to []byte, row []any) []byte {
	for _, v := range row {
		switch v := v.(type) {
		case nil:
			to = append(to, 'n')
		case int64:
			to = binary.BigEndian.AppendUint64(append(to, 'i'), uint64(v))
		case float64:
			to = binary.BigEndian.AppendUint64(append(to, 'r'), math.Float64bits(v))
		case string:
			to = append(binary.AppendUvarint(append(to, 't'), uint64(len(v))), v...)
		case []byte:
			to = append(binary.AppendUvarint(append(to, 'b'), uint64(len(v))), v...)
		}
	}
	return to
}

// size is about how much memory a row takes, in bytes.
func size(row []any) (n int64) {
	for _, v := range row {
		n += 16
		switch v := v.(type) {
		case string:
			n += int64(len(v))
		case []byte:
			n += int64(len(v))
		}
	}
	return n
}

// literal spells a value as SQL. https://sqlite.org/lang_expr.html#literal_values_constants_
func literal(encoding string, v any) string {
	switch v := v.(type) {
	case int64:
		if v == math.MinInt64 { // -9223372036854775808 would be a real that is negated
			return "(-9223372036854775807-1)"
		}
		return strconv.FormatInt(v, 10)
	case float64:
		switch {
		case math.IsInf(v, 1):
			return "9e999"
		case math.IsInf(v, -1):
			return "-9e999"
		}
		return decimal(v)
	case string:
		if strings.ContainsRune(v, 0) || !utf8.ValidString(v) {
			return "CAST(x'" + hex.EncodeToString(encoded(encoding, v)) + "' AS TEXT)"
		}
		return quote(v)
	case []byte:
		return "x'" + hex.EncodeToString(v) + "'"
	}
	return "NULL"
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// decimal spells a finite real so that any SQLite reads it as this one. Few of its versions convert every decimal to the nearest real; what is short is exact in all of them,
// and the rest is spelled as an integer and powers of two, with which arithmetic is exact.
func decimal(f float64) string {
	s := strconv.FormatFloat(f, 'g', -1, 64)
	if a := math.Abs(f); len(s) <= 15 && (a == 0 || a > 1e-15 && a < 1e22) {
		if !strings.ContainsAny(s, ".e") {
			s += ".0"
		}
		return s
	}
	fraction, exp := math.Frexp(f)
	s = strconv.FormatInt(int64(fraction*(1<<53)), 10) + "/1.0"
	op := "*"
	if exp -= 53; exp < 0 {
		op, exp = "/", -exp
	}
	for exp > 0 {
		n := min(exp, 62)
		s, exp = s+op+strconv.FormatInt(1<<n, 10), exp-n
	}
	return "(" + s + ")"
}

func ident(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

// column reads one value of the present row.
func column(st *sqlite3.Stmt, i int) any {
	switch st.ColumnType(i) {
	case sqlite3.INTEGER:
		return st.ColumnInt64(i)
	case sqlite3.FLOAT:
		return st.ColumnFloat(i)
	case sqlite3.TEXT:
		return st.ColumnText(i)
	case sqlite3.BLOB:
		return append([]byte{}, st.ColumnRawBlob(i)...)
	}
	return nil
}

// columns reads n values from the i-th on.
func columns(st *sqlite3.Stmt, i, n int) []any {
	row := make([]any, n)
	for j := range row {
		row[j] = column(st, i+j)
	}
	return row
}

// bind sets parameters, the first one is the i-th.
func bind(st *sqlite3.Stmt, i int, values ...any) error {
	for j, v := range values {
		var err error
		switch v := v.(type) {
		case nil:
			err = st.BindNull(i + j)
		case int64:
			err = st.BindInt64(i+j, v)
		case float64:
			err = st.BindFloat(i+j, v)
		case string:
			err = st.BindText(i+j, v)
		case []byte:
			if len(v) == 0 {
				err = st.BindZeroBlob(i+j, 0)
			} else {
				err = st.BindBlob(i+j, v)
			}
		default:
			err = fmt.Errorf("value of type %T: want nil, int64, float64, string or []byte", v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// query runs a statement, and do for each of its rows.
func query(c *sqlite3.Conn, q string, args []any, do func(*sqlite3.Stmt) error) error {
	st, _, err := c.Prepare(q)
	if err != nil {
		return err
	}
	defer st.Close()
	if err := bind(st, 1, args...); err != nil {
		return err
	}
	for st.Step() {
		if err := do(st); err != nil {
			return err
		}
	}
	return st.Err()
}
