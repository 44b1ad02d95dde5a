package segment_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/tonbo-go/tonbo/internal/segment"
)

// goldenPack is a pack of format version 1: its file stays readable for ever.
func goldenPack(t testing.TB) (segment.Header, *segment.Pack) {
	t.Helper()
	id, nonce := [16]byte{0: 0xa1, 15: 0xb2}, [16]byte{0: 0xc3, 15: 0xd4}
	p := &segment.Pack{}
	for i, s := range []*spec{
		{header: segment.Header{Kind: segment.KindCommit, PageCount: 12}, size: 512, pages: []uint32{1, 2, 12}},
		{header: segment.Header{Kind: segment.KindCommit, PageCount: 9}, size: 512, deltas: []uint32{2, 5}},
		{header: segment.Header{Kind: segment.KindClose, PageCount: 10}, size: 512, pages: []uint32{10}, deltas: []uint32{2}},
	} {
		object, h := s.build(t)
		p.Entries = append(p.Entries, segment.Packed{Slot: []uint64{31, 32, 300}[i], PageCount: h.PageCount, Sum: h.PayloadSum, Payload: object[int64(len(object))-h.PayloadSize:]})
	}
	object, h := (&spec{header: segment.Header{Kind: segment.KindSegment, PageCount: 11}, size: 512, pages: []uint32{1, 3}}).build(t)
	p.Upper, p.UpperSum = object[int64(len(object))-h.PayloadSize:], h.PayloadSum
	return segment.Header{Kind: segment.KindPack, ID: id, Nonce: nonce, Generation: 30, From: 31, Slot: 300, Time: 1_800_000_000_000_000_001, PageSize: 512, PageCount: 10, Checksum: 0x1122334455667788}, p
}

func TestGoldenPackStaysReadable(t *testing.T) {
	path := filepath.Join("testdata", "v1", "pack.obj")
	h, p := goldenPack(t)
	object, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && *update {
		if object, err = segment.EncodePack(&h, p); err == nil {
			err = os.WriteFile(path, object, 0o644)
		}
	}
	if err != nil {
		t.Fatalf("%v (go test -run Golden -update ./internal/segment writes it)", err)
	}
	got, pack, err := segment.DecodePack(object)
	if err != nil {
		t.Fatal(err)
	}
	h.PayloadSize, h.PayloadSum = got.PayloadSize, got.PayloadSum
	if !reflect.DeepEqual(*got, h) {
		t.Errorf("got header %+v, want %+v", *got, h)
	}
	for i := range p.Entries {
		e, want := &pack.Entries[i], &p.Entries[i]
		if e.Slot != want.Slot || e.PageCount != want.PageCount {
			t.Errorf("entry %d: slot %d, %d pages", i, e.Slot, e.PageCount)
		}
		ix, err := e.Index(512)
		if err != nil {
			t.Fatal(err)
		}
		old, err := want.Index(512)
		if err != nil || ix.Pages() != old.Pages() || (ix.Delta == nil) != (old.Delta == nil) {
			t.Errorf("entry %d: %v, %d pages", i, err, ix.Pages())
		}
		ignore := func(uint32, []byte) error { return nil }
		if err := segment.EachChange(e.Header(512), ix, e.Payload, ignore, func(segment.Delta) error { return nil }); err != nil {
			t.Error(err)
		}
	}
	if !bytes.Equal(pack.Upper, p.Upper) || pack.UpperSum != p.UpperSum {
		t.Error("other upper pages")
	}
	if _, _, _, err := segment.Decode(object); !errors.Is(err, segment.ErrFormat) {
		t.Errorf("read as pages: %v", err)
	}
}

