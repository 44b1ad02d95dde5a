package segment_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"

	"github.com/tonbo-go/tonbo/internal/segment"
)

// read decodes all of an object.
func read(object []byte) error {
	h, ix, payload, err := segment.Decode(object)
	if err != nil {
		return err
	}
	page, zeros := make([]byte, ix.PageSize), make([]byte, ix.PageSize)
	return segment.EachChange(h, ix, payload, func(uint32, []byte) error { return nil }, func(d segment.Delta) error {
		d.Apply(page, zeros) // not its version before: that it is refused, other tests check
		return nil
	})
}

// typed tells whether an error is one that the package documents.
func typed(err error) bool {
	var v *segment.VersionError
	var k *segment.KindError
	return errors.Is(err, segment.ErrFormat) || errors.As(err, &v) || errors.As(err, &k)
}

// reseal makes the checksums of a changed header right again: offsets as in docs/format.md.
func reseal(b []byte) []byte {
	if len(b) >= 24 {
		binary.LittleEndian.PutUint64(b[len(b)-8:], xxhash.Sum64(b[:len(b)-8]))
	}
	return b
}

// seal makes an object of a commit's header, blocks and any index.
func seal(t testing.TB, pageSize int, blocks, index []byte) []byte {
	t.Helper()
	le := binary.LittleEndian
	foot := le.AppendUint64(nil, uint64(len(blocks)+len(index)+40))
	foot = le.AppendUint64(foot, uint64(len(blocks)))
	foot = le.AppendUint64(foot, xxhash.Sum64(index))
	foot = le.AppendUint16(foot, segment.Version)
	foot = le.AppendUint16(foot, 0)
	foot = append(foot, "tnbx"...)
	foot = le.AppendUint64(foot, xxhash.Sum64(foot))
	h := segment.Header{Kind: segment.KindCommit, PageSize: uint32(pageSize), PageCount: segment.MaxPage, PayloadSize: int64(len(blocks) + len(index) + 40), PayloadSum: xxhash.Sum64(index)}
	object, err := segment.EncodeHeader(nil, &h)
	if err != nil {
		t.Fatal(err)
	}
	object = append(object, blocks...)
	object = append(object, index...)
	return append(object, foot...)
}

