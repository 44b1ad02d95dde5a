package remote

import (
	"errors"
	"fmt"
	"strings"
)

// ErrBadKey is a key that no store takes (see [Store]). Stores answer it before any request, as [ErrUnfit].
var ErrBadKey = errors.New("invalid object key")

const maxSegment = 255 // bytes

// CheckKey returns nil, or an [ErrBadKey] that says what is wrong with the key.
func CheckKey(key string) error {
	for seg := range strings.SplitSeq(key, "/") {
		if err := checkSegment(seg); err != nil {
			return fmt.Errorf("%w %.300q: %w", ErrBadKey, key, err)
		}
	}
	return nil
}

// CheckPrefix returns nil, or an [ErrBadKey] when no key can begin with the prefix. An empty prefix is every key's.
func CheckPrefix(prefix string) error {
	folder, rest := SplitPrefix(prefix)
	if folder != "" {
		if err := CheckKey(folder); err != nil {
			return err
		}
	}
	if err := checkBytes(rest); err != nil {
		return fmt.Errorf("%w prefix %.300q: %w", ErrBadKey, prefix, err)
	}
	return nil
}

// SplitPrefix splits a prefix behind its last slash: the folder that holds every key with that prefix (without the slash),
// and what the next segment begins with.
func SplitPrefix(prefix string) (folder, rest string) {
	i := strings.LastIndexByte(prefix, '/')
	if i < 0 {
		return "", prefix
	}
	return prefix[:i], prefix[i+1:]
}

func checkSegment(seg string) error {
	switch {
	case seg == "":
		return errors.New("empty segment")
	case seg == "." || seg == "..":
		return errors.New("segment . or ..")
	case len(seg) > maxSegment:
		return fmt.Errorf("segment of %d bytes, more than %d", len(seg), maxSegment)
	}
	return checkBytes(seg)
}

func checkBytes(s string) error {
	for i := range len(s) {
		c := s[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("._:@%-", c) >= 0 {
			continue
		}
		return fmt.Errorf("byte %q at %d", c, i)
	}
	return nil
}

// Span returns which bytes of an object of the given size the options ask for: length bytes from offset on. A range that
// begins at or behind the end is empty.
func (o GetOptions) Span(size int64) (offset, length int64) {
	offset = o.Offset
	if offset < 0 {
		offset = max(size+offset, 0)
	}
	offset = min(offset, size)
	length = size - offset
	if o.Length > 0 {
		length = min(length, o.Length)
	}
	return offset, length
}
