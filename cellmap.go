package tonbo

import (
	"iter"
	"sync/atomic"
)

// cellMap tells in which cell each page of a point is. Its memory grows with the pages that are there, not with the number that the log says the database has: whoever may write an entry can say any, and a reader has to
// live with that. Reads may come beside a change; changes are one at a time.
type cellMap struct {
	n         int // pages
	stretches []atomic.Pointer[cellStretch]
}

// cellStretch are the cells of neighbouring pages, each + 1; 0: absent.
type cellStretch [1 << stretchBits]atomic.Uint32

const stretchBits = 11 // 8 KiB a stretch; 16 MiB of pointers for the largest database that SQLite knows

func newCellMap(pages int) cellMap {
	return cellMap{pages, make([]atomic.Pointer[cellStretch], (pages+1<<stretchBits-1)>>stretchBits)}
}

// load returns the cell of a page + 1, 0: the page is absent, or there is no such page. Pages count from 1.
func (m *cellMap) load(page uint32) uint32 {
	if int64(page) > int64(m.n) {
		return 0
	}
	i := page - 1
	if s := m.stretches[i>>stretchBits].Load(); s != nil {
		return s[i&(1<<stretchBits-1)].Load()
	}
	return 0
}

// store sets it.
func (m *cellMap) store(page, cell uint32) {
	i := page - 1
	p := &m.stretches[i>>stretchBits]
	s := p.Load()
	if s == nil {
		s = new(cellStretch)
		p.Store(s)
	}
	s[i&(1<<stretchBits-1)].Store(cell)
}

// all yields the pages that are there, ascending, with their cells + 1.
func (m *cellMap) all() iter.Seq2[uint32, uint32] {
	return func(yield func(page, cell uint32) bool) {
		for k := range m.stretches {
			s := m.stretches[k].Load()
			if s == nil {
				continue
			}
			for i := range s {
				if w := s[i].Load(); w != 0 && !yield(uint32(k<<stretchBits+i)+1, w) {
					return
				}
			}
		}
	}
}
