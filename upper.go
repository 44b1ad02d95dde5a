package tonbo

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/btree"
	"github.com/tonbo-go/tonbo/internal/layout"
	"github.com/tonbo-go/tonbo/internal/segment"
)

// Upper pages are those that any query reads first: page 1, the schema, roots and interior pages of b-trees. With them, and the base's manifest, a cold start has a row by its key with one page more.
const (
	upperLimit = 128 << 10 // bytes of them in a manifest, at most: with 4 KiB pages, all that a database of 50 MB has
	upperMost  = 4 << 20   // bytes of them in an object of their own, at most, in whole levels: enough for the lowest interior level of a table of 1.5 GB that was filled in order
	upperFew   = 8 << 10   // stored bytes of them that need no such object: each manifest has them
	upperSpare = 64 << 10  // bytes of such an object that each base may put anew: no more than a manifest has without it
	upperShare = 8         // times as many bytes pay for a larger one: those that its base puts, or that became its bottom
	upperFar   = 64        // pages that are read from the remote for such an object, beside those that a manifest has
	upperDense = 4         // times as many bytes as they take when they are stored such pages have at most, as far as can be told before they are read
)

// upperSet are upper pages, from the top.
type upperSet struct {
	order []uint32
	pages map[uint32][]byte
	whole bool // there are no more
	cut   bool // of these, what an object has room for is too far away to be read now
}

// heldUpper tells which pages an upper object holds.
type heldUpper struct {
	key   string
	index *segment.Index
}

// node is a page of a b-tree.
type node struct {
	page uint32
	tree int
}

// upperPages collects upper pages, level by level from the roots: some bytes of them at most, and beyond that whole levels, up to most. A level of which pages are not here, but in the remote, is left out beyond some bytes where these are more than upperFar, or it would have more than paid bytes.
func (c *compaction) upperPages(ctx context.Context, some, paid, most int) (*upperSet, error) {
	size := int(c.state.PageSize)
	some, paid, most = some/size, paid/size, most/size
	u := &upperSet{pages: map[uint32][]byte{}, whole: true}
	far := upperFar // pages that may still be read from the remote
	// take adds a level, or what there is room for, and returns it without what is in it twice: in a damaged b-tree, which is shipped as it is, a page may be below itself.
	take := func(level []node) ([]node, error) {
		n, seen := len(u.order), map[uint32]bool{}
		level = slices.DeleteFunc(level, func(at node) bool {
			p := at.page
			again := u.pages[p] != nil || seen[p]
			seen[p] = true
			return again || p == 0 || p > c.state.PageCount || p == segment.LockPage(size)
		})
		room, cut := n+len(level) <= max(some, most), false
		if room && n+len(level) > some {
			away := 0
			for _, at := range level[max(0, some-n):] {
				if c.away(at.page) {
					away++
				}
			}
			cut = away > far || away > 0 && n+len(level) > paid
		}
		for _, at := range level {
			beyond, before := len(u.order) >= some, c.far
			if beyond && (!room || cut || far < 0) {
				for _, p := range u.order[max(n, some):] {
					delete(u.pages, p)
				}
				u.order, u.whole, u.cut = u.order[:max(n, min(some, len(u.order)))], false, room
				return level, nil
			}
			b, err := c.asOf(ctx, at.page)
			if err != nil {
				return nil, err
			}
			if u.pages[at.page], u.order = b, append(u.order, at.page); beyond {
				far -= c.far - before
			}
		}
		return level, nil
	}
	// (1) The schema: all of its b-tree.
	var roots []node
	for level := []node{{page: 1}}; len(level) > 0 && u.whole; {
		var err error
		if level, err = take(level); err != nil {
			return nil, err
		}
		var below []node
		for _, at := range level {
			n, _ := btree.Parse(u.pages[at.page], at.page)
			for _, p := range n.Children {
				below = append(below, node{page: p})
			}
			for _, p := range rootPages(n, btree.Usable(u.pages[1])) {
				roots = append(roots, node{p, len(roots) + 1})
			}
		}
		level = below
	}
	// (2) The other b-trees, all of them one level at a time. All pages of a level have the same distance from the leaves: where the first one's children are some, so are the others'.
	for level := roots; len(level) > 0 && u.whole; {
		var err error
		if level, err = take(level); err != nil {
			return nil, err
		}
		var below []node
		leaves := map[int]bool{}
		for _, at := range level {
			n, _ := btree.Parse(u.pages[at.page], at.page)
			if len(n.Children) == 0 || !u.whole {
				continue
			}
			last, known := leaves[at.tree]
			if !known {
				if len(u.order) >= some && far < 0 {
					u.whole, u.cut = false, true
					continue
				}
				before := c.far
				first, err := c.asOf(ctx, n.Children[0])
				if err != nil {
					return nil, err
				}
				b, _ := btree.Parse(first, n.Children[0])
				last = !b.Interior()
				leaves[at.tree] = last
				far -= c.far - before
			}
			if !last {
				for _, p := range n.Children {
					below = append(below, node{p, at.tree})
				}
			}
		}
		level = below
	}
	return u, nil
}

