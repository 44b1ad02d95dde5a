package sqltool

import (
	"encoding/hex"
	"math"
	"strconv"
	"unicode/utf8"
)

// Result is what one statement did. doc.go has its JSON form.
type Result struct {
	Columns   []string
	Rows      [][]any // nil, int64, float64, string, []byte or Cut
	Truncated bool    // there were more rows
	Wrote     bool    // the statement is one that can write
	Changes   int64   // rows inserted, updated and deleted by the statement itself; not by triggers and foreign keys
	Note      string  // for the model: why rows are missing
}

// Cut is the beginning of a text or blob longer than Limits.CellBytes.
type Cut struct {
	Text  string // of a text: whole characters
	Blob  []byte // of a blob, and of a text that is not UTF-8
	Kind  CutKind
	Bytes int64 // the whole length
}

// CutKind tells what was cut.
type CutKind int

const (
	CutText CutKind = iota
	CutBlob
	CutBinaryText // a text that is not UTF-8
)

const maxSafeInteger = 1<<53 - 1

// MarshalJSON writes the form that doc.go describes.
func (r *Result) MarshalJSON() ([]byte, error) { return r.appendJSON(nil), nil }

func (r *Result) appendJSON(b []byte) []byte {
	b = append(b, '{')
	start := len(b)
	key := func(k string) {
		if len(b) > start {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), k...), '"', ':')
	}
	if len(r.Columns) > 0 {
		key("columns")
		b = append(b, '[')
		for i, c := range r.Columns {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, c)
		}
		b = append(b, ']')
		key("rows")
		b = append(b, '[')
		for i, row := range r.Rows {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendRow(b, row)
		}
		b = append(b, ']')
	}
	if r.Truncated {
		key("truncated")
		b = append(b, "true"...)
	}
	if r.Wrote {
		key("changes")
		b = strconv.AppendInt(b, r.Changes, 10)
	}
	if r.Note != "" {
		key("note")
		b = appendString(b, r.Note)
	}
	return append(b, '}')
}

func appendRow(b []byte, row []any) []byte {
	b = append(b, '[')
	for i, v := range row {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendValue(b, v)
	}
	return append(b, ']')
}

func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case int64:
		if -maxSafeInteger <= v && v <= maxSafeInteger {
			return strconv.AppendInt(b, v, 10)
		}
		return append(strconv.AppendInt(append(b, `{"integer":"`...), v, 10), `"}`...)
	case float64:
		return appendReal(b, v)
	case string:
		if utf8.ValidString(v) {
			return appendString(b, v)
		}
		return appendHex(append(b, `{"text_hex":`...), []byte(v), -1)
	case []byte:
		return appendHex(append(b, `{"blob":`...), v, -1)
	case Cut:
		switch v.Kind {
		case CutText:
			return appendBytes(appendString(append(b, `{"text":`...), v.Text), v.Bytes)
		case CutBlob:
			return appendHex(append(b, `{"blob":`...), v.Blob, v.Bytes)
		}
		return appendHex(append(b, `{"text_hex":`...), v.Blob, v.Bytes)
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

func appendHex(b, v []byte, whole int64) []byte {
	b = append(hex.AppendEncode(append(b, '"'), v), '"')
	if whole < 0 {
		return append(b, '}')
	}
	return appendBytes(b, whole)
}

func appendBytes(b []byte, n int64) []byte {
	return append(strconv.AppendInt(append(b, `,"bytes":`...), n, 10), '}')
}

func appendString(b []byte, s string) []byte {
	for i := range len(s) { // the common case needs no escape
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return append(b, marshal(s)...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// cutText and cutBlob keep what a cell may hold.
func cutText(v []byte, limit int) any {
	if len(v) <= limit {
		return string(v)
	}
	short := v[:limit]
	for n := 0; n < utf8.UTFMax && len(short) > 0; n++ { // whole characters
		if r, size := utf8.DecodeLastRune(short); r != utf8.RuneError || size != 1 {
			break
		}
		short = short[:len(short)-1]
	}
	if !utf8.Valid(short) {
		return Cut{Kind: CutBinaryText, Blob: append([]byte{}, v[:limit]...), Bytes: int64(len(v))}
	}
	return Cut{Kind: CutText, Text: string(short), Bytes: int64(len(v))}
}

func cutBlob(v []byte, limit int) any {
	if len(v) <= limit {
		return append([]byte{}, v...)
	}
	return Cut{Kind: CutBlob, Blob: append([]byte{}, v[:limit]...), Bytes: int64(len(v))}
}
