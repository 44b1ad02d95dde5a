package fence_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tonbo-go/tonbo/fence"
)

// FuzzPin: a pin is read from the key that it has and no other, whatever its body says.
func FuzzPin(f *testing.F) {
	p := fence.Pin{Source: fence.Source{Name: "golden", ID: fence.ID{1}, Slot: 7}, Child: fence.Source{Name: "run", ID: fence.ID{2}, Slot: 1}}
	point := func(s fence.Source) string {
		return fmt.Sprintf(`{"name":%q,"id":"%v","slot":%d}`, s.Name, s.ID, s.Slot)
	}
	f.Add(p.Key(), []byte(`{"format":1,"source":`+point(p.Source)+`,"child":`+point(p.Child)+`}`))
	f.Add(p.Key(), []byte(`{"format":2}`))
	f.Add(p.Key(), []byte(`{"slot":18446744073709551616}`))
	f.Add("db/a/pin/b/0000000000000000.x.y", []byte{})
	f.Fuzz(func(t *testing.T, key string, body []byte) {
		if p, ok := fence.ParsePinKey(key); ok && p.Key() != key {
			t.Errorf("%q read as %+v", key, p)
		}
		if p, err := fence.DecodePin(key, body); err != nil && !errors.Is(err, fence.ErrDamaged) && !errors.Is(err, fence.ErrNewer) {
			t.Fatalf("unnamed: %v", err)
		} else if err == nil && (p.Key() != key || p.Source.Slot == 0) {
			t.Errorf("%q read as %+v", key, p)
		}
	})
}
