package segment

import (
	"fmt"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"
)

// BlockSize is how many bytes of pages a writer puts into one block, at most. It and the zstd level (fastest) were chosen by measurement: docs/format.md,
// "Why these sizes". Readers accept MaxBlock and any level.
const BlockSize = 64 << 10

// unpackSlack is room behind the unpacked bytes: with it the decoder copies whole words past the end of a match. Measured: 1,390 MB/s, without it 850.
const unpackSlack = 32

// The pools hold nothing but scratch memory, which the garbage collector takes back when it is idle.
// Neither an encoder used by EncodeAll nor a decoder used by DecodeAll has goroutines.
var (
	encoders      = newEncoders(false)
	deltaEncoders = newEncoders(true)
	decoders      = sync.Pool{New: func() any {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(MaxBlock), zstd.WithDecoderMaxWindow(MaxBlock), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			panic(fmt.Sprintf("segment: zstd refuses fixed options: %v", err))
		}
		return &blockDecoder{zstd: d}
	}}
)

// newEncoders makes a pool. literals: bytes among which nothing repeats are coded by how often each comes, which the fastest level leaves out: a block of deltas is often one row.
func newEncoders(literals bool) *sync.Pool {
	return &sync.Pool{New: func() any {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithAllLitEntropyCompression(literals),
			zstd.WithWindowSize(BlockSize), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false))
		if err != nil {
			panic(fmt.Sprintf("segment: zstd refuses fixed options: %v", err))
		}
		return e
	}}
}

type blockDecoder struct {
	zstd *zstd.Decoder
	buf  []byte
}

// Pages checks the stored bytes of a block and calls fn with each page, in ascending order. A page's bytes are valid only during the call.
// fn's error ends it and is returned as it is. Memory: at most MaxBlock bytes, reused. Nothing reaches fn unless the whole block is right.
func (b *Block) Pages(stored []byte, pageSize int, fn func(pgno uint32, page []byte) error) error {
	if b.Kind != BlockPages {
		return &KindError{What: "block kind", Kind: uint64(b.Kind)}
	}
	if !ValidPageSize(pageSize) || b.Raw < 1 || b.Raw > MaxBlock || b.Raw%pageSize != 0 {
		return damaged("block of %d bytes, %d stored, with pages of %d", b.Raw, b.Length, pageSize)
	}
	if n := b.Count(); n != b.Raw/pageSize {
		return damaged("block at %d: %d bytes for %d pages of %d", b.Offset, b.Raw, n, pageSize)
	}
	return b.unpack(stored, func(raw []byte) error {
		for _, r := range b.Runs {
			for i := uint32(0); i < r.Count; i++ {
				if err := fn(r.First+i, raw[:pageSize:pageSize]); err != nil {
					return err
				}
				raw = raw[pageSize:]
			}
		}
		return nil
	})
}

// Deltas checks the stored bytes of a block of deltas and calls fn with each of them, in ascending order of pages. fn's error ends it and is returned as it is. Nothing
// reaches fn unless the block and its division into pages are right; a delta's own shape is checked by Apply. Memory: at most MaxDelta bytes, reused.
func (b *Block) Deltas(stored []byte, fn func(Delta) error) error {
	if b.Kind != BlockDelta {
		return &KindError{What: "block kind", Kind: uint64(b.Kind)}
	}
	if b.Raw < 1 || b.Raw > MaxDelta {
		return damaged("block of deltas of %d bytes, %d stored", b.Raw, b.Length)
	}
	return b.unpack(stored, func(raw []byte) error {
		each := func(fn func(Delta) error) error {
			c := cursor{b: raw}
			for _, r := range b.Runs {
				for i := uint32(0); i < r.Count; i++ {
					n := int(c.upTo(MaxDelta))
					d := Delta{Page: r.First + i, Sum: c.u64(), ops: c.bytes(n)}
					if c.bad {
						return damaged("block of deltas at %d ends within page %d", b.Offset, d.Page)
					}
					if err := fn(d); err != nil {
						return err
					}
				}
			}
			if len(c.b) > 0 {
				return damaged("block of deltas at %d: %d bytes behind the last page", b.Offset, len(c.b))
			}
			return nil
		}
		if err := each(func(Delta) error { return nil }); err != nil {
			return err
		}
		return each(fn)
	})
}

// Count returns how many pages are in the block.
func (b *Block) Count() (n int) {
	for _, r := range b.Runs {
		n += int(r.Count)
	}
	return n
}

// Check compares every block of a payload with its checksum. ErrFormat: one is not what was written.
func (ix *Index) Check(payload []byte) error {
	for i := range ix.Blocks {
		if err := ix.Blocks[i].Check(payload); err != nil {
			return err
		}
	}
	if ix.Delta != nil {
		return ix.Delta.Check(payload)
	}
	return nil
}

// Check compares a block, as it is stored in a payload, with its checksum. ErrFormat: it is not what was written.
func (b *Block) Check(payload []byte) error {
	stored, err := b.in(payload)
	if err != nil {
		return err
	}
	if xxhash.Sum64(stored) != b.Sum {
		return damaged("block at %d: checksum does not match", b.Offset)
	}
	return nil
}

// unpack checks the stored bytes and calls fn with the content, which is valid during the call.
func (b *Block) unpack(stored []byte, fn func(raw []byte) error) error {
	if b.Length > b.Raw {
		return damaged("block of %d bytes, %d stored", b.Raw, b.Length)
	}
	if len(stored) != b.Length {
		return damaged("block at %d: %d bytes, the index says %d", b.Offset, len(stored), b.Length)
	}
	if xxhash.Sum64(stored) != b.Sum {
		return damaged("block at %d: checksum does not match", b.Offset)
	}
	if b.Length == b.Raw {
		return fn(stored)
	}
	d := decoders.Get().(*blockDecoder)
	defer decoders.Put(d)
	if cap(d.buf) < b.Raw+unpackSlack {
		d.buf = make([]byte, 0, max(b.Raw, BlockSize)+unpackSlack)
	}
	// The capacity bounds what a frame can unpack to.
	raw, err := d.zstd.DecodeAll(stored, d.buf[:0:b.Raw+unpackSlack])
	if err != nil {
		return damaged("block at %d: %v", b.Offset, err)
	}
	if len(raw) != b.Raw {
		return damaged("block at %d: %d bytes unpacked, the index says %d", b.Offset, len(raw), b.Raw)
	}
	return fn(raw)
}
