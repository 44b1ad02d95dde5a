package fence_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
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

// FuzzEntry: an object of any content is the entry of the slot that its key says, as long as it says, or an error.
func FuzzEntry(f *testing.F) {
	store := mem.New("fuzz")
	if _, err := fence.New(store, "a", instant("x")).Create(f.Context(), fence.CreateOptions{}); err != nil {
		f.Fatal(err)
	}
	o, err := store.Get(f.Context(), fence.SlotKey("a", 1), remote.GetOptions{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(o.Body, uint64(1))
	f.Add(o.Body, uint64(2))
	f.Add(append(o.Body, 0), uint64(1))
	f.Add([]byte{}, uint64(0))
	f.Fuzz(func(t *testing.T, body []byte, slot uint64) {
		e, err := fence.Decode(remote.Object{Info: remote.Info{Size: int64(len(body))}, Body: body}, slot)
		if err == nil && (e.Slot != slot || e.Generation > slot || int64(len(e.Payload)) != e.PayloadSize || e.Size != int64(len(body))) {
			t.Errorf("slot %d read as %+v", slot, e)
		}
	})
}
