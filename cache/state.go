package cache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tonbo-go/tonbo/internal/segment"
)

var (
	errClosed  = errors.New("cache directory is closed")
	errNoState = errors.New("cache directory holds no state: Begin first")
)

// check tells whether a state can be one.
func (s *State) check() error {
	if !segment.ValidPageSize(int(s.PageSize)) {
		return fmt.Errorf("page size %d", s.PageSize)
	}
	if s.Known != nil && s.Known.Len() != s.Sums.Len() {
		return fmt.Errorf("%d pages, of which it is said whether %d are known", s.Sums.Len(), s.Known.Len())
	}
	var x uint64
	for p, v := range s.Sums.All() {
		if !s.Knows(p) {
			return fmt.Errorf("page %d is not known and has a sum", p)
		}
		x ^= v
	}
	if x != s.Checksum && s.unknown() == 0 {
		return fmt.Errorf("page sums give the database checksum %016x, not %016x", x, s.Checksum)
	}
	if lock := segment.LockPage(int(s.PageSize)); s.Sums.At(lock) != 0 {
		return fmt.Errorf("lock page %d has a sum", lock)
	}
	return nil
}

// Begin makes s the state: the database file holds exactly what s says (of pages that are not Known it need hold nothing), and is durable. It replaces any state before it, atomically and durably; Boot is set
// to this boot. Steps: begin:written, begin:synced, begin:renamed, begin:done.
func (d *Dir) Begin(s State) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosed
	}
	if err := s.check(); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	st := &s
	st.Sums, st.Known = s.Sums.Clone(), s.Known.Clone() // the caller has the others
	st.normalize()
	st.Boot = d.boot()
	old := d.j // a failed Begin leaves it
	d.j = journalState{state: st, spilled: map[uint32]spill{}}
	if err := d.rewriteAs("begin"); err != nil {
		d.j = old
		return fmt.Errorf("begin: %w", err)
	}
	d.mark, d.capturing, d.damaged = 0, 0, ""
	return nil
}

// Captured says that the entry being made holds everything committed up to now. Call it while the lock is held under which the pages are read and which a
// reset of the WAL takes, before the Shipped of that entry (one append is in flight at a time, R1). Without it Recover works, but what was
// spilled before the entry stays a content that it accepts. slot is where the entry goes.
func (d *Dir) Captured(slot uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mark, d.capturing = d.j.seq, slot
}

// beforeNow notes, of the Spilled or Shrunk that has just been applied, that entries above the last one that was captured will be captured after it.
func (d *Dir) beforeNow() (payload []byte) {
	slot := max(d.j.state.Slot, d.capturing)
	d.j.applyBefore(slot, d.j.seq)
	return encodeBefore(slot, d.j.seq)
}

// Shipped records that slot is stored remotely with these pages, at this size (in pages) and database checksum. It costs one append and no fsync: what a power cut
// takes of it is found again in the log.
//
// A checksum that the pages do not lead to is an error that changes nothing. When the append fails (disk full) Shipped returns the error, but the
// sums in memory are right, and the next change writes the whole state. Steps: shipped:append, shipped:appended, and rewrite:*.
func (d *Dir) Shipped(slot uint64, pageCount uint32, checksum uint64, pages []PageSum) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.ready(); err != nil {
		return err
	}
	mark, pos := d.mark, d.logPosition()
	d.mark = 0
	if err := d.j.applyShipped(slot, pageCount, checksum, mark, pos, pages); err != nil {
		return fmt.Errorf("shipped: %w", err)
	}
	return d.append("shipped", recShipped, encodeShipped(slot, pageCount, checksum, mark, pos, pages))
}

