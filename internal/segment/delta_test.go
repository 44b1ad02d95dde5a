package segment_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/tonbo-go/tonbo/internal/segment"
)

// sizes of pages.
var sizes = []int{512, 1024, 4096, 65536}

// edited changes a page as SQLite does: bytes here and there, things that move, parts that are filled or cleared.
func edited(r *rand.Rand, page []byte) []byte {
	b := bytes.Clone(page)
	for range r.IntN(5) {
		at := r.IntN(len(b))
		n := 1 + r.IntN(min(len(b)-at, 1+len(b)/8))
		switch r.IntN(4) {
		case 0:
			for i := range n {
				b[at+i] = byte(r.Uint32())
			}
		case 1:
			copy(b[at:at+n], b[r.IntN(len(b)-n+1):])
		case 2:
			clear(b[at : at+n])
		case 3: // one more in an array
			copy(b[at+min(2, n):at+n], b[at:at+n])
		}
	}
	return b
}

// oneDelta packs a page as a delta and returns the block and its stored bytes.
func oneDelta(t testing.TB, pgno uint32, old, page []byte) (*segment.Index, []byte, bool) {
	t.Helper()
	w := segment.NewWriter(len(page))
	ok, err := w.AddDelta(pgno, old, page, segment.PageSum(pgno, page))
	if err != nil {
		t.Fatal(err)
	}
	payload, sum, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	ix, err := segment.DecodeIndex(payload, &segment.Header{PageSize: uint32(len(page)), PageCount: segment.MaxPage, PayloadSize: int64(len(payload)), PayloadSum: sum})
	if err != nil {
		t.Fatal(err)
	}
	return ix, payload, ok
}

func TestDeltaMakesThePageAgain(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	packed := 0
	for i := range 4000 {
		size := sizes[i%len(sizes)]
		old := make([]byte, size)
		if i%7 != 0 {
			text(uint32(i), old)
		}
		page := edited(r, old)
		if i%11 == 0 {
			noise(uint32(i), page)
		}
		ix, payload, ok := oneDelta(t, 9, old, page)
		if !ok {
			continue
		}
		packed++
		got := make([]byte, size)
		if err := segment.EachDelta(ix, payload, func(d segment.Delta) error { return d.Apply(got, old) }); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, page) {
			t.Fatalf("edit %d of %d bytes: another page", i, size)
		}
	}
	if packed < 3000 {
		t.Errorf("%d of 4000 edits were worth a delta", packed)
	}
}

func TestDeltaAgainstAnotherVersionIsRefused(t *testing.T) {
	for _, size := range sizes {
		old := make([]byte, size)
		text(1, old)
		page := bytes.Clone(old)
		copy(page[size/2:], "an update")
		ix, payload, _ := oneDelta(t, 9, old, page)
		for i := range old {
			other := bytes.Clone(old)
			other[i] ^= 1
			got := make([]byte, size)
			err := segment.EachDelta(ix, payload, func(d segment.Delta) error { return d.Apply(got, other) })
			if replaced := i >= size/2 && i < size/2+len("an update"); err == nil && !(replaced && bytes.Equal(got, page)) {
				t.Fatalf("%d bytes, byte %d of the version before differs: no error", size, i)
			} else if err != nil && !errors.Is(err, segment.ErrFormat) {
				t.Fatal(err)
			}
			if size > 4096 {
				break
			}
		}
	}
}

func TestSmallChangesMakeSmallDeltas(t *testing.T) {
	old := make([]byte, 4096)
	text(1, old)
	row := make([]byte, 100)
	noise(1, row)
	inserted := bytes.Clone(old) // a row, and a pointer to it before others
	copy(inserted[1000:], row)
	copy(inserted[202:402], old[200:400])
	same := bytes.Clone(old)
	for name, c := range map[string]struct {
		page []byte
		most int
	}{"nothing": {same, 30}, "a row": {inserted, 170}} {
		ix, payload, ok := oneDelta(t, 9, old, c.page)
		if !ok || ix.Delta.Length > c.most {
			t.Errorf("%s: %d bytes, want at most %d", name, ix.Delta.Length, c.most)
		}
		_ = payload
	}
}

