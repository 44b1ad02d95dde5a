// Package spelling reads what people and programs write of points, labels and durations, in the command line and over HTTP alike.
package spelling

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tonbo-go/tonbo"
)

// Point reads a point of a database's history. "": the head. slot:17, time:2026-11-30T10:00:00Z, point:... (as [tonbo.Point.String] spells it), label:step-7, and anything else is a label.
func Point(s string) (tonbo.At, error) {
	kind, value, ok := strings.Cut(s, ":")
	switch {
	case s == "":
		return nil, nil
	case ok && kind == "slot":
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("slot %q: want a number from 1 on", value)
		}
		return tonbo.Slot(n), nil
	case ok && kind == "time":
		t, err := time.Parse(time.RFC3339, value)
		if err != nil {
			return nil, fmt.Errorf("time %q: want one like 2026-11-30T10:00:00Z", value)
		}
		return tonbo.Time(t), nil
	case ok && kind == "point":
		p, err := tonbo.ParsePoint(value)
		if err != nil {
			return nil, err
		}
		return p, nil
	case ok && kind == "label":
		if value == "" {
			return nil, errors.New("the label is empty")
		}
		return tonbo.Label(value), nil
	}
	return tonbo.Label(s), nil
}

// Label tells what is wrong with the label of a new point, before a database is taken over for it.
func Label(s string) error {
	if s == "" || len(s) > 200 || !Printable(s) {
		return fmt.Errorf("label %.40q: want 1 to 200 bytes of printable text", s)
	}
	return nil
}

// Printable tells whether s is text without anything that breaks a line or a terminal.
func Printable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// Duration reads a duration above zero: Go's spelling, and days and weeks: 90s, 1h30m, 7d, 2w.
func Duration(s string) (time.Duration, error) {
	bad := fmt.Errorf("%q: want a duration above zero, such as 15m, 1h, 7d or 2w", s)
	var total time.Duration
	rest := s
	for _, unit := range []struct {
		name string
		of   time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		before, after, ok := strings.Cut(rest, unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(before, 64)
		if err != nil || !(n >= 0) || n*float64(unit.of) > math.MaxInt64/2 {
			return 0, bad
		}
		total += time.Duration(n * float64(unit.of))
		rest = after
	}
	if rest != "" {
		d, err := time.ParseDuration(rest)
		if err != nil || d < 0 || d > math.MaxInt64/2 {
			return 0, bad
		}
		total += d
	}
	if total <= 0 {
		return 0, bad
	}
	return total, nil
}
