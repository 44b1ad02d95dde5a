package btree

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
)

// Pages reads the pages of one side. Safe for concurrent use.
type Pages interface {
	Count() uint32 // size of the database, in pages
	PageSize() int
	ReadPage(ctx context.Context, p uint32, buf []byte) error
}

// Tree is a b-tree of both sides.
type Tree struct {
	Root  [2]uint32 // page numbers; 0: it is not on that side
	Table bool      // rows by rowid; otherwise by key (https://sqlite.org/withoutrowid.html)
	Key   []KeyPart // of a tree by key; nil: its order is not known
	Skip  bool      // nobody asks for its rows
}

// KeyPart is one column of a key.
type KeyPart struct {
	Desc    bool
	Compare func(a, b any) int // of values as Record returns them
}

// Rows are those of one tree that may differ.
type Rows struct {
	All    bool       // any of them
	Rowids [2][]int64 // ascending
	Keys   [2][][]any // key columns
}

// Empty tells that none differ.
func (r *Rows) Empty() bool {
	return !r.All && len(r.Rowids[0])+len(r.Rowids[1])+len(r.Keys[0])+len(r.Keys[1]) == 0
}

// ErrUnknown is that the rows cannot be found by the pages: all of them have to be compared.
var ErrUnknown = errors.New("changed pages do not tell which rows")

const (
	maxPages  = 1 << 14 // read of one side: beyond that there is nothing to be gained
	readers   = 16      // pages read at once
	maxNumber = 1 << 25 // page numbers below it never look like the first byte of a b-tree page
)

// Diff finds the rows of trees that may differ between two sides. differ are the pages that may: all others are the same on both. A row that is not among those returned is the same, bit for bit.
//
// Why that is so. A row of side 0 is in a page L of its tree. If L may differ, its rows are among those returned (1). If not, and L is in the same tree of side 1, then the row is there
// too, and the same, but for what is on overflow pages. If L is not in that tree any more: on the way from the root, which both have, to L, let P be the last page that is in the tree of side 1. Its
// next page on the way is not, so the pointer to it is gone, so P may differ. Below P come pages that are not in the tree of side 1; the first of these that does not differ is the child of one
// that does, and is no child of any page of the tree of side 1: all rows below such a child are returned (2). Overflow pages that may differ must be accounted for: by a row that is
// returned, by the cell of an index page that may differ, or by the freelist. Any other one, such as one that SQLite overwrote in place, is the row of a page that does not
// differ: then nothing is known (3).
//
// Which tree a page is in is found by looking for one of its keys: the way from the root of the right tree leads to it, and from no other.
func Diff(ctx context.Context, a, b Pages, differ []uint32, trees []Tree) ([]Rows, error) {
	if a.PageSize() != b.PageSize() || max(a.Count(), b.Count()) >= maxNumber {
		return nil, ErrUnknown
	}
	d := &diff{trees: trees, differ: map[uint32]bool{}, rows: make([]Rows, len(trees))}
	for _, p := range differ {
		d.differ[p] = true
	}
	for i, pages := range []Pages{a, b} {
		d.side[i] = &side{pages: pages, read: map[uint32][]byte{}, parsed: map[uint32]*Page{}}
	}
	if err := d.compare(ctx); err != nil {
		return nil, err
	}
	for i := range d.side {
		if err := d.begin(ctx, i); err != nil {
			return nil, err
		}
	}
	for i := range d.side {
		if err := d.moved(ctx, i); err != nil {
			return nil, err
		}
	}
	for i := range d.side {
		if err := d.overflows(ctx, i); err != nil {
			return nil, err
		}
	}
	return d.rows, d.collect()
}

type diff struct {
	trees  []Tree
	differ map[uint32]bool
	side   [2]*side
	rows   []Rows
}

// side is one of the two databases.
type side struct {
	pages  Pages
	usable int
	read   map[uint32][]byte
	parsed map[uint32]*Page

	loose    []uint32          // pages that may differ and are no b-tree pages
	indexes  []uint32          // that may differ, of indexes and of trees by key
	children []map[uint32]bool // by tree: of its interior pages that may differ
	within   [][]uint32        // by tree: its pages whose rows may differ
}

