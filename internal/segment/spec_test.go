package segment_test

import (
	"bytes"
	"encoding/binary"
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
	if len(s.pages) > 0 || len(s.refs) > 0 {
		w := segment.NewWriter(s.size)
		for _, p := range s.pages {
			if err := w.Add(p, s.page(p)); err != nil {
				t.Fatal(err)
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
	i := 0
	err = segment.EachPage(h, ix, payload, func(pgno uint32, page []byte) error {
		if i >= len(s.pages) || pgno != s.pages[i] {
			t.Fatalf("page %d is number %d, want %v", i, pgno, s.pages)
		}
		if !bytes.Equal(page, s.page(pgno)) {
			t.Fatalf("page %d differs", pgno)
		}
		i++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if i != len(s.pages) || ix.Pages() != i {
		t.Fatalf("%d pages, index says %d, want %d", i, ix.Pages(), len(s.pages))
	}
}

// span returns the page numbers from first to last.
func span(first, last uint32) (p []uint32) {
	for ; first <= last; first++ {
		p = append(p, first)
	}
	return p
}
