package segment_test

import (
	"fmt"
	"testing"

	"github.com/tonbo-go/tonbo/internal/segment"
)

func BenchmarkEncode(b *testing.B) {
	for _, n := range []uint32{1, 3, 100} {
		b.Run(fmt.Sprintf("pages=%d", n), func(b *testing.B) {
			s := spec{size: 4096, pages: span(1, n)}
			var pages [][]byte
			for _, p := range s.pages {
				pages = append(pages, s.page(p))
			}
			w := segment.NewWriter(s.size)
			h := segment.Header{Kind: segment.KindCommit, PageSize: 4096, PageCount: n, Owner: "host:42"}
			var object []byte
			b.SetBytes(int64(n) * 4096)
			b.ReportAllocs()
			for b.Loop() {
				w.Reset(s.size)
				for i, p := range s.pages {
					if err := w.Add(p, pages[i]); err != nil {
						b.Fatal(err)
					}
				}
				payload, sum, err := w.Finish()
				if err != nil {
					b.Fatal(err)
				}
				h.PayloadSize, h.PayloadSum = int64(len(payload)), sum
				if object, err = segment.EncodeHeader(object[:0], &h); err != nil {
					b.Fatal(err)
				}
				object = append(object, payload...)
			}
			b.ReportMetric(float64(len(object)), "stored-B")
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, n := range []uint32{1, 3, 100} {
		b.Run(fmt.Sprintf("pages=%d", n), func(b *testing.B) {
			s := spec{size: 4096, pages: span(1, n)}
			s.header.Kind = segment.KindCommit
			object, _ := s.build(b)
			b.SetBytes(int64(n) * 4096)
			b.ReportAllocs()
			for b.Loop() {
				h, ix, payload, err := segment.Decode(object)
				if err != nil {
					b.Fatal(err)
				}
				if err := segment.EachPage(h, ix, payload, func(uint32, []byte) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPageSum(b *testing.B) {
	for _, size := range []int{512, 4096, 65536} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			page := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				segment.PageSum(2, page)
			}
		})
	}
}

func BenchmarkHeaderSum(b *testing.B) {
	h := full()
	b.ReportAllocs()
	for b.Loop() {
		h.Sum()
	}
}
