package segment_test

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/tonbo-go/tonbo/internal/segment"
)

var update = flag.Bool("update", false, "write golden files that do not exist; those that do are never changed")

// goldens are objects of format version 1. Their files are what older builds wrote: they stay readable for ever.
// (They are read back, not compared byte by byte: another zstd encoder may pack better.)
func goldens() map[string]*spec {
	id, nonce := [16]byte{0: 0xa1, 15: 0xb2}, [16]byte{0: 0xc3, 15: 0xd4}
	entry := func(kind segment.Kind, slot uint64) segment.Header {
		return segment.Header{Kind: kind, ID: id, Nonce: nonce, Generation: 1, Slot: slot, Time: 1_800_000_000_000_000_001, PageCount: 9, Checksum: 0x1122334455667788,
			Prev: 0x99, Horizon: 1, Owner: "host:1"}
	}
	create := entry(segment.KindCreate, 1)
	create.Source = &segment.Source{Name: "golden", ID: [16]byte{7}, Slot: 12}
	create.Tail = []uint64{}
	rewind := entry(segment.KindRewind, 90)
	rewind.To, rewind.Label, rewind.Base = 40, "step-7", "db/run-1/base/30-1-00ff"
	rewind.Tail = []uint64{31, 32, 35, 40}
	closed := entry(segment.KindClose, 91)
	closed.Flags = segment.FlagFrozen | segment.FlagWhole
	used := entry(segment.KindClaim, 92)
	used.Usage = &segment.Usage{Begin: 17, Expires: 1_900_000_000, Opens: 3, Commits: 1_000_000, Units: 1_000_300, Put: 5, Get: 6, Head: 7, List: 8, Delete: 9, Up: 10 << 30, Down: 11, Stored: 12 << 20, ByteSeconds: 1.5e18}
	based := entry(segment.KindCommit, 300)
	based.Base, based.Tail = "db/run-1/base/00000000000000c3-0000000000000002-0123456789abcdeffedcba9876543210", []uint64{196, 299}
	large := entry(segment.KindCommit, 5)
	large.PageCount = 50000
	return map[string]*spec{
		"create":       {header: create, size: 4096},
		"void":         {header: segment.Header{Kind: segment.KindVoid, Nonce: nonce, Slot: 3}},
		"rewind":       {header: rewind, size: 4096},
		"commit":       {header: entry(segment.KindCommit, 2), size: 512, pages: []uint32{1, 2, 5, 9}},
		"claim-usage":  {header: used, size: 4096},
		"commit-based": {header: based, size: 4096, deltas: []uint32{2}},
		"close-noise":  {header: closed, size: 512, pages: span(1, 9), fill: noise},
		"commit-large": {header: large, size: 4096, pages: []uint32{1, 50000}, refs: []segment.Ref{{Key: "db/run-1/seg/1-aa", First: 2, Last: 30000, Pages: 20000, Size: 5 << 32}, {Key: "db/run-1/seg/1-ab", First: 30001, Last: 49999, Pages: 19999, Size: 1 << 20}}},
		"segment": {header: segment.Header{Kind: segment.KindSegment, ID: id, Nonce: nonce, Generation: 1, From: 2, Slot: 8, PageCount: 1 << 20}, size: 4096,
			pages: append(span(1, 20), segment.LockPage(4096)-1, segment.LockPage(4096)+1)},
		"commit-deltas": {header: entry(segment.KindCommit, 6), size: 4096, pages: []uint32{2, 7}, deltas: []uint32{1, 3, 4, 9}},
		"close-deltas":  {header: entry(segment.KindClose, 7), size: 512, deltas: []uint32{5}, fill: noise},
		"page-64k":      {header: entry(segment.KindCommit, 2), size: 65536, pages: span(1, 2)},
	}
}

func TestGoldenObjectsStayReadable(t *testing.T) {
	for name, s := range goldens() {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", "v1", name+".obj")
			object, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) && *update {
				object, _ = s.build(t)
				if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
					err = os.WriteFile(path, object, 0o644)
				}
			}
			if err != nil {
				t.Fatalf("%v (go test -run Golden -update ./internal/segment writes it)", err)
			}
			s.check(t, object)
			h, ix, _, err := segment.Decode(object)
			if err != nil {
				t.Fatal(err)
			}
			if len(s.refs) > 0 && !reflect.DeepEqual(ix.Refs, s.refs) {
				t.Errorf("got refs %+v, want %+v", ix.Refs, s.refs)
			}
			want := s.header
			want.PageSize, want.PayloadSize, want.PayloadSum = uint32(s.size), h.PayloadSize, h.PayloadSum
			if !reflect.DeepEqual(*h, want) {
				t.Errorf("got header %+v, want %+v", *h, want)
			}
		})
	}
}
