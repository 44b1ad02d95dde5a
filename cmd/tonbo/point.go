package main

import (
	"fmt"
	"strings"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/spelling"
)

// kinds of points that are spelled behind a name.
var pointKinds = []string{"label:", "slot:", "time:", "point:"}

// parseNameAt reads a database's name with a point behind it. at nil: the head.
//
// Names may have an @ in them, labels too: the point begins at the first @ that is followed by a kind, else at the last one. An @ at the end ends a name that has others.
func parseNameAt(s string) (name string, at tonbo.At, err error) {
	name, point := s, ""
	switch i := kindAt(s); {
	case strings.HasSuffix(s, "@"):
		name = strings.TrimSuffix(s, "@")
	case i >= 0:
		name, point = s[:i], s[i+1:]
	case strings.Contains(s, "@"):
		i := strings.LastIndexByte(s, '@')
		name, point = s[:i], s[i+1:]
	}
	if err := tonbo.ValidateName(name); err != nil {
		return "", nil, fmt.Errorf("%q: %w", s, err)
	}
	if at, err = spelling.Point(point); err != nil {
		return "", nil, usagef("%q: %w", s, err)
	}
	return name, at, nil
}

// kindAt is where the first @ is that a kind of point follows, -1: nowhere.
func kindAt(s string) int {
	first := -1
	for _, kind := range pointKinds {
		if i := strings.Index(s, "@"+kind); i >= 0 && (first < 0 || i < first) {
			first = i
		}
	}
	return first
}
