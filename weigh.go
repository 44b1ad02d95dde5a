package tonbo

import (
	"context"

	"github.com/tonbo-go/tonbo/internal/layout"
	"github.com/tonbo-go/tonbo/internal/pageset"
	"github.com/tonbo-go/tonbo/internal/segment"
)

// How many bytes a compaction may put for each one that it takes out of the tail, deltas counted as the pages that they stand for, if it is not due but makes the next opening cheaper: in a quiet moment, and when nobody has the database
// open any more.
const (
	settleFactor = 1.5
	closeFactor  = 4
)

// weigh finds the pages that the tail holds, and what they weigh.
func (c *compaction) weigh(ctx context.Context, tl *tail) error {
	c.pages, c.tailBytes = pageset.Set{}, 0
	var whole, bytes, deltas int64
	for i := range tl.entries {
		e := &tl.entries[i]
		ix, err := e.object.Index(ctx)
		if err != nil {
			return err
		}
		for _, o := range append([]*layout.Object{e.object}, e.named.of(c.h, int(c.state.PageSize), ix)...) {
			if ix, err = o.Index(ctx); err != nil {
				return err
			}
			if c.h.tune.broken == withoutDeltas {
				ix = &segment.Index{PageSize: ix.PageSize, Blocks: ix.Blocks}
			}
			pagesIn(ix, func(first, last uint32) {
				for p := first; p <= last; p++ {
					c.add(p)
				}
			})
			for i := range ix.Blocks {
				whole += int64(ix.Blocks[i].Count())
				bytes += int64(ix.Blocks[i].Length)
				if !e.source {
					c.tailBytes += int64(ix.Blocks[i].Length)
				}
			}
			if ix.Delta != nil && !e.source {
				deltas += int64(ix.Delta.Count())
			}
		}
	}
	c.tailPages = c.pages.Len()
	c.perPage = int64(c.state.PageSize) / 3
	if whole > 0 {
		c.perPage = bytes/whole + 1
	}
	c.tailBytes += deltas * c.perPage
	return nil
}

func (c *compaction) add(p uint32) {
	if p <= c.state.PageCount {
		c.pages.Add(p)
	}
}

// manifestBytes estimates the new manifest's size.
func (c *compaction) manifestBytes() int64 {
	n := int64(1024 + 64*len(c.labels))
	if c.force == nil {
		return n + min(upperLimit, int64(c.state.PageCount)*int64(c.state.PageSize)/64)
	}
	for _, level := range c.old.Levels {
		n += 200 * int64(len(level))
	}
	switch u := c.old.UpperObject; {
	case u != nil && c.closing() && int64(u.Pages)*int64(c.state.PageSize) <= upperLimit: // all of them once more
		n += u.Size * 4 / 3
	case c.old.Upper != nil:
		n += int64(len(c.old.Upper.Payload)) * 4 / 3
	case c.old.Packed != nil:
		n += upperLimit / 8
	}
	return n
}

// cheap tells whether a compaction that is not due is worth its bytes. What it costs to merge runs and chunks as well, compactions before have put off. What a fork's source left does not pay for it: each fork
// would put it once more.
func (c *compaction) cheap() bool {
	if c.packing != nil {
		return c.packing.cheap
	}
	manifest := c.manifestBytes()
	if c.limit > 0 && int64(c.pages.Len())*c.perPage+manifest > c.limit {
		return false
	}
	return int64(c.tailPages)*c.perPage+manifest <= c.allowance()
}

func (c *compaction) allowance() int64 { return int64(c.settle * float64(c.tailBytes+c.founding)) }
