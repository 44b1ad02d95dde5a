package vfs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tonbo-go/tonbo/internal/pageset"
)

// Changes are the pages that differ from the last shipped state, as of one commit boundary. Read them with Each, then call Release, then,
// when their fate is known, either Shipped or Return. There is at most one unsettled Changes of a Database.
type Changes struct {
	PageSize  int    // bytes
	PageCount uint32 // size of the database at the boundary
	Commits   int    // commits since the last Take
	Whole     bool   // it is every page, of TakeAll

	ctx      context.Context // ends the fetching of absent pages
	d        *Database
	pages    []uint32 // ascending
	set      pageset.Set
	minCount uint32
	places   map[uint32]version // where pages are in the write-ahead log; later commits do not move these
	back     pageset.Set        // what Return gives back to dirty
	commits  int                // and to commits
	log      uint64             // which write-ahead log places are in
	held     bool               // of a transaction whose commit is held back
	release  bool
	settled  bool
}

// Take returns what has changed since the last one, or nil when nothing has. Until Release, checkpoints wait; commits do not. Take
// itself waits for a commit that is written but not yet certain, since another connection may have read it, and for one that is shipped and not yet written.
func (d *Database) Take(ctx context.Context) (*Changes, error) { return d.takeNow(ctx, false) }

// TakeAll is Take with every page of the database, changed or not.
func (d *Database) TakeAll(ctx context.Context) (*Changes, error) { return d.takeNow(ctx, true) }

func (d *Database) takeNow(ctx context.Context, all bool) (*Changes, error) {
	later := func() bool { return d.unsettled() || d.resting != nil }
	for {
		if err := d.wait(ctx, later); err != nil {
			return nil, err
		}
		d.ckpt.RLock()
		d.mu.Lock()
		if !later() {
			break
		}
		d.mu.Unlock()
		d.ckpt.RUnlock()
	}
	defer d.mu.Unlock()
	if d.behind {
		d.ckpt.RUnlock()
		return nil, fmt.Errorf("%s: %w", d.path, ErrBehind)
	}
	if d.taken != nil {
		d.ckpt.RUnlock()
		return nil, errors.New("vfs: the last Changes are not settled")
	}
	c := d.take(ctx, nil, all)
	if len(c.pages) == 0 && c.PageCount == d.shippedCount {
		d.taken = nil
		d.ckpt.RUnlock()
		return nil, nil
	}
	return c, nil
}

// Held is a transaction whose commit is held back.
type Held struct {
	d  *Database
	c  *commit
	ch *Changes
}

// Take returns the pages of the held transaction and all others not yet shipped. Like [Database.Take], but BeforeCommit's outcome settles them:
// nil counts as shipped, an error gives back what had been committed before. Call it once at most, when no other Changes are unsettled.
func (h *Held) Take(ctx context.Context) *Changes {
	h.d.ckpt.RLock()
	h.d.telling.Lock() // HoldTakes does not hold this one
	defer h.d.telling.Unlock()
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	h.ch = h.d.take(ctx, h.c, false)
	h.ch.held = true
	return h.ch
}

// settle draws the consequence of BeforeCommit's outcome. The caller keeps d.mu until the commit frame is written: in between, the shipped state is
// ahead of the file, and a Take would see a change back.
// +checklocks:h.d.mu
func (h *Held) settle(shipped bool) {
	switch {
	case h.ch == nil:
		return
	case shipped:
		h.ch.shipped()
	default:
		h.ch.giveBack()
	}
	h.ch.letGo()
	h.d.cond.Broadcast()
}

// take collects the changes, with those of held, a commit that is being held back. d.ckpt is held shared; Release lets it go.
// +checklocks:d.mu
func (d *Database) take(ctx context.Context, held *commit, all bool) *Changes {
	c := &Changes{ctx: ctx, PageSize: d.o.PageSize, PageCount: d.pageCount, Commits: d.commits, d: d, minCount: d.minCount, back: d.dirty, commits: d.commits, log: d.frames.Load() >> 32}
	c.set.AddAll(&d.dirty)
	c.places = map[uint32]version{}
	low := c.minCount
	if held != nil {
		c.PageCount = held.pageCount
		c.Commits++
		low = min(low, held.pageCount)
		for i, f := range held.frames {
			c.places[f.page] = version{walHeaderSize + int64(held.first+i)*int64(frameHeaderSize+d.o.PageSize) + frameHeaderSize, f.sum}
			c.set.Add(f.page)
		}
	}
	if c.Whole = all; all { // c.minCount stays: what has to be noted before the write-ahead log is reset does not depend on what is shipped
		low = 0
	}
	for p := low + 1; p <= c.PageCount; p++ {
		if p != d.lockPage() {
			c.set.Add(p)
		}
	}
	c.pages = make([]uint32, 0, c.set.Len())
	for p := range c.set.All() {
		if p > c.PageCount {
			continue
		}
		c.pages = append(c.pages, p)
		if v, in := d.wal[p]; in {
			if _, held := c.places[p]; !held {
				c.places[p] = v
			}
		}
	}
	d.dirty, d.commits, d.minCount = pageset.Set{}, 0, c.PageCount
	d.retell() // with c, once it is stored, what was told of before it is forgotten: a page that is by then what it was before it again is news
	d.taken = c
	return c
}

