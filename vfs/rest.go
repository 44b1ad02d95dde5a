package vfs

import "context"

// What makes the write-ahead log begin anew without a COMMIT that waits. A COMMIT that begins it anew has to wait until pages of it that a Take has taken are read, and until BeforeReset has
// noted what is not shipped; both can be seen to before.

// HoldTakes makes every [Database.Take] wait from now until release is called, or the write-ahead log begins anew, which closes the channel. It waits until the pages of a Take under way are read.
// ok is false, and nothing is held, when ctx ends, or when pages are being read back for something else, such as CopyTo, which may take long.
func (d *Database) HoldTakes(ctx context.Context) (over <-chan struct{}, release func(), ok bool) {
	c := make(chan struct{})
	d.mu.Lock()
	if d.resting != nil {
		d.mu.Unlock()
		return nil, nil, false
	}
	d.resting = c
	d.mu.Unlock()
	release = func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.resting == c {
			d.rested()
		}
	}
	d.waiting.Add(1) // who reads hurries
	err := d.wait(ctx, func() bool { return d.taken != nil && !d.taken.release })
	d.waiting.Add(-1)
	if err != nil || !d.ckpt.TryLock() {
		release()
		return nil, nil, false
	}
	d.ckpt.Unlock()
	return c, release, true
}

// rested lets Takes go on.
// +checklocks:d.mu
func (d *Database) rested() {
	if d.resting != nil {
		close(d.resting)
		d.resting = nil
		d.cond.Broadcast()
	}
}

// Foretell calls BeforeReset with what is committed now and not shipped, so that the next reset has that much less to tell it. A checkpoint may run meanwhile. When the database has been smaller than
// what is shipped, or in flight, it does nothing: that is told at the reset, together with the size. Nor does it but between HoldTakes and its end: what is told of while a Take is made could be older than what that
// takes, or newer, and package cache tells these apart by which of the two came first. A commit that is held back and taken is the same.
func (d *Database) Foretell() error {
	if d.o.BeforeReset == nil {
		return nil
	}
	d.telling.Lock()
	defer d.telling.Unlock()
	d.mu.Lock()
	low, of := d.shrunk()
	count := d.pageCount
	var pages []PageSum
	if low >= of && d.resting != nil && (d.taken == nil || d.taken.release && !d.taken.held) {
		pages = d.untold()
	}
	d.mu.Unlock()
	if len(pages) == 0 {
		return nil
	}
	if err := d.o.BeforeReset(Spill{count, of, of, pages}); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range pages {
		d.foretold[p.Page] = p.Sum
		if sum, in := d.spilled[p.Page]; in && sum == p.Sum {
			delete(d.unsaved, p.Page)
		}
	}
	return nil
}

// retell makes the reset tell of what was told of before, if it is in the main file by then.
// +checklocks:d.mu
func (d *Database) retell() {
	for p := range d.foretold {
		if _, in := d.spilled[p]; in {
			d.unsaved[p] = struct{}{}
		}
	}
	clear(d.foretold)
}

// untold lists the unshipped pages of which BeforeReset does not know what the main file holds, or will hold when all of the write-ahead log is there.
// +checklocks:d.mu
func (d *Database) untold() []PageSum {
	var pages []PageSum
	for p := range d.unsaved {
		if _, in := d.wal[p]; !in && p <= d.pageCount {
			pages = append(pages, PageSum{p, d.spilled[p]})
		}
	}
	for p, v := range d.wal {
		if p > d.pageCount || !d.dirty.Has(p) && (d.taken == nil || !d.taken.has(p)) {
			continue
		}
		if told, in := d.foretold[p]; in && told == v.sum {
			continue
		}
		if sum, in := d.spilled[p]; in && sum == v.sum {
			if _, news := d.unsaved[p]; !news {
				continue
			}
		}
		pages = append(pages, PageSum{p, v.sum})
	}
	return pages
}
