package tonbo

import (
	"context"

	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/segment"
)

// founded looks for an entry whose segments hold every page of the database, as an import's or a VACUUM's do. They are the bottom as they are: nobody puts these pages once more. It returns what of the tail
// is above them. A fork's source's may be among them, as those of its base may.
func (c *compaction) founded(ctx context.Context, tl *tail) (*tail, error) {
	i, err := c.foundation(ctx, tl)
	if i < 0 || err != nil {
		return tl, err
	}
	e := &tl.entries[i]
	refs := e.object.Known().Refs
	bottom := make([]base.Segment, len(refs))
	for k, r := range refs {
		bottom[k] = base.Segment{Key: r.Key, First: r.First, Last: r.Last, Pages: r.Pages, From: e.own, Slot: e.own, Size: r.Size}
		if !e.source {
			c.founding += r.Size
		}
	}
	c.old, c.packs, c.runs = &base.Manifest{Levels: [][]base.Segment{bottom}}, nil, nil
	rest := tl.clone()
	rest.entries = rest.entries[i+1:]
	return &rest, nil
}

// foundation finds that entry. -1: there is none.
func (c *compaction) foundation(ctx context.Context, tl *tail) (int, error) {
	for i := len(tl.entries) - 1; i >= 0; i-- {
		e := &tl.entries[i]
		ix, err := e.object.Index(ctx)
		if err != nil {
			return -1, err
		}
		last := wholly(ix, c.state.PageSize)
		if last > 0 && (last == e.count || i == 0 && c.force == nil) { // below the first of all entries is nothing
			return i, nil
		}
	}
	return -1, nil
}

// wholly returns the last page of an index whose segments hold all pages up to it, and which has none itself. 0: it is no such index.
func wholly(ix *segment.Index, pageSize uint32) (last uint32) {
	if len(ix.Blocks) > 0 || ix.Delta != nil {
		return 0
	}
	lock := segment.LockPage(int(pageSize))
	for _, r := range ix.Refs {
		if r.First != last+1 && (r.First != last+2 || last+1 != lock) || r.Pages != storedPages(r.First, r.Last, pageSize) {
			return 0
		}
		last = r.Last
	}
	return last
}
