package pageset

import (
	"iter"
	"math/bits"
)

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
	if first == 0 || int64(first) > int64(b.n) || last < first {
		return
	}
	from, to := uint64(first-1), uint64(min(int64(last), int64(b.n))) // bits, to exclusive
	for from < to {
		w, bit := &b.words[from>>6], from&63
		n := min(64-bit, to-from)
		mask := (^uint64(0) >> (64 - n)) << bit
		b.count += bits.OnesCount64(mask &^ *w)
		*w |= mask
		from += n
	}
}

// Runs yields the pages of the set as runs of neighbours, first and last, in ascending order.
func (b *Bits) Runs() iter.Seq2[uint32, uint32] {
	return func(yield func(first, last uint32) bool) {
		var first, end uint32 // of the run so far: it ends before end; none: both 0
		for i, w := range b.words {
			at := uint32(i)*64 + 1
			for w != 0 {
				skip := uint32(bits.TrailingZeros64(w))
				n := uint32(bits.TrailingZeros64(^(w >> skip)))
				if start := at + skip; start != end {
					if end != 0 && !yield(first, end-1) {
						return
					}
					first = start
				}
				end = at + skip + n
				w = w >> skip >> n << n << skip
			}
		}
		if end != 0 {
			yield(first, end-1)
		}
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
