package vfs

import (
	"encoding/binary"
	"errors"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"
)

// walFile is one connection's write-ahead log. SQLite has one writer at a time (its write lock), so what is behind the last commit is one
// transaction's.
//
// SQLite writes a frame as header, then page. The header is held back and written with its page in one call, which halves the system calls of a
// commit. Within a transaction SQLite may overwrite the page of a frame in place; at its commit it then writes the headers from
// there on again, each without its page (checksum rewrite).
type walFile struct {
	vfs.File
	db   *Database
	main *mainFile
	buf  []byte // frame header and page, written as one
}

func (f *walFile) Unwrap() vfs.File { return f.File }

func (f *walFile) DeviceCharacteristics() vfs.DeviceCharacteristic {
	return f.File.DeviceCharacteristics() &^ vfs.IOCAP_BATCH_ATOMIC
}

func (f *walFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.write(p, off)
	return n, full(err)
}

func (f *walFile) write(p []byte, off int64) (int, error) {
	d := f.db
	if err := d.gone(); err != nil {
		return 0, err
	}
	if off == 0 && len(p) == walHeaderSize {
		err := d.resetWAL(func() error {
			if d.refusal != nil {
				return CodeRefused
			}
			if ps := int(binary.BigEndian.Uint32(p[8:])); ps != d.o.PageSize {
				return d.unsupported("a change of the page size")
			}
			if _, err := f.File.WriteAt(p, 0); err != nil {
				return err
			}
			copy(d.salt[:], p[16:24])
			return nil
		})
		if err != nil {
			return 0, err
		}
		return len(p), nil
	}
	size := int64(frameHeaderSize + d.o.PageSize)
	index, at := int((off-walHeaderSize)/size), (off-walHeaderSize)%size
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case off >= walHeaderSize && at == 0 && len(p) == frameHeaderSize:
		return f.writeHeader(p, off, index)
	case off >= walHeaderSize && at == frameHeaderSize && len(p) == d.o.PageSize:
		return f.writePage(p, off, index)
	}
	return 0, d.unsupported("a write to the write-ahead log that is neither a frame's header nor its page")
}

// writeHeader receives a frame's header.
// +checklocks:f.db.mu
func (f *walFile) writeHeader(p []byte, off int64, index int) (int, error) {
	d := f.db
	if d.refusal != nil {
		return 0, CodeRefused // before anything of the transaction is in the file, where that is still possible
	}
	if f.isRewrite(p, index) {
		return f.File.WriteAt(p, off)
	}
	d.held = heldHeader{valid: true, index: index, bytes: [frameHeaderSize]byte(p)}
	return len(p), nil
}

// isRewrite tells a checksum rewrite from a new frame in the place of one that was rolled back: the frame is there and says the same. When
// it is a new frame all the same, its page follows, and writePage finds out.
// +checklocks:f.db.mu
func (f *walFile) isRewrite(p []byte, index int) bool {
	d := f.db
	page, count := binary.BigEndian.Uint32(p), binary.BigEndian.Uint32(p[4:])
	if c := d.uncertain; c != nil && c.by == f.main {
		i := index - c.first
		if i < 0 || i >= len(c.frames) || c.frames[i].page != page {
			return false
		}
		if last := i == len(c.frames)-1; last && count != c.pageCount || !last && count != 0 {
			return false
		}
		d.held = heldHeader{index: index, bytes: [frameHeaderSize]byte(p)}
		return true
	}
	return false
}

// writePage receives a frame's page.
// +checklocks:f.db.mu
func (f *walFile) writePage(p []byte, off int64, index int) (int, error) {
	d := f.db
	i := index - d.tailAt
	if d.uncertain == nil && !d.held.valid && i >= 0 && i < len(d.tail) { // in place, within a transaction
		if d.refusal != nil {
			return 0, CodeRefused
		}
		if err := d.checkPage(d.tail[i].page, p); err != nil {
			return 0, err
		}
		n, err := f.File.WriteAt(p, off)
		d.tail[i].sum = d.o.Sum(d.tail[i].page, p)
		return n, err
	}
	if d.held.index != index || d.held.bytes == [frameHeaderSize]byte{} {
		return 0, d.unsupported("a page in the write-ahead log without its frame's header")
	}
	hdr := d.held.bytes
	d.held = heldHeader{}
	page, count := binary.BigEndian.Uint32(hdr[:]), binary.BigEndian.Uint32(hdr[4:])
	f.begin(index)
	if d.refusal != nil {
		return 0, CodeRefused
	}
	if err := d.checkPage(page, p); err != nil {
		return 0, err
	}
	d.tail = append(d.tail[:index-d.tailAt], frame{page, d.o.Sum(page, p)})
	if count == 0 {
		d.fault("vfs:frame")
		return f.writeFrame(hdr[:], p, off)
	}
	c := &commit{frames: d.tail, first: d.tailAt, pageCount: count, by: f.main}
	if d.o.BeforeCommit != nil {
		if err := f.holdCommit(c, p, off); err != nil {
			return 0, err
		}
	}
	d.fault("vfs:commit-frame")
	n, err := f.writeFrame(hdr[:], p, off)
	if err != nil {
		if c.shipped {
			d.fellBehind(err)
		}
		return n, err
	}
	d.fault("vfs:committed")
	d.uncertain = c
	d.tail, d.tailAt = nil, index+1
	return n, nil
}

