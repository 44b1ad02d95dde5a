package segment

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/cespare/xxhash/v2"
)

const (
	footerSize  = 40
	footerMagic = "tnbx"
	indexHead   = 16                // page size, blocks, runs, refs
	minBlock    = 1 + 1 + 1 + 1 + 8 // kind, three varints, checksum; and at least one run
	minRun      = 1 + 1
	minRef      = 1 + 1 + 1 + 1 + 1 + 1 // key of one byte and its length, four varints
	minPayload  = indexHead + footerSize
)

// appendIndexHead begins an index; the records of blocks, then of refs follow.
func appendIndexHead(dst []byte, pageSize, blocks, runs, refs int) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, uint32(pageSize))
	dst = le.AppendUint32(dst, uint32(blocks))
	dst = le.AppendUint32(dst, uint32(runs))
	return le.AppendUint32(dst, uint32(refs))
}

// appendBlock appends b's record. next is the page after the last run of the block before (1 at first); the new one is returned.
func appendBlock(dst []byte, b *Block, next uint32) ([]byte, uint32) {
	dst = append(dst, b.Kind)
	dst = binary.AppendUvarint(dst, uint64(b.Length))
	dst = binary.AppendUvarint(dst, uint64(b.Raw))
	dst = binary.AppendUvarint(dst, uint64(len(b.Runs)))
	for _, r := range b.Runs {
		dst = binary.AppendUvarint(dst, uint64(r.First-next))
		dst = binary.AppendUvarint(dst, uint64(r.Count))
		next = r.First + r.Count
	}
	return binary.LittleEndian.AppendUint64(dst, b.Sum), next
}

func appendRef(dst []byte, r *Ref) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(r.Key)))
	dst = append(dst, r.Key...)
	dst = binary.AppendUvarint(dst, uint64(r.First))
	dst = binary.AppendUvarint(dst, uint64(r.Last))
	dst = binary.AppendUvarint(dst, uint64(r.Pages))
	return binary.AppendUvarint(dst, uint64(r.Size))
}

// check is what a ref must fulfil, whoever made it. after is the last page of the ref before.
func (r *Ref) check(after uint32, pageSize int) error {
	switch {
	case r.Key == "" || len(r.Key) > MaxKey:
		return fmt.Errorf("segment key of %d bytes, must be 1 to %d", len(r.Key), MaxKey)
	case r.First <= after || r.Last < r.First || r.Last > MaxPage:
		return fmt.Errorf("segment %s: pages %d to %d after page %d", r.Key, r.First, r.Last, after)
	case r.Pages < 1 || int64(r.Pages) > int64(r.Last-r.First)+1:
		return fmt.Errorf("segment %s: %d pages from %d to %d", r.Key, r.Pages, r.First, r.Last)
	case r.First == LockPage(pageSize) || r.Last == LockPage(pageSize):
		return fmt.Errorf("segment %s: ends in the lock page", r.Key)
	case r.Size < minHeader+minPayload || r.Size > MaxHeader+MaxPayload:
		return fmt.Errorf("segment %s of %d bytes", r.Key, r.Size)
	}
	return nil
}

// footer is what a payload ends with.
type footer struct {
	payload, index int64 // bytes of the payload, offset of the index in it
	sum            uint64
}

func (f footer) indexSize() int64 { return f.payload - footerSize - f.index }

func appendFooter(dst []byte, magic string, f footer) []byte {
	le := binary.LittleEndian
	start := len(dst)
	dst = le.AppendUint64(dst, uint64(f.payload))
	dst = le.AppendUint64(dst, uint64(f.index))
	dst = le.AppendUint64(dst, f.sum)
	dst = le.AppendUint16(dst, Version)
	dst = le.AppendUint16(dst, 0)
	dst = append(dst, magic...)
	return le.AppendUint64(dst, xxhash.Sum64(dst[start:]))
}

// decodeFooter reads the footer at the end of b, which tells by its magic what it is the end of.
func decodeFooter(b []byte, magic string) (f footer, err error) {
	if len(b) < footerSize {
		return f, damaged("ends within the footer")
	}
	b = b[len(b)-footerSize:]
	c := cursor{b: b}
	f.payload, f.index, f.sum = int64(c.u64()), int64(c.u64()), c.u64()
	version, zero := c.u16(), c.u16()
	if string(c.bytes(4)) != magic {
		return f, damaged("does not end as a tonbo object with pages")
	}
	if c.u64() != xxhash.Sum64(b[:footerSize-sumSize]) {
		return f, damaged("footer checksum does not match")
	}
	if version != Version {
		return f, &VersionError{Version: version}
	}
	if zero != 0 || f.payload < minPayload || f.payload > MaxPayload || f.index < 0 || f.index > f.payload-minPayload {
		return f, damaged("footer: payload of %d bytes, index at %d", f.payload, f.index)
	}
	if n := f.indexSize(); n > MaxIndex {
		return f, damaged("index of %d bytes, at most %d", n, MaxIndex)
	}
	return f, nil
}

