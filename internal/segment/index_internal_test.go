package segment

import (
	"errors"
	"reflect"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// tail codes an index of any blocks and refs, right or wrong, and the footer behind it: the end of an object whose blocks need not exist.
func (ix *Index) tail(payloadStart int64) (tail []byte, objectSize int64) {
	runs, end, next := 0, int64(0), uint32(1)
	var records []byte
	for i := range ix.Blocks {
		b := &ix.Blocks[i]
		records, next = appendBlock(records, b, next)
		runs += len(b.Runs)
		end += int64(b.Length)
	}
	for i := range ix.Refs {
		records = appendRef(records, &ix.Refs[i])
	}
	tail = append(appendIndexHead(nil, ix.PageSize, len(ix.Blocks), runs, len(ix.Refs)), records...)
	f := footer{payload: end + int64(len(tail)) + footerSize, index: end, sum: xxhash.Sum64(tail)}
	return appendFooter(tail, footerMagic, f), payloadStart + f.payload
}

func TestOffsetsBeyond4GiB(t *testing.T) {
	want := &Index{PageSize: MaxPageSize}
	pgno, offset := uint32(1), int64(0)
	for offset < 6<<30 {
		b := Block{Kind: BlockPages, Offset: offset, Length: MaxBlock - 1, Raw: MaxBlock, Sum: uint64(pgno)}
		for i := range uint32(4) {
			if pgno == LockPage(MaxPageSize) {
				pgno++
			}
			if n := len(b.Runs); n > 0 && i > 0 && b.Runs[n-1].First+b.Runs[n-1].Count == pgno {
				b.Runs[n-1].Count++
			} else {
				b.Runs = append(b.Runs, Run{First: pgno, Count: 1})
			}
			pgno++
		}
		offset += int64(b.Length)
		want.Blocks = append(want.Blocks, b)
	}
	tail, size := want.tail(minHeader)
	got, start, need, err := DecodeIndexTail(tail, size)
	if err != nil || need != 0 || start != minHeader {
		t.Fatal(start, need, err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatal("index differs")
	}
	last := want.Blocks[len(want.Blocks)-1]
	if b := got.Find(pgno - 1); b == nil || b.Offset != last.Offset || b.Offset < 6<<30-MaxBlock {
		t.Errorf("last page in %+v, want %+v", b, last)
	}
	if got.Find(pgno) != nil {
		t.Error("a page after the last was found")
	}
}

func TestWrongIndexIsRefused(t *testing.T) {
	block := func(runs ...Run) Block {
		n := 0
		for _, r := range runs {
			n += int(r.Count)
		}
		return Block{Kind: BlockPages, Length: 100, Raw: n * 512, Runs: runs}
	}
	ref := Ref{Key: "k", First: 10, Last: 20, Pages: 3, Size: 1000}
	with := func(f func(*Ref)) Ref { r := ref; f(&r); return r }
	lock := LockPage(512)
	for name, ix := range map[string]*Index{
		"page size 0":             {PageSize: 0},
		"page size 1000":          {PageSize: 1000},
		"page 0":                  {PageSize: 512, Blocks: []Block{block(Run{0, 1})}},
		"empty run":               {PageSize: 512, Blocks: []Block{block(Run{1, 1}, Run{5, 0})}},
		"no run":                  {PageSize: 512, Blocks: []Block{block(), block(Run{1, 1})}},
		"neighbouring runs":       {PageSize: 512, Blocks: []Block{block(Run{1, 1}, Run{2, 1})}},
		"descending runs":         {PageSize: 512, Blocks: []Block{block(Run{5, 1}, Run{3, 1})}},
		"overlapping blocks":      {PageSize: 512, Blocks: []Block{block(Run{5, 2}), block(Run{6, 1})}},
		"lock page":               {PageSize: 512, Blocks: []Block{block(Run{lock - 1, 3})}},
		"page beyond the last":    {PageSize: 512, Blocks: []Block{block(Run{MaxPage, 2})}},
		"raw too large":           {PageSize: 512, Blocks: []Block{{Kind: 1, Length: 1, Raw: MaxBlock + 512, Runs: []Run{{1, 512}, {600, 1}}}}},
		"raw too small":           {PageSize: 512, Blocks: []Block{{Kind: 1, Length: 1, Raw: 512, Runs: []Run{{1, 2}}}}},
		"stored larger than raw":  {PageSize: 512, Blocks: []Block{{Kind: 1, Length: 513, Raw: 512, Runs: []Run{{1, 1}}}}},
		"nothing stored":          {PageSize: 512, Blocks: []Block{{Kind: 1, Length: 0, Raw: 512, Runs: []Run{{1, 1}}}}},
		"kind 0":                  {PageSize: 512, Blocks: []Block{{Kind: 0, Length: 1, Raw: 512, Runs: []Run{{1, 1}}}}},
		"ref without key":         {PageSize: 512, Refs: []Ref{with(func(r *Ref) { r.Key = "" })}},
		"ref from page 0":         {PageSize: 512, Refs: []Ref{with(func(r *Ref) { r.First = 0 })}},
		"ref turned round":        {PageSize: 512, Refs: []Ref{with(func(r *Ref) { r.Last = 9 })}},
		"ref with too many pages": {PageSize: 512, Refs: []Ref{with(func(r *Ref) { r.Pages = 12 })}},
		"ref without pages":       {PageSize: 512, Refs: []Ref{with(func(r *Ref) { r.Pages = 0 })}},
		"ref without size":        {PageSize: 512, Refs: []Ref{with(func(r *Ref) { r.Size = 0 })}},
		"refs overlap":            {PageSize: 512, Refs: []Ref{ref, with(func(r *Ref) { r.First, r.Last = 20, 30 })}},
		"page within a ref":       {PageSize: 512, Blocks: []Block{block(Run{8, 4})}, Refs: []Ref{ref}},
		"page in a later ref":     {PageSize: 512, Blocks: []Block{block(Run{1, 1}, Run{21, 1}, Run{35, 1})}, Refs: []Ref{ref, with(func(r *Ref) { r.First, r.Last = 30, 40 })}},
	} {
		tail, size := ix.tail(minHeader)
		_, _, _, err := DecodeIndexTail(tail, size)
		var kind *KindError
		if !errors.Is(err, ErrFormat) && !errors.As(err, &kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFooterOutOfBoundsIsRefused(t *testing.T) {
	for name, f := range map[string]footer{
		"index too large":          {payload: MaxIndex + 100 + footerSize, index: 99},
		"index beyond the payload": {payload: 1000, index: 1000 - minPayload + 1},
		"index before the payload": {payload: 1000, index: -1},
		"payload too small":        {payload: minPayload - 1},
		"payload too large":        {payload: MaxPayload + 1, index: MaxPayload - 1000},
		"negative payload":         {payload: -1},
	} {
		tail := appendFooter(make([]byte, 100), footerMagic, f)
		if _, _, need, err := DecodeIndexTail(tail, f.payload+minHeader); !errors.Is(err, ErrFormat) || need != 0 {
			t.Errorf("%s: needs %d, %v", name, need, err)
		}
		if _, err := DecodeIndex(tail, &Header{PayloadSize: int64(len(tail)), PageSize: 512}); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