// begin makes index the next frame of the transaction being written. Frames from there on that were written before have been rolled
// back; an uncertain commit counts when index is behind it, and does not when it is overwritten.
// +checklocks:f.db.mu
func (f *walFile) begin(index int) {
	d := f.db
	if c := d.uncertain; c != nil {
		if index >= c.first+len(c.frames) {
			d.certain()
		} else {
			d.dropUncertain(errRolledBack)
		}
	}
	if index < d.tailAt || index > d.tailAt+len(d.tail) {
		d.tail, d.tailAt = nil, index
	}
}

var errRolledBack = errors.New("the transaction was rolled back")

// dropUncertain: the transaction whose commit frame was written has been rolled back.
// +checklocks:d.mu
func (d *Database) dropUncertain(cause error) {
	c := d.uncertain
	if c.shipped {
		d.fellBehind(cause)
	}
	d.uncertain = nil
	d.tail, d.tailAt = c.frames, c.first
	d.cond.Broadcast()
}

// writeFrame writes header and page at once. off is the page's.
// +checklocks:f.db.mu
func (f *walFile) writeFrame(hdr, p []byte, off int64) (int, error) {
	f.buf = append(append(f.buf[:0], hdr...), p...)
	if _, err := f.File.WriteAt(f.buf, off-frameHeaderSize); err != nil {
		return 0, err
	}
	return len(p), nil
}

// checkPage refuses content that frames cannot carry faithfully: in a checksum database (byte 20 of its header is 8) the driver puts each page's checksum in when it
// writes the main file, and frames lack it.
func (d *Database) checkPage(page uint32, p []byte) error {
	if page == 1 && p[20] == 8 {
		return d.unsupported("a checksum database (8 reserved bytes per page)")
	}
	return nil
}

// holdCommit asks BeforeCommit about a transaction whose frames are all in the file but for the header of the last.
// +checklocks:f.db.mu
func (f *walFile) holdCommit(c *commit, p []byte, off int64) error {
	d := f.db
	if _, err := f.File.WriteAt(p, off); err != nil {
		return err
	}
	h := &Held{d: d, c: c}
	d.mu.Unlock()
	err := d.o.BeforeCommit(f.main.context(), h)
	d.mu.Lock()
	h.settle(err == nil)
	if err == nil {
		c.shipped = h.ch != nil
		return nil
	}
	d.tail = d.tail[:0]
	// Nothing of it stays in the file. Only the writer, who waits for us, would write here.
	if terr := f.File.Truncate(walHeaderSize + int64(d.tailAt)*int64(frameHeaderSize+d.o.PageSize)); terr != nil {
		return terr
	}
	d.lastRefused.Store(&err)
	return CodeRefused
}

func (f *walFile) Truncate(size int64) error {
	if err := f.db.gone(); err != nil {
		return err
	}
	if size == 0 {
		return full(f.db.resetWAL(func() error { return f.File.Truncate(0) }))
	}
	return f.File.Truncate(size) // beyond the last commit: journal_size_limit
}

func (f *walFile) Sync(flags vfs.SyncFlag) error {
	err := f.File.Sync(flags)
	if err != nil {
		f.failed(err)
	}
	return err
}

func (f *walFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.db.gone(); err != nil {
		return 0, err
	}
	if len(p) == f.db.o.PageSize && !f.main.checkpointing && stopped(f.main.conn) { // other reads are those of a commit that rewrites checksums, and of a recovery
		return 0, sqlite3.IOERR_READ
	}
	return f.File.ReadAt(p, off)
}

// failed: an operation on the write-ahead log failed after this connection's commit frame was written, so SQLite rolls back.
func (f *walFile) failed(err error) {
	d := f.db
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.uncertain != nil && d.uncertain.by == f.main {
		d.dropUncertain(err)
	}
}
