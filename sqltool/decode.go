package sqltool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// decode reads an object that has exactly these properties, all strings.
func decode(input json.RawMessage, max int, props ...string) (map[string]string, *Error) {
	if len(props) == 1 && len(input) <= max {
		if s, ok := only(input, props[0]); ok {
			return map[string]string{props[0]: s}, nil
		}
	}
	shape := fmt.Sprintf("the input must be a JSON object with exactly these properties, all strings: %s", strings.Join(props, ", "))
	if len(props) == 0 {
		shape = "the input must be an empty JSON object"
	}
	if len(input) > max {
		return nil, &Error{Message: fmt.Sprintf("the input is too long: %d bytes, at most %d", len(input), max)}
	}
	in := map[string]string{}
	if len(props) == 0 && len(bytes.TrimSpace(input)) == 0 {
		return in, nil
	}
	d := json.NewDecoder(bytes.NewReader(input))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, &Error{Message: shape}
	}
	for d.More() {
		k, err := d.Token()
		name, ok := k.(string)
		if err != nil || !ok {
			return nil, &Error{Message: shape}
		}
		if !slices.Contains(props, name) {
			return nil, &Error{Message: fmt.Sprintf("unknown property %q: %s", clip(name, 40), shape)}
		}
		if _, twice := in[name]; twice {
			return nil, &Error{Message: fmt.Sprintf("property %q is there twice", name)}
		}
		v, err := d.Token()
		s, ok := v.(string)
		if err != nil || !ok {
			return nil, &Error{Message: shape}
		}
		in[name] = s
	}
	if _, err := d.Token(); err != nil {
		return nil, &Error{Message: shape}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) || len(in) != len(props) {
		return nil, &Error{Message: shape}
	}
	return in, nil
}

// only reads an object of one string without escapes, which is what a model writes most often.
func only(input []byte, name string) (s string, ok bool) {
	rest := input
	for _, want := range []string{"{", `"` + name + `"`, ":", `"`} {
		rest, ok = bytes.CutPrefix(space(rest), []byte(want))
		if !ok {
			return "", false
		}
	}
	end := bytes.IndexAny(rest, "\"\\")
	if end < 0 || rest[end] != '"' || string(bytes.TrimRight(space(rest[end+1:]), " \t\r\n")) != "}" {
		return "", false
	}
	for _, c := range rest[:end] {
		if c < ' ' {
			return "", false
		}
	}
	return string(rest[:end]), utf8.Valid(rest[:end])
}

// space cuts what JSON takes for space.
func space(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n") }
