package cache

import "github.com/tonbo-go/tonbo/internal/pageset"

// PageSum returns the checksum of a page as of the last shipped slot, 0 beyond its size and for the lock page.
func (d *Dir) PageSum(page uint32) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.j.state; s != nil {
		return s.Sums.At(page)
	}
	return 0
}

// Sum is PageSum and tells whether it is known.
func (d *Dir) Sum(page uint32) (sum uint64, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.j.state; s != nil && int(page) <= s.Sums.Len() && page > 0 {
		return s.Sums.At(page), s.Knows(page)
	}
	return 0, true
}

// Snapshot is Position, and the checksums of all pages as of that slot: 0 of those that are not known. They stay what they are, whatever is shipped later.
func (d *Dir) Snapshot() (slot uint64, pageCount uint32, checksum uint64, sums pageset.Sums) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.j.state; s != nil {
		return s.Slot, uint32(s.Sums.Len()), s.Checksum, s.Sums.Snapshot()
	}
	return 0, 0, 0, pageset.Sums{}
}

// Unknown is the number of pages whose sum is not known.
func (d *Dir) Unknown() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.j.state == nil {
		return 0
	}
	return d.j.state.unknown()
}

// Present returns the pages that the database file holds, or held when the last Recover ended: those whose sum is known and those that unshipped commits
// wrote. nil: all of them.
func (d *Dir) Present() *pageset.Bits {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.j.state
	if s == nil || s.Known == nil {
		return nil
	}
	b := s.Known.Clone()
	for p := range d.j.spilled {
		b.Set(p)
	}
	return b
}

// Position returns the last shipped slot, and the size (in pages) and the database checksum as of it.
func (d *Dir) Position() (slot uint64, pageCount uint32, checksum uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.j.state; s != nil {
		return s.Slot, uint32(s.Sums.Len()), s.Checksum
	}
	return 0, 0, 0
}

// Vacate forgets what is known of the database file, durably, and leaves the file: call it before changing the file in place, and Begin after. A crash in
// between leaves a directory that holds nothing of use, and that says so.
func (d *Dir) Vacate() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosed
	}
	d.j = journalState{}
	d.damaged = ""
	return d.rewrite()
}
