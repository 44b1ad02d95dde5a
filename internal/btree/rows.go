package btree

import (
	"bytes"
	"fmt"
	"slices"
)

// collect lists the rows of the pages whose rows may differ, without those that both sides have byte for byte.
func (d *diff) collect() error {
	for k := range d.trees {
		if d.rows[k].All || d.trees[k].Skip {
			continue
		}
		var err error
		if d.trees[k].Table {
			err = d.byRowid(k)
		} else {
			err = d.byKey(k)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cells calls do for each row in the pages of a tree.
func (d *diff) cells(i, tree int, do func(Cell)) error {
	s := d.side[i]
	for _, p := range s.within[tree] {
		t, err := s.page(p)
		if err != nil {
			return err
		}
		if t.Kind == InteriorTable {
			continue
		}
		for j := range t.Cells {
			c, ok := t.Cell(j, s.usable)
			if !ok {
				return fmt.Errorf("%w: page %d", ErrUnknown, p)
			}
			do(c)
		}
	}
	return nil
}

func (d *diff) byRowid(tree int) error {
	before := map[int64]Cell{}
	if err := d.cells(0, tree, func(c Cell) { before[c.Rowid] = c }); err != nil {
		return err
	}
	r := &d.rows[tree]
	if err := d.cells(1, tree, func(c Cell) {
		if was, ok := before[c.Rowid]; ok && c.Overflow == 0 && was.Overflow == 0 && bytes.Equal(c.Local, was.Local) {
			delete(before, c.Rowid)
			return
		}
		r.Rowids[1] = append(r.Rowids[1], c.Rowid)
	}); err != nil {
		return err
	}
	for id := range before {
		r.Rowids[0] = append(r.Rowids[0], id)
	}
	slices.Sort(r.Rowids[0])
	slices.Sort(r.Rowids[1])
	return nil
}

func (d *diff) byKey(tree int) error {
	before := map[string]bool{}
	var rest [2][]Cell
	if err := d.cells(0, tree, func(c Cell) {
		if c.Overflow == 0 {
			before[string(c.Local)] = true
		} else {
			rest[0] = append(rest[0], c)
		}
	}); err != nil {
		return err
	}
	if err := d.cells(1, tree, func(c Cell) {
		if c.Overflow == 0 && before[string(c.Local)] {
			delete(before, string(c.Local))
			return
		}
		rest[1] = append(rest[1], c)
	}); err != nil {
		return err
	}
	for local := range before {
		rest[0] = append(rest[0], Cell{Local: []byte(local)})
	}
	r := &d.rows[tree]
	for i := range rest {
		for _, c := range rest[i] {
			key, ok := Record(c.Local, len(d.trees[tree].Key))
			if !ok { // the key goes on elsewhere
				r.All = true
				return nil
			}
			r.Keys[i] = append(r.Keys[i], key)
		}
	}
	return nil
}
