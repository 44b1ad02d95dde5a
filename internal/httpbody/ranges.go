package httpbody

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// Range is the header for length bytes from an offset on; length 0: all of them. https://www.rfc-editor.org/rfc/rfc9110#name-range
func Range(from, length int64) string {
	b := append(strconv.AppendInt([]byte("bytes="), from, 10), '-')
	if length > 0 && from <= math.MaxInt64-length {
		b = strconv.AppendInt(b, from+length-1, 10)
	}
	return string(b)
}

// ContentRange reads "bytes 0-9/100": where the n bytes of a part begin in an object of size bytes.
func ContentRange(v string) (start, n, size int64, err error) {
	v, ok := strings.CutPrefix(v, "bytes ")
	span, total, ok2 := strings.Cut(v, "/")
	first, last, ok3 := strings.Cut(span, "-")
	a, err1 := strconv.ParseUint(first, 10, 62)
	b, err2 := strconv.ParseUint(last, 10, 62)
	c, err3 := strconv.ParseUint(total, 10, 62)
	if !ok || !ok2 || !ok3 || a > b || b >= c {
		return 0, 0, 0, errors.New("malformed Content-Range")
	}
	return int64(a), int64(b - a + 1), int64(c), errors.Join(err1, err2, err3)
}
