package segment_test

import (
	"bytes"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/tonbo-go/tonbo/internal/segment"
)

func TestWriterRefusesWrongPages(t *testing.T) {
	page := make([]byte, 512)
	ref := segment.Ref{Key: "k", First: 10, Last: 20, Pages: 3, Size: 1000}
	for name, c := range map[string]struct {
		size int
		do   func(w *segment.Writer) error
		says string
	}{
		"page size":      {1000, func(w *segment.Writer) error { return w.Add(1, make([]byte, 1000)) }, "page size 1000"},
		"huge page size": {1 << 17, func(w *segment.Writer) error { return w.Add(1, make([]byte, 1<<17)) }, "page size 131072"},
		"length":         {512, func(w *segment.Writer) error { return w.Add(1, page[:511]) }, "511 bytes"},
		"page 0":         {512, func(w *segment.Writer) error { return w.Add(0, page) }, "page 0"},
		"lock page":      {512, func(w *segment.Writer) error { return w.Add(segment.LockPage(512), page) }, "lock page"},
		"beyond":         {512, func(w *segment.Writer) error { return w.Add(math.MaxUint32, page) }, "page 4294967295"},
		"twice":          {512, func(w *segment.Writer) error { w.Add(3, page); return w.Add(3, page) }, "page 3 after page 3"},
		"descending":     {512, func(w *segment.Writer) error { w.Add(3, page); return w.Add(2, page) }, "page 2 after page 3"},
		"ref":            {512, func(w *segment.Writer) error { w.AddRef(ref); return w.AddRef(ref) }, "pages 10 to 20 after page 20"},
		"page in ref": {512, func(w *segment.Writer) error {
			w.AddRef(ref)
			w.Add(12, page)
			_, _, err := w.Finish()
			return err
		}, "within segment k"},
		"after the end": {512, func(w *segment.Writer) error { w.Finish(); return w.Add(1, page) }, "finished"},
	} {
		w := segment.NewWriter(c.size)
		if err := c.do(w); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
		// A payload that misses something never gets finished.
		if _, _, err := w.Finish(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: finished after it: %v", name, err)
		}
		w.Reset(512)
		if err := w.Add(1, page); err != nil {
			t.Errorf("%s: after Reset: %v", name, err)
		}
	}
}

func TestWriterCountsWhatItHolds(t *testing.T) {
	w := segment.NewWriter(4096)
	if w.Len() != 0 || w.Pages() != 0 {
		t.Error("not empty at first")
	}
	s := spec{size: 4096}
	for p := range uint32(100) {
		if err := w.Add(p+1, s.page(p+1)); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.Len(); w.Pages() != 100 || n == 0 || n > 100*4096 {
		t.Errorf("%d pages, %d bytes", w.Pages(), n)
	}
	a, _, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(a)) > w.Len() {
		t.Errorf("%d bytes, Len says %d", len(a), w.Len())
	}
}

func TestEmptyPayloadRoundTrip(t *testing.T) {
	payload, sum, err := segment.NewWriter(4096).Finish()
	if err != nil {
		t.Fatal(err)
	}
	h := segment.Header{Kind: segment.KindCommit, PageSize: 4096, PayloadSize: int64(len(payload)), PayloadSum: sum}
	b, err := segment.EncodeHeader(nil, &h)
	if err != nil {
		t.Fatal(err)
	}
	if err := read(append(b, payload...)); err != nil {
		t.Error(err)
	}
}

func TestSameInputGivesSameBytes(t *testing.T) {
	// An append whose outcome is unknown is tried again with the same bytes (R2), possibly from another encoder of the pool.
	s := spec{header: segment.Header{Kind: segment.KindCommit}, size: 4096, pages: span(1, 40)}
	a, _ := s.build(t)
	b, _ := s.build(t)
	if !bytes.Equal(a, b) {
		t.Error("two encodings differ")
	}
}

func TestCodersAreSharedBetweenGoroutines(t *testing.T) {
	s := spec{header: segment.Header{Kind: segment.KindCommit}, size: 4096, pages: span(1, 50)}
	want, _ := s.build(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				got, _ := s.build(t)
				if !bytes.Equal(got, want) || read(got) != nil {
					t.Error("differs")
				}
			}
		})
	}
	wg.Wait()
}

