package sqltool

import (
	"encoding/hex"
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf8"
)

// result is what one statement did. doc.go has its JSON form.
type result struct {
	columns   []string
	rows      []byte // as JSON, with commas between them
	truncated bool   // there were more rows
	wrote     bool   // the statement is one that can write
	changes   int64  // rows inserted, updated and deleted by the statement itself; not by triggers and foreign keys
	note      string // for the model: why rows are missing
}

const maxSafeInteger = 1<<53 - 1

// MarshalJSON writes the form that doc.go describes.
func (r *result) MarshalJSON() ([]byte, error) { return r.appendJSON(nil), nil }

func (r *result) json() json.RawMessage {
	return r.appendJSON(make([]byte, 0, len(r.rows)+256))
}

func (r *result) appendJSON(b []byte) []byte {
	b = append(b, '{')
	start := len(b)
	key := func(k string) {
		if len(b) > start {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), k...), '"', ':')
	}
	if len(r.columns) > 0 {
		key("columns")
		b = append(b, '[')
		for i, c := range r.columns {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, c)
		}
		b = append(b, ']')
		key("rows")
		b = append(append(append(b, '['), r.rows...), ']')
	}
	if r.truncated {
		key("truncated")
		b = append(b, "true"...)
	}
	if r.wrote {
		key("changes")
		b = strconv.AppendInt(b, r.changes, 10)
	}
	if r.note != "" {
		key("note")
		b = appendString(b, r.note)
	}
	return append(b, '}')
}

// appendCell writes a value as [sqlite3.Stmt.ColumnsRaw] has it, cut at so many bytes.
func appendCell(b []byte, v any, limit int) []byte {
	switch v := v.(type) {
	case int64:
		if -maxSafeInteger <= v && v <= maxSafeInteger {
			return strconv.AppendInt(b, v, 10)
		}
		return append(strconv.AppendInt(append(b, `{"integer":"`...), v, 10), `"}`...)
	case float64:
		return appendReal(b, v)
	case []byte:
		if len(v) == cap(v) { // the driver shows a text's final NUL behind its end
			return appendBinary(append(b, `{"blob":`...), v, limit)
		}
		return appendText(b, v, limit)
	}
	return append(b, "null"...)
}

func appendReal(b []byte, v float64) []byte {
	switch {
	case math.IsInf(v, 1):
		return append(b, `{"real":"Infinity"}`...)
	case math.IsInf(v, -1):
		return append(b, `{"real":"-Infinity"}`...)
	case math.IsNaN(v):
		return append(b, "null"...)
	}
	start := len(b)
	b = strconv.AppendFloat(b, v, 'g', -1, 64)
	for _, c := range b[start:] {
		if c == '.' || c == 'e' {
			return b
		}
	}
	return append(b, ".0"...) // unlike an integer
}

func appendText(b, v []byte, limit int) []byte {
	short := v[:min(len(v), limit)]
	if len(short) < len(v) {
		for n := 0; n < utf8.UTFMax && len(short) > 0; n++ { // whole characters
			if r, size := utf8.DecodeLastRune(short); r != utf8.RuneError || size != 1 {
				break
			}
			short = short[:len(short)-1]
		}
	}
	switch {
	case !utf8.Valid(short):
		return appendBinary(append(b, `{"text_hex":`...), v, limit)
	case len(short) < len(v):
		return appendBytes(appendString(append(b, `{"text":`...), short), len(v))
	}
	return appendString(b, short)
}

// appendBinary ends an object with a value in hexadecimal.
func appendBinary(b, v []byte, limit int) []byte {
	b = append(hex.AppendEncode(append(b, '"'), v[:min(len(v), limit)]), '"')
	if len(v) <= limit {
		return append(b, '}')
	}
	return appendBytes(b, len(v))
}

// appendBytes ends an object whose value was cut with its whole length.
func appendBytes(b []byte, n int) []byte {
	return append(strconv.AppendInt(append(b, `,"bytes":`...), int64(n), 10), '}')
}

// appendString writes UTF-8; what is not becomes U+FFFD.
func appendString[T string | []byte](b []byte, s T) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		size := 1
		if c >= utf8.RuneSelf {
			var r rune
			if r, size = utf8.DecodeRuneInString(string(s[i:min(len(s), i+utf8.UTFMax)])); r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}
		b = append(b, s[from:i]...)
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == '\t':
			b = append(b, `\t`...)
		case c < ' ':
			b = append(b, `\u00`...)
			b = append(b, "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		default:
			b = append(b, "\ufffd"...)
		}
		i += size
		from = i
	}
	return append(append(b, s[from:]...), '"')
}