// Hydrated records the sums of pages as of the last shipped slot, which came from the remote and are in the database file, unless SQLite has written something newer
// there. Those that are known already are passed over. It returns how many pages are not known yet. When none is left the whole is compared with the
// database checksum: ErrSums, and nothing is recorded. It costs one append and no fsync: what is lost of it is fetched again. Steps: hydrated:append,
// hydrated:appended, and rewrite:*.
func (d *Dir) Hydrated(pages []PageSum) (unknown int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.ready(); err != nil {
		return 0, err
	}
	s := d.j.state
	fresh := make([]PageSum, 0, len(pages))
	for _, p := range pages {
		if p.Page > 0 && int(p.Page) <= s.Sums.Len() && !s.Knows(p.Page) {
			fresh = append(fresh, p)
		}
	}
	if len(fresh) == 0 {
		return s.unknown(), nil
	}
	if err := d.j.applyHydrated(fresh); err != nil {
		return s.unknown(), err
	}
	return s.unknown(), d.append("hydrated", recHydrated, encodeHydrated(fresh))
}

// Spilled records that these pages are committed and unshipped content which a checkpoint is about to write into the database file. Call it
// before the checkpoint writes, or at the latest before the WAL is reset or removed, and hold that back when it fails. It costs one append and one fsync: after a power cut, a page without its record could not be told from damage, and
// the commits in it would be dropped instead of set aside. Pages that a shrink and regrowth left
// unwritten belong to it as well. Steps: spilled:append, spilled:appended, and rewrite:*.
func (d *Dir) Spilled(pages []PageSum) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.ready(); err != nil {
		return err
	}
	if len(pages) == 0 {
		return nil
	}
	d.j.applySpilled(pages)
	before := d.beforeNow()
	if err := d.append("spilled", recSpilled, appendPages(nil, pages)); err != nil {
		return err
	}
	if err := d.append("before", recBefore, before); err != nil {
		return err
	}
	return d.file.Sync()
}

// Shrunk records that a commit made the database pageCount pages small, smaller than what was shipped. Call it, like Spilled, before the
// WAL is reset: what lies beyond is then no longer missed when the database grows again and leaves pages unwritten. Steps: shrunk:append,
// shrunk:appended, and rewrite:*.
func (d *Dir) Shrunk(pageCount uint32) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.ready(); err != nil {
		return err
	}
	d.j.applyShrunk(pageCount)
	before := d.beforeNow()
	if err := d.append("shrunk", recShrunk, binary.LittleEndian.AppendUint32(nil, pageCount)); err != nil {
		return err
	}
	return d.append("before", recBefore, before)
}

// SetGeneration records that this process owns generation, and that slot (its claim, which holds no pages) is the last one seen. It costs one append and one fsync: after a
// power cut the log then tells which of its entries are ours, whatever else of the state was lost.
func (d *Dir) SetGeneration(generation, slot uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.ready(); err != nil {
		return err
	}
	d.j.state.Generation, d.j.state.Slot, d.j.clean = generation, slot, nil
	b := binary.LittleEndian.AppendUint64(nil, generation)
	if err := d.append("generation", recGeneration, binary.LittleEndian.AppendUint64(b, slot)); err != nil {
		return err
	}
	return d.file.Sync()
}

// SetLost records where commits were kept aside; "" that there are none.
func (d *Dir) SetLost(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.ready(); err != nil {
		return err
	}
	d.j.state.Lost, d.j.clean = path, nil
	return d.append("lost", recLost, appendString(nil, path))
}

// settle is how old a file's modification time must be, so that a later write cannot leave it as it is: file systems count it in up to 2 s.
const settle = 2 * time.Second

// CleanClose records that the last connection is closed and the database file is whole, so that the next Recover in this boot need not read it, unless it has
// changed by then. With a WAL that still holds something it records nothing. The file's modification time is set back by a few
// seconds, so that any later write shows. Call it last.
func (d *Dir) CleanClose() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.ready(); err != nil {
		return err
	}
	if fi, err := os.Stat(d.WALPath()); err == nil && fi.Size() > 0 {
		return nil
	}
	past := time.Now().Add(-2 * settle).Truncate(settle)
	if err := d.files.Chtimes(d.Path(), time.Time{}, past); err != nil {
		return fmt.Errorf("clean close: %w", err)
	}
	c, err := identify(d.Path())
	if err != nil {
		return fmt.Errorf("clean close: %w", err)
	}
	if err := d.append("clean", recClean, encodeClean(c)); err != nil {
		return err
	}
	d.j.clean = &c
	return nil
}