func TestHeaderAndPayloadMustBelongTogether(t *testing.T) {
	base := spec{header: segment.Header{Kind: segment.KindCommit, PageCount: 5}, size: 512, pages: []uint32{1, 5}}
	object, h := base.build(t)
	payload := object[int64(len(object))-h.PayloadSize:]
	for name, change := range map[string]func(h *segment.Header){
		"page beyond the database": func(h *segment.Header) { h.PageCount = 4 },
		"page size":                func(h *segment.Header) { h.PageSize = 1024 },
		"payload sum":              func(h *segment.Header) { h.PayloadSum++ },
		"payload size":             func(h *segment.Header) { h.PayloadSize++ },
		"no payload":               func(h *segment.Header) { h.PayloadSize, h.PayloadSum = 0, 0 },
	} {
		c := h
		change(&c)
		b, err := segment.EncodeHeader(nil, &c)
		if err != nil {
			t.Fatal(err)
		}
		if err := read(append(b, payload...)); err == nil || !typed(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	refs := spec{header: segment.Header{Kind: segment.KindCommit}, size: 512, refs: []segment.Ref{{Key: "k", First: 1, Last: 2, Pages: 2, Size: 1000}}}
	object, h = refs.build(t)
	payload = object[int64(len(object))-h.PayloadSize:]
	h.Kind = segment.KindSegment
	b, err := segment.EncodeHeader(nil, &h)
	if err != nil {
		t.Fatal(err)
	}
	if err := read(append(b, payload...)); err == nil || !typed(err) {
		t.Errorf("a segment with refs: %v", err)
	}
}

func TestHeaderOutsideItsLimitsIsRefused(t *testing.T) {
	long := strings.Repeat("x", segment.MaxString+1)
	for name, change := range map[string]func(h *segment.Header){
		"base":            func(h *segment.Header) { h.Base = long },
		"label":           func(h *segment.Header) { h.Label = long },
		"owner":           func(h *segment.Header) { h.Owner = long },
		"source name":     func(h *segment.Header) { h.Source = &segment.Source{Name: long} },
		"kind":            func(h *segment.Header) { h.Kind = 99 },
		"flags":           func(h *segment.Header) { h.Flags = 1 << 15 },
		"page size":       func(h *segment.Header) { h.PageSize = 4095 },
		"page size 2^31":  func(h *segment.Header) { h.PageSize = 1 << 31 },
		"no page size":    func(h *segment.Header) { h.PageSize = 0 },
		"tail":            func(h *segment.Header) { h.Tail = make([]uint64, segment.MaxTail+1) },
		"slot 0":          func(h *segment.Header) { h.Tail = []uint64{0, 1} },
		"descending tail": func(h *segment.Header) { h.Tail = []uint64{3, 2} },
		"last slot":       func(h *segment.Header) { h.Tail = []uint64{math.MaxUint64} },
		"payload size":    func(h *segment.Header) { h.PayloadSize = -1 },
		"tiny payload":    func(h *segment.Header) { h.PayloadSize = 1 },
		"huge payload":    func(h *segment.Header) { h.PayloadSize = segment.MaxPayload + 1 },
		"segment fields":  func(h *segment.Header) { h.Kind = segment.KindSegment },
		"whole of none":   func(h *segment.Header) { h.PayloadSize, h.PayloadSum = 0, 0 },
	} {
		h := full()
		change(&h)
		if b, err := segment.EncodeHeader(nil, &h); err == nil || len(b) != 0 || h.Sum() != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPageSum(t *testing.T) {
	s := spec{size: 4096}
	page := s.page(1)
	if segment.PageSum(1, page) == segment.PageSum(2, page) {
		t.Error("the sum does not depend on the page number")
	}
	// Part of the format: xxhash64 of the empty string and of "a", seeds 0 and 1.
	for _, c := range []struct {
		pgno uint32
		page string
		want uint64
	}{{0, "", 0xef46db3751d8e999}, {0, "a", 0xd24ec4f1a98c6e5b}, {1, "", 0xd5afba1336a3be4b}} {
		if got := segment.PageSum(c.pgno, []byte(c.page)); got != c.want {
			t.Errorf("PageSum(%d, %q) = %#x, want %#x", c.pgno, c.page, got, c.want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { segment.PageSum(7, page) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if segment.LockPage(4096) != 262145 || segment.LockPage(512) != 2097153 || segment.LockPage(65536) != 16385 {
		t.Error("lock page")
	}
	for n, want := range map[int]bool{0: false, 256: false, 512: true, 1000: false, 4096: true, 65536: true, 131072: false, -512: false} {
		if segment.ValidPageSize(n) != want {
			t.Errorf("page size %d: %v", n, !want)
		}
	}
}

func TestSmallEntryIsEncodedWithoutGarbage(t *testing.T) {
	s := spec{size: 4096, pages: span(1, 3)}
	pages := [][]byte{s.page(1), s.page(2), s.page(3)}
	w := segment.NewWriter(4096)
	n := testing.AllocsPerRun(100, func() {
		w.Reset(4096)
		for i, p := range pages {
			w.Add(uint32(i+1), p)
		}
		w.Finish()
	})
	if n > 2 {
		t.Errorf("%v allocations for three pages", n)
	}
}
