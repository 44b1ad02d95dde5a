package btree_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo/internal/btree"
)

func TestRecord(t *testing.T) {
	// https://sqlite.org/fileformat2.html#record_format
	rec := []byte{10, 0, 1, 2, 6, 7, 8, 9, 15, 16, 0xff, 0x01, 0x00, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0, 'a', 0xfe, 0xff}
	want := []any{nil, int64(-1), int64(256), int64(math.MinInt64), 1.5, int64(0), int64(1), "a", []byte{0xfe, 0xff}}
	if got, ok := btree.Record(rec, 9); !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, ok)
	}
	if got, ok := btree.Record(rec[:20], 3); !ok || !reflect.DeepEqual(got, want[:3]) {
		t.Errorf("the beginning: got %v, %v", got, ok)
	}
	for _, bad := range []struct {
		rec []byte
		n   int
	}{{rec, 10}, {rec[:20], 4}, {rec[:5], 1}, {nil, 1}, {[]byte{0}, 0}} {
		if got, ok := btree.Record(bad.rec, bad.n); ok {
			t.Errorf("%d of %v: got %v", bad.n, bad.rec, got)
		}
	}
}

// pages are a database of nothing but bytes.
type pages []byte

func (p pages) Count() uint32 { return uint32(len(p) / 512) }
func (p pages) PageSize() int { return 512 }
func (p pages) ReadPage(_ context.Context, n uint32, buf []byte) error {
	copy(buf, p[(n-1)*512:])
	return nil
}

func FuzzDiff(f *testing.F) {
	text := func(a, b any) int {
		s, _ := a.(string)
		u, _ := b.(string)
		return strings.Compare(s, u)
	}
	f.Add(make([]byte, 2048), make([]byte, 1024), uint32(2), uint32(3))
	first := make([]byte, 1536) // a root with a child
	copy(first[100:], []byte{5, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 2})
	copy(first[112:], []byte{1, 0})
	copy(first[256:], []byte{0, 0, 0, 3, 7})
	copy(first[512:], []byte{13, 0, 0, 0, 1, 1, 0, 0, 1, 0})
	copy(first[512+256:], []byte{3, 9, 2, 1, 7})
	f.Add(first, slices.Clone(first[:1024]), uint32(1), uint32(1))
	f.Fuzz(func(t *testing.T, a, b []byte, r1, r2 uint32) {
		differ := []uint32{1, 2, 3, 4, 5, r1, r2}
		trees := []btree.Tree{{Root: [2]uint32{r1, r1}, Table: true}, {Root: [2]uint32{r2, r2}, Key: []btree.KeyPart{{Compare: text}, {Desc: true, Compare: text}}}, {Root: [2]uint32{1, 1}, Table: true, Skip: true}}
		rows, err := btree.Diff(context.Background(), pages(a), pages(b), differ, trees)
		if err != nil && !errors.Is(err, btree.ErrUnknown) || err == nil && len(rows) != len(trees) {
			t.Errorf("%v, %v", rows, err)
		}
	})
}
