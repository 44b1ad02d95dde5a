package server

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/tonbo-go/tonbo/internal/view"
)

// rowsOf turns what the tool tells of a query, in the form for models, into the form of tonbo query --json. They differ in the values that are objects.
func rowsOf(told []byte) (*view.Rows, error) {
	var rows view.Rows
	if err := json.Unmarshal(told, &rows); err != nil {
		return nil, fmt.Errorf("rows of a query: %w", err)
	}
	if rows.Columns == nil { // the statement has none
		rows.Columns, rows.Rows = []string{}, json.RawMessage("[]")
		return &rows, nil
	}
	respelled, err := respell(rows.Rows)
	if err != nil {
		return nil, fmt.Errorf("rows of a query: %w", err)
	}
	rows.Rows = respelled
	return &rows, nil
}

// respell copies rows, a value at a time: there may be half a million of them in a megabyte.
func respell(rows []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(rows))
	out := make([]byte, 0, len(rows)+len(rows)/8)
	var value json.RawMessage
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	out = append(out, '[')
	for first := true; d.More(); first = false {
		if _, err := d.Token(); err != nil {
			return nil, err
		}
		if !first {
			out = append(out, ',')
		}
		out = append(out, '[')
		for first := true; d.More(); first = false {
			if err := d.Decode(&value); err != nil {
				return nil, err
			}
			if !first {
				out = append(out, ',')
			}
			var err error
			if out, err = appendValue(out, value); err != nil {
				return nil, err
			}
		}
		if _, err := d.Token(); err != nil {
			return nil, err
		}
		out = append(out, ']')
	}
	return append(out, ']'), nil
}

// maxInteger is the largest integer that is spelled as a number, as in a change set.
const maxInteger = 1 << 53

// appendValue appends a value in the form of a change set. One that was cut has its whole length in bytes beside it: {"blob": "<base64>", "bytes": 71234}.
func appendValue(out, value []byte) ([]byte, error) {
	if value[0] != '{' {
		return append(out, value...), nil
	}
	var v struct {
		Integer *string      `json:"integer"`
		Real    *string      `json:"real"`
		Text    *string      `json:"text"`
		TextHex *hexadecimal `json:"text_hex"`
		Blob    *hexadecimal `json:"blob"`
		Bytes   int64        `json:"bytes"`
	}
	if err := json.Unmarshal(value, &v); err != nil {
		return nil, err
	}
	o := map[string]any{}
	switch {
	case v.Integer != nil:
		n, err := strconv.ParseInt(*v.Integer, 10, 64)
		if err != nil {
			return nil, err
		}
		if -maxInteger <= n && n <= maxInteger {
			return strconv.AppendInt(out, n, 10), nil
		}
		o["integer"] = *v.Integer
	case v.Real != nil:
		f, err := strconv.ParseFloat(*v.Real, 64)
		if err != nil {
			return nil, err
		}
		o["real"] = strconv.FormatFloat(f, 'g', -1, 64)
	case v.Text != nil:
		o["text"] = []byte(*v.Text)
	case v.TextHex != nil:
		o["text"] = []byte(*v.TextHex)
	case v.Blob != nil:
		o["blob"] = []byte(*v.Blob)
	default:
		return nil, fmt.Errorf("a value of an unknown form: %.60s", value)
	}
	if v.Bytes > 0 {
		o["bytes"] = v.Bytes
	}
	b, err := json.Marshal(o)
	return append(out, b...), err
}

// hexadecimal is bytes, spelled so.
type hexadecimal []byte

// UnmarshalText implements [encoding.TextUnmarshaler].
func (h *hexadecimal) UnmarshalText(b []byte) (err error) {
	*h, err = hex.AppendDecode([]byte{}, b)
	return err
}
