package httpbody_test

import (
	"testing"

	"github.com/tonbo-go/tonbo/internal/httpbody"
)

func FuzzContentRange(f *testing.F) {
	for _, s := range []string{"bytes 0-9/10", "bytes 5-5/6", "bytes 0-9/*", "bytes -1-2/3", "bytes 9-0/10", "", "bytes 0-9223372036854775807/9223372036854775807"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, v string) {
		start, n, size, err := httpbody.ContentRange(v)
		if err == nil && (start < 0 || n <= 0 || size <= 0 || start+n > size) {
			t.Errorf("%q: %d bytes from %d of %d", v, n, start, size)
		}
	})
}
