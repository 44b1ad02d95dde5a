package tonbo_test

import (
	"math/rand/v2"
	"testing"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/segment"
)

// cut is a bottom of segments of so many pages each, wherever they end.
func cut(count, pageSize uint32, most int) (r []base.Segment) {
	lock := segment.LockPage(int(pageSize))
	for p := uint32(1); p <= count; p++ {
		switch n := len(r); {
		case p == lock:
		case n == 0 || r[n-1].Pages == most:
			r = append(r, base.Segment{First: p, Last: p, Pages: 1})
		default:
			r[n-1].Last, r[n-1].Pages = p, r[n-1].Pages+1
		}
	}
	return r
}

// TestNewBottomLeavesNoPageOut: whatever segments an entry has cut the database into that become the bottom, and however it has shrunk or grown since, each of its pages is in the next bottom. Behind the lock page the segments
// of a large commit reach from one chunk into the next.
func TestNewBottomLeavesNoPageOut(t *testing.T) {
	const pageSize = 65536 // the lock page is the 16,385th, the first one of a chunk of 256
	lock := segment.LockPage(pageSize)
	rng := rand.New(rand.NewPCG(1, 1))
	check := func(old []base.Segment, count uint32, pages []uint32) {
		t.Helper()
		bottom, hole := tonbo.NewBottom(old, pageSize, count, pages)
		in := make([]bool, count+1)
		for _, s := range bottom {
			for p := s.First; p <= min(s.Last, count); p++ {
				if in[p] {
					t.Fatalf("%d pages: page %d is in two segments", count, p)
				}
				in[p] = true
			}
		}
		for p := uint32(1); p <= count; p++ {
			if !in[p] && p != lock {
				t.Fatalf("%d pages: page %d is in no segment of %v", count, p, bottom)
			}
		}
		if hole != 0 {
			t.Fatalf("%d pages: page %d is said to be in no segment", count, hole)
		}
	}
	for range 300 {
		whole := lock - 600 + rng.Uint32N(1800)
		old := cut(whole, pageSize, []int{128, 256, 100, 1 + rng.IntN(600)}[rng.IntN(4)])
		count := whole
		var pages []uint32
		for p := range 1 + rng.Uint32N(whole) { // all up to one, or some
			if rng.IntN(3) > 0 || len(pages) == 0 {
				pages = append(pages, p+1)
			}
		}
		switch rng.IntN(3) {
		case 0:
			count -= rng.Uint32N(900)
		case 1: // what it has gained is among the pages
			count += rng.Uint32N(300)
			for p := whole + 1; p <= count; p++ {
				pages = append(pages, p)
			}
		}
		for len(pages) > 0 && pages[len(pages)-1] > count {
			pages = pages[:len(pages)-1]
		}
		check(old, count, pages)
	}
	// A hole is seen.
	for _, bottom := range [][]base.Segment{nil, {{First: 2, Last: 9, Pages: 8}}, {{First: 1, Last: 3, Pages: 3}, {First: 5, Last: 9, Pages: 5}}, {{First: 1, Last: 8, Pages: 8}}} {
		if tonbo.Hole(bottom, pageSize, 9) == 0 {
			t.Errorf("no hole in %v", bottom)
		}
	}
}