// upper is what the new base has of upper pages: in the manifest, and in an object that it names.
func (c *compaction) upper(ctx context.Context) (*base.Upper, *base.UpperObject, error) {
	var carried *base.Upper
	var old *base.UpperObject
	if object := c.h.carriedUpper(c.old); object != nil && (!c.plan.Bottom || strings.HasPrefix(object.Key, "db/"+c.h.name+"/")) { // a fork's new bottom is to be nothing of its source's
		var again bool
		var err error
		if carried, old, again, err = c.carryUpper(ctx, object); old != nil && !again || err != nil {
			return carried, old, err
		}
	}
	upper, object, made, err := c.makeUpper(ctx)
	if old != nil && !made && err == nil {
		return carried, old, nil
	}
	return upper, object, err
}

// makeUpper makes the object, if the upper pages are not few, and its bytes are paid for. made tells whether this is all that can be had, an object or none: it is not where that is not paid for, or where not all that belongs into it is here. Bases to come would go on with what lacks a part.
func (c *compaction) makeUpper(ctx context.Context) (_ *base.Upper, _ *base.UpperObject, made bool, err error) {
	paid := min(upperMost, upperDense*c.mayPutUpper())
	u, err := c.upperPages(ctx, upperLimit, int(paid), upperMost)
	if err != nil || len(u.order) == 0 {
		return nil, nil, false, err
	}
	upper, err := c.packUpper(u, upperLimit)
	if err != nil || u.cut || c.fewUpper(upper) {
		return upper, nil, !u.cut, err
	}
	w := writers.Get().(*segment.Writer)
	defer writers.Put(w)
	w.Reset(int(c.state.PageSize))
	numbers := slices.Sorted(slices.Values(u.order))
	for _, p := range numbers {
		if err := w.Add(p, u.pages[p]); err != nil {
			return nil, nil, false, err
		}
	}
	if w.Len() > c.mayPutUpper() {
		return upper, nil, false, nil
	}
	s, hd, payload, err := c.put(ctx, w, numbers[0], numbers[len(numbers)-1])
	if err != nil {
		return nil, nil, false, err
	}
	fault("compact:upper")
	c.held.key = s.Key
	if c.held.index, err = segment.DecodeIndex(payload, hd); err != nil {
		return nil, nil, false, err
	}
	object := &base.UpperObject{Key: s.Key, Pages: s.Pages, Size: s.Size, Sum: base.SumString(hd.PayloadSum), Slot: c.slot}
	if object.Spare = c.closing() && len(u.order) <= upperLimit/int(c.state.PageSize); !object.Spare {
		upper = nil
	}
	return upper, object, true, nil
}

// fewUpper tells whether these are so few that each manifest has them: where a database is fetched whole when it is opened, nobody wants them.
func (c *compaction) fewUpper(u *base.Upper) bool {
	if c.h.tune.upper {
		return false
	}
	return len(u.Payload) <= upperFew || int64(c.state.PageCount)*int64(c.state.PageSize) <= c.h.tune.whole
}

