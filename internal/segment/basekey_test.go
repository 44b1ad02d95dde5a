package segment_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo/internal/segment"
)

// A base's key takes a third of its text, and what is no such key stays as it is.
func TestKeyOfTheBaseComesBackAsItWas(t *testing.T) {
	long := strings.Repeat("n", 200)
	for key, short := range map[string]bool{
		"": false,
		"db/run-1/base/00000000000000c3-0000000000000002-0123456789abcdeffedcba9876543210":          true,
		"db/" + long + "/base/ffffffffffffffff-ffffffffffffffff-ffffffffffffffffffffffffffffffff":   true,
		"db/a/b/base/00000000000000c3-0000000000000002-0123456789abcdeffedcba9876543210":            true,
		"db/run-1/base/00000000000000C3-0000000000000002-0123456789abcdeffedcba9876543210":          false,
		"db/run-1/base/00000000000000c3-0000000000000002-0123456789abcdeffedcba987654321":           false,
		"db/run-1/base/00000000000000c3-0000000000000002-0123456789abcdeffedcba98765432100":         false,
		"db//base/00000000000000c3-0000000000000002-0123456789abcdeffedcba9876543210":               false,
		"xx/run-1/base/00000000000000c3-0000000000000002-0123456789abcdeffedcba9876543210":          false,
		"db/run-1/seg_/00000000000000c3-0000000000000002-0123456789abcdeffedcba9876543210":          false,
		"db/run-1/base/00000000000000c3+0000000000000002-0123456789abcdeffedcba9876543210":          false,
		"db/run-1/base/0x000000000000c3-0000000000000002-0123456789abcdeffedcba9876543210":          false,
		"db/" + strings.Repeat("n", 1024-75) + "/base/" + fmt.Sprintf("%016x-%016x-%032x", 1, 2, 3): true,
	} {
		h := segment.Header{Kind: segment.KindClaim, Slot: 4, Generation: 4, Base: key}
		b, err := segment.EncodeHeader(nil, &h)
		if err != nil {
			t.Fatalf("%q: %v", key, err)
		}
		got, _, err := segment.DecodeHeader(b)
		if err != nil || got.Base != key {
			t.Errorf("%q came back as %+v, %v", key, got, err)
			continue
		}
		if spelled := bytes.Contains(b, []byte(key)); spelled == short {
			t.Errorf("%q: spelled out %v", key, spelled)
		}
		again, err := segment.EncodeHeader(nil, got)
		if err != nil || !bytes.Equal(again, b) || got.Sum() != h.Sum() {
			t.Errorf("%q encodes differently: %v", key, err)
		}
	}
}
