package base_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/tonbo-go/tonbo/internal/base"
)

// TestManifestOfEmptyElementsIsRefusedBeforeItIsDecoded: two bytes would become 56.
func TestManifestOfEmptyElementsIsRefusedBeforeItIsDecoded(t *testing.T) {
	const size = 4 << 20
	head := `{"format":1,"id":"` + strings.Repeat("0", 32) + `","generation":1,"slot":1,"time":"2026-01-01T00:00:00Z","page_size":4096,"page_count":1,"checksum":"` + strings.Repeat("0", 16) + `"`
	for what, of := range map[string][3]string{
		"numbers for segments": {`,"levels":[[`, "0,", `0]]`},
		"padded numbers":       {`,"levels":[[`, "1234567890,", `0]]`},
		"lists in lists":       {`,"x":`, "[", strings.Repeat("]", size)},
		"nulls for segments":   {`,"levels":[[`, "null,", `null]]`},
		"empty segments":       {`,"levels":[[`, "{},", `{}]]`},
		"empty levels":         {`,"levels":[`, "[],", `[]]`},
		"empty marks":          {`,"levels":[],"marks":[`, "{},", `{}]`},
		"empty labels":         {`,"levels":[],"labels":[`, "{},", `{}]`},
		"behind a quote":       {`,"levels":[],"x":"\"","marks":[`, "{},", `{}]`},
	} {
		b := []byte(head + of[0] + strings.Repeat(of[1], size/len(of[1])) + of[2])
		b = fmt.Appendf(b, `,"sum":"%016x"}`, xxhash.Sum64(b))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := base.Decode(b)
		runtime.ReadMemStats(&after)
		if n := int64(after.TotalAlloc - before.TotalAlloc); err == nil || n > 1<<20 {
			t.Errorf("%s: %d MiB became %d MiB: %v", what, len(b)>>20, n>>20, err)
		}
	}
	// What an owner writes is far from that, also with the shortest of all that there can be.
	m := base.Manifest{ID: strings.Repeat("0", 32), Slot: 1, PageSize: 512, PageCount: 1, Checksum: base.SumString(0)}
	for i := range uint32(2000) {
		m.Labels = append(m.Labels, base.Labelled{Label: []string{"a", `"`, `\`, ",,,,,,,,", "[{"}[i%5], Slot: 1})
		m.Marks = append(m.Marks, base.Mark{Slot: 1})
		m.Levels = append(m.Levels, []base.Segment{{Key: "db/a/seg/0000000000000001-" + strings.Repeat("0", 32), First: 1, Last: 1, Pages: 1, Size: 1, Slot: 1}})
	}
	b, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := base.Decode(b); err != nil {
		t.Error(err)
	}
}