// DecodeIndex reads the index of a whole payload and checks it against the header. Blocks are not looked into. An object without a payload has
// an empty index. Errors: ErrFormat, *VersionError, *KindError.
func DecodeIndex(payload []byte, h *Header) (*Index, error) {
	if int64(len(payload)) != h.PayloadSize {
		return nil, damaged("payload of %d bytes, the header says %d", len(payload), h.PayloadSize)
	}
	if h.PayloadSize == 0 {
		return &Index{PageSize: int(h.PageSize)}, nil
	}
	f, err := decodeFooter(payload, footerMagic)
	if err != nil {
		return nil, err
	}
	if f.payload != h.PayloadSize || f.sum != h.PayloadSum {
		return nil, damaged("the payload is not the header's")
	}
	ix, err := decodeIndex(payload[f.index:len(payload)-footerSize], f)
	if err != nil {
		return nil, err
	}
	return ix, ix.matches(h)
}

// matches checks what header and index must agree on.
func (ix *Index) matches(h *Header) error {
	if ix.PageSize != int(h.PageSize) {
		return damaged("index has pages of %d bytes, header of %d", ix.PageSize, h.PageSize)
	}
	last := uint32(0)
	if n := len(ix.Blocks); n > 0 {
		last = ix.Blocks[n-1].last()
	}
	if ix.Delta != nil {
		if h.Kind == KindSegment || h.Flags&FlagWhole != 0 {
			return damaged("deltas in an object that must hold whole pages")
		}
		last = max(last, ix.Delta.last())
	}
	if n := len(ix.Refs); n > 0 {
		if h.Kind == KindSegment {
			return damaged("a segment that refers to segments")
		}
		last = max(last, ix.Refs[n-1].Last)
	}
	if last > h.PageCount {
		return damaged("page %d in a database of %d pages", last, h.PageCount)
	}
	return nil
}

func (b *Block) last() uint32 {
	r := b.Runs[len(b.Runs)-1]
	return r.First + (r.Count - 1)
}

// DecodeIndexTail reads the index from tail, the last bytes of an object of objectSize bytes. payloadStart is where block offsets count from. need > 0, and nothing else:
// the tail is too short, read that many bytes from the end instead. The object must have a payload. The header is not seen: whoever reads blocks of an
// entry this way makes sure by ETag or nonce that it is the entry meant. Errors: ErrFormat, *VersionError, *KindError.
func DecodeIndexTail(tail []byte, objectSize int64) (ix *Index, payloadStart, need int64, err error) {
	switch {
	case int64(len(tail)) > objectSize:
		return nil, 0, 0, damaged("tail of %d bytes, the object has %d", len(tail), objectSize)
	case objectSize < minHeader+minPayload:
		return nil, 0, 0, damaged("object of %d bytes has no pages", objectSize)
	case len(tail) < footerSize:
		return nil, 0, footerSize, nil
	}
	f, err := decodeFooter(tail, footerMagic)
	if err != nil {
		return nil, 0, 0, err
	}
	payloadStart = objectSize - f.payload
	if payloadStart < minHeader || payloadStart > MaxHeader {
		return nil, 0, 0, damaged("payload of %d bytes in an object of %d", f.payload, objectSize)
	}
	if need = f.indexSize() + footerSize; int64(len(tail)) < need {
		return nil, 0, need, nil
	}
	tail = tail[int64(len(tail))-need:]
	ix, err = decodeIndex(tail[:len(tail)-footerSize], f)
	if err != nil {
		return nil, 0, 0, err
	}
	return ix, payloadStart, 0, nil
}

// decodeIndex reads an index. What it allocates is bounded by the bytes that are there: counts are checked against them first.
func decodeIndex(b []byte, f footer) (*Index, error) {
	if xxhash.Sum64(b) != f.sum {
		return nil, damaged("index checksum does not match")
	}
	c := cursor{b: b}
	pageSize, blocks, runs, refs := int64(c.u32()), int64(c.u32()), int64(c.u32()), int64(c.u32())
	if pageSize > MaxPageSize || !ValidPageSize(int(pageSize)) {
		return nil, damaged("index: page size %d", pageSize)
	}
	if refs > MaxRefs || blocks*minBlock+runs*minRun+refs*minRef > int64(len(c.b)) {
		return nil, damaged("index: %d blocks, %d runs and %d segments in %d bytes", blocks, runs, refs, len(b))
	}
	ix := &Index{PageSize: int(pageSize)}
	end, err := ix.decodeBlocks(&c, int(blocks), int(runs))
	if err != nil {
		return nil, err
	}
	if end != f.index {
		return nil, damaged("blocks end at %d, the index begins at %d", end, f.index)
	}
	if err := ix.decodeRefs(&c, int(refs)); err != nil {
		return nil, err
	}
	if c.bad || len(c.b) > 0 {
		return nil, damaged("index records do not fit the index")
	}
	if err := ix.disjoint(); err != nil {
		return nil, damaged("index: %v", err)
	}
	return ix, nil
}