// mayPutUpper is how many bytes an upper object may have that this base puts.
func (c *compaction) mayPutUpper() int64 {
	return max(upperSpare, (int64(c.pages.Len())*c.perPage+c.founding)/upperShare)
}

// away tells whether a page is to be had from the remote alone.
func (c *compaction) away(p uint32) bool {
	if c.file != nil || c.vdb == nil {
		return c.file == nil
	}
	s := c.h.source()
	return s != nil && s.isAbsent(p)
}

// closing: nobody has the database open any more, and it is read from this base for some time. Then the manifest has what a reader of it, who has nothing to wait for meanwhile, would have to fetch the object for.
func (c *compaction) closing() bool { return c.settle >= closeFactor }

// carryUpper goes on with the object that the old base names: it marks what has changed since, and has that in the manifest. again: another one is better, if it can be made. A nil object: this one cannot be gone on with.
func (c *compaction) carryUpper(ctx context.Context, old *base.UpperObject) (_ *base.Upper, _ *base.UpperObject, again bool, err error) {
	ix, err := c.upperIndex(ctx, old)
	if ix == nil || err != nil {
		return nil, nil, false, err
	}
	// (1) Whatever has changed since the old base is in the tail: nothing else of the object may be taken for what it was (the tail has been unpacked).
	var numbers []uint32
	held := map[uint32]bool{}
	pagesIn(ix, func(first, last uint32) {
		for p := first; p <= last; p++ {
			numbers, held[p] = append(numbers, p), true
		}
	})
	object := *old
	object.Spare = false
	object.Stale = base.NewPageMarks(len(numbers), func(i int) bool { return old.Stale.Has(i) || c.changed.Has(numbers[i]) })
	if c.h.tune.broken == staleUpper {
		object.Stale = nil
	}
	// (2) What these are now, and what has come to be upper since: roots, and interior pages below others.
	var next []uint32
	for i, p := range numbers {
		if old.Stale.Has(i) || c.changed.Has(p) {
			next = append(next, p)
		}
	}
	before, err := c.oldUpper(ctx)
	if err != nil {
		return nil, nil, false, err
	}
	for _, p := range before {
		if !held[p] {
			next = append(next, p)
		}
	}
	known := maps.Clone(held)
	for _, p := range before {
		known[p] = true
	}
	u, err := c.changedUpper(ctx, next, held, known)
	if err != nil {
		return nil, nil, false, err
	}
	upper, err := c.packUpper(u, upperLimit)
	if err != nil {
		return nil, nil, false, err
	}
	if upper != nil && 2*int64(len(upper.Payload)) > object.Size || !u.whole || c.plan.Bottom { // in a manifest they take a third more
		again = object.Size <= c.mayPutUpper()
	}
	// (3) Where they are few, all of them.
	if limit := upperLimit / int(c.state.PageSize); c.closing() && object.Pages <= limit && !again {
		all, err := c.upperPages(ctx, upperLimit, upperLimit, upperLimit)
		if err != nil {
			return nil, nil, false, err
		}
		if all.whole {
			object.Spare = true
			upper, err = c.packUpper(all, upperLimit)
			return upper, &object, false, err
		}
	}
	return upper, &object, again, nil
}

