package objects

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo/fence"
)

// TestWhatForksStandOnIsBoundedInBytes: a narrowed key's entries name segments by keys as long as it likes.
func TestWhatForksStandOnIsBoundedInBytes(t *testing.T) {
	a := newAncestry(nil)
	w := &walk{a: a, part: part{objects: map[string]string{}, names: map[string]bool{}}}
	long, kept := strings.Repeat("x", 1000), 0
	var err error
	for i := 0; err == nil && kept <= 2*maxStood; i++ {
		key := fmt.Sprintf("db/run/seg/%s%d", long, i)
		if err = w.add(key, ""); err == nil {
			kept += len(key)
		}
	}
	if !errors.Is(err, fence.ErrDamaged) || kept > maxStood {
		t.Errorf("%d bytes of keys: %v", kept, err)
	}
	// All of them together.
	for i := range 10 {
		l := a.of(fmt.Sprint("run-", i))
		l.parts = map[string]*part{"": {bytes: maxStood}}
		a.keep(l)
		a.keep(l) // looked at again: counted once
		sum := 0
		for _, l := range a.byName {
			sum += l.bytes
		}
		if sum != a.bytes || sum > maxAllStood {
			t.Errorf("%d lineages: %d bytes, counted as %d", len(a.byName), sum, a.bytes)
		}
	}
}
