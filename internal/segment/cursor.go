package segment

import "encoding/binary"

// cursor reads a checked byte string from front to back. A read past the end sets bad and yields zeros, so that callers test once.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) bytes(n int) []byte {
	if c.bad || n < 0 || n > len(c.b) {
		c.bad = true
		return nil
	}
	p := c.b[:n]
	c.b = c.b[n:]
	return p
}

func (c *cursor) u8() uint8 {
	if p := c.bytes(1); p != nil {
		return p[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if p := c.bytes(2); p != nil {
		return binary.LittleEndian.Uint16(p)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if p := c.bytes(4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if p := c.bytes(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

// uvarint accepts the shortest coding only, so that equal content has equal bytes.
func (c *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.b)
	if c.bad || n <= 0 || n > 1 && c.b[n-1] == 0 {
		c.bad = true
		return 0
	}
	c.b = c.b[n:]
	return v
}

// upTo reads a uvarint that must not exceed limit.
func (c *cursor) upTo(limit uint64) uint64 {
	v := c.uvarint()
	if v > limit {
		c.bad = true
		return 0
	}
	return v
}
