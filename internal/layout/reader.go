package layout

import (
	"context"

	"github.com/tonbo-go/tonbo/internal/segment"
)

// Reader reads single pages in roughly ascending order, and several blocks with one request where they are read one after the other. It is for one
// goroutine. Memory: spansKept times spanBytes.
type Reader struct {
	spans []*span // recently used ones last
}

const (
	spansKept = 12
	spanBytes = 1 << 20 // content of the blocks that are read at once
)

// span is a stretch of an object's blocks, unpacked.
type span struct {
	o     *Object
	i, j  int // blocks
	pages map[uint32][]byte
}

// Page copies a page into buf, if the object holds it whole.
func (r *Reader) Page(ctx context.Context, o *Object, pgno uint32, buf []byte) (found bool, err error) {
	if pgno < o.First || pgno > o.Last {
		return false, nil
	}
	ix, err := o.Index(ctx)
	if err != nil {
		return false, err
	}
	i := ix.Search(pgno)
	if i < 0 {
		return false, nil
	}
	follows := false
	for k, s := range r.spans {
		if s.o != o {
			continue
		}
		if s.i <= i && i < s.j {
			r.spans = append(append(r.spans[:k:k], r.spans[k+1:]...), s)
			return copy(buf, s.pages[pgno]) > 0, nil
		}
		if follows = s.j == i; follows {
			r.spans = append(r.spans[:k:k], r.spans[k+1:]...)
			break
		}
	}
	s := &span{o: o, i: i, j: i + 1, pages: map[uint32][]byte{}}
	for n := ix.Blocks[i].Raw; follows && s.j < len(ix.Blocks) && n+ix.Blocks[s.j].Raw <= spanBytes; s.j++ {
		n += ix.Blocks[s.j].Raw
	}
	if err := o.Blocks(ctx, s.i, s.j, nil, func(p uint32, page []byte) error {
		s.pages[p] = append([]byte(nil), page...)
		return nil
	}); err != nil {
		return false, err
	}
	if len(r.spans) >= spansKept {
		r.spans = r.spans[1:]
	}
	r.spans = append(r.spans, s)
	return copy(buf, s.pages[pgno]) > 0, nil
}

// PagesIn calls fn with each run of the pages from first to last that an index holds, and the block that it is in.
func PagesIn(ix *segment.Index, first, last uint32, fn func(block int, first, last uint32)) {
	for i := ix.From(first); i < len(ix.Blocks) && ix.Blocks[i].Runs[0].First <= last; i++ {
		for _, r := range ix.Blocks[i].Runs {
			a, b := max(r.First, first), min(r.First+(r.Count-1), last)
			if a <= b {
				fn(i, a, b)
			}
		}
	}
}
