package pageset

import (
	"iter"
	"slices"
)

// stretch is how many neighbouring pages have their checksums in one piece of memory.
const stretch = 128

// Sums has a checksum for each of the pages 1 to Len, 0 for those that none was set for. The zero value has no pages. Memory follows the stretches of 128 pages in which one
// was set, not the size of the database: of a database that has just been begun to be fetched, only a few are known. A copy of the struct shares them, as one of a slice does: see
// Clone and Snapshot.
type Sums struct {
	stretches []*[stretch]uint64
	shared    []bool // stretches that a snapshot has, too: they are copied before they are changed. nil: none is
	n         int
}

// NewSums returns the checksums of n pages, all of them 0.
func NewSums(n int) Sums {
	return Sums{stretches: make([]*[stretch]uint64, (n+stretch-1)/stretch), n: n}
}

// SumsOf returns the checksums in v, those of the pages from 1 on.
func SumsOf(v []uint64) Sums {
	s := NewSums(len(v))
	for i, x := range v {
		s.Set(uint32(i+1), x)
	}
	return s
}

// Len is the number of pages.
func (s *Sums) Len() int { return s.n }

// At returns a page's checksum, 0 beyond Len.
func (s *Sums) At(p uint32) uint64 {
	if p == 0 || int64(p) > int64(s.n) {
		return 0
	}
	if c := s.stretches[(p-1)/stretch]; c != nil {
		return c[(p-1)%stretch]
	}
	return 0
}

// Set sets the checksum of a page; beyond Len it does nothing.
func (s *Sums) Set(p uint32, sum uint64) {
	if p == 0 || int64(p) > int64(s.n) {
		return
	}
	i := (p - 1) / stretch
	c := &s.stretches[i]
	switch {
	case *c == nil && sum == 0:
		return
	case *c == nil:
		*c = new([stretch]uint64)
	case s.shared != nil && s.shared[i]:
		own := **c
		*c = &own
	}
	if s.shared != nil {
		s.shared[i] = false
	}
	(*c)[(p-1)%stretch] = sum
}

// Resize makes n the number of pages. New ones have 0.
func (s *Sums) Resize(n int) {
	for p := n; p < s.n && p%stretch != 0; p++ { // what is left of the last stretch
		s.Set(uint32(p+1), 0)
	}
	k := (n + stretch - 1) / stretch
	if k <= len(s.stretches) {
		clear(s.stretches[k:])
		s.stretches = s.stretches[:k]
	} else {
		s.stretches = append(s.stretches, make([]*[stretch]uint64, k-len(s.stretches))...)
	}
	if s.shared != nil {
		s.shared = append(s.shared, make([]bool, max(0, k-len(s.shared)))...)[:k]
	}
	s.n = n
}

// Xor is the exclusive or of all.
func (s *Sums) Xor() (x uint64) {
	for _, c := range s.stretches {
		if c != nil {
			for _, v := range c {
				x ^= v
			}
		}
	}
	return x
}

// All yields the pages whose checksum is not 0, in ascending order.
func (s *Sums) All() iter.Seq2[uint32, uint64] {
	return func(yield func(uint32, uint64) bool) {
		for i, c := range s.stretches {
			if c == nil {
				continue
			}
			for k, v := range c {
				if v != 0 && !yield(uint32(i*stretch+k+1), v) {
					return
				}
			}
		}
	}
}

// Clone returns a copy.
func (s *Sums) Clone() Sums {
	c := Sums{stretches: slices.Clone(s.stretches), n: s.n}
	for i, p := range c.stretches {
		if p != nil {
			q := *p
			c.stretches[i] = &q
		}
	}
	return c
}

// Snapshot returns a copy that shares all stretches until either side changes one: it costs a pointer for each. The copy may be used by another goroutine than s. Copies of the
// struct s that were made before must not be changed any more.
func (s *Sums) Snapshot() Sums {
	all := func() []bool { return slices.Repeat([]bool{true}, len(s.stretches)) }
	s.shared = all()
	return Sums{slices.Clone(s.stretches), all(), s.n}
}

// Slice returns all of them, by page number - 1.
func (s *Sums) Slice() []uint64 {
	v := make([]uint64, s.n)
	for p, x := range s.All() {
		v[p-1] = x
	}
	return v
}
