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
	encoders = sync.Pool{New: func() any {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
			zstd.WithWindowSize(BlockSize), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false))
		if err != nil {
			panic(fmt.Sprintf("segment: zstd refuses fixed options: %v", err))
		}
		return e
	}}
	decoders = sync.Pool{New: func() any {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(MaxBlock), zstd.WithDecoderMaxWindow(MaxBlock), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			panic(fmt.Sprintf("segment: zstd refuses fixed options: %v", err))
		}
		return &blockDecoder{zstd: d}
	}}
)

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
	if !ValidPageSize(pageSize) || b.Raw < 1 || b.Raw > MaxBlock || b.Raw%pageSize != 0 || b.Length > b.Raw {
		return damaged("block of %d bytes, %d stored, with pages of %d", b.Raw, b.Length, pageSize)
	}
	if len(stored) != b.Length {
		return damaged("block at %d: %d bytes, the index says %d", b.Offset, len(stored), b.Length)
	}
	pages := uint64(0)
	for _, r := range b.Runs {
		pages += uint64(r.Count)
	}
	if pages != uint64(b.Raw/pageSize) {
		return damaged("block at %d: %d bytes for %d pages of %d", b.Offset, b.Raw, pages, pageSize)
	}
	if xxhash.Sum64(stored) != b.Sum {
		return damaged("block at %d: checksum does not match", b.Offset)
	}
	raw := stored
	if b.Length < b.Raw {
		d := decoders.Get().(*blockDecoder)
		defer decoders.Put(d)
		if cap(d.buf) < b.Raw+unpackSlack {
			d.buf = make([]byte, 0, max(b.Raw, BlockSize)+unpackSlack)
		}
		var err error
		// The capacity bounds what a frame can unpack to.
		if raw, err = d.zstd.DecodeAll(stored, d.buf[:0:b.Raw+unpackSlack]); err != nil {
			return damaged("block at %d: %v", b.Offset, err)
		}
		if len(raw) != b.Raw {
			return damaged("block at %d: %d bytes unpacked, the index says %d", b.Offset, len(raw), b.Raw)
		}
	}
	for _, r := range b.Runs {
		for i := uint32(0); i < r.Count; i++ {
			if err := fn(r.First+i, raw[:pageSize:pageSize]); err != nil {
				return err
			}
			raw = raw[pageSize:]
		}
	}
	return nil
}
