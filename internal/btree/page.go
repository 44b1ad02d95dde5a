// Package btree reads the b-trees of a SQLite file page by page, and finds which rows of them may differ between two files of which only some pages differ.
//
// It knows the file format (https://sqlite.org/fileformat2.html) and no SQLite: what it is given it takes for pages of a sound database, and says where it cannot. It
// writes nothing.
package btree

import (
	"encoding/binary"
	"math"
)

// Kinds of b-tree pages.
const (
	InteriorIndex = 2
	InteriorTable = 5
	LeafIndex     = 10
	LeafTable     = 13
)

// Page is a b-tree page. https://sqlite.org/fileformat2.html#b_tree_pages
type Page struct {
	Bytes    []byte
	Kind     byte
	Cells    []int    // offsets
	Children []uint32 // of an interior page, in the order of keys
}

// Parse reads the page number p. ok is false for one that is no b-tree page, or cannot be right.
func Parse(b []byte, p uint32) (t Page, ok bool) {
	at := 0
	if p == 1 { // the file's header is before it
		at = 100
	}
	if len(b) < at+12 {
		return t, false
	}
	t.Bytes, t.Kind = b, b[at]
	head := 8
	switch t.Kind {
	case InteriorIndex, InteriorTable:
		head = 12
	case LeafIndex, LeafTable:
	default:
		return Page{}, false
	}
	n := int(binary.BigEndian.Uint16(b[at+3:]))
	if at+head+2*n > len(b) {
		return Page{}, false
	}
	for i := range n {
		c := int(binary.BigEndian.Uint16(b[at+head+2*i:]))
		if c < at+head+2*n || c+4 > len(b) {
			return Page{}, false
		}
		t.Cells = append(t.Cells, c)
		if head == 12 {
			t.Children = append(t.Children, binary.BigEndian.Uint32(b[c:]))
		}
	}
	if head == 12 {
		t.Children = append(t.Children, binary.BigEndian.Uint32(b[at+8:]))
	}
	return t, true
}

// Usable is the size of a page without what is reserved at its end, as the first page tells. https://sqlite.org/fileformat2.html#the_database_header
func Usable(first []byte) int {
	if len(first) < 100 {
		return len(first)
	}
	return len(first) - int(first[20])
}

// Interior tells whether the page has children.
func (t *Page) Interior() bool { return t.Kind == InteriorIndex || t.Kind == InteriorTable }

// Cell is one cell of a page.
type Cell struct {
	Rowid    int64  // of a table
	Size     int64  // of the payload, in bytes; tables have none in interior pages
	Local    []byte // the part of it that is in the page
	Overflow uint32 // first page of the rest, 0: there is none
}

// Cell reads the i-th cell. usable is the size of a page without what is reserved at its end. https://sqlite.org/fileformat2.html#b_tree_pages
func (t *Page) Cell(i, usable int) (c Cell, ok bool) {
	b := t.Bytes[t.Cells[i]:]
	if t.Interior() {
		b = b[4:]
	}
	if t.Kind != InteriorTable {
		var size uint64
		if size, b = Varint(b); b == nil || size > math.MaxInt32 {
			return c, false
		}
		c.Size = int64(size)
	}
	if t.Kind == InteriorTable || t.Kind == LeafTable {
		var id uint64
		if id, b = Varint(b); b == nil {
			return c, false
		}
		c.Rowid = int64(id)
	}
	if t.Kind == InteriorTable {
		return c, true
	}
	most, least := (usable-12)*64/255-23, (usable-12)*32/255-23
	if t.Kind == LeafTable {
		most = usable - 35
	}
	local := int(c.Size)
	if local > most {
		local = least + (local-least)%(usable-4)
		if local > most {
			local = least
		}
		if len(b) < local+4 {
			return c, false
		}
		c.Overflow = binary.BigEndian.Uint32(b[local:])
	}
	if len(b) < local {
		return c, false
	}
	c.Local = b[:local]
	return c, true
}

// Varint reads SQLite's variable-length integer; rest is nil when there is none. https://sqlite.org/fileformat2.html#varint
func Varint(b []byte) (v uint64, rest []byte) {
	for i := range b {
		if i == 8 {
			return v<<8 | uint64(b[i]), b[i+1:]
		}
		v = v<<7 | uint64(b[i]&0x7f)
		if b[i] < 0x80 {
			return v, b[i+1:]
		}
	}
	return 0, nil
}

// SerialSize is how many bytes a value of a serial type takes. https://sqlite.org/fileformat2.html#record_format
func SerialSize(s uint64) uint64 {
	switch {
	case s <= 4:
		return s
	case s == 5:
		return 6
	case s == 6 || s == 7:
		return 8
	case s < 12:
		return 0
	}
	return (s - 12) / 2
}

// Record decodes the first n values of a record, of which rec may be but the beginning: nil, int64, float64, string (as the database encodes it) or []byte, which is a part of rec. ok is false when
// they are not all there.
func Record(rec []byte, n int) (values []any, ok bool) {
	size, rest := Varint(rec)
	if rest == nil || size > uint64(len(rec)) || size < uint64(len(rec)-len(rest)) {
		return nil, false
	}
	types, body := rec[len(rec)-len(rest):size], rec[size:]
	for range n {
		var s uint64
		if s, types = Varint(types); types == nil {
			return nil, false
		}
		w := SerialSize(s)
		if w > uint64(len(body)) {
			return nil, false
		}
		values, body = append(values, value(s, body[:w])), body[w:]
	}
	return values, true
}

func value(s uint64, b []byte) any {
	switch {
	case s == 0 || s == 10 || s == 11:
		return nil
	case s == 7:
		return math.Float64frombits(binary.BigEndian.Uint64(b))
	case s <= 6:
		var v uint64
		if b[0]&0x80 != 0 {
			v = math.MaxUint64
		}
		for _, x := range b {
			v = v<<8 | uint64(x)
		}
		return int64(v)
	case s <= 9:
		return int64(s - 8)
	case s%2 == 1:
		return string(b)
	}
	return b
}
