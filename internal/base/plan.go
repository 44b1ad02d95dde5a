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

// packFanIn is fanIn for packs, which weigh little beside the pages that they spare.
const packFanIn = 8

// packTier is tier for packs, by their bytes: the first one holds 16 KiB.
func packTier(size int64) int { return max(0, bits.Len64(uint64(max(size, 1)-1))-12) / 3 }

// MergePacks decides how many of the newest packs become one with fresh bytes that are to be packed: as many as is due, and then, as long as no more than budget bytes are written, until
// most are left.
func MergePacks(packs []Pack, fresh, budget int64, most int) int {
	n, merge, size := len(packs), 0, fresh
	take := func() {
		merge++
		size += packs[n-merge].Size
	}
	if fresh > 0 {
		for again := true; again; {
			t, same := packTier(size), 0
			for i := n - merge - 1; i >= 0 && packTier(packs[i].Size) <= t; i-- {
				same++
			}
			if again = same+1 >= packFanIn; again {
				for range same {
					take()
				}
			}
		}
		for n-merge+1 > MaxPacks {
			take()
		}
	}
	for merge < n && (n-merge+1 > most || merge == 0 && n > most) && size+packs[n-merge-1].Size <= budget {
		take()
	}
	if fresh == 0 && merge < 2 {
		return 0
	}
	return merge
}

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
