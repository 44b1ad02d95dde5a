// Package pageset has a set of page numbers.
package pageset

import (
	"iter"
	"maps"
	"math/bits"
	"slices"
)

// Set is a set of page numbers. The zero value is empty. Memory follows the number of 4096-page stretches touched, not the size of the database.
type Set struct {
	chunks map[uint32]*[64]uint64
	n      int
}

// Add puts a page in.
func (s *Set) Add(p uint32) {
	c := s.chunks[p>>12]
	if c == nil {
		if s.chunks == nil {
			s.chunks = map[uint32]*[64]uint64{}
		}
		c = new([64]uint64)
		s.chunks[p>>12] = c
	}
	w, b := &c[p>>6&63], uint64(1)<<(p&63)
	if *w&b == 0 {
		*w |= b
		s.n++
	}
}

// Has tells whether a page is in.
func (s *Set) Has(p uint32) bool {
	c := s.chunks[p>>12]
	return c != nil && c[p>>6&63]&(1<<(p&63)) != 0
}

// AddAll puts all pages of o in.
func (s *Set) AddAll(o *Set) {
	for p := range o.All() {
		s.Add(p)
	}
}

// All yields the pages in ascending order.
func (s *Set) All() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for _, hi := range slices.Sorted(maps.Keys(s.chunks)) {
			for i, w := range s.chunks[hi] {
				for ; w != 0; w &= w - 1 {
					if !yield(hi<<12 | uint32(i)<<6 | uint32(bits.TrailingZeros64(w))) {
						return
					}
				}
			}
		}
	}
}

// Len is the number of pages.
func (s *Set) Len() int { return s.n }
