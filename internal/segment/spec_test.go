package segment_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/tonbo-go/tonbo/internal/segment"
)

// spec describes an object from which tests build its bytes.
type spec struct {
	header segment.Header // PageSize is pageSize; payload fields are filled in
	size   int            // page size
	pages  []uint32       // ascending
	fill   func(pgno uint32, page []byte)
	refs   []segment.Ref
	deltas []uint32 // ascending, none of pages; their versions before are what before makes
}

// before is a page as of the entry before.
func (s *spec) before(pgno uint32) []byte {
	b := s.page(pgno)
	n := len(b) / 4
	copy(b[n/2:n], s.page(pgno + 1)[n:])    // other content here
	copy(b[n:2*n], s.page(pgno)[n+2:2*n+2]) // and something that has moved there
	return b
}

// text fills a page as SQLite would: a cell array and text that compresses.
func text(pgno uint32, page []byte) {
	r := rand.New(rand.NewPCG(1, uint64(pgno)))
	words := []string{"commit ", "page ", "frame ", "step ", "the agent read ", "SELECT ", "result ", "null ", "0x4f ", "tool call "}
	b := page[:0]
	for len(b) < len(page) {
		if r.IntN(4) == 0 {
			b = binary.LittleEndian.AppendUint32(b, r.Uint32())
		}
		b = append(b, words[r.IntN(len(words))]...)
	}
	copy(page, b[:len(page)])
}

// noise fills a page with bytes that do not compress.
func noise(pgno uint32, page []byte) {
	r := rand.New(rand.NewPCG(2, uint64(pgno)))
	for i := range page {
		page[i] = byte(r.Uint32())
	}
}

func (s *spec) page(pgno uint32) []byte {
	page := make([]byte, s.size)
	if s.fill == nil {
		text(pgno, page)
	} else {
		s.fill(pgno, page)
	}
	return page
}

// build returns the object, and the header with the payload fields set.
func (s *spec) build(t testing.TB) (object []byte, h segment.Header) {
	t.Helper()
	h = s.header
	h.PageSize = uint32(s.size)
	var payload []byte
	if len(s.pages) > 0 || len(s.refs) > 0 || len(s.deltas) > 0 {
		w := segment.NewWriter(s.size)
		for _, p := range s.pages {
			if err := w.Add(p, s.page(p)); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range s.deltas {
			if ok, err := w.AddDelta(p, s.before(p), s.page(p), segment.PageSum(p, s.page(p))); err != nil || !ok {
				t.Fatal(p, ok, err)
			}
		}
		for _, r := range s.refs {
			if err := w.AddRef(r); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		if payload, h.PayloadSum, err = w.Finish(); err != nil {
			t.Fatal(err)
		}
		h.PayloadSize = int64(len(payload))
		if h.PageCount == 0 {
			h.PageCount = segment.MaxPage
		}
	}
	object, err := segment.EncodeHeader(nil, &h)
	if err != nil {
		t.Fatal(err)
	}
	return append(object, payload...), h
}

// check decodes object and compares all of it with the spec.
func (s *spec) check(t testing.TB, object []byte) {
	t.Helper()
	h, ix, payload, err := segment.Decode(object)
	if err != nil {
		t.Fatal(err)
	}
	i, want := 0, append(append([]uint32(nil), s.pages...), s.deltas...)
	each := func(pgno uint32, page []byte) error {
		if i >= len(want) || pgno != want[i] {
			t.Fatalf("page %d is number %d, want %v", i, pgno, want)
		}
		if !bytes.Equal(page, s.page(pgno)) {
			t.Fatalf("page %d differs", pgno)
		}
		i++
		return nil
	}
	err = segment.EachChange(h, ix, payload, each, func(d segment.Delta) error {
		page := make([]byte, s.size)
		if err := d.Apply(page, s.before(d.Page)); err != nil {
			return err
		}
		return each(d.Page, page)
	})
	if err != nil {
		t.Fatal(err)
	}
	if i != len(want) || ix.Pages() != i {
		t.Fatalf("%d pages, index says %d, want %d", i, ix.Pages(), len(want))
	}
	err = segment.EachPage(h, ix, payload, func(uint32, []byte) error { return nil })
	if refused := errors.Is(err, segment.ErrFormat); refused != (len(s.deltas) > 0) {
		t.Fatalf("read as whole pages: %v", err)
	}
}

// span returns the page numbers from first to last.
func span(first, last uint32) (p []uint32) {
	for ; first <= last; first++ {
		p = append(p, first)
	}
	return p
}
