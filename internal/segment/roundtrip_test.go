package segment_test

import (
	"fmt"
	"reflect"
	"testing"

	"go.uber.org/goleak"

	"github.com/tonbo-go/tonbo/internal/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func full() segment.Header {
	return segment.Header{
		Kind: segment.KindCreate, Flags: segment.FlagFrozen | segment.FlagWhole, ID: [16]byte{1, 2, 3}, Generation: 7, Slot: 9, Nonce: [16]byte{4, 5},
		Time: 1_700_000_000_123_456_789, PageSize: 4096, PageCount: 12, Checksum: 0xfeed, Prev: 0xbeef, Base: "db/a/base/5-3-aa", Horizon: 5, To: 6,
		Label: "step-7", Owner: "host:42", Tail: []uint64{2, 3, 4, 7, 8, 1 << 40}, Source: &segment.Source{Name: "golden", ID: [16]byte{9}, Slot: 77},
		PayloadSize: 56, PayloadSum: 1,
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	longest := full()
	longest.Tail = nil
	for i := range uint64(segment.MaxTail) {
		longest.Tail = append(longest.Tail, 1<<40+i*1<<50)
	}
	empty := segment.Header{Kind: segment.KindVoid, Slot: 3, Tail: []uint64{}}
	seg := segment.Header{Kind: segment.KindSegment, Generation: 3, From: 4, Slot: 8, PageSize: 512, PageCount: 9, PayloadSize: 56}
	minusTime := segment.Header{Kind: segment.KindCommit, Time: -5}
	for i, want := range []segment.Header{full(), longest, empty, seg, minusTime} {
		b, err := segment.EncodeHeader([]byte("before"), &want)
		if err != nil {
			t.Fatal(i, err)
		}
		b = append(b[len("before"):], "payload"...)
		got, n, err := segment.DecodeHeader(b)
		if err != nil {
			t.Fatal(i, err)
		}
		if !reflect.DeepEqual(*got, want) || n != len(b)-len("payload") || n > segment.MaxHeader {
			t.Errorf("%d: got %+v (%d bytes), want %+v", i, *got, n, want)
		}
		if got.Sum() != want.Sum() || got.Sum() == 0 {
			t.Errorf("%d: sum %x, want %x", i, got.Sum(), want.Sum())
		}
	}
}

func TestPagesRoundTrip(t *testing.T) {
	for size := segment.MinPageSize; size <= segment.MaxPageSize; size *= 2 {
		lock := segment.LockPage(size)
		per := uint32(max(segment.BlockSize/size, 1))
		for name, pages := range map[string][]uint32{
			"one":        {1},
			"block":      span(1, per),
			"more":       span(1, 3*per+1),
			"gaps":       {2, 3, 9, 11, 12, 13, 400, 1 << 20},
			"around":     {lock - 2, lock - 1, lock + 1, lock + 2},
			"last pages": {1, segment.MaxPage - 1, segment.MaxPage},
		} {
			t.Run(fmt.Sprintf("%d/%s", size, name), func(t *testing.T) {
				for _, fill := range []func(uint32, []byte){text, noise} {
					s := spec{header: segment.Header{Kind: segment.KindCommit, Slot: 2}, size: size, pages: pages, fill: fill}
					object, h := s.build(t)
					s.check(t, object)
					ix, start, need, err := segment.DecodeIndexTail(object, int64(len(object)))
					if err != nil || need != 0 || start != int64(len(object))-h.PayloadSize {
						t.Fatal(start, need, err)
					}
					for _, p := range pages {
						if ix.Find(p) == nil {
							t.Fatalf("page %d not found", p)
						}
					}
					if ix.Find(lock) != nil {
						t.Error("lock page found")
					}
				}
			})
		}
	}
}