func (c *Changes) has(p uint32) bool { return c.set.Has(p) }

// Len is the number of pages.
func (c *Changes) Len() int { return len(c.pages) }

// Pages lists the pages in ascending order. It is c's own memory.
func (c *Changes) Pages() []uint32 { return c.pages }

// Each reads the pages in ascending order. page is valid during the call. Before Release. It ends when the ctx of Take does.
//
// What fn does with a page takes longer than to read it. When a checkpoint waits, the rest is therefore read at once, if it is not too large, and the checkpoint let go:
// it may be a commit's own that waits, and with it the commit.
func (c *Changes) Each(fn func(pgno uint32, page []byte, sum uint64) error) error {
	return c.EachOver(nil, func(pgno uint32, page []byte, sum uint64, _ []byte) error { return fn(pgno, page, sum) })
}

// EachOver is Each with the last shipped version of each page for which shipped returns its checksum and true, if a file here still has it: the write-ahead log, or the main file while that has
// nothing newer. before is nil where that is not so; nothing is fetched for it.
func (c *Changes) EachOver(shipped func(pgno uint32) (sum uint64, ok bool), fn func(pgno uint32, page []byte, sum uint64, before []byte) error) error {
	room := buffers.Get().(*[]byte)
	defer buffers.Put(room)
	*room = slices.Grow((*room)[:0], 2*c.PageSize)
	buf := (*room)[:2*c.PageSize]
	for i, p := range c.pages {
		if rest := c.pages[i:]; !c.release && c.d.waiting.Load() > 0 && int64(len(rest))*int64(c.PageSize) <= readAhead {
			return c.eachOf(rest, shipped, fn)
		}
		page, before, sum, err := c.read(p, buf, shipped)
		if err != nil {
			return err
		}
		if err := fn(p, page, sum, before); err != nil {
			return err
		}
	}
	return nil
}

// read reads a page, and its last shipped version, into buf, which has room for both.
func (c *Changes) read(p uint32, buf []byte, shipped func(pgno uint32) (uint64, bool)) (page, before []byte, sum uint64, err error) {
	page, before = buf[:c.PageSize:c.PageSize], buf[c.PageSize:]
	if sum, err = c.d.readPage(c.ctx, p, page, c.places); err != nil {
		return nil, nil, 0, err
	}
	if shipped != nil {
		if was, ok := shipped(p); ok && c.d.readShipped(p, was, before) {
			return page, before, sum, nil
		}
	}
	return page, nil, sum, nil
}

// buffers are for a page and its version before.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// readAhead bounds the memory, in bytes, for pages that are read at once to let a checkpoint go.
const readAhead = 32 << 20

// eachOf is EachOver of pages that are read before, and then released.
func (c *Changes) eachOf(pages []uint32, shipped func(pgno uint32) (uint64, bool), fn func(pgno uint32, page []byte, sum uint64, before []byte) error) error {
	type read struct {
		page, before []byte
		sum          uint64
	}
	size := c.PageSize
	if shipped != nil {
		size *= 2
	}
	all, reads := make([]byte, len(pages)*size), make([]read, len(pages))
	for i, p := range pages {
		var err error
		r := &reads[i]
		if r.page, r.before, r.sum, err = c.read(p, all[i*size:(i+1)*size:(i+1)*size], shipped); err != nil {
			return err
		}
	}
	c.Release()
	for i, p := range pages {
		if err := fn(p, reads[i].page, reads[i].sum, reads[i].before); err != nil {
			return err
		}
	}
	return nil
}

