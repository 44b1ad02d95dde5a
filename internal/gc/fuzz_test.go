package gc_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo/internal/gc"
)

// FuzzObjectKey: what a collector takes for a segment or a base is in the folder of one, and its numbers are those of its key: everything else it leaves alone.
func FuzzObjectKey(f *testing.F) {
	nonce := strings.Repeat("0a", 16)
	f.Add("db/run/seg/0000000000000001-" + nonce)
	f.Add("db/run/base/000000000000000a-0000000000000001-" + nonce)
	f.Add("db/run/base/0000000000000001-" + nonce)
	f.Add("db/run/log/fffffffffffffffe")
	f.Add("db//seg/+000000000000001-" + nonce)
	f.Fuzz(func(t *testing.T, key string) {
		name, slot, generation, ok := gc.ParseObject(key)
		if !ok {
			return
		}
		low := strings.ToLower(key[len("db/")+len(name):])
		seg, base := fmt.Sprintf("/seg/%016x-", generation), fmt.Sprintf("/base/%016x-%016x-", slot, generation)
		if name == "" || strings.Contains(name, "/") || !strings.HasPrefix(low, seg) && !strings.HasPrefix(low, base) {
			t.Errorf("%q read as %q, slot %d, generation %d", key, name, slot, generation)
		}
	})
}
