package tonbo

import (
	"context"
	"slices"

	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/btree"
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
			n, _ := btree.Parse(b, p)
			below = append(below, n.Children...)
			roots = append(roots, rootPages(n, btree.Usable(pages[1]))...)
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
			if n, _ := btree.Parse(b, p); len(n.Children) > 0 && len(pages) < limit {
				first, err := c.asOf(ctx, n.Children[0])
				if err != nil {
					return nil, err
				}
				if below1, _ := btree.Parse(first, n.Children[0]); len(below1.Children) > 0 {
					below = append(below, n.Children...)
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
	if _, err := c.read(ctx, p); err != nil {
		return nil, err
	}
	return append([]byte(nil), c.buf...), nil
}

// rootPages returns the roots that the rows of a leaf of the schema table name (type, name, tbl_name, rootpage, sql). Rows that do not fit the page are left out.
func rootPages(t btree.Page, usable int) []uint32 {
	if t.Kind != btree.LeafTable {
		return nil
	}
	var r []uint32
	for i := range t.Cells {
		c, ok := t.Cell(i, usable)
		if !ok {
			continue
		}
		if values, ok := btree.Record(c.Local, 4); ok {
			if root, ok := values[3].(int64); ok && root > 1 && root <= segment.MaxPage {
				r = append(r, uint32(root))
			}
		}
	}
	return r
}
