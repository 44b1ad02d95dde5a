package base

import "math/bits"

// ChunkBytes is how many bytes of pages one chunk of the bottom covers.
const ChunkBytes = 16 << 20

// Plan says what the next base is made of.
type Plan struct {
	// Merge is how many of the newest runs are merged with what is new into one run. When Bottom is set it is all of them, and the result goes into the
	// bottom instead: only chunks that it touches are written anew.
	Merge  int
	Bottom bool
}

// fanIn is how many runs of a tier become one of the next: a page is rewritten once a tier, and an opening reads at most fanIn-1 runs a tier.
const fanIn = 4

// tier of a run by its pages: each holds fanIn times the one before, the first one 16, as much as a quiet moment merges.
func tier(pages int) int { return max(0, bits.Len(uint(max(pages, 1)-1))-4) / 2 }

// MakePlan decides what to merge when fresh new pages are to go into the base m (nil: there is none). total is the database's size in pages. Runs are merged beyond what
// is needed as long as no more than budget pages are written: there is time, and fewer runs make openings cheaper.
func MakePlan(m *Manifest, fresh, total, budget int) Plan {
	runs := m.Runs()
	n := fresh
	sizes := make([]int, 0, len(runs)+1)
	sizes = append(sizes, fresh)
	for _, r := range runs {
		n += Pages(r)
		sizes = append(sizes, Pages(r))
	}
	// Down to the bottom when the runs hold three quarters of what it does: it is then rewritten once in that many pages, and what is stored stays below twice the database.
	bottom := Pages(m.Bottom())
	if bottom == 0 || 4*n >= 3*bottom {
		return Plan{Merge: len(runs), Bottom: true}
	}
	merge := 0
	for again := true; again; {
		again = false
		sum := 0
		for _, s := range sizes[:merge+1] {
			sum += s
		}
		t, count := tier(sum), 1
		for _, s := range sizes[merge+1:] {
			if tier(s) > t {
				break
			}
			count++
		}
		if count >= fanIn {
			merge += count - 1
			again = true
		}
	}
	n = fresh
	for i, s := range sizes[1:] {
		if n += s; n > budget {
			break
		}
		merge = max(merge, i+1)
	}
	return Plan{Merge: merge}
}