func (ix *Index) decodeBlocks(c *cursor, n, numRuns int) (end int64, err error) {
	if n > 0 {
		ix.Blocks = make([]Block, n)
	}
	runs := make([]Run, 0, numRuns) // of all blocks
	lock := LockPage(ix.PageSize)
	next := uint64(1)
	for i := range ix.Blocks {
		b := &ix.Blocks[i]
		b.Kind = c.u8()
		switch {
		case c.bad, b.Kind == BlockPages:
		case b.Kind != BlockDelta:
			return 0, &KindError{What: "block kind", Kind: uint64(b.Kind)}
		case i < n-1:
			return 0, damaged("index: block %d of %d holds deltas: they come last", i, n)
		default:
			next = 1
		}
		b.Offset = end
		b.Length, b.Raw = int(c.upTo(MaxBlock)), int(c.upTo(MaxBlock))
		count := int(c.upTo(uint64(numRuns - len(runs))))
		from, pages := len(runs), uint64(0)
		for j := 0; j < count && !c.bad; j++ {
			gap, k := c.upTo(math.MaxUint32), c.upTo(MaxBlock/MinPageSize)
			first := next + gap
			next = first + k
			switch {
			case c.bad, k == 0, j > 0 && gap == 0, next-1 > MaxPage:
				return 0, damaged("index: block %d: run %d is none, or not after the one before", i, j)
			case first <= uint64(lock) && uint64(lock) < next:
				return 0, damaged("index: block %d holds the lock page %d", i, lock)
			}
			runs = append(runs, Run{First: uint32(first), Count: uint32(k)})
			pages += k
		}
		b.Sum = c.u64()
		fits := uint64(b.Raw) == pages*uint64(ix.PageSize)
		if b.Kind == BlockDelta {
			fits = b.Raw <= MaxDelta && pages <= maxDeltas && uint64(b.Raw) >= pages*deltaHead
		}
		if c.bad || b.Length < 1 || b.Length > b.Raw || count == 0 || !fits {
			return 0, damaged("index: block %d: %d bytes stored of %d, %d pages", i, b.Length, b.Raw, pages)
		}
		b.Runs = runs[from:len(runs):len(runs)]
		end += int64(b.Length)
	}
	if len(runs) != numRuns {
		return 0, damaged("index: %d runs, its head says %d", len(runs), numRuns)
	}
	if n > 0 && ix.Blocks[n-1].Kind == BlockDelta {
		ix.Blocks, ix.Delta = ix.Blocks[:n-1], &ix.Blocks[n-1]
	}
	return end, nil
}

func (ix *Index) decodeRefs(c *cursor, n int) error {
	if n == 0 {
		return nil
	}
	ix.Refs = make([]Ref, n)
	after := uint32(0)
	for i := range ix.Refs {
		r := &ix.Refs[i]
		r.Key = string(c.bytes(int(c.upTo(MaxKey))))
		r.First, r.Last = uint32(c.upTo(math.MaxUint32)), uint32(c.upTo(math.MaxUint32))
		r.Pages, r.Size = int(c.upTo(math.MaxInt32)), int64(c.upTo(math.MaxInt64))
		if c.bad {
			return damaged("index records do not fit the index")
		}
		if err := r.check(after, ix.PageSize); err != nil {
			return damaged("index: %v", err)
		}
		after = r.Last
	}
	return nil
}

// disjoint checks that no run reaches into another or into the range of a ref. Runs of whole pages, runs of deltas and refs each ascend.
func (ix *Index) disjoint() error {
	if err := ix.apartFromRefs(ix.Blocks); err != nil || ix.Delta == nil {
		return err
	}
	if err := ix.apartFromRefs([]Block{*ix.Delta}); err != nil {
		return err
	}
	deltas := ix.Delta.Runs
	for i := range ix.Blocks {
		for _, r := range ix.Blocks[i].Runs {
			for len(deltas) > 0 && deltas[0].First+(deltas[0].Count-1) < r.First {
				deltas = deltas[1:]
			}
			if len(deltas) > 0 && deltas[0].First <= r.First+(r.Count-1) {
				return fmt.Errorf("page %d is whole and a delta", max(deltas[0].First, r.First))
			}
		}
	}
	return nil
}

func (ix *Index) apartFromRefs(blocks []Block) error {
	refs := ix.Refs
	for i := range blocks {
		for _, r := range blocks[i].Runs {
			last := r.First + (r.Count - 1)
			for len(refs) > 0 && refs[0].Last < r.First {
				refs = refs[1:]
			}
			if len(refs) > 0 && refs[0].First <= last {
				return fmt.Errorf("pages %d to %d are in a block and within segment %s", r.First, last, refs[0].Key)
			}
		}
	}
	return nil
}
