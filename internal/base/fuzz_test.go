package base_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/segment"
)

// FuzzManifest: whatever is read is a manifest, which says the same when it is written again, or an error that names what it is. Its upper pages, too.
func FuzzManifest(f *testing.F) {
	b, err := sample().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(strings.Replace(string(b), `"format":1`, `"format":2`, 1)))
	packed, err := packedSample().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(packed)
	upper, err := upperSample().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(upper)
	f.Add([]byte(`{"format":1,"levels":[[{}],[{}]]}`))
	f.Add(b[:len(b)/2])
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := base.Decode(b)
		if err != nil {
			if !errors.Is(err, base.ErrFormat) && !errors.Is(err, base.ErrNewer) {
				t.Fatalf("unnamed: %v", err)
			}
			return
		}
		var kind *segment.KindError
		if err := m.Upper.Each(m.PageSize, m.PageCount, func(uint32, []byte) error { return nil }); err != nil && !errors.Is(err, base.ErrFormat) && !errors.Is(err, segment.ErrFormat) && !errors.As(err, &kind) {
			t.Fatalf("upper pages: unnamed: %v", err)
		}
		once, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := base.Decode(once)
		if err != nil {
			t.Fatalf("%s: %v", once, err)
		}
		if twice, err := again.Encode(); err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%s became %s, %v", once, twice, err)
		}
	})
}

// FuzzManifestContent has the checksum fit, so that what is behind it is reached.
func FuzzManifestContent(f *testing.F) {
	m := sample()
	f.Add(m.ID, m.Slot, m.PageSize, m.PageCount, m.Checksum, m.Levels[0][0].Key, m.Levels[0][0].First, m.Levels[0][0].Last, m.Levels[0][0].Pages, m.Levels[0][0].Size, []byte{}, "0000000000000000")
	f.Add(m.ID, m.Slot, m.PageSize, uint32(1<<31), m.Checksum, "k", uint32(1), uint32(1<<32-1), 1<<31, int64(1<<62), []byte("tonbo"), "ffffffffffffffff")
	f.Fuzz(func(t *testing.T, id string, slot uint64, size, count uint32, sum, key string, first, last uint32, pages int, bytesOf int64, upper []byte, upperSum string) {
		m := &base.Manifest{ID: id, Slot: slot, PageSize: size, PageCount: count, Checksum: sum, Levels: [][]base.Segment{{{Key: key, First: first, Last: last, Pages: pages, Size: bytesOf}}}}
		if len(upper) > 0 {
			m.Upper = &base.Upper{Pages: pages, Sum: upperSum, Payload: upper}
		}
		b, err := m.Encode()
		if err != nil {
			return
		}
		m, err = base.Decode(b)
		if err != nil {
			if !errors.Is(err, base.ErrFormat) {
				t.Fatalf("unnamed: %v", err)
			}
			return
		}
		for _, s := range m.Levels[0] {
			if s.First < 1 || s.Last < s.First || s.Size < 1 || s.Pages > int(s.Last-s.First)+1 {
				t.Errorf("read: %+v", s)
			}
		}
		_ = m.Upper.Each(m.PageSize, m.PageCount, func(p uint32, page []byte) error {
			if len(page) != int(m.PageSize) {
				t.Errorf("page %d has %d bytes", p, len(page))
			}
			return nil
		})
	})
}
