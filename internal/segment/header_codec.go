package segment

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// Version is the format version that this build writes, and the only one that it reads.
const Version = 1

// Limits of a header. Strings and Tail within them always fit MaxHeader.
const (
	MaxHeader  = 64 << 10 // bytes, prelude and checksum included
	MaxString  = 1024     // bytes of Base, Label, Owner and Source.Name each
	MaxTail    = 4096     // slots in Tail; a writer with more leaves it nil
	MaxPayload = 1 << 42  // bytes of a payload
)

const (
	magic       = "tonbo\r\n\x1a" // the end of line shows up transfers that alter text
	preludeSize = 16              // same in all versions
	fixedSize   = 144             // prelude and fixed fields
	sumSize     = 8
	minHeader   = fixedSize + 3*2 + sumSize
	tailUnknown = 1<<32 - 1
)

const knownFlags = FlagFrozen | FlagWhole

func (k Kind) known() bool {
	return k >= KindCreate && k <= KindVoid || k.stored()
}

// stored tells whether such an object is no entry of a log, but holds pages for one.
func (k Kind) stored() bool { return k == KindSegment || k == KindPack }

// String returns the name of the kind in docs/format.md.
func (k Kind) String() string {
	names := [...]string{"", "create", "claim", "commit", "base", "rewind", "close", "delete", "void"}
	switch {
	case k == KindSegment:
		return "segment"
	case k == KindPack:
		return "pack"
	case k.known():
		return names[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// EncodeHeader appends the prelude and the header to dst. The fields must be within the limits above: an error names the one that is not.
func EncodeHeader(dst []byte, h *Header) ([]byte, error) {
	if err := h.check(); err != nil {
		return dst, fmt.Errorf("encode header of %v: %w", h.Kind, err)
	}
	start := len(dst)
	le := binary.LittleEndian
	b := append(dst, magic...)
	b = le.AppendUint16(b, Version)
	b = append(b, byte(h.Kind), 0)
	b = append(b, 0, 0, 0, 0) // header size, below
	b = append(b, h.ID[:]...)
	b = append(b, h.Nonce[:]...)
	b = le.AppendUint64(b, h.Generation)
	b = le.AppendUint64(b, h.Slot)
	b = le.AppendUint64(b, h.From)
	b = le.AppendUint64(b, uint64(h.Time))
	b = le.AppendUint32(b, h.PageSize)
	b = le.AppendUint32(b, h.PageCount)
	b = le.AppendUint64(b, h.Checksum)
	b = le.AppendUint64(b, h.Prev)
	b = le.AppendUint64(b, h.Horizon)
	b = le.AppendUint64(b, h.To)
	b = le.AppendUint64(b, uint64(h.PayloadSize))
	b = le.AppendUint64(b, h.PayloadSum)
	flags := h.Flags
	if h.Usage != nil {
		flags |= flagUsage
	}
	key, short := parseBaseKey(h.Base)
	if short = short && !h.textBase; short {
		flags |= flagBaseKey
	}
	b = le.AppendUint16(b, uint16(flags))
	if h.Source != nil {
		b = append(b, 1, 0)
	} else {
		b = append(b, 0, 0)
	}
	if h.Tail == nil {
		b = le.AppendUint32(b, tailUnknown)
	} else {
		b = le.AppendUint32(b, uint32(len(h.Tail)))
	}
	if short {
		b = appendBaseKey(b, &key)
	} else {
		b = appendString(b, h.Base)
	}
	b = appendString(appendString(b, h.Label), h.Owner)
	if s := h.Source; s != nil {
		b = append(b, s.ID[:]...)
		b = le.AppendUint64(b, s.Slot)
		b = appendString(b, s.Name)
	}
	b = appendTail(b, h.Tail)
	if h.Usage != nil {
		b = appendUsage(b, h.Usage)
	}
	le.PutUint32(b[start+12:], uint32(len(b)-start+sumSize))
	return le.AppendUint64(b, xxhash.Sum64(b[start:])), nil
}

func appendString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

// appendTail codes ascending slots as runs: slots skipped since the run before, then slots in this run.
func appendTail(b []byte, tail []uint64) []byte {
	next := uint64(0)
	for len(tail) > 0 {
		n := 1
		for n < len(tail) && tail[n] == tail[n-1]+1 {
			n++
		}
		b = binary.AppendUvarint(b, tail[0]-next)
		b = binary.AppendUvarint(b, uint64(n))
		next = tail[n-1] + 1
		tail = tail[n:]
	}
	return b
}

// DecodeHeader reads the header at the start of b, which may be longer, or only the first part of the object.
// n is the size of the header in bytes: the payload begins there. If b ends within the header, the error is a *ShortError.
// Other errors: ErrFormat, *VersionError, *KindError.
func DecodeHeader(b []byte) (h *Header, n int, err error) {
	if len(b) < preludeSize {
		if len(b) > 0 && string(b[:min(len(b), len(magic))]) != magic[:min(len(b), len(magic))] {
			return nil, 0, damaged("does not begin as a tonbo object")
		}
		return nil, 0, &ShortError{Need: minHeader}
	}
	if string(b[:len(magic)]) != magic {
		return nil, 0, damaged("does not begin as a tonbo object")
	}
	version := binary.LittleEndian.Uint16(b[8:])
	size := int64(binary.LittleEndian.Uint32(b[12:]))
	if size < preludeSize+sumSize || size > MaxHeader {
		return nil, 0, damaged("header of %d bytes", size)
	}
	if int64(len(b)) < size {
		return nil, 0, &ShortError{Need: int(size)}
	}
	n = int(size)
	b = b[:n]
	// In every version the last eight bytes are the checksum of all before them: what follows tells newer from damaged.
	if sum := binary.LittleEndian.Uint64(b[n-sumSize:]); xxhash.Sum64(b[:n-sumSize]) != sum {
		return nil, 0, damaged("header checksum does not match")
	}
	if version != Version {
		return nil, 0, &VersionError{Version: version}
	}
	if kind := Kind(b[10]); !kind.known() {
		return nil, 0, &KindError{What: "object kind", Kind: uint64(kind)}
	}
	if n < minHeader {
		return nil, 0, damaged("header of %d bytes", n)
	}
	if h, err = decodeFields(b[:n-sumSize]); err != nil {
		return nil, 0, err
	}
	return h, n, nil
}

func decodeFields(b []byte) (*Header, error) {
	h := &Header{Kind: Kind(b[10])}
	zero := b[11]
	c := cursor{b: b[preludeSize:]}
	copy(h.ID[:], c.bytes(16))
	copy(h.Nonce[:], c.bytes(16))
	h.Generation, h.Slot, h.From, h.Time = c.u64(), c.u64(), c.u64(), int64(c.u64())
	h.PageSize, h.PageCount, h.Checksum = c.u32(), c.u32(), c.u64()
	h.Prev, h.Horizon, h.To = c.u64(), c.u64(), c.u64()
	h.PayloadSize, h.PayloadSum = int64(c.u64()), c.u64()
	h.Flags = Flags(c.u16())
	hasSource := c.u8()
	zero |= c.u8()
	tail := c.u32()
	if h.Flags&flagBaseKey != 0 {
		h.Flags &^= flagBaseKey
		h.Base = c.baseKey()
	} else {
		h.Base = c.string()
		_, h.textBase = parseBaseKey(h.Base)
	}
	h.Label, h.Owner = c.string(), c.string()
	if hasSource == 1 {
		s := &Source{}
		copy(s.ID[:], c.bytes(16))
		s.Slot = c.u64()
		s.Name = c.string()
		h.Source = s
	}
	if tail != tailUnknown {
		h.Tail = c.tail(int64(tail))
	}
	if h.Flags&flagUsage != 0 {
		h.Flags &^= flagUsage
		h.Usage = c.usage()
	}
	if unknown := h.Flags &^ knownFlags; unknown != 0 { // before what does not fit: a newer writer's fields may follow
		return nil, &KindError{What: "flags", Kind: uint64(unknown)}
	}
	if c.bad || len(c.b) > 0 || zero != 0 || hasSource > 1 {
		return nil, damaged("header fields do not fit the header")
	}
	if err := h.check(); err != nil {
		return nil, damaged("header: %v", err)
	}
	return h, nil
}

func (c *cursor) string() string {
	n := int(c.u16())
	if n > MaxString {
		c.bad = true
		return ""
	}
	return string(c.bytes(n))
}

func (c *cursor) tail(n int64) []uint64 {
	if n > MaxTail {
		c.bad = true
		return nil
	}
	tail := make([]uint64, 0, n)
	next := uint64(0)
	for int64(len(tail)) < n && !c.bad {
		gap := c.uvarint()
		count := c.upTo(uint64(n) - uint64(len(tail)))
		if gap == 0 || count == 0 { // one run with the one before, or none; what overflows does not ascend, which check sees
			c.bad = true
			return nil
		}
		slot := next + gap
		for ; count > 0; count-- {
			tail = append(tail, slot)
			slot++
		}
		next = slot
	}
	return tail
}

// check is what a header must fulfil, whoever made it. Rules of the log are not its business.
func (h *Header) check() error {
	switch {
	case !h.Kind.known():
		return fmt.Errorf("%v is not a kind of object", h.Kind)
	case h.Flags&^knownFlags != 0:
		return fmt.Errorf("unknown flags %#x", uint16(h.Flags))
	case h.PageSize != 0 && (h.PageSize > MaxPageSize || !ValidPageSize(int(h.PageSize))):
		return fmt.Errorf("page size %d is not a power of two from %d to %d", h.PageSize, MinPageSize, MaxPageSize)
	case h.PageSize == 0 && (h.PageCount != 0 || h.PayloadSize != 0 || h.Kind.stored()):
		return fmt.Errorf("pages without a page size")
	case h.PayloadSize < 0 || h.PayloadSize > MaxPayload || h.PayloadSize > 0 && h.PayloadSize < minPayload:
		return fmt.Errorf("payload of %d bytes, which is not 0 and not from %d to %d", h.PayloadSize, minPayload, int64(MaxPayload))
	case h.PayloadSize == 0 && h.PayloadSum != 0:
		return fmt.Errorf("a checksum of no payload")
	case h.PayloadSize == 0 && (h.Kind.stored() || h.Flags&FlagWhole != 0 && h.PageCount != 0):
		return fmt.Errorf("no payload where pages must be")
	case h.Kind.stored() && (h.From > h.Slot || h.Prev != 0 || h.Base != "" || h.Horizon != 0 || h.To != 0 || h.Label != "" || h.Owner != "" || h.Tail != nil || h.Source != nil || h.Usage != nil):
		return fmt.Errorf("a field of entries, or a slot range that ends before it begins")
	case len(h.Tail) > MaxTail:
		return fmt.Errorf("tail of %d slots, at most %d", len(h.Tail), MaxTail)
	}
	for i, slot := range h.Tail {
		if slot == 0 || slot == 1<<64-1 || i > 0 && slot <= h.Tail[i-1] {
			return fmt.Errorf("tail not ascending at slot %d", slot)
		}
	}
	if h.Usage != nil {
		if err := h.Usage.check(); err != nil {
			return err
		}
	}
	name := ""
	if h.Source != nil {
		name = h.Source.Name
	}
	for _, s := range [...]struct{ field, value string }{{"base", h.Base}, {"label", h.Label}, {"owner", h.Owner}, {"source name", name}} {
		if len(s.value) > MaxString {
			return fmt.Errorf("%s of %d bytes, at most %d", s.field, len(s.value), MaxString)
		}
	}
	return nil
}

// Sum is the checksum of an entry: the xxhash64 of its header without the eight bytes at its end, which hold this very value.
// The next entry's Prev holds it, and since a header holds PayloadSum, it covers the payload too. It encodes the header (under a microsecond).
// A header that EncodeHeader refuses has sum 0.
func (h *Header) Sum() uint64 {
	var buf [512]byte
	b, err := EncodeHeader(buf[:0], h)
	if err != nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b[len(b)-sumSize:])
}
