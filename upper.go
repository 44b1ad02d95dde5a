package tonbo

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/segment"
)

// upperLimit bounds the pages that travel with a base, in bytes: with 4 KiB pages, page 1, the schema, and the upper levels of the b-trees of a database of any size.
const upperLimit = 128 << 10

// upper collects pages that any query reads first, level by level from the roots: with them, and the base's manifest, a cold start has a row by its
// key with one or two pages more.
func (c *compaction) upper(ctx context.Context) (*base.Upper, error) {
	limit := upperLimit / int(c.state.PageSize)
	if limit < 2 {
		return nil, nil
	}
	pages := map[uint32][]byte{}
	take := func(p uint32) ([]byte, error) {
		if b := pages[p]; b != nil || len(pages) >= limit || p == 0 || p > c.state.PageCount || p == segment.LockPage(int(c.state.PageSize)) {
			return b, nil
		}
		b, err := c.asOf(ctx, p)
		if err == nil {
			pages[p] = b
		}
		return b, err
	}
	// (1) The schema: all of its b-tree.
	next := []uint32{1}
	var roots []uint32
	for len(next) > 0 && len(pages) < limit {
		var below []uint32
		for _, p := range next {
			b, err := take(p)
			if err != nil {
				return nil, err
			}
			n := btreePage(b, p)
			below = append(below, n.children...)
			roots = append(roots, n.rootPages()...)
		}
		next = below
	}
	// (2) The other b-trees, all of them one level at a time. All children of a page are of one level: where the first is a leaf, so are the others.
	for next = roots; len(next) > 0 && len(pages) < limit; {
		var below []uint32
		for _, p := range next {
			b, err := take(p)
			if err != nil {
				return nil, err
			}
			if kids := btreePage(b, p).children; len(kids) > 0 && len(pages) < limit {
				first, err := c.asOf(ctx, kids[0])
				if err != nil {
					return nil, err
				}
				if len(btreePage(first, kids[0]).children) > 0 {
					below = append(below, kids...)
				}
			}
		}
		next = below
	}
	return c.packUpper(pages)
}

func (c *compaction) packUpper(pages map[uint32][]byte) (*base.Upper, error) {
	w := segment.NewWriter(int(c.state.PageSize))
	numbers := make([]uint32, 0, len(pages))
	for p, b := range pages {
		if b != nil {
			numbers = append(numbers, p)
		}
	}
	slices.Sort(numbers)
	for _, p := range numbers {
		if err := w.Add(p, pages[p]); err != nil {
			return nil, err
		}
	}
	payload, sum, err := w.Finish()
	if err != nil {
		return nil, err
	}
	return &base.Upper{Pages: w.Pages(), Sum: base.SumString(sum), Payload: payload}, nil
}

// asOf returns a copy of a page as of the base's slot.
func (c *compaction) asOf(ctx context.Context, p uint32) ([]byte, error) {
	if p == 0 || p > c.state.PageCount { // a damaged b-tree is shipped as it is
		return nil, nil
	}
	if _, known := c.sums[p]; !known && c.vdb != nil {
		if sum, known := c.h.dir.SumAt(c.slot, p); known {
			c.sums[p] = sum
		}
	}
	if _, err := c.read(ctx, p); err != nil {
		return nil, err
	}
	return append([]byte(nil), c.buf...), nil
}

// btree is what upper needs of a b-tree page. https://sqlite.org/fileformat2.html#b_tree_pages
type btree struct {
	page     []byte
	kind     byte
	cells    []int // offsets
	children []uint32
}

const (
	interiorIndex = 2
	interiorTable = 5
	leafTable     = 13
)

// btreePage reads a page. Of one that is no interior page there are no children; of one that cannot be right, nothing.
func btreePage(b []byte, p uint32) (t btree) {
	if b == nil {
		return t
	}
	t.page = b
	at := 0
	if p == 1 {
		at = 100
	}
	t.kind = b[at]
	head := 8
	if t.kind == interiorIndex || t.kind == interiorTable {
		head = 12
	} else if t.kind != leafTable {
		return t
	}
	n := int(binary.BigEndian.Uint16(b[at+3:]))
	if at+head+2*n > len(b) {
		return btree{}
	}
	for i := range n {
		c := int(binary.BigEndian.Uint16(b[at+head+2*i:]))
		if c+4 > len(b) {
			return btree{}
		}
		t.cells = append(t.cells, c)
		if head == 12 {
			t.children = append(t.children, binary.BigEndian.Uint32(b[c:]))
		}
	}
	if head == 12 {
		t.children = append(t.children, binary.BigEndian.Uint32(b[at+8:]))
	}
	return t
}

// rootPages returns the roots that the rows of a leaf of the schema table name (type, name, tbl_name, rootpage, sql). Rows that do not fit the page are left out.
func (t btree) rootPages() []uint32 {
	if t.kind != leafTable {
		return nil
	}
	var r []uint32
	for _, c := range t.cells {
		b := t.page[c:]
		_, b = varint(b) // size
		_, b = varint(b) // rowid
		size, rest := varint(b)
		if size > uint64(len(b)) || size < uint64(len(b)-len(rest)) {
			continue
		}
		types, body := b[len(b)-len(rest):size], b[size:]
		for col := 0; len(types) > 0 && col <= 3; col++ {
			var s uint64
			s, types = varint(types)
			n := serialSize(s)
			if n > uint64(len(body)) {
				break
			}
			if col == 3 {
				var v uint64
				for _, x := range body[:n] {
					v = v<<8 | uint64(x)
				}
				if s == 9 {
					v = 1
				}
				if s >= 1 && s <= 9 && v > 1 && v <= segment.MaxPage {
					r = append(r, uint32(v))
				}
			}
			body = body[n:]
		}
	}
	return r
}

// varint reads SQLite's variable-length integer. https://sqlite.org/fileformat2.html#varint
func varint(b []byte) (v uint64, rest []byte) {
	for i := range b {
		if i == 8 {
			return v<<8 | uint64(b[i]), b[i+1:]
		}
		v = v<<7 | uint64(b[i]&0x7f)
		if b[i] < 0x80 {
			return v, b[i+1:]
		}
	}
	return 0, nil
}

// serialSize is how many bytes a value of a serial type takes. https://sqlite.org/fileformat2.html#record_format
func serialSize(s uint64) uint64 {
	switch {
	case s <= 4:
		return s
	case s == 5:
		return 6
	case s == 6 || s == 7:
		return 8
	case s < 12:
		return 0
	}
	return (s - 12) / 2
}
