package btree

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
)

// target is a page that is looked for from the root of a tree.
type target struct {
	tree   int
	page   uint32
	rowid  int64
	key    []any
	at     uint32
	levels int // down to the leaves
}

// depths are how many levels of each tree are above its leaves. Trees of which nothing can be found are marked.
func (d *diff) depths(ctx context.Context, i int) ([]int, error) {
	s := d.side[i]
	depths := make([]int, len(d.trees))
	at := map[int]uint32{}
	for k, t := range d.trees {
		descends := slices.ContainsFunc(t.Key, func(k KeyPart) bool { return k.Desc })
		if t.Root[0] != t.Root[1] || !t.Table && t.Key == nil || descends && binary.BigEndian.Uint32(s.read[1][44:]) < 4 { // older schema formats know no DESC
			d.rows[k].All = true
		}
		if t.Root[i] != 0 {
			at[k] = t.Root[i]
		}
	}
	for len(at) > 0 {
		var pages []uint32
		for _, p := range at {
			pages = append(pages, p)
		}
		if err := s.load(ctx, pages); err != nil {
			return nil, err
		}
		for k, p := range at {
			t, err := s.page(p)
			if err != nil {
				return nil, err
			}
			if !t.Interior() {
				delete(at, k)
				continue
			}
			depths[k]++
			if at[k] = t.Children[0]; depths[k] > 40 {
				return nil, fmt.Errorf("%w: a tree without end", ErrUnknown)
			}
		}
	}
	return depths, nil
}

// descend goes down from the roots, all targets a level at a time. It reads no leaves.
func (d *diff) descend(ctx context.Context, i int, targets []target) error {
	s := d.side[i]
	for len(targets) > 0 {
		var pages []uint32
		for _, g := range targets {
			pages = append(pages, g.at)
		}
		if err := s.load(ctx, pages); err != nil {
			return err
		}
		next := targets[:0]
		for _, g := range targets {
			t, err := s.page(g.at)
			if err != nil {
				return err
			}
			if !t.Interior() {
				return fmt.Errorf("%w: page %d is a leaf", ErrUnknown, g.at)
			}
			child, equal, err := d.step(s, t, &g)
			if err != nil {
				return err
			}
			if equal && !d.trees[g.tree].Table { // the key is in this page itself, so it is in no other
				continue
			}
			if child == g.page {
				d.attribute(i, g.tree, g.page)
				continue
			}
			if g.at, g.levels = child, g.levels-1; g.levels > 0 {
				next = append(next, g)
			}
		}
		targets = next
	}
	return nil
}

// step finds the child that the way to a key leads through.
func (d *diff) step(s *side, t *Page, g *target) (child uint32, equal bool, err error) {
	tree := &d.trees[g.tree]
	lo, hi := 0, len(t.Cells)
	for lo < hi {
		i := (lo + hi) / 2
		c, ok := t.Cell(i, s.usable)
		if !ok {
			return 0, false, fmt.Errorf("%w: a cell", ErrUnknown)
		}
		order := 0
		if tree.Table {
			order = cmp.Compare(c.Rowid, g.rowid)
		} else {
			key, ok := Record(c.Local, len(tree.Key))
			if !ok {
				d.rows[g.tree].All = true
				return 0, true, nil
			}
			order = tree.compare(key, g.key)
		}
		if order == 0 {
			equal = true
		}
		if order >= 0 {
			hi = i
		} else {
			lo = i + 1
		}
	}
	return t.Children[lo], equal, nil
}

func (t *Tree) compare(a, b []any) int {
	for i, k := range t.Key {
		if c := k.Compare(a[i], b[i]); c != 0 {
			if k.Desc {
				return -c
			}
			return c
		}
	}
	return 0
}
