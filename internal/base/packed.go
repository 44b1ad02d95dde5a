package base

import (
	"fmt"

	"github.com/tonbo-go/tonbo/internal/segment"
)

// Packed is what lies above the levels in a base whose tail was not merged with them: packs, in which the entries of the log are as they were written. The levels then hold the pages as of
// an earlier slot of the same log, and the packs every entry since that carries pages.
type Packed struct {
	Slot      uint64 `json:"slot"`       // the levels hold the pages as of it
	PageCount uint32 `json:"page_count"` // of the database there
	Packs     []Pack `json:"packs"`      // oldest first
}

// Pack is an object that holds the payloads of entries (segment.Pack).
type Pack struct {
	Key     string `json:"key"`     // full key
	From    uint64 `json:"from"`    // slots of the first and the last entry
	Slot    uint64 `json:"slot"`    //
	Entries int    `json:"entries"` // how many it holds
	Pages   int    `json:"pages"`   // different pages in them
	Size    int64  `json:"size"`    // bytes of the object
}

// Limits of what is above the levels: an opening fetches and keeps all of it.
const (
	MaxPacks   = 64
	MaxPacked  = segment.MaxPacked // entries
	PackedSize = 16 << 20          // bytes
)

// Packs returns the packs, oldest first.
func (m *Manifest) Packs() []Pack {
	if m == nil || m.Packed == nil {
		return nil
	}
	return m.Packed.Packs
}

// LevelsAt returns the slot that the levels hold the pages of, and the pages of the database there.
func (m *Manifest) LevelsAt() (slot uint64, pageCount uint32) {
	if m.Packed == nil {
		return m.Slot, m.PageCount
	}
	return m.Packed.Slot, m.Packed.PageCount
}

// PackedTotal adds up the entries, pages and bytes of packs.
func PackedTotal(packs []Pack) (entries, pages int, size int64) {
	for _, p := range packs {
		entries, pages, size = entries+p.Entries, pages+p.Pages, size+p.Size
	}
	return entries, pages, size
}

func (m *Manifest) checkPacked() error {
	p := m.Packed
	if p != nil && m.Format == Format || p == nil && m.Format == FormatPacked {
		return fmt.Errorf("%w: packs in a manifest of format %d", ErrFormat, m.Format)
	}
	if p == nil {
		return nil
	}
	if p.Slot == 0 || p.PageCount == 0 || len(p.Packs) == 0 || len(p.Packs) > MaxPacks || m.Upper != nil {
		return fmt.Errorf("%w: %d packs above slot %d, %d pages", ErrFormat, len(p.Packs), p.Slot, p.PageCount)
	}
	before := p.Slot
	entries, size := 0, int64(0)
	for _, k := range p.Packs {
		if k.Key == "" || k.From <= before || k.Slot < k.From || k.Slot > m.Slot || k.Entries < 1 || k.Pages < 1 || k.Size < 1 || k.Entries > MaxPacked || k.Size > PackedSize {
			return fmt.Errorf("%w: pack %+v", ErrFormat, k)
		}
		before, entries, size = k.Slot, entries+k.Entries, size+k.Size
	}
	if entries > MaxPacked || size > PackedSize {
		return fmt.Errorf("%w: packs of %d entries, %d bytes", ErrFormat, entries, size)
	}
	return nil
}
