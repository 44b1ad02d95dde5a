package segment

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// MaxPacked is how many entries one pack can hold.
const MaxPacked = 1 << 14

const (
	packMagic = "tnbp"
	packHead  = 4 + 4 + 4 + 8                     // page size, entries, size of the upper pages and their checksum
	minPacked = 1 + 1 + 1 + 8                     // three varints, checksum
	minPack   = packHead + minPacked + footerSize // and the payload of an entry
)

// Packed is the payload of an entry, as it is in the log.
type Packed struct {
	Slot      uint64
	PageCount uint32 // of the database after the entry
	Sum       uint64 // the entry's payload checksum
	Payload   []byte
}

// Header returns what the payload is checked against.
func (p *Packed) Header(pageSize uint32) *Header {
	return &Header{PageSize: pageSize, PageCount: p.PageCount, PayloadSize: int64(len(p.Payload)), PayloadSum: p.Sum}
}

// Index reads the payload's index. Errors: ErrFormat, *VersionError, *KindError; ErrFormat as well when it names segments, which an entry in a pack never does.
func (p *Packed) Index(pageSize uint32) (*Index, error) {
	ix, err := DecodeIndex(p.Payload, p.Header(pageSize))
	if err != nil {
		return nil, err
	}
	if len(ix.Refs) > 0 {
		return nil, damaged("pack: slot %d names segments", p.Slot)
	}
	return ix, nil
}

// Checked is Index, and compares every block of the payload with its checksum.
func (p *Packed) Checked(pageSize uint32) (*Index, error) {
	ix, err := p.Index(pageSize)
	if err == nil {
		err = ix.Check(p.Payload)
	}
	return ix, err
}

// Pack is what an object of KindPack holds: the payloads of entries of one log that follow each other there, oldest first, and perhaps copies of pages of the base that they stand on.
type Pack struct {
	Entries  []Packed
	Upper    []byte // a payload of whole pages, as of the state before the first entry; nil: none
	UpperSum uint64 // its payload checksum
}

// EncodePack returns the object. h must be a segment's header but for its kind, which is KindPack, with Slot and From those of the last and the first entry; its payload fields are set.
// What is in the payloads is not looked at.
func EncodePack(h *Header, p *Pack) ([]byte, error) {
	if err := p.check(h); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	size := 0
	for i := range p.Entries {
		size += len(p.Entries[i].Payload)
	}
	payload := make([]byte, 0, size+len(p.Upper)+packHead+len(p.Entries)*(minPacked+8)+footerSize)
	for i := range p.Entries {
		payload = append(payload, p.Entries[i].Payload...)
	}
	payload = append(payload, p.Upper...)
	at := len(payload)
	payload = le.AppendUint32(payload, h.PageSize)
	payload = le.AppendUint32(payload, uint32(len(p.Entries)))
	payload = le.AppendUint32(payload, uint32(len(p.Upper)))
	payload = le.AppendUint64(payload, p.UpperSum)
	before := h.From - 1
	for i := range p.Entries {
		e := &p.Entries[i]
		payload = binary.AppendUvarint(payload, e.Slot-before)
		payload = binary.AppendUvarint(payload, uint64(e.PageCount))
		payload = binary.AppendUvarint(payload, uint64(len(e.Payload)))
		payload = le.AppendUint64(payload, e.Sum)
		before = e.Slot
	}
	sum := xxhash.Sum64(payload[at:])
	h.PayloadSize, h.PayloadSum = int64(len(payload)+footerSize), sum
	payload = appendFooter(payload, packMagic, footer{payload: h.PayloadSize, index: int64(at), sum: sum})
	b, err := EncodeHeader(nil, h)
	if err != nil {
		return nil, err
	}
	return append(b, payload...), nil
}

// check is what header and pack must agree on, whoever made them.
func (p *Pack) check(h *Header) error {
	n := len(p.Entries)
	switch {
	case h.Kind != KindPack:
		return damaged("a pack in an object that is a %v", h.Kind)
	case n == 0 || n > MaxPacked:
		return damaged("pack of %d entries, must be 1 to %d", n, MaxPacked)
	case h.From == 0 || p.Entries[0].Slot != h.From || p.Entries[n-1].Slot != h.Slot:
		return damaged("pack: slots %d to %d, its header says %d to %d", p.Entries[0].Slot, p.Entries[n-1].Slot, h.From, h.Slot)
	case p.Entries[n-1].PageCount != h.PageCount:
		return damaged("pack: %d pages behind its last entry, its header says %d", p.Entries[n-1].PageCount, h.PageCount)
	case len(p.Upper) == 0 && p.UpperSum != 0:
		return damaged("pack: a checksum of no pages")
	}
	for i := range p.Entries {
		e := &p.Entries[i]
		if len(e.Payload) < minPayload || i > 0 && e.Slot <= p.Entries[i-1].Slot {
			return damaged("pack: slot %d, entry %d of %d, of %d bytes", e.Slot, i, n, len(e.Payload))
		}
	}
	return nil
}

// DecodePack reads a whole pack. All is checked but what the payloads hold (Packed.Index, EachChange). The payloads are parts of object. Errors: ErrFormat, *VersionError, *KindError.
func DecodePack(object []byte) (*Header, *Pack, error) {
	h, n, err := DecodeHeader(object)
	if err != nil {
		return nil, nil, err
	}
	payload := object[n:]
	if h.Kind != KindPack || int64(len(payload)) != h.PayloadSize {
		return nil, nil, damaged("a %v with %d bytes, of which its header says %d: no pack", h.Kind, len(payload), h.PayloadSize)
	}
	f, err := decodeFooter(payload, packMagic)
	if err != nil {
		return nil, nil, err
	}
	if f.payload != h.PayloadSize || f.sum != h.PayloadSum {
		return nil, nil, damaged("the payload is not the header's")
	}
	list := payload[f.index : len(payload)-footerSize]
	if xxhash.Sum64(list) != f.sum {
		return nil, nil, damaged("pack: checksum of its list does not match")
	}
	p, err := decodePacked(list, payload[:f.index], h)
	if err != nil {
		return nil, nil, err
	}
	return h, p, p.check(h)
}

// decodePacked reads the list of a pack whose payloads are content. What it allocates is bounded by the bytes that are there.
func decodePacked(list, content []byte, h *Header) (*Pack, error) {
	c := cursor{b: list}
	pageSize, n, upper, sum := c.u32(), int64(c.u32()), int64(c.u32()), c.u64()
	if pageSize != h.PageSize || n > MaxPacked || n*minPacked > int64(len(c.b)) || upper > int64(len(content)) {
		return nil, damaged("pack: %d entries and %d bytes of pages in %d bytes; pages of %d bytes, its header says %d", n, upper, len(list)+len(content), pageSize, h.PageSize)
	}
	p := &Pack{Entries: make([]Packed, n), UpperSum: sum}
	entries, slot := content[:int64(len(content))-upper], h.From-1
	if upper > 0 {
		p.Upper = content[len(entries):]
	}
	for i := range p.Entries {
		e := &p.Entries[i]
		slot += c.upTo(1<<64 - 1 - slot)
		e.Slot, e.PageCount = slot, uint32(c.upTo(1<<32-1))
		size := c.upTo(uint64(len(entries)))
		e.Sum = c.u64()
		if c.bad {
			return nil, damaged("pack: entry %d of %d does not fit", i, n)
		}
		e.Payload, entries = entries[:size:size], entries[size:]
	}
	if len(c.b) > 0 || len(entries) > 0 {
		return nil, damaged("pack: its entries do not fill it")
	}
	return p, nil
}