func TestEveryDamagedByteIsFound(t *testing.T) {
	for name, s := range goldens() {
		object, _ := s.build(t)
		if len(object) > 8<<10 {
			continue
		}
		for i := range object {
			for _, mask := range []byte{0x01, 0x80, 0xff} {
				object[i] ^= mask
				if err := read(object); err == nil || !typed(err) {
					t.Errorf("%s: byte %d changed by %#x: %v", name, i, mask, err)
				}
				object[i] ^= mask
			}
		}
		if err := read(object); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEveryTruncatedObjectIsRefused(t *testing.T) {
	for name, s := range goldens() {
		object, h := s.build(t)
		for i := range object {
			if err := read(object[:i]); !errors.Is(err, segment.ErrFormat) {
				t.Fatalf("%s: %d of %d bytes: %v", name, i, len(object), err)
			}
			if h.PayloadSize == 0 {
				continue
			}
			// Read from the tail, a cut object shows by its footer; where it happens to end in the cut is no footer.
			if _, _, need, err := segment.DecodeIndexTail(object[:i], int64(i)); err == nil && need == 0 {
				t.Fatalf("%s: tail of %d of %d bytes accepted", name, i, len(object))
			}
		}
		if err := read(append(object, 0)); !errors.Is(err, segment.ErrFormat) {
			t.Errorf("%s: a byte more: %v", name, err)
		}
	}
}

func TestShortHeaderTellsHowMuchIsNeeded(t *testing.T) {
	h := full()
	object, err := segment.EncodeHeader(nil, &h)
	if err != nil {
		t.Fatal(err)
	}
	var short *segment.ShortError
	for i := range object {
		_, _, err := segment.DecodeHeader(object[:i])
		if !errors.As(err, &short) || short.Need <= i || short.Need > len(object) || i >= 16 && short.Need != len(object) {
			t.Fatalf("%d of %d bytes: %v", i, len(object), err)
		}
	}
	if _, _, err := segment.DecodeHeader([]byte("SQLite")); !errors.Is(err, segment.ErrFormat) || errors.As(err, &short) {
		t.Errorf("foreign bytes: %v", err)
	}
}

func TestTailTooShortTellsHowMuchIsNeeded(t *testing.T) {
	s := spec{header: segment.Header{Kind: segment.KindCommit}, size: 512, pages: []uint32{1, 9, 77, 1000}}
	object, h := s.build(t)
	size := int64(len(object))
	var n int64
	for tries := 0; ; tries++ {
		ix, start, need, err := segment.DecodeIndexTail(object[size-n:], size)
		if err != nil || tries > 3 {
			t.Fatal(tries, err)
		}
		if need == 0 {
			if start != size-h.PayloadSize || ix.Pages() != 4 {
				t.Errorf("payload at %d, %d pages", start, ix.Pages())
			}
			break
		}
		if need <= n || need > size {
			t.Fatalf("needs %d, has %d of %d", need, n, size)
		}
		n = need
	}
	for _, bad := range []int64{size - 1, size + 1<<20, -1, 1 << 62} {
		if _, _, _, err := segment.DecodeIndexTail(object[size-n:], bad); bad != size-1 && !errors.Is(err, segment.ErrFormat) {
			t.Errorf("object size %d: %v", bad, err)
		}
	}
}

func TestUnknownVersionKindOrFlagFailsClosed(t *testing.T) {
	h := full()
	b, err := segment.EncodeHeader(nil, &h)
	if err != nil {
		t.Fatal(err)
	}
	change := func(at int, v byte) []byte {
		c := append([]byte(nil), b...)
		c[at] = v
		return reseal(c)
	}
	var version *segment.VersionError
	if _, _, err := segment.DecodeHeader(change(8, 2)); !errors.As(err, &version) || version.Version != 2 || !strings.Contains(err.Error(), "update") {
		t.Errorf("version 2: %v", err)
	}
	for _, kind := range []byte{0, 9, 15, 18, 255} {
		var unknown *segment.KindError
		if _, _, err := segment.DecodeHeader(change(10, kind)); !errors.As(err, &unknown) || unknown.Kind != uint64(kind) {
			t.Errorf("kind %d: %v", kind, err)
		}
	}
	var flags *segment.KindError
	if _, _, err := segment.DecodeHeader(change(136, 0x90)); !errors.As(err, &flags) || flags.Kind != 0x90 {
		t.Errorf("flags: %v", err)
	}
	// A later version may have another header behind the prelude, of any length.
	later := append([]byte("tonbo\r\n\x1a\x07\x00\x63\x00\x1d\x00\x00\x00later"), make([]byte, 8)...)
	if _, _, err := segment.DecodeHeader(reseal(later)); !errors.As(err, &version) || version.Version != 7 {
		t.Errorf("version 7: %v", err)
	}
	// A block kind that is unknown, and each kind where the other is meant.
	index := []byte{0, 2, 0, 0 /* page size */, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3, 8, 8, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8}
	var unknown *segment.KindError
	if err := read(seal(t, 512, make([]byte, 8), index)); !errors.As(err, &unknown) || unknown.Kind != 3 {
		t.Errorf("block kind 3: %v", err)
	}
	for _, kind := range []byte{segment.BlockPages, segment.BlockDelta, 3} {
		b := segment.Block{Kind: kind, Length: 8, Raw: 512, Runs: []segment.Run{{First: 1, Count: 1}}}
		if err := b.Pages(make([]byte, 8), 512, nil); kind != segment.BlockPages && !errors.As(err, &unknown) {
			t.Errorf("block kind %d read as pages: %v", kind, err)
		}
		if err := b.Deltas(make([]byte, 8), nil); kind != segment.BlockDelta && !errors.As(err, &unknown) {
			t.Errorf("block kind %d read as deltas: %v", kind, err)
		}
	}
}

// allocated returns how many bytes fn allocated.
func allocated(fn func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

func TestHostileCountsAllocateLittle(t *testing.T) {
	head := func(blocks, runs, refs uint32) []byte {
		le := binary.LittleEndian
		return le.AppendUint32(le.AppendUint32(le.AppendUint32(le.AppendUint32(nil, 512), blocks), runs), refs)
	}
	many := make([]byte, 1<<20)
	block := []byte{1, 1, 0x80, 4, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8} // one byte stored, one page
	n := 1 << 20 / len(block)
	for name, index := range map[string][]byte{
		"blocks":          append(head(1<<32-1, 1<<32-1, 0), many...),
		"runs":            append(head(1, 1<<32-1, 0), many...),
		"refs":            append(head(0, 0, 1<<32-1), many...),
		"blocks that fit": append(head(uint32(n), uint32(n), 0), bytes.Repeat(block, n)...),
		"runs that fit":   append(append(head(1, 1<<19, 0), 1, 1, 0x80, 4, 0x80, 0x80, 0x20), bytes.Repeat([]byte{1}, 1<<20+8)...),
		"refs that fit":   append(head(0, 0, 65536), many...),
	} {
		object := seal(t, 512, nil, index)
		var err error
		n := allocated(func() { err = read(object) })
		if !errors.Is(err, segment.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
		if limit := int64(8*len(index) + 1<<16); n > limit {
			t.Errorf("%s: %d bytes allocated, limit %d", name, n, limit)
		}
	}
	h := full()
	b, err := segment.EncodeHeader(nil, &h)
	if err != nil {
		t.Fatal(err)
	}
	for _, count := range []uint32{1<<32 - 2, segment.MaxTail + 1, segment.MaxTail} {
		binary.LittleEndian.PutUint32(b[140:], count)
		if _, _, err := segment.DecodeHeader(reseal(b)); !errors.Is(err, segment.ErrFormat) {
			t.Errorf("tail of %d: %v", count, err)
		}
	}
	if n := allocated(func() { segment.DecodeHeader(b) }); n > segment.MaxHeader {
		t.Errorf("header: %d bytes allocated", n)
	}
}

func TestBombsAreRefusedWithBoundedMemory(t *testing.T) {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	big := e.EncodeAll(make([]byte, 64<<20), nil)
	two := e.EncodeAll(make([]byte, 512), e.EncodeAll(make([]byte, 512), nil))
	small := e.EncodeAll(make([]byte, 256), nil)
	skippable := []byte{0x50, 0x2a, 0x4d, 0x18, 0xff, 0xff, 0xff, 0xff}
	for name, frame := range map[string][]byte{"64 MiB": big[:min(len(big), 511)], "two frames": two, "too small": small, "skippable": skippable, "none": []byte("plain")} {
		b := segment.Block{Kind: segment.BlockPages, Length: len(frame), Raw: 512, Runs: []segment.Run{{First: 1, Count: 1}}, Sum: xxhash.Sum64(frame)}
		called := false
		var err error
		n := allocated(func() {
			err = b.Pages(frame, 512, func(uint32, []byte) error { called = true; return nil })
		})
		if !errors.Is(err, segment.ErrFormat) || called {
			t.Errorf("%s: %v, page seen: %v", name, err, called)
		}
		if n > 1<<20 {
			t.Errorf("%s: %d bytes allocated", name, n)
		}
	}
}

func TestIndexOutOfShapeIsRefused(t *testing.T) {
	block := func(kind byte, more ...byte) []byte { return append([]byte{kind, 8}, more...) }
	sum := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	raw := []byte{0x80, 4} // 512
	good := bytes.Join([][]byte{block(1), raw, {1, 0, 1}, sum}, nil)
	index := func(blocks, runs, refs byte, records ...[]byte) []byte {
		head := []byte{0, 2, 0, 0, blocks, 0, 0, 0, runs, 0, 0, 0, refs, 0, 0, 0}
		return append(head, bytes.Join(records, nil)...)
	}
	stored := make([]byte, 8)
	if h, ix, _, err := segment.Decode(seal(t, 512, stored, index(1, 1, 0, good))); err != nil || h == nil || len(ix.Blocks) != 1 {
		t.Fatal("the control is refused:", err)
	}
	for name, c := range map[string]struct{ stored, index []byte }{
		"bytes after the records":       {stored, index(1, 1, 0, good, []byte{0})},
		"bytes before the index":        {append(stored, 0), index(1, 1, 0, good)},
		"blocks reach into the index":   {stored[1:], index(1, 1, 0, good)},
		"fewer runs than the head says": {stored, index(1, 2, 0, block(1), raw, []byte{1, 0x80, 8, 1}, sum)},
		"more runs than the head says":  {stored, index(1, 0, 0, good)},
		"varint longer than needed":     {stored, index(1, 1, 0, block(1), raw, []byte{1, 0x80, 0, 1}, sum)},
		"varint too long":               {stored, index(1, 1, 0, block(1), raw, []byte{1}, bytes.Repeat([]byte{0xff}, 11), sum)},
		"ends within a record":          {stored, index(1, 1, 0, good[:len(good)-1])},
		"ends within a ref":             {stored, index(1, 1, 1, good, []byte{1, 'k', 5, 5})},
		"key longer than the index":     {stored, index(1, 1, 1, good, []byte{0x80, 8, 'k', 5, 5, 1, 1})},
	} {
		if _, _, _, err := segment.Decode(seal(t, 512, c.stored, c.index)); !errors.Is(err, segment.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPayloadShorterThanItsBlocksIsRefused(t *testing.T) {
	s := spec{header: segment.Header{Kind: segment.KindCommit}, size: 512, pages: span(1, 300)}
	object, _ := s.build(t)
	h, ix, payload, err := segment.Decode(object)
	if err != nil {
		t.Fatal(err)
	}
	last := ix.Blocks[len(ix.Blocks)-1]
	end := last.Offset + int64(last.Length)
	if err := segment.EachPage(h, ix, payload[:end:end], func(uint32, []byte) error { return nil }); err != nil {
		t.Error("blocks alone:", err)
	}
	if err := segment.EachPage(h, ix, payload[:end-1:end-1], func(uint32, []byte) error { return nil }); !errors.Is(err, segment.ErrFormat) {
		t.Errorf("a byte less: %v", err)
	}
	stop := errors.New("stop")
	if err := segment.EachPage(h, ix, payload, func(uint32, []byte) error { return stop }); err != stop {
		t.Errorf("got %v, want the caller's error", err)
	}
}

func TestHeaderOutOfShapeIsRefused(t *testing.T) {
	h := segment.Header{Kind: segment.KindCommit, Slot: 9, Tail: []uint64{5, 6}}
	b, err := segment.EncodeHeader(nil, &h)
	if err != nil {
		t.Fatal(err)
	}
	tail := len(b) - 8 - 2 // skip 5, run of 2
	for name, change := range map[string]func(b []byte) []byte{
		"control":             func(b []byte) []byte { return b },
		"reserved in prelude": func(b []byte) []byte { b[11] = 1; return b },
		"reserved in fields":  func(b []byte) []byte { b[139] = 1; return b },
		"source neither 0, 1": func(b []byte) []byte { b[138] = 2; return b },
		"a byte more": func(b []byte) []byte {
			b[12]++
			return append(b, 0)
		},
		"a byte less": func(b []byte) []byte {
			b[12]--
			return b[:len(b)-1]
		},
		"label beyond the header": func(b []byte) []byte { b[146] = 200; return b },
		"slot 0 in the tail":      func(b []byte) []byte { b[tail] = 0; return b },
		"empty run in the tail":   func(b []byte) []byte { b[tail+1] = 0; return b },
		"a run cut in two": func(b []byte) []byte {
			b = append(b[:tail], 5, 1, 0, 1)
			b[12] += 2
			return append(b, make([]byte, 8)...)
		},
		"too long a run": func(b []byte) []byte { b[tail+1] = 3; return b },
		"overflow in the tail": func(b []byte) []byte {
			b = append(b[:tail], 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2)
			b = append(b, make([]byte, 8)...)
			b[12] = byte(len(b))
			return b
		},
	} {
		_, _, err := segment.DecodeHeader(reseal(change(append([]byte(nil), b...))))
		if name == "control" && err != nil || name != "control" && !errors.Is(err, segment.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