func TestDamagedPackIsRefused(t *testing.T) {
	h, p := goldenPack(t)
	b, err := segment.EncodePack(&h, p)
	if err != nil {
		t.Fatal(err)
	}
	readable := func(b []byte) error {
		_, p, err := segment.DecodePack(b)
		if err != nil {
			return err
		}
		for i := range p.Entries {
			ix, err := p.Entries[i].Index(512)
			if err != nil {
				return err
			}
			ignore := func(uint32, []byte) error { return nil }
			if err := segment.EachChange(p.Entries[i].Header(512), ix, p.Entries[i].Payload, ignore, func(segment.Delta) error { return nil }); err != nil {
				return err
			}
		}
		hd := &segment.Header{Kind: segment.KindSegment, PageSize: 512, PageCount: 11, PayloadSize: int64(len(p.Upper)), PayloadSum: p.UpperSum}
		ix, err := segment.DecodeIndex(p.Upper, hd)
		if err != nil {
			return err
		}
		return segment.EachPage(hd, ix, p.Upper, func(uint32, []byte) error { return nil })
	}
	if err := readable(b); err != nil {
		t.Fatal(err)
	}
	for i := range b {
		if err := readable(b[:i]); !typed(err) {
			t.Errorf("cut to %d bytes: %v", i, err)
		}
		c := bytes.Clone(b)
		c[i] ^= 1
		if err := readable(c); !typed(err) {
			t.Errorf("byte %d changed: %v", i, err)
		}
	}
	for name, change := range map[string]func(*segment.Header, *segment.Pack){
		"no entry":       func(_ *segment.Header, p *segment.Pack) { p.Entries = nil },
		"another kind":   func(h *segment.Header, _ *segment.Pack) { h.Kind = segment.KindSegment },
		"other slots":    func(h *segment.Header, _ *segment.Pack) { h.Slot++ },
		"other pages":    func(h *segment.Header, _ *segment.Pack) { h.PageCount++ },
		"not ascending":  func(_ *segment.Header, p *segment.Pack) { p.Entries[1].Slot = 31 },
		"empty payload":  func(_ *segment.Header, p *segment.Pack) { p.Entries[1].Payload = nil },
		"sum of nothing": func(_ *segment.Header, p *segment.Pack) { p.Upper = nil },
	} {
		h, p := goldenPack(t)
		change(&h, p)
		if _, err := segment.EncodePack(&h, p); !errors.Is(err, segment.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPackedEntryNamesNoSegments: a pack holds all of its entries' pages, and its reader follows nothing.
func TestPackedEntryNamesNoSegments(t *testing.T) {
	object, h := (&spec{header: segment.Header{Kind: segment.KindCommit, PageCount: 12}, size: 512, pages: []uint32{1}, refs: []segment.Ref{{Key: "k", First: 2, Last: 3, Pages: 1, Size: 1 << 10}}}).build(t)
	p := segment.Packed{Slot: 1, PageCount: 12, Sum: h.PayloadSum, Payload: object[int64(len(object))-h.PayloadSize:]}
	if _, err := p.Index(512); !errors.Is(err, segment.ErrFormat) {
		t.Error(err)
	}
}

// FuzzDecodePack: no panic, typed errors, and what decodes encodes to the same bytes, with checksums made right.
func FuzzDecodePack(f *testing.F) {
	h, p := goldenPack(f)
	b, err := segment.EncodePack(&h, p)
	if err != nil {
		f.Fatal(err)
	}
	at := 0
	for i := range p.Entries {
		at += len(p.Entries[i].Payload)
	}
	at += len(p.Upper)
	start := len(b) - int(h.PayloadSize)
	f.Add(b[start:start+at], b[start+at:len(b)-40])
	f.Fuzz(func(t *testing.T, content, list []byte) {
		if _, _, err := segment.DecodePack(list); err != nil && !typed(err) {
			t.Fatal(err)
		}
		h := h
		h.PayloadSize, h.PayloadSum = int64(len(content)+len(list)+40), xxhash.Sum64(list)
		b, err := segment.EncodeHeader(nil, &h)
		if err != nil {
			return
		}
		b = append(append(b, content...), list...)
		foot := binary.LittleEndian.AppendUint64(nil, uint64(h.PayloadSize))
		foot = binary.LittleEndian.AppendUint64(foot, uint64(len(content)))
		foot = binary.LittleEndian.AppendUint64(foot, h.PayloadSum)
		foot = append(binary.LittleEndian.AppendUint32(foot, segment.Version), "tnbp"...)
		b = binary.LittleEndian.AppendUint64(append(b, foot...), xxhash.Sum64(foot))
		got, p, err := segment.DecodePack(b)
		if err != nil {
			if !typed(err) {
				t.Fatal(err)
			}
			return
		}
		for i := range p.Entries {
			if _, err := p.Entries[i].Index(got.PageSize); err != nil && !typed(err) {
				t.Fatal(err)
			}
		}
		again, err := segment.EncodePack(got, p)
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("encodes differently: %v\n%x\n%x", err, again, b)
		}
	})
}
