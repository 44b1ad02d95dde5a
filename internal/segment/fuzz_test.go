package segment_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/tonbo-go/tonbo/internal/segment"
)

// FuzzDecodeHeader: no panic, typed errors, and what decodes encodes to the same bytes. The checksum is made right first, or nothing would get past it.
func FuzzDecodeHeader(f *testing.F) {
	for _, s := range goldens() {
		object, h := s.build(f)
		f.Add(object[:int64(len(object))-h.PayloadSize])
	}
	h := full()
	b, err := segment.EncodeHeader(nil, &h)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, _, err := segment.DecodeHeader(b); err != nil && !typed(err) {
			t.Fatal(err)
		}
		if len(b) >= 24 && len(b) <= segment.MaxHeader {
			b = append([]byte(nil), b...)
			copy(b, "tonbo\r\n\x1a")
			binary.LittleEndian.PutUint32(b[12:], uint32(len(b)))
			reseal(b)
		}
		h, n, err := segment.DecodeHeader(b)
		if err != nil {
			if !typed(err) {
				t.Fatal(err)
			}
			return
		}
		again, err := segment.EncodeHeader(nil, h)
		if err != nil || !bytes.Equal(again, b[:n]) || h.Sum() != binary.LittleEndian.Uint64(b[n-8:n]) {
			t.Fatalf("encodes differently: %v\n%x\n%x", err, again, b[:n])
		}
	})
}

// FuzzDecode: a whole object, as it is and with an index whose checksums are made right.
func FuzzDecode(f *testing.F) {
	for _, s := range goldens() {
		object, h := s.build(f)
		if h.PayloadSize == 0 || len(object) > 64<<10 {
			f.Add(object, []byte{}, uint32(s.size))
			continue
		}
		_, ix, payload, err := segment.Decode(object)
		if err != nil {
			f.Fatal(err)
		}
		at := 0
		for _, b := range ix.Blocks {
			at += b.Length
		}
		if ix.Delta != nil {
			at += ix.Delta.Length
		}
		f.Add(object, payload[:at], uint32(s.size))
		f.Add(payload[at:len(payload)-40], payload[:at], uint32(s.size))
	}
	f.Fuzz(func(t *testing.T, b, blocks []byte, size uint32) {
		if err := read(b); err != nil && !typed(err) {
			t.Fatal(err)
		}
		if !segment.ValidPageSize(int(size)) {
			size = 512
		}
		if len(blocks)+len(b) < 16 {
			return // no header takes it
		}
		object := seal(t, int(size), blocks, b)
		h, ix, payload, err := segment.Decode(object)
		if err != nil {
			if !typed(err) {
				t.Fatal(err)
			}
			return
		}
		last, lock := uint32(0), segment.LockPage(int(size))
		seen := map[uint32]bool{}
		ordered := func(pgno uint32) {
			if pgno <= last || pgno == lock || seen[pgno] {
				t.Fatalf("page %d after %d", pgno, last)
			}
			last, seen[pgno] = pgno, true
		}
		whole := *ix
		whole.Delta = nil
		err = segment.EachPage(h, &whole, payload, func(pgno uint32, page []byte) error {
			if len(page) != int(size) || ix.Find(pgno) == nil {
				t.Fatalf("page %d, %d bytes", pgno, len(page))
			}
			ordered(pgno)
			return nil
		})
		if err == nil {
			last = 0
			page, old := make([]byte, size), make([]byte, size)
			err = segment.EachDelta(ix, payload, func(d segment.Delta) error {
				ordered(d.Page)
				if !ix.HasDelta(d.Page) {
					t.Fatalf("page %d is not in the index", d.Page)
				}
				if err := d.Apply(page, old); err == nil && segment.PageSum(d.Page, page) != d.Sum {
					t.Fatalf("page %d: another page than the one that was meant", d.Page)
				}
				return nil
			})
		}
		if err != nil && !typed(err) {
			t.Fatal(err)
		}
	})
}

// FuzzDecodeIndexTail: any tail, any object size; the answer must lie within the object.
func FuzzDecodeIndexTail(f *testing.F) {
	for _, s := range goldens() {
		object, _ := s.build(f)
		f.Add(object, int64(len(object)))
		f.Add(object[len(object)/2:], int64(len(object)))
		f.Add(object[len(object)-40:], int64(len(object)))
	}
	f.Fuzz(func(t *testing.T, tail []byte, size int64) {
		check := func(tail []byte) {
			ix, start, need, err := segment.DecodeIndexTail(tail, size)
			switch {
			case err != nil:
				if !typed(err) || ix != nil || need != 0 {
					t.Fatal(ix, need, err)
				}
			case need > 0:
				if need <= int64(len(tail)) || need > size || ix != nil {
					t.Fatalf("needs %d with %d of %d bytes", need, len(tail), size)
				}
			default:
				end := start
				for _, b := range ix.Blocks {
					end += int64(b.Length)
				}
				if ix.Delta != nil {
					end += int64(ix.Delta.Length)
				}
				if start <= 0 || end >= size {
					t.Fatalf("payload from %d, blocks to %d of %d", start, end, size)
				}
			}
		}
		check(tail)
		if len(tail) < 40 {
			return
		}
		// The same with index and footer sealed.
		tail = append([]byte(nil), tail...)
		foot, le := tail[len(tail)-40:], binary.LittleEndian
		if n := int64(le.Uint64(foot)) - int64(le.Uint64(foot[8:])) - 40; n >= 0 && n <= int64(len(tail)-40) {
			le.PutUint64(foot[16:], xxhash.Sum64(tail[int64(len(tail)-40)-n:len(tail)-40]))
		}
		copy(foot[28:], "tnbx")
		le.PutUint64(foot[32:], xxhash.Sum64(foot[:32]))
		check(tail)
	})
}

// FuzzBlockPages: any stored bytes under a right checksum: what the unpacker makes of them has the exact size, or nothing is seen.
func FuzzBlockPages(f *testing.F) {
	for _, s := range goldens() {
		object, _ := s.build(f)
		_, ix, payload, err := segment.Decode(object)
		if err != nil {
			f.Fatal(err)
		}
		for _, b := range ix.Blocks {
			f.Add(payload[b.Offset:b.Offset+int64(b.Length)], uint32(s.size), uint32(b.Raw/s.size))
		}
	}
	f.Fuzz(func(t *testing.T, stored []byte, size, pages uint32) {
		b := segment.Block{Kind: segment.BlockPages, Length: len(stored), Raw: int(pages) * int(size), Runs: []segment.Run{{First: 3, Count: pages}}, Sum: xxhash.Sum64(stored)}
		seen := uint32(0)
		err := b.Pages(stored, int(size), func(pgno uint32, page []byte) error {
			if pgno != 3+seen || len(page) != int(size) {
				t.Fatalf("page %d of %d bytes", pgno, len(page))
			}
			seen++
			return nil
		})
		if err == nil && seen != pages || err != nil && (!typed(err) || seen != 0) {
			t.Fatalf("%d of %d pages: %v", seen, pages, err)
		}
	})
}
