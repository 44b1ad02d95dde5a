package segment

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"sync"
)

// A page as a difference against an earlier version of it: copies from that one, at the same place or another, and literal bytes between them.
//
//	uvarint n, n literal bytes [, uvarint n, zigzag uvarint d: n bytes from the old page, beginning d bytes behind the place that they go to] ...
//
// It ends when the page is full.
const (
	matchMin   = 8  // bytes that must be the same for a copy at the same place
	movedMin   = 12 // and for one from another place
	matchSlots = 1 << 12
)

// matchTable finds eight bytes of the old page: a place + 1 by their hash, 0: none.
type matchTable [matchSlots]uint16

var matchTables = sync.Pool{New: func() any { return new(matchTable) }}

func matchSlot(v uint64) uint64 { return v * 0x9e3779b97f4a7c15 >> (64 - 12) }

func (t *matchTable) fill(old []byte) {
	clear(t[:])
	for i := 0; i+matchMin <= len(old); i++ {
		t[matchSlot(binary.LittleEndian.Uint64(old[i:]))] = uint16(i + 1)
	}
}

// matching counts how many bytes a and b begin with in common.
func matching(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for ; i+8 <= n; i += 8 {
		if x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// AppendDelta appends page as a difference against old, of the same valid page size. It may be longer than the page.
func AppendDelta(dst, old, page []byte) []byte {
	var table *matchTable // made when something is not where it was
	from := 0             // of the literals that are not written yet
	emit := func(at, n, src int) {
		dst = binary.AppendUvarint(dst, uint64(at-from))
		dst = append(dst, page[from:at]...)
		if n > 0 {
			dst = binary.AppendUvarint(dst, uint64(n))
			dst = binary.AppendVarint(dst, int64(src-at))
		}
		from = at + n
	}
	misses := 0
	for i := 0; i < len(page); {
		n := matching(old[i:], page[i:])
		if n >= matchMin || n > 0 && i+n == len(page) {
			emit(i, n, i)
			i += n
			misses = 0
			continue
		}
		if i+matchMin > len(page) {
			i++
			continue
		}
		if table == nil {
			table = matchTables.Get().(*matchTable)
			defer matchTables.Put(table)
			table.fill(old)
		}
		if src := int(table[matchSlot(binary.LittleEndian.Uint64(page[i:]))]) - 1; src >= 0 {
			n, at := matching(old[src:], page[i:]), i
			for at > from && src > 0 && page[at-1] == old[src-1] {
				at, src, n = at-1, src-1, n+1
			}
			if n >= movedMin {
				emit(at, n, src)
				i = at + n
				misses = 0
				continue
			}
		}
		misses++
		i += 1 + misses/64 // what is new is looked at less and less closely; where a copy begins is found by going back from it
	}
	if from < len(page) {
		emit(len(page), 0, 0)
	}
	return dst
}

// Delta is a page as a difference against its version before. It is valid during the call that it is given to.
type Delta struct {
	Page uint32
	Sum  uint64 // PageSum of the page that Apply makes
	ops  []byte
}

// Size is how many bytes of memory the delta refers to.
func (d Delta) Size() int { return len(d.ops) }

const (
	deltaHead = 1 + sumSize                     // bytes that a page takes in a block of deltas beside its operations, at least
	deltaRoom = binary.MaxVarintLen32 + sumSize // and at most
	maxDeltas = MaxBlock / MinPageSize          // pages in one
)

// Apply makes the page from the version before, both of the same valid page size; they must not overlap. ErrFormat: it is not that page afterwards: before is another version
// than the one that the delta was made against, or it is damaged.
func (d Delta) Apply(page, before []byte) error {
	if !applyDelta(page, before, d.ops) {
		return damaged("delta of page %d is out of shape", d.Page)
	}
	if PageSum(d.Page, page) != d.Sum {
		return damaged("page %d is not what its delta was made of: checksum does not match", d.Page)
	}
	return nil
}

// Clone returns a delta that stays valid.
func (d Delta) Clone() Delta {
	d.ops = bytes.Clone(d.ops)
	return d
}

func applyDelta(page, before, ops []byte) bool {
	c := cursor{b: ops}
	if len(page) != len(before) {
		return false
	}
	for at := 0; ; {
		at += copy(page[at:], c.bytes(int(c.upTo(uint64(len(page)-at)))))
		if c.bad {
			return false
		}
		if at == len(page) {
			return len(c.b) == 0
		}
		n := int(c.upTo(uint64(len(page) - at)))
		src := at + int(c.shift(len(page)))
		if c.bad || n == 0 || src < 0 || src+n > len(before) {
			return false
		}
		if at += copy(page[at:at+n], before[src:]); at == len(page) {
			return len(c.b) == 0
		}
	}
}

// shift reads a zigzag uvarint of at most limit either way.
func (c *cursor) shift(limit int) int64 {
	u := c.upTo(2*uint64(limit) + 1)
	v := int64(u >> 1)
	if u&1 != 0 {
		v = ^v
	}
	return v
}
