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
