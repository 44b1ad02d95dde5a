package pageset_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tonbo-go/tonbo/internal/pageset"
)

// TestBitsAreASet: Bits beside a map, over random changes at sizes around the borders of words.
func TestBitsAreASet(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		n := 1 + rng.IntN(300)
		b, want := pageset.NewBits(n), map[uint32]bool{}
		for range 30 {
			p, q := uint32(rng.IntN(n+5)), uint32(rng.IntN(n+5))
			switch rng.IntN(5) {
			case 0, 1:
				if b.Set(p); p > 0 && int(p) <= n {
					want[p] = true
				}
			case 2:
				b.Clear(p)
				delete(want, p)
			case 3:
				b.Fill(p, q)
				for i := p; p > 0 && i <= q && int(i) <= n; i++ {
					want[i] = true
				}
			case 4:
				n = max(1, n+rng.IntN(140)-70)
				b.Resize(n)
				maps.DeleteFunc(want, func(p uint32, _ bool) bool { return int(p) > n })
			}
			var got []uint32
			above := uint32(0)
			for first, last := range b.Runs() {
				if last < first || above > 0 && first <= above+1 {
					t.Fatalf("run %d to %d after one that ends at %d", first, last, above)
				}
				for above = first; above <= last; above++ {
					got = append(got, above)
				}
				above = last
			}
			if w := slices.Sorted(maps.Keys(want)); !slices.Equal(got, w) || b.Count() != len(w) || b.Len() != n || b.Full() != (len(w) == n) {
				t.Fatalf("got %v (%d of %d), want %v of %d", got, b.Count(), b.Len(), w, n)
			}
			for p := range uint32(n + 70) {
				if b.Has(p) != want[p] {
					t.Fatalf("page %d: got %v", p, b.Has(p))
				}
			}
			if c, ok := pageset.FromWords(b.Clone().Words(), n); !ok || c.Count() != b.Count() {
				t.Fatal("words do not make the same set")
			}
		}
	}
}

// TestSumsAreAnArray: Sums beside a slice, over random changes at sizes around the borders of stretches.
func TestSumsAreAnArray(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		want := make([]uint64, rng.IntN(3000))
		s := pageset.NewSums(len(want))
		for range 30 {
			switch rng.IntN(4) {
			case 0, 1:
				p, v := rng.IntN(len(want)+5), rng.Uint64N(3)
				if s.Set(uint32(p), v); p > 0 && p <= len(want) {
					want[p-1] = v
				}
			case 2:
				n := rng.IntN(3000)
				if s.Resize(n); n < len(want) {
					want = want[:n:n]
				}
				want = append(want, make([]uint64, n-len(want))...)
			case 3: // copies do not change with it, nor it with them
				other := s.Clone()
				if rng.IntN(2) == 0 {
					other = s.Snapshot()
				}
				if kept := s.Snapshot(); rng.IntN(2) == 0 {
					defer func(want []uint64) {
						if !slices.Equal(kept.Slice(), want) {
							t.Error("a snapshot has changed")
						}
					}(slices.Clone(want))
				}
				for range 20 {
					other.Set(uint32(rng.IntN(3000)), 7)
				}
				other.Resize(rng.IntN(3000))
			}
			got, x, of := make([]uint64, s.Len()), uint64(0), pageset.SumsOf(want)
			for p, v := range s.All() {
				got[p-1] = v
			}
			for _, v := range want {
				x ^= v
			}
			if !slices.Equal(got, want) || !slices.Equal(s.Slice(), want) || !slices.Equal(of.Slice(), want) || s.Xor() != x || s.At(0) != 0 || s.At(uint32(len(want)+1)) != 0 {
				t.Fatalf("%d pages: not what was set", len(want))
			}
			for i, v := range want {
				if s.At(uint32(i+1)) != v {
					t.Fatalf("page %d: %d, want %d", i+1, s.At(uint32(i+1)), v)
				}
			}
		}
	}
}
