package btree

import (
	"context"
	"encoding/binary"
	"fmt"
)

const maxTrunks = 64 // pages of the freelist's own that are read

// overflows accounts for the pages that may differ and are no b-tree pages: rule (3).
func (d *diff) overflows(ctx context.Context, i int) error {
	s := d.side[i]
	left := map[uint32]bool{}
	for _, p := range s.loose {
		left[p] = true
	}
	if len(left) == 0 {
		return nil
	}
	free, err := s.free(ctx)
	if err != nil {
		return err
	}
	for p := range free {
		delete(left, p)
	}
	// Chains that begin on such a page first: mostly they are all that there is.
	var near, far []uint32
	add := func(p uint32) error {
		t, err := s.page(p)
		if err != nil {
			return err
		}
		for j := range t.Cells {
			c, ok := t.Cell(j, s.usable)
			switch {
			case !ok:
				return fmt.Errorf("%w: page %d", ErrUnknown, p)
			case c.Overflow == 0:
			case left[c.Overflow]:
				near = append(near, c.Overflow)
			default:
				far = append(far, c.Overflow)
			}
		}
		return nil
	}
	for p, t := range s.parsed {
		if d.differ[p] && !free[p] && t.Kind != InteriorTable { // it is in use, so its cells are
			if err := add(p); err != nil {
				return err
			}
		}
	}
	for k := range s.within {
		for _, p := range s.within[k] {
			if !d.differ[p] && s.parsed[p].Kind != InteriorTable { // those above
				if err := add(p); err != nil {
					return err
				}
			}
		}
	}
	seen := map[uint32]bool{}
	for _, chains := range [][]uint32{near, far} {
		for len(chains) > 0 && len(left) > 0 {
			if err := s.load(ctx, chains); err != nil {
				return err
			}
			next := chains[:0]
			for _, p := range chains {
				if seen[p] {
					return fmt.Errorf("%w: page %d is of two rows", ErrUnknown, p)
				}
				seen[p] = true
				delete(left, p)
				if n := binary.BigEndian.Uint32(s.read[p]); n != 0 {
					next = append(next, n)
				}
			}
			chains = next
		}
	}
	for p := range left {
		return fmt.Errorf("%w: page %d is of a row that is elsewhere", ErrUnknown, p)
	}
	return nil
}

// free lists the freelist's pages. https://sqlite.org/fileformat2.html#the_freelist
func (s *side) free(ctx context.Context) (map[uint32]bool, error) {
	free := map[uint32]bool{}
	trunk := binary.BigEndian.Uint32(s.read[1][32:])
	for n := 0; trunk != 0; n++ {
		if n == maxTrunks || free[trunk] {
			return nil, fmt.Errorf("%w: a long freelist", ErrUnknown)
		}
		if err := s.load(ctx, []uint32{trunk}); err != nil {
			return nil, err
		}
		free[trunk] = true
		b := s.read[trunk]
		leaves := int(binary.BigEndian.Uint32(b[4:]))
		if leaves < 0 || leaves > len(b)/4-2 {
			return nil, fmt.Errorf("%w: page %d is no page of the freelist", ErrUnknown, trunk)
		}
		for i := range leaves {
			free[binary.BigEndian.Uint32(b[8+4*i:])] = true
		}
		trunk = binary.BigEndian.Uint32(b)
	}
	return free, nil
}
