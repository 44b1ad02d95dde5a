package pageset

import "math/bits"

// Bits is a dense set of the pages 1 to Len. It is made by NewBits.
type Bits struct {
	words []uint64
	n     int
	count int
}

// NewBits returns an empty set of n pages.
func NewBits(n int) *Bits { return &Bits{words: make([]uint64, (n+63)/64), n: n} }

// Len is the number of pages that can be in the set.
func (b *Bits) Len() int { return b.n }

// Count is the number of pages in the set.
func (b *Bits) Count() int { return b.count }

// Full tells whether every page is in.
func (b *Bits) Full() bool { return b.count == b.n }

// Has tells whether a page is in. Pages beyond Len are not.
func (b *Bits) Has(p uint32) bool {
	return p > 0 && int(p) <= b.n && b.words[(p-1)>>6]&(1<<((p-1)&63)) != 0
}

// Set puts a page in; beyond Len it does nothing.
func (b *Bits) Set(p uint32) {
	if p == 0 || int(p) > b.n || b.Has(p) {
		return
	}
	b.words[(p-1)>>6] |= 1 << ((p - 1) & 63)
	b.count++
}

// Clear takes a page out.
func (b *Bits) Clear(p uint32) {
	if b.Has(p) {
		b.words[(p-1)>>6] &^= 1 << ((p - 1) & 63)
		b.count--
	}
}

// Fill puts the pages from first to last in.
func (b *Bits) Fill(first, last uint32) {
	for p := first; p <= last && int(p) <= b.n; p++ {
		b.Set(p)
	}
}

// Resize makes n the number of pages. New ones are not in.
func (b *Bits) Resize(n int) {
	for p := n + 1; p <= b.n; p++ {
		b.Clear(uint32(p))
	}
	for len(b.words) < (n+63)/64 {
		b.words = append(b.words, 0)
	}
	b.words = b.words[:(n+63)/64]
	b.n = n
}

// Clone returns a copy. Of nil it is nil.
func (b *Bits) Clone() *Bits {
	if b == nil {
		return nil
	}
	c := *b
	c.words = append([]uint64(nil), b.words...)
	return &c
}

// Words is the set as numbers of 64 bits, the lowest bit of the first one being page 1. It is the set's own memory.
func (b *Bits) Words() []uint64 { return b.words }

// FromWords makes a set of n pages of what Words returned. ok is false when there are too few words or bits beyond n.
func FromWords(words []uint64, n int) (b *Bits, ok bool) {
	b = &Bits{words: words, n: n}
	for _, w := range words {
		b.count += bits.OnesCount64(w)
	}
	if len(words) != (n+63)/64 || n%64 != 0 && words[len(words)-1]>>(n%64) != 0 {
		return nil, false
	}
	return b, true
}
