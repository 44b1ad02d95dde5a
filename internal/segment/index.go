package segment

import "sort"

// Limits of a payload.
const (
	MaxIndex = 16 << 20  // bytes of an index
	MaxBlock = 256 << 10 // bytes of a block's content that a reader accepts; writers stop at BlockSize
	MaxRefs  = 65536     // segments that one entry can name
	MaxDelta = 64 << 10  // bytes of the content of a block of deltas: its readers keep it
	MaxKey   = 1024      // bytes of a segment's key
)

// BlockPages is the kind of a block that holds whole pages.
const BlockPages = 1

// BlockDelta is the kind of a block that holds pages as differences against their versions before. Only entries have one.
const BlockDelta = 2

// Run is Count neighbouring pages from First.
type Run struct {
	First, Count uint32
}

// Block tells where pages are in a payload.
type Block struct {
	Kind   uint8
	Offset int64 // bytes from the start of the payload
	Length int   // bytes stored
	Raw    int   // bytes of content; equal to Length: stored as they are, else a zstd frame
	Runs   []Run // ascending
	Sum    uint64
}

// Ref names a segment in which pages of an entry are, when they were too many to be in the entry itself.
type Ref struct {
	Key         string // full key of the object
	First, Last uint32 // range of its page numbers, both inclusive
	Pages       int    // how many pages it holds
	Size        int64  // bytes of the object
}

// Index is the map of a payload. No page is in two of its places: runs of whole pages ascend over all their blocks, those of the deltas ascend, ranges of refs
// ascend, and no run reaches into another or into the range of a ref.
type Index struct {
	PageSize int     // bytes
	Blocks   []Block // of whole pages
	Delta    *Block  // pages that are differences against their versions before; nil: none
	Refs     []Ref
}

// Pages returns how many pages are in blocks, whole or as deltas.
func (ix *Index) Pages() int {
	n := 0
	for i := range ix.Blocks {
		n += ix.Blocks[i].Count()
	}
	if ix.Delta != nil {
		n += ix.Delta.Count()
	}
	return n
}

// holds tells whether a page is in the block.
func (b *Block) holds(pgno uint32) bool {
	j := sort.Search(len(b.Runs), func(j int) bool { return b.Runs[j].First > pgno }) - 1
	return j >= 0 && pgno-b.Runs[j].First < b.Runs[j].Count
}

// HasDelta tells whether a page is in the payload as a delta.
func (ix *Index) HasDelta(pgno uint32) bool { return ix.Delta != nil && ix.Delta.holds(pgno) }

// Find returns the block that holds a whole page, or nil.
func (ix *Index) Find(pgno uint32) *Block {
	i := ix.Search(pgno)
	if i < 0 {
		return nil
	}
	return &ix.Blocks[i]
}

// Search returns the number of the block that holds a whole page, or -1.
func (ix *Index) Search(pgno uint32) int {
	i := sort.Search(len(ix.Blocks), func(i int) bool { return ix.Blocks[i].Runs[0].First > pgno }) - 1
	if i < 0 {
		return -1
	}
	if !ix.Blocks[i].holds(pgno) {
		return -1
	}
	return i
}

// From returns the number of the first block that may hold a page from pgno on.
func (ix *Index) From(pgno uint32) int {
	return max(0, sort.Search(len(ix.Blocks), func(i int) bool { return ix.Blocks[i].Runs[0].First > pgno })-1)
}
