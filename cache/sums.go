package cache

// PageSum returns the checksum of a page as of the last shipped slot, 0 beyond its size and for the lock page.
func (d *Dir) PageSum(page uint32) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.j.state; s != nil && int(page) <= len(s.Sums) && page > 0 {
		return s.Sums[page-1]
	}
	return 0
}

// Position returns the last shipped slot, and the size (in pages) and the database checksum as of it.
func (d *Dir) Position() (slot uint64, pageCount uint32, checksum uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.j.state; s != nil {
		return s.Slot, uint32(len(s.Sums)), s.Checksum
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