// readShipped brings the last shipped version of a page, whose checksum is sum, into buf, and tells whether it did. d.ckpt is held.
func (d *Database) readShipped(pgno uint32, sum uint64, buf []byte) bool {
	d.mu.Lock()
	v, sent := d.sent[pgno]
	f := d.walFile
	d.mu.Unlock()
	if sent && v.sum == sum && f != nil {
		if _, err := f.ReadAt(buf, v.off); err == nil && d.o.Sum(pgno, buf) == sum {
			return true
		}
	}
	main, err := d.openMain()
	if err == nil {
		_, err = main.ReadAt(buf, int64(pgno-1)*int64(len(buf)))
	}
	return err == nil && d.o.Sum(pgno, buf) == sum
}

// Release lets checkpoints go on. A second call does nothing.
func (c *Changes) Release() {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.letGo()
}

// +checklocks:c.d.mu
func (c *Changes) letGo() {
	if !c.release {
		c.release = true
		c.d.ckpt.RUnlock()
		c.d.cond.Broadcast()
	}
}

// Shipped settles the changes: they are the last shipped state now.
func (c *Changes) Shipped() {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.shipped()
}

// +checklocks:c.d.mu
func (c *Changes) shipped() {
	d := c.d
	if !c.settle() {
		return
	}
	d.shippedCount = c.PageCount
	for _, p := range c.pages {
		if v, in := c.places[p]; in && c.log == d.frames.Load()>>32 {
			d.sent[p] = v
		} else {
			delete(d.sent, p)
		}
		if !d.dirty.Has(p) {
			delete(d.spilled, p)
			delete(d.unsaved, p)
			delete(d.foretold, p)
		}
	}
}

// Return settles the changes by giving them back: the next Take returns them again.
func (c *Changes) Return() {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.giveBack()
}

// +checklocks:c.d.mu
func (c *Changes) giveBack() {
	d := c.d
	if !c.settle() {
		return
	}
	c.back.AddAll(&d.dirty)
	d.dirty = c.back
	d.commits += c.commits
	d.minCount = min(d.minCount, c.minCount)
}

// +checklocks:c.d.mu
func (c *Changes) settle() bool {
	if c.settled {
		return false
	}
	c.settled = true
	c.d.taken = nil
	return true
}

// unsettled tells that what is committed is not known at this moment, or that what is shipped is ahead of it.
// +checklocks:d.mu
func (d *Database) unsettled() bool {
	return d.uncertain != nil || d.taken != nil && d.taken.held
}

// Certain waits until every commit that is written counts, or does not: until then Pending may leave out one that is about to return.
func (d *Database) Certain(ctx context.Context) error { return d.wait(ctx, d.isUncertain) }

// isUncertain tells that a commit frame is written and not known to count.
// +checklocks:d.mu
func (d *Database) isUncertain() bool { return d.uncertain != nil }

// wait waits until no commit is uncertain (or unsettled). That takes microseconds, or the time of an fsync: SQLite tells in the very call of COMMIT.
// On the one path where it does not (a commit over several attached files that fails in another one), its index of the write-ahead log does.
func (d *Database) wait(ctx context.Context, while func() bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !while() {
		return nil
	}
	const ask = 5 * time.Millisecond
	defer context.AfterFunc(ctx, d.wake)()
	t := time.AfterFunc(ask, d.wake)
	defer t.Stop()
	for while() {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("waiting for a commit under way: %w", err)
		}
		c := d.uncertain
		d.cond.Wait()
		if c != nil && d.uncertain == c && d.indexSays(c.first+len(c.frames)-1) {
			d.certain()
		}
		t.Reset(ask)
	}
	return nil
}

func (d *Database) wake() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cond.Broadcast()
}

// readPage reads the newest committed version of a page and checks it against the sum taken when it was written: from the write-ahead log
// when places has it, else from the main file. d.ckpt is held. A page that is absent from the main file is fetched; with a nil ctx it is read as the file has it.
func (d *Database) readPage(ctx context.Context, p uint32, buf []byte, places map[uint32]version) (uint64, error) {
	d.mu.Lock()
	v, inWAL := places[p]
	want, known := d.spilled[p]
	if inWAL && d.walFile == nil {
		var err error
		if d.walFile, err = os.Open(d.path + "-wal"); err != nil {
			d.mu.Unlock()
			return 0, fmt.Errorf("read page %d back: %w", p, err)
		}
	}
	f := d.walFile
	d.mu.Unlock()
	if inWAL {
		if _, err := f.ReadAt(buf, v.off); err != nil {
			return 0, fmt.Errorf("read page %d back from %s-wal: %w: %w", p, d.path, ErrCorrupt, err)
		}
		want, known = v.sum, true
	} else if err := d.readMain(ctx, p, buf); err != nil {
		return 0, fmt.Errorf("read page %d back from %s: %w", p, d.path, err)
	}
	sum := d.o.Sum(p, buf)
	if known && sum != want {
		return 0, fmt.Errorf("page %d of %s: %w: it is not what SQLite wrote (disk or memory damage, or another program)", p, d.path, ErrCorrupt)
	}
	return sum, nil
}

