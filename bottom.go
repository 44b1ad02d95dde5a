package tonbo

import (
	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/pageset"
	"github.com/tonbo-go/tonbo/internal/segment"
)

// chunk is the range of pages that one segment of the bottom covers.
func (c *compaction) chunk(p uint32) (first, last uint32) {
	first, last = wholeChunk(p, c.state.PageSize)
	return first, min(last, c.state.PageCount)
}

// wholeChunk is a chunk's range of pages, however many of them the database has.
func wholeChunk(p, pageSize uint32) (first, last uint32) {
	n := base.ChunkBytes / pageSize
	first = (p-1)/n*n + 1
	return first, first + n - 1
}

// holds counts the pages that a range of the bottom must hold: all but the lock page.
func (c *compaction) holds(first, last uint32) int { return storedPages(first, last, c.state.PageSize) }

// storedPages counts the pages of a range that are stored at all.
func storedPages(first, last, pageSize uint32) int {
	n := int(last-first) + 1
	if lock := segment.LockPage(int(pageSize)); first <= lock && lock <= last {
		n--
	}
	return n
}

// wholeChunks extends the pages to all of each chunk that has one of them, or that the old bottom does not have whole.
func (c *compaction) wholeChunks() {
	lock := segment.LockPage(int(c.state.PageSize))
	have := map[uint32]int{} // pages that the old bottom has, by the chunk's first page
	for _, s := range c.old.Bottom() {
		first, end := wholeChunk(s.First, c.state.PageSize)
		// What a shrink has given up counts for nothing; of chunks that a segment spans none stays.
		last := min(s.Last, c.state.PageCount)
		if s.Last <= end && s.First <= last && s.Pages == storedPages(s.First, s.Last, c.state.PageSize) {
			have[first] += c.holds(s.First, last)
		}
	}
	var all pageset.Set
	for first := uint32(1); first <= c.state.PageCount; {
		_, last := c.chunk(first)
		touched := have[first] < c.holds(first, last)
		for p := first; p <= last && !touched; p++ {
			touched = c.pages.Has(p)
		}
		if touched {
			for p := first; p <= last; p++ {
				if p != lock {
					all.Add(p)
				}
			}
		}
		first = last + 1
	}
	c.pages = all
}

// bottom puts the chunks written anew among what stays.
func (c *compaction) bottom(fresh []base.Segment) []base.Segment {
	var r []base.Segment
	old := c.old.Bottom()
	for _, s := range fresh {
		for len(old) > 0 && old[0].Last < s.First {
			r, old = append(r, old[0]), old[1:]
		}
		for len(old) > 0 && old[0].First <= s.Last {
			old = old[1:]
		}
		r = append(r, s)
	}
	for _, s := range old {
		if s.First <= c.state.PageCount {
			r = append(r, s)
		}
	}
	return r
}

// hole returns the first page that is in no segment of a bottom. 0: there is none.
func (c *compaction) hole(bottom []base.Segment) uint32 {
	next := uint32(1)
	for _, s := range bottom {
		if s.First > next && c.holds(next, s.First-1) > 0 {
			return next
		}
		next = s.Last + 1
	}
	if next <= c.state.PageCount && c.holds(next, c.state.PageCount) > 0 {
		return next
	}
	return 0
}
