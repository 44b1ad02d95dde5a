package objects_test

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/objects"
	"github.com/tonbo-go/tonbo/internal/objects/objectstest"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// head decodes the head's header.
func (p *plane) head(name string) *segment.Header {
	p.t.Helper()
	o, err := p.store.Get(p.t.Context(), p.keys("db/" + name + "/log/")[0], remote.GetOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	h, _, err := segment.DecodeHeader(o.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return h
}

// claim is what an owner would write behind the head.
func (p *plane) claim(name string) *segment.Header {
	h := p.head(name)
	h.Prev = h.Sum()
	h.Slot++
	h.Generation, h.Kind, h.Flags = h.Slot, segment.KindClaim, 0
	h.PayloadSize, h.PayloadSum, h.Label, h.Tail, h.Source, h.To = 0, 0, "", nil, nil, 0
	rand.Read(h.Nonce[:])
	return h
}

func (p *plane) put(secret, name string, h *segment.Header, payload ...byte) answer {
	p.t.Helper()
	body, err := segment.EncodeHeader(nil, h)
	if err != nil {
		p.t.Fatal(err)
	}
	return p.do(secret, "PUT", path(name, fence.SlotKey(name, h.Slot)), append(body, payload...), createHeader...)
}

// TestNarrowedKeyWritesNoEntryButAnOwners forges what would end, unfreeze, take over or shorten the history of a database, or name what it does not stand on.
func TestNarrowedKeyWritesNoEntryButAnOwners(t *testing.T) {
	p := newPlane(t, objects.Options{})
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	const name = "run-2"
	foreign := p.keys("db/other/log/")[0]
	named := func(key string) ([]byte, uint64) {
		w := segment.NewWriter(int(p.head(name).PageSize))
		if err := w.AddRef(segment.Ref{Key: key, First: 1, Last: 1, Pages: 1, Size: 1000}); err != nil {
			t.Fatal(err)
		}
		payload, sum, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		return payload, sum
	}
	before := len(p.keys("db/" + name + "/"))
	for what, c := range map[string]struct {
		code  string
		forge func(h *segment.Header) (payload []byte)
	}{
		"a delete":            {"key_narrowed", func(h *segment.Header) []byte { h.Kind = segment.KindDelete; return nil }},
		"a void":              {"key_narrowed", func(h *segment.Header) []byte { h.Kind = segment.KindVoid; return nil }},
		"a create":            {"key_narrowed", func(h *segment.Header) []byte { h.Kind = segment.KindCreate; return nil }},
		"a rewind":            {"key_narrowed", func(h *segment.Header) []byte { h.Kind, h.To = segment.KindRewind, 2; return nil }},
		"a tail of bytes":     {"entry_refused", func(h *segment.Header) []byte { return []byte("payload that is not announced") }},
		"a freeze":            {"entry_refused", func(h *segment.Header) []byte { h.Flags = segment.FlagFrozen; return nil }},
		"a source":            {"entry_refused", func(h *segment.Header) []byte { h.Source = &segment.Source{Name: "other", Slot: 2}; return nil }},
		"another incarnation": {"entry_refused", func(h *segment.Header) []byte { h.ID[0]++; return nil }},
		"a broken chain":      {"entry_refused", func(h *segment.Header) []byte { h.Prev++; return nil }},
		"a raised horizon":    {"entry_refused", func(h *segment.Header) []byte { h.Horizon++; return nil }},
		"another base":        {"entry_refused", func(h *segment.Header) []byte { h.Base = "db/run-2/base/x"; return nil }},
		"a foreign base": {"entry_refused", func(h *segment.Header) []byte {
			h.Kind, h.Generation, h.Base = segment.KindBase, p.head(name).Generation, "db/other/base/x"
			return nil
		}},
		"a horizon beyond the head": {"entry_refused", func(h *segment.Header) []byte {
			h.Kind, h.Generation, h.Base, h.Horizon = segment.KindBase, p.head(name).Generation, "db/run-2/base/x", h.Slot+1
			return nil
		}},
		"an old generation":   {"entry_refused", func(h *segment.Header) []byte { h.Generation--; return nil }},
		"a commit of another": {"entry_refused", func(h *segment.Header) []byte { h.Kind = segment.KindCommit; return nil }},
		"another beginning":   {"entry_refused", func(h *segment.Header) []byte { u := *h.Usage; u.Begin++; h.Usage = &u; return nil }},
		"a hole":              {"entry_refused", func(h *segment.Header) []byte { h.Slot += 5; h.Generation = h.Slot; return nil }},
		"others' pages": {"entry_refused", func(h *segment.Header) (payload []byte) {
			h.Kind, h.Generation = segment.KindCommit, p.head(name).Generation
			payload, h.PayloadSum = named(foreign)
			h.PayloadSize = int64(len(payload))
			return payload
		}},
		"others' segment": {"entry_refused", func(h *segment.Header) (payload []byte) {
			h.Kind, h.Generation = segment.KindCommit, p.head(name).Generation
			payload, h.PayloadSum = named("db/golden/seg/0000000000000001-00000000000000000000000000000000")
			h.PayloadSize = int64(len(payload))
			return payload
		}},
	} {
		h := p.claim(name)
		payload := c.forge(h)
		if got := p.put("runs", name, h, payload...); got.code != c.code {
			t.Errorf("%s: %d %s", what, got.status, got.body)
		}
	}
	for what, got := range map[string]answer{
		"garbage":              p.do("runs", "PUT", path(name, fence.SlotKey(name, p.head(name).Slot+1)), []byte("garbage"), createHeader...),
		"a slot of another":    p.do("runs", "PUT", path(name, fence.SlotKey(name, p.head(name).Slot+2)), encoded(t, p.claim(name)), createHeader...),
		"a segment of nothing": p.do("runs", "PUT", path(name, "db/run-2/seg/0000000000000001-00000000000000000000000000000000"), []byte("x"), createHeader...),
		"a base of nothing":    p.do("runs", "PUT", path(name, "db/run-2/base/0000000000000001-0000000000000001-00000000000000000000000000000000"), []byte("{}"), createHeader...),
	} {
		if got.code != "entry_refused" {
			t.Errorf("%s: %d %s", what, got.status, got.body)
		}
	}
	if got := len(p.keys("db/" + name + "/")); got != before {
		t.Errorf("%d objects, there were %d", got, before)
	}
	// What an owner writes is taken, and a slot that is taken says so, whatever is put there.
	h := p.claim(name)
	if got := p.put("runs", name, h); got.status != 201 {
		t.Fatalf("a claim: %d %s", got.status, got.body)
	}
	late := *h
	late.Prev++
	if got := p.put("runs", name, &late); got.code != "object_exists" {
		t.Errorf("a broken entry for a slot that is taken: %d %s", got.status, got.body)
	}
	late.Kind = segment.KindDelete
	if got := p.put("runs", name, &late); got.code != "object_exists" {
		t.Errorf("a delete for a slot that is taken: %d %s", got.status, got.body)
	}
	// After the end there is nothing to write, and before a beginning neither.
	if err := p.c.Delete(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if got := p.put("runs", name, p.claim(name)); got.code != "entry_refused" {
		t.Errorf("a claim behind the end: %d %s", got.status, got.body)
	}
	h.Slot, h.Generation = 1, 1
	body := encoded(t, h)
	if got := p.do("runs", "PUT", path("run-9", fence.SlotKey("run-9", 1)), body, createHeader...); got.code != "not_found" {
		t.Errorf("the first entry of a database that is not there: %d %s", got.status, got.body)
	}
}

func encoded(t *testing.T, h *segment.Header) []byte {
	t.Helper()
	b, err := segment.EncodeHeader(nil, h)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestNarrowedKeyUploadsForItsOwnGenerations: nobody would collect what is of a generation that never begins, and a base that names others' segments would be read by whoever has more rights.
func TestNarrowedKeyUploadsForItsOwnGenerations(t *testing.T) {
	p := newPlane(t, objects.Options{})
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	h := p.head("run-2")
	id := fence.ID(h.ID).String()
	nonce := strings.Repeat("0", 31)
	w := segment.NewWriter(int(h.PageSize))
	if err := w.Add(2, make([]byte, h.PageSize)); err != nil {
		t.Fatal(err)
	}
	payload, sum, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	seg := append(encoded(t, &segment.Header{
		Kind: segment.KindSegment, ID: h.ID, Generation: h.Generation, Slot: h.Slot, From: h.Slot, PageSize: h.PageSize, PageCount: 2, PayloadSize: int64(len(payload)), PayloadSum: sum,
	}), payload...)
	manifest := func(id, key string) []byte {
		m := base.Manifest{ID: id, Generation: h.Generation, Slot: h.Slot, PageSize: h.PageSize, PageCount: 2, Checksum: base.SumString(0),
			Levels: [][]base.Segment{{{Key: key, First: 1, Last: 1, Pages: 1, Slot: h.Slot, Size: 100}}}}
		b, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for i, c := range []struct {
		secret, key string
		generation  uint64
		body        []byte
		code        string
	}{
		{"runs", "db/run-2/seg/%016x-%s%d", h.Generation, seg, ""},
		{"runs", "db/run-2/seg/%016x-%s%d", h.Slot + 1, seg, "entry_refused"},
		{"runs", "db/run-2/seg/%016x-%s%d", 1<<64 - 1, seg, "entry_refused"},
		{"runs", "db/run-9/seg/%016x-%s%d", 1, seg, "not_found"},
		{"runs", "db/run-2/base/0000000000000002-%016x-%s%d", h.Generation, manifest(id, "db/run-2/seg/x"), ""},
		{"runs", "db/run-2/base/0000000000000002-%016x-%s%d", h.Generation, manifest(id, "db/other/seg/x"), "entry_refused"},
		{"runs", "db/run-2/base/0000000000000002-%016x-%s%d", h.Generation, manifest(id, "db/golden/log/fffffffffffffffe"), "entry_refused"},
		{"runs", "db/run-2/base/0000000000000002-%016x-%s%d", h.Generation, manifest(strings.Repeat("0", 32), "db/run-2/seg/x"), "entry_refused"},
		{"runs", "db/run-2/base/0000000000000002-%016x-%s%d", h.Slot + 9, manifest(id, "db/run-2/seg/x"), "entry_refused"},
		{objectstest.Full, "db/run-2/seg/%016x-%s%d", h.Generation, seg, ""},
	} {
		key := fmt.Sprintf(c.key, c.generation, nonce, i)
		got := p.do(c.secret, "PUT", path("", key), c.body, createHeader...)
		if got.code != c.code || c.code == "" && got.status != 201 {
			t.Errorf("%s: %d %s, want %q", key, got.status, got.body, c.code)
		}
	}
}