func TestWriterRefusesDeltasOutOfPlace(t *testing.T) {
	page := make([]byte, 512)
	text(1, page)
	for name, do := range map[string]func(w *segment.Writer) error{
		"whole as well": func(w *segment.Writer) error {
			w.Add(4, page)
			w.AddDelta(4, page, page, 0)
			_, _, err := w.Finish()
			return err
		},
		"within a segment's range": func(w *segment.Writer) error {
			w.AddDelta(4, page, page, 0)
			w.AddRef(segment.Ref{Key: "k", First: 3, Last: 9, Pages: 2, Size: 1000})
			_, _, err := w.Finish()
			return err
		},
		"descending": func(w *segment.Writer) error {
			w.AddDelta(4, page, page, 0)
			_, err := w.AddDelta(4, page, page, 0)
			return err
		},
		"the lock page":   func(w *segment.Writer) error { _, err := w.AddDelta(segment.LockPage(512), page, page, 0); return err },
		"page 0":          func(w *segment.Writer) error { _, err := w.AddDelta(0, page, page, 0); return err },
		"of another size": func(w *segment.Writer) error { _, err := w.AddDelta(1, page[1:], page, 0); return err },
		"after Finish": func(w *segment.Writer) error {
			w.Finish()
			_, err := w.AddDelta(1, page, page, 0)
			return err
		},
	} {
		if err := do(segment.NewWriter(512)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestDeltasFillNoMoreThanOneBlock(t *testing.T) {
	old, page := make([]byte, 65536), make([]byte, 65536)
	noise(1, old)
	copy(page, old)
	noise(2, page[:40000])
	w := segment.NewWriter(65536)
	for p := uint32(1); p <= 3; p++ {
		ok, err := w.AddDelta(p, old, page, segment.PageSum(p, page))
		if err != nil || ok != (p == 1) {
			t.Fatal(p, ok, err)
		}
	}
	w = segment.NewWriter(512)
	n := 0
	for p := uint32(1); p <= 6000; p++ {
		ok, err := w.AddDelta(p, old[:512], old[:512], segment.PageSum(p, old[:512]))
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			n++
		}
	}
	if _, _, err := w.Finish(); err != nil || n < 256 {
		t.Fatal(n, err)
	}
}

func TestSegmentsAndWholeEntriesHaveNoDeltas(t *testing.T) {
	for name, h := range map[string]segment.Header{
		"segment": {Kind: segment.KindSegment}, "whole entry": {Kind: segment.KindCommit, Flags: segment.FlagWhole},
	} {
		s := spec{header: h, size: 512, deltas: []uint32{3}}
		object, _ := s.build(t)
		if _, _, _, err := segment.Decode(object); !errors.Is(err, segment.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDeltasMustComeLast(t *testing.T) {
	// Two blocks: a delta of page 1, a whole page 2.
	index := []byte{0, 2, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2, 12, 12, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 1, 8, 0x80, 4, 1, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8}
	if err := read(seal(t, 512, make([]byte, 20), index)); !errors.Is(err, segment.ErrFormat) || !strings.Contains(err.Error(), "last") {
		t.Errorf("%v", err)
	}
}

// FuzzDelta: any two pages: what is packed makes the page again, and does not with another version before, unless that says the same.
func FuzzDelta(f *testing.F) {
	old := make([]byte, 512)
	text(1, old)
	f.Add(old, old, uint8(0))
	f.Add(old, bytes.Repeat([]byte{1}, 512), uint8(9))
	f.Add([]byte{}, old, uint8(200))
	f.Fuzz(func(t *testing.T, a, b []byte, flip uint8) {
		old, page := make([]byte, 512), make([]byte, 512)
		copy(old, a)
		copy(page, b)
		ix, payload, ok := oneDelta(t, 7, old, page)
		if !ok {
			return
		}
		got := make([]byte, 512)
		if err := segment.EachDelta(ix, payload, func(d segment.Delta) error { return d.Apply(got, old) }); err != nil || !bytes.Equal(got, page) {
			t.Fatal(err)
		}
		old[flip] ^= 0x10
		err := segment.EachDelta(ix, payload, func(d segment.Delta) error { return d.Apply(got, old) })
		if err == nil && !bytes.Equal(got, page) || err != nil && !errors.Is(err, segment.ErrFormat) {
			t.Fatal(err)
		}
	})
}

// FuzzBlockDeltas: any stored bytes under a right checksum: typed errors, pages in order, and no page but the one whose checksum is recorded.
func FuzzBlockDeltas(f *testing.F) {
	for _, s := range goldens() {
		object, _ := s.build(f)
		_, ix, payload, err := segment.Decode(object)
		if err != nil {
			f.Fatal(err)
		}
		if b := ix.Delta; b != nil {
			f.Add(payload[b.Offset:b.Offset+int64(b.Length)], uint32(s.size), uint32(len(s.deltas)), uint32(b.Raw), s.before(s.deltas[0]))
		}
	}
	ops := []byte{3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 4}
	f.Add(append(ops, 0), uint32(512), uint32(1), uint32(len(ops)+1), []byte{1})
	f.Fuzz(func(t *testing.T, stored []byte, size, pages, raw uint32, old []byte) {
		if !segment.ValidPageSize(int(size)) {
			size = 512
		}
		before, page := make([]byte, size), make([]byte, size)
		copy(before, old)
		b := segment.Block{Kind: segment.BlockDelta, Length: len(stored), Raw: int(raw), Runs: []segment.Run{{First: 3, Count: pages}}, Sum: xxhash.Sum64(stored)}
		seen := uint32(0)
		err := b.Deltas(stored, func(d segment.Delta) error {
			if d.Page != 3+seen {
				t.Fatalf("page %d", d.Page)
			}
			seen++
			switch err := d.Apply(page, before); {
			case err == nil && segment.PageSum(d.Page, page) != d.Sum:
				t.Fatal("another page than the one that was meant")
			case err != nil && !errors.Is(err, segment.ErrFormat):
				t.Fatal(err)
			}
			return nil
		})
		if err == nil && seen != pages || err != nil && (!typed(err) || seen != 0) {
			t.Fatalf("%d of %d pages: %v", seen, pages, err)
		}
	})
}

func BenchmarkAppendDelta(b *testing.B) {
	old := make([]byte, 4096)
	text(1, old)
	page := bytes.Clone(old)
	noise(1, page[1000:2000])
	copy(page[202:402], old[200:400])
	var dst []byte
	for b.Loop() {
		dst = segment.AppendDelta(dst[:0], old, page)
	}
	b.ReportMetric(float64(len(dst)), "bytes")
}