func identify(path string) (cleanClose, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return cleanClose{}, err
	}
	inode, changed, err := fileIdentity(path)
	if err != nil {
		return cleanClose{}, err
	}
	return cleanClose{inode: inode, changed: changed, size: fi.Size(), mtime: fi.ModTime().UnixNano()}, nil
}

func (d *Dir) ready() error {
	switch {
	case d.closed:
		return errClosed
	case d.j.state == nil:
		return errNoState
	}
	return nil
}

// journalSlack is how far, in bytes, the changes may outgrow twice the snapshot before the journal is rewritten.
const journalSlack = 1 << 20

// append adds a record for a change that is already made in memory, or rewrites the journal when it is due.
func (d *Dir) append(step string, kind recordKind, payload []byte) error {
	if d.stale || d.size-d.snap > journalSlack+2*d.snap {
		return d.rewrite()
	}
	b, sum := appendRecord(nil, kind, d.sum, payload)
	err := d.openJournal()
	if err == nil {
		if err = d.fault(step + ":append"); err != nil {
			d.file.WriteAt(b[:len(b)/2], d.size) // what a full disk leaves behind
		} else {
			_, err = d.file.WriteAt(b, d.size)
		}
	}
	if err != nil {
		d.stale = true
		return fmt.Errorf("append to %s: %w", filepath.Join(d.path, stateName), err)
	}
	d.size += int64(len(b))
	d.sum = sum
	return d.fault(step + ":appended")
}

// openJournal opens the journal again after Rest.
func (d *Dir) openJournal() (err error) {
	if d.file == nil {
		d.file, err = d.files.OpenFile(filepath.Join(d.path, stateName), os.O_RDWR, 0)
	}
	return err
}

// Rest gives up the files that are open for nothing else than the next call, which opens them again. The lock stays.
func (d *Dir) Rest() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.j.spilled) == 0 && d.j.spilled != nil {
		d.j.spilled = map[uint32]spill{} // a map keeps the room of the most that it has held
	}
	if d.file != nil && !d.stale {
		d.file.Close() // what it holds is written, and synced where it must be
		d.file = nil
	}
}

func (d *Dir) rewrite() error { return d.rewriteAs("rewrite") }

// rewriteAs replaces the journal by one that begins with the state as it is in memory: written beside it, synced, renamed, directory synced. Until the
// rename the old one stays valid.
func (d *Dir) rewriteAs(step string) (err error) {
	temp, path := filepath.Join(d.path, tempName), filepath.Join(d.path, stateName)
	d.stale = true // until the new one is in place
	size, sum, err := d.writeTemp(step, temp)
	if err != nil {
		d.files.Remove(temp) // or the next Open does
		return fmt.Errorf("write %s: %w", temp, err)
	}
	// Windows does not rename over an open file.
	if f := d.file; f != nil {
		d.file = nil
		if err := f.Close(); err != nil {
			return err
		}
	}
	if err := d.files.Rename(temp, path); err != nil {
		return err
	}
	if err := d.fault(step + ":renamed"); err != nil {
		return err
	}
	if err := d.files.SyncDir(d.path); err != nil {
		return err
	}
	f, err := d.files.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	d.file, d.size, d.snap, d.sum, d.stale = f, size, size, sum, false
	return d.fault(step + ":done")
}

func (d *Dir) writeTemp(step, temp string) (size int64, sum uint64, err error) {
	f, err := d.files.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if size, sum, err = writeJournal(f, &d.j); err != nil {
		return 0, 0, err
	}
	if err := d.fault(step + ":written"); err != nil {
		return 0, 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, 0, err
	}
	return size, sum, d.fault(step + ":synced")
}
