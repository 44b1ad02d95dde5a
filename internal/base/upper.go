package base

import (
	"fmt"
	"math/bits"

	"github.com/tonbo-go/tonbo/internal/segment"
)

// Upper is a bounded copy of pages in the levels, those that any query reads first: page 1, the schema, roots and interior pages of b-trees. A reader may ignore it.
type Upper struct {
	Pages   int    `json:"pages"`
	Sum     string `json:"sum"`     // payload checksum, 16 hexadecimal digits
	Payload []byte `json:"payload"` // as that of a segment
}

// Each calls fn with each page, of a database of pageCount pages. A page's bytes are valid during the call. Errors: fn's, and those of package segment.
func (u *Upper) Each(pageSize, pageCount uint32, fn func(pgno uint32, page []byte) error) error {
	h, ix, err := u.index(pageSize, pageCount)
	if ix == nil || err != nil {
		return err
	}
	return segment.EachPage(h, ix, u.Payload, fn)
}

// Index returns which pages there are; nil: none.
func (u *Upper) Index(pageSize, pageCount uint32) (*segment.Index, error) {
	_, ix, err := u.index(pageSize, pageCount)
	return ix, err
}

// Check compares every block of it with its checksum. Errors: those of package segment.
func (u *Upper) Check(pageSize, pageCount uint32) error {
	ix, err := u.Index(pageSize, pageCount)
	if ix == nil || err != nil {
		return err
	}
	return ix.Check(u.Payload)
}

func (u *Upper) index(pageSize, pageCount uint32) (*segment.Header, *segment.Index, error) {
	if u == nil {
		return nil, nil, nil
	}
	sum, err := parseSum(u.Sum)
	if err != nil {
		return nil, nil, err
	}
	h := &segment.Header{Kind: segment.KindSegment, PageSize: pageSize, PageCount: pageCount, PayloadSize: int64(len(u.Payload)), PayloadSum: sum}
	ix, err := segment.DecodeIndex(u.Payload, h)
	return h, ix, err
}

// PayloadSum returns the payload's checksum.
func (u *Upper) PayloadSum() (uint64, error) { return parseSum(u.Sum) }

// UpperObject is a segment of such copies, which bases name as long as few of its pages have changed since it was made: what these are now, Upper says, as far as it goes. A reader may ignore both.
type UpperObject struct {
	Key   string    `json:"key"`   // full key
	Pages int       `json:"pages"` // how many it holds
	Size  int64     `json:"size"`  // bytes of the object
	Sum   string    `json:"sum"`   // its payload checksum, 16 hexadecimal digits
	Slot  uint64    `json:"slot"`  // its pages are as of it, in the log of the name in its key
	Stale PageMarks `json:"stale,omitempty"`
	Spare bool      `json:"spare,omitempty"` // Upper has all that a reader wants of it: it is there for the bases to come
}

// MaxUpper is how large an upper object may be, bytes, and how many bytes of pages it may hold: who opens the database fetches and unpacks all of it.
const MaxUpper = 8 << 20

// PayloadSum returns the payload's checksum.
func (u *UpperObject) PayloadSum() (uint64, error) { return parseSum(u.Sum) }

func (m *Manifest) checkUpper() error {
	u := m.UpperObject
	if (u != nil) != (m.Format == FormatUpper) {
		return fmt.Errorf("%w: an upper object in a manifest of format %d", ErrFormat, m.Format)
	}
	if u == nil {
		return nil
	}
	if u.Key == "" || u.Pages < 1 || u.Pages > MaxUpper || u.Size < 1 || u.Size > MaxUpper || int64(u.Pages)*int64(m.PageSize) > MaxUpper || u.Slot == 0 {
		return fmt.Errorf("%w: upper object %+v", ErrFormat, u)
	}
	if _, err := u.PayloadSum(); err != nil {
		return err
	}
	if n := len(u.Stale); n > 0 && (n != (u.Pages+7)/8 || u.Pages%8 > 0 && u.Stale[n-1]>>(u.Pages%8) != 0) {
		return fmt.Errorf("%w: upper object of %d pages, %d bytes tell which of them are stale", ErrFormat, u.Pages, n)
	}
	return nil
}

// PageMarks tells which of an object's pages, counted in ascending order from 0, are stale: a bit for each, the lowest of a byte first. Empty: none is.
type PageMarks []byte

// Has tells whether page i is marked.
func (s PageMarks) Has(i int) bool { return i/8 < len(s) && s[i/8]&(1<<(i%8)) != 0 }

// Count returns how many are.
func (s PageMarks) Count() (n int) {
	for _, b := range s {
		n += bits.OnesCount8(b)
	}
	return n
}

// NewPageMarks returns marks for n pages, of which those are marked that marked tells.
func NewPageMarks(n int, marked func(i int) bool) PageMarks {
	var s PageMarks
	for i := range n {
		if !marked(i) {
			continue
		}
		if s == nil {
			s = make(PageMarks, (n+7)/8)
		}
		s[i/8] |= 1 << (i % 8)
	}
	return s
}