// readMain reads a page from the main file.
func (d *Database) readMain(ctx context.Context, p uint32, buf []byte) error {
	off := int64(p-1) * int64(len(buf))
	if s := d.o.Source; s != nil && ctx != nil {
		if err := s.Ensure(ctx, off, int64(len(buf))); err != nil {
			return err
		}
	}
	return d.readFile(buf, off)
}

// readFile reads a page as the main file has it.
func (d *Database) readFile(buf []byte, off int64) error {
	f, err := d.openMain()
	if err != nil {
		return err
	}
	return readFull(f, buf, off)
}

// readFull reads a page; what the file does not have yet is zero, as SQLite reads it.
func readFull(f *os.File, buf []byte, off int64) error {
	n, err := f.ReadAt(buf, off)
	if err == io.EOF {
		clear(buf[n:])
		return nil
	}
	return err
}

// CopyTo writes the database as of the last commit as a plain SQLite file: in rollback mode, without a write-ahead log. Checkpoints wait.
func (d *Database) CopyTo(ctx context.Context, w io.Writer) error {
	if err := d.wait(ctx, d.isUncertain); err != nil {
		return err
	}
	d.ckpt.RLock()
	defer d.ckpt.RUnlock()
	buf := make([]byte, d.o.PageSize)
	d.mu.Lock()
	count := d.pageCount
	over := make(map[uint32]version, len(d.wal))
	for p, v := range d.wal {
		over[p] = v
	}
	d.mu.Unlock()
	for p := uint32(1); p <= count; p++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if p == d.lockPage() {
			clear(buf)
		} else if _, err := d.readPage(ctx, p, buf, over); err != nil {
			return err
		}
		if p == 1 {
			copy(buf[18:20], []byte{1, 1}) // https://sqlite.org/fileformat2.html#file_format_version_numbers
		}
		if _, err := w.Write(buf); err != nil {
			return err
		}
	}
	return nil
}

// EmptyDatabase returns the image of a database without tables: one page, in WAL mode.
func EmptyDatabase(pageSize int) []byte {
	p := make([]byte, pageSize)
	copy(p, "SQLite format 3\x00")
	binary.BigEndian.PutUint16(p[16:], uint16(pageSize&0xffff|pageSize>>16)) // 65536 is written as 1
	copy(p[18:], []byte{2, 2, 0, 64, 32, 32})
	binary.BigEndian.PutUint32(p[24:], 1) // change counter
	binary.BigEndian.PutUint32(p[28:], 1) // pages
	binary.BigEndian.PutUint32(p[92:], 1) // the change counter that the page count belongs to
	p[100] = 13                           // a leaf of the schema table
	binary.BigEndian.PutUint16(p[105:], uint16(pageSize&0xffff))
	return p
}

// Unshipped returns the pages that a Take would return now, and the size of the database in pages.
func (d *Database) Unshipped() (pages []uint32, pageCount uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var set pageset.Set
	set.AddAll(&d.dirty)
	for p := d.minCount + 1; p <= d.pageCount; p++ {
		if p != d.lockPage() {
			set.Add(p)
		}
	}
	for p := range set.All() {
		if p <= d.pageCount {
			pages = append(pages, p)
		}
	}
	return pages, d.pageCount
}

// ReadPage reads the newest committed version of a page into buf and returns its sum. The page must be in the database. What it reads of one that is absent from the
// main file means nothing: compare its sum.
func (d *Database) ReadPage(pgno uint32, buf []byte) (sum uint64, err error) {
	d.ckpt.RLock()
	defer d.ckpt.RUnlock()
	d.mu.Lock()
	places := map[uint32]version{}
	if v, in := d.wal[pgno]; in {
		places[pgno] = v
	}
	d.mu.Unlock()
	return d.readPage(context.Background(), pgno, buf, places)
}