// changedUpper collects the pages of b-trees among next, and what has come to be upper below them. held are the pages of the object, known those that have been upper before.
func (c *compaction) changedUpper(ctx context.Context, next []uint32, held, known map[uint32]bool) (*upperSet, error) {
	u := &upperSet{pages: map[uint32][]byte{}, whole: true}
	seen, roots := map[uint32]bool{}, map[uint32]bool{}
	fresh := func(p uint32) bool { return !held[p] && c.changed.Has(p) }
	schema, usable, err := c.schemaPages(ctx)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(next); i++ {
		p := next[i]
		if seen[p] || p == 0 || p > c.state.PageCount || p == segment.LockPage(int(c.state.PageSize)) {
			continue
		}
		if len(u.order) >= upperLimit/int(c.state.PageSize) {
			u.whole = false
			break
		}
		seen[p] = true
		b, err := c.asOf(ctx, p)
		if err != nil {
			return nil, err
		}
		n, ok := btree.Parse(b, p)
		if !ok || !n.Interior() && !known[p] && !schema[p] && !roots[p] { // freed since, or a leaf
			continue
		}
		u.order, u.pages[p] = append(u.order, p), b
		if below := slices.DeleteFunc(n.Children, func(p uint32) bool { return !fresh(p) }); schema[p] {
			next = append(next, below...)
		} else if len(below) > 0 { // all are of one level
			b, err := c.asOf(ctx, below[0])
			if err != nil {
				return nil, err
			}
			if n, _ := btree.Parse(b, below[0]); n.Interior() {
				next = append(next, below...)
			}
		}
		if schema[p] {
			for _, root := range rootPages(n, usable) {
				if roots[root] = true; fresh(root) {
					next = append(next, root)
				}
			}
		}
	}
	return u, nil
}

// schemaPages finds the pages of the schema's b-tree, of which only those above others are read, and how many bytes of a page are usable: any of them may name a new table. In a schema that has more interior pages than a manifest has upper ones, it does not find all.
func (c *compaction) schemaPages(ctx context.Context) (pages map[uint32]bool, usable int, err error) {
	pages = map[uint32]bool{1: true}
	limit := upperLimit / int(c.state.PageSize)
	for level := []uint32{1}; len(level) > 0 && len(level) <= limit; {
		var below []uint32
		for _, p := range level {
			b, err := c.asOf(ctx, p)
			if err != nil {
				return nil, 0, err
			}
			if p == 1 {
				usable = btree.Usable(b)
			}
			n, _ := btree.Parse(b, p)
			for _, p := range n.Children {
				if !pages[p] {
					pages[p], below = true, append(below, p)
				}
			}
		}
		if len(below) > 0 { // all are of one level
			b, err := c.asOf(ctx, below[0])
			if err != nil {
				return nil, 0, err
			}
			if n, _ := btree.Parse(b, below[0]); !n.Interior() {
				break
			}
		}
		level = below
	}
	return pages, usable, nil
}

// upperIndex returns which pages an upper object holds. nil: that cannot be told, and the base does not go on with it. The error is ctx's.
func (c *compaction) upperIndex(ctx context.Context, u *base.UpperObject) (*segment.Index, error) {
	if c.held.key == u.Key {
		return c.held.index, nil
	}
	ix, err := layout.Remote(c.h.pages, int(c.state.PageSize), segment.Ref{Key: u.Key, First: 1, Last: segment.MaxPage, Pages: u.Pages, Size: u.Size}).Index(ctx)
	switch {
	case err == nil:
		c.held = heldUpper{u.Key, ix}
	case ctx.Err() != nil:
		return nil, ctx.Err()
	default:
		c.h.noUpper(u.Key, err)
	}
	return ix, nil
}

// oldUpper lists the upper pages that the old base has beside its object.
func (c *compaction) oldUpper(ctx context.Context) (pages []uint32, err error) {
	upper := c.old.Upper
	if c.old.Packed != nil {
		p, err := c.readPacks(ctx)
		if err != nil {
			return nil, err
		}
		upper = p.upper
	}
	_, count := c.old.LevelsAt()
	ix, err := upper.Index(c.state.PageSize, count)
	if ix == nil || err != nil {
		return nil, err
	}
	pagesIn(ix, func(first, last uint32) {
		for p := first; p <= last; p++ {
			pages = append(pages, p)
		}
	})
	return pages, nil
}

// packUpper packs what there is room for, from the top, for a manifest. nil: nothing.
func (c *compaction) packUpper(u *upperSet, most int) (*base.Upper, error) {
	if len(u.order) == 0 {
		return nil, nil
	}
	w := segment.NewWriter(int(c.state.PageSize))
	numbers := u.order[:min(len(u.order), most/int(c.state.PageSize))]
	for _, p := range slices.Sorted(slices.Values(numbers)) {
		if err := w.Add(p, u.pages[p]); err != nil {
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
