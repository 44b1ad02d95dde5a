package catalog

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
)

// holding is a store with one object.
func holding(t testing.TB, key string, body []byte) remote.Store {
	s := mem.New("fuzz")
	if _, err := s.Create(context.Background(), key, body); err != nil {
		t.Skip() // no key
	}
	return s
}

func named(t *testing.T, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNewer) {
		t.Fatalf("unnamed: %v", err)
	}
}

func FuzzBinding(f *testing.F) {
	f.Add("fffffffffffffffd", []byte(`{"format":1,"kind":"bound","nonce":"00","generation":3,"name":"n","id":"00","at":"2026-01-01T00:00:00Z"}`))
	f.Add("fffffffffffffffe", []byte(`{"format":1,"kind":"bind","source":{"name":"a","id":"b","slot":1},"retire":{},"delete_retired":true}`))
	f.Add("ffffffffffffffff", []byte(`{"format":1,"kind":"release"}`))
	f.Add("0", []byte(`{"format":2}`))
	f.Fuzz(func(t *testing.T, slot string, body []byte) {
		l := Bindings{Store: holding(t, InstancePrefix+"k/"+slot, body), Key: "k"}
		b, err := l.Head(context.Background())
		named(t, err)
		if err == nil && (b.Slot == 0 || l.slotKey(b.Slot) != InstancePrefix+"k/"+slot || b.Kind != Bind && b.Kind != Bound && b.Kind != Failing && b.Kind != Release) {
			t.Errorf("read %+v of %q", b, slot)
		}
	})
}

func FuzzAttempt(f *testing.F) {
	hash := KeyHash("key")
	f.Add([]byte(`{"format":1,"name":"n","id":"00000000000000000000000000000001","slot":1,"request":"r","created_at":"2026-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"format":1,"id":"","slot":0}`))
	f.Add([]byte(`{"format":7}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := readAttempt(context.Background(), holding(t, attemptKey(hash, 1), body), hash, 1)
		named(t, err)
		if err == nil && (a.Slot == 0 || a.id() == fence.ID{} && a.ID != fence.ID{}.String()) {
			t.Errorf("read %+v", a)
		}
	})
}

// FuzzKeys: a key that is read is the one that is written for what was read.
func FuzzKeys(f *testing.F) {
	f.Add(RecordKey("n", 1, fence.ID{1}))
	f.Add(EndedKey("n", math.MaxUint64, fence.ID{1}))
	f.Add(totalsKey(&fence.Entry{Time: time.Unix(1_800_000_000, 0), ID: fence.ID{1}, Usage: segment.Usage{Opens: 1, Up: 1 << 40, ByteSeconds: 1.5}}))
	f.Add("names/a/b.c/d")
	f.Add("usage/2026-01/x.-1.1.1.1.1.1.1.1.1.1.7ff0000000000000")
	f.Fuzz(func(t *testing.T, key string) {
		if name, slot, id, ok := ParseRecordKey(key); ok && RecordKey(name, slot, id) != key {
			t.Errorf("%q read as %q %d %v", key, name, slot, id)
		}
		if name, slot, id, ok := ParseEndedKey(key); ok && EndedKey(name, slot, id) != key {
			t.Errorf("%q read as %q %d %v", key, name, slot, id)
		}
		if u, ok := parseTotals(key); ok && (math.IsNaN(u.ByteSeconds) || u.ByteSeconds < 0 || !strings.Contains(key, "/")) {
			t.Errorf("%q read as %+v", key, u)
		}
	})
}