// load reads pages that have not been read, several at once.
func (s *side) load(ctx context.Context, pages []uint32) error {
	var todo []uint32
	for _, p := range pages {
		if p == 0 || p > s.pages.Count() {
			return fmt.Errorf("%w: page %d of %d", ErrUnknown, p, s.pages.Count())
		}
		if _, ok := s.read[p]; !ok {
			s.read[p] = nil
			todo = append(todo, p)
		}
	}
	if len(s.read) > maxPages {
		return fmt.Errorf("%w: more than %d pages", ErrUnknown, maxPages)
	}
	bufs := make([][]byte, len(todo))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for i, p := range todo {
		g.Go(func() error {
			bufs[i] = make([]byte, s.pages.PageSize())
			return s.pages.ReadPage(ctx, p, bufs[i])
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, p := range todo {
		s.read[p] = bufs[i]
	}
	return nil
}

// page parses a page that has been read.
func (s *side) page(p uint32) (*Page, error) {
	if t := s.parsed[p]; t != nil {
		return t, nil
	}
	t, ok := Parse(s.read[p], p)
	if !ok {
		return nil, fmt.Errorf("%w: page %d is no b-tree page", ErrUnknown, p)
	}
	s.parsed[p] = &t
	return &t, nil
}

// tree loads and parses pages of a tree.
func (s *side) tree(ctx context.Context, pages []uint32) ([]*Page, error) {
	if err := s.load(ctx, pages); err != nil {
		return nil, err
	}
	out := make([]*Page, len(pages))
	for i, p := range pages {
		t, err := s.page(p)
		if err != nil {
			return nil, err
		}
		out[i] = t
	}
	return out, nil
}

// isMap tells whether a page maps pointers for auto_vacuum. https://sqlite.org/fileformat2.html#pointer_map_or_ptrmap_pages
func (s *side) isMap(p uint32) bool {
	if binary.BigEndian.Uint32(s.read[1][52:]) == 0 || p < 2 {
		return false
	}
	per := uint32(s.usable/5 + 1)
	m := (p-2)/per*per + 2
	if m == s.lockPage() {
		m++
	}
	return m == p
}

// lockPage is never used. https://sqlite.org/fileformat2.html#the_lock_byte_page
func (s *side) lockPage() uint32 { return uint32(0x40000000/s.pages.PageSize()) + 1 }

// of lists the pages of a side that may differ.
func (d *diff) of(i int) (pages []uint32) {
	s := d.side[i]
	for p := range d.differ {
		if p <= s.pages.Count() && p != s.lockPage() {
			pages = append(pages, p)
		}
	}
	slices.Sort(pages)
	return pages
}

// compare reads the pages that may differ, and leaves out those that do not: somebody wrote them as they were.
func (d *diff) compare(ctx context.Context) error {
	if d.side[0].pages.Count() == 0 || d.side[1].pages.Count() == 0 {
		return ErrUnknown
	}
	g, gctx := errgroup.WithContext(ctx)
	for i, s := range d.side {
		pages := append([]uint32{1}, d.of(i)...)
		g.Go(func() error { return s.load(gctx, pages) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for p := range d.differ {
		if a, b := d.side[0].read[p], d.side[1].read[p]; a != nil && b != nil && bytes.Equal(a, b) {
			delete(d.differ, p)
		}
	}
	return nil
}

// begin finds the trees that the pages of a side are in that may differ.
func (d *diff) begin(ctx context.Context, i int) error {
	s := d.side[i]
	s.children, s.within = make([]map[uint32]bool, len(d.trees)), make([][]uint32, len(d.trees))
	all := d.of(i)
	s.usable = Usable(s.read[1])
	depths, err := d.depths(ctx, i)
	if err != nil {
		return err
	}
	var targets []target
	for _, p := range all {
		kind := s.read[p][0]
		if p == 1 {
			kind = s.read[p][100]
		}
		switch {
		case s.isMap(p):
			continue
		case kind == InteriorTable || kind == LeafTable:
		case kind == InteriorIndex || kind == LeafIndex:
			s.indexes = append(s.indexes, p)
		default:
			s.loose = append(s.loose, p)
			continue
		}
		t, err := s.page(p)
		if err != nil {
			return err
		}
		root := slices.IndexFunc(d.trees, func(t Tree) bool { return t.Root[i] == p })
		if root >= 0 {
			d.attribute(i, root, p)
			continue
		}
		if len(t.Cells) == 0 { // SQLite keeps none that is not a root: an empty leaf has no rows, but of the other kind nothing is known
			if t.Interior() {
				return fmt.Errorf("%w: page %d has no cells", ErrUnknown, p)
			}
			continue
		}
		c, ok := t.Cell(0, s.usable)
		if !ok {
			return fmt.Errorf("%w: page %d", ErrUnknown, p)
		}
		for k, tree := range d.trees {
			if tree.Root[i] == 0 || tree.Table != (kind == InteriorTable || kind == LeafTable) || d.rows[k].All || tree.Skip || depths[k] == 0 {
				continue
			}
			g := target{tree: k, page: p, rowid: c.Rowid, at: tree.Root[i], levels: depths[k]}
			if !tree.Table {
				if g.key, ok = Record(c.Local, len(tree.Key)); !ok { // it goes on elsewhere, or it is of an index with fewer columns
					if c.Overflow != 0 {
						d.rows[k].All = true
					}
					continue
				}
			}
			targets = append(targets, g)
		}
	}
	return d.descend(ctx, i, targets)
}

// attribute: a page that may differ is in a tree.
func (d *diff) attribute(i, tree int, p uint32) {
	s := d.side[i]
	s.within[tree] = append(s.within[tree], p)
	if t := s.parsed[p]; t != nil && t.Interior() {
		if s.children[tree] == nil {
			s.children[tree] = map[uint32]bool{}
		}
		for _, c := range t.Children {
			s.children[tree][c] = true
		}
	}
}

// moved adds what hangs on pages that may differ on this side alone: rule (2).
func (d *diff) moved(ctx context.Context, i int) error {
	s, other := d.side[i], d.side[1-i]
	for k := range d.trees {
		if d.rows[k].All || d.trees[k].Skip {
			continue
		}
		var level []uint32
		for c := range s.children[k] {
			if !other.children[k][c] && !d.differ[c] {
				level = append(level, c)
			}
		}
		seen := map[uint32]bool{}
		for len(level) > 0 {
			pages, err := s.tree(ctx, level)
			if err != nil {
				return err
			}
			var below []uint32
			for j, t := range pages {
				if seen[level[j]] {
					return fmt.Errorf("%w: page %d hangs on two", ErrUnknown, level[j])
				}
				seen[level[j]] = true
				s.within[k] = append(s.within[k], level[j])
				for _, c := range t.Children {
					if !d.differ[c] { // those are there already
						below = append(below, c)
					}
				}
			}
			level = below
		}
	}
	return nil
}
