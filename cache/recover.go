package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tonbo-go/tonbo/internal/fsys"
	"github.com/tonbo-go/tonbo/internal/pageset"
	"github.com/tonbo-go/tonbo/internal/segment"
)

// Shipped is what an entry of our own generation holds, as the log has it: one whose answer was perhaps never seen.
type Shipped struct {
	Slot      uint64
	PageCount uint32 // size of the database after it
	Checksum  uint64 // database checksum after it
	Pages     []PageSum
}

// Recovery is what Recover found.
type Recovery struct {
	PageCount uint32 // of the database file, in pages
	Checksum  uint64 // XOR of Sums

	// Sums are those of the file as it is now; the lock page's is 0, and that of one that is not Present. Without pages when something is Damaged.
	Sums pageset.Sums

	// Present are the pages that the file holds. nil: all of them.
	Present *pageset.Bits

	// Unshipped are the pages, ascending and within PageCount, that differ from the shipped state (State, after newer) by commits that were verified: they
	// are to be shipped. A smaller PageCount than the shipped one is such a change, too; page 1 is then among them.
	Unshipped []uint32

	// Damaged are the pages (of either size) whose content is neither shipped nor a verified commit. Any: nothing was changed, and the caller rebuilds; it may look at Unshipped
	// to tell what goes with it. Reason says what was seen first.
	Damaged []uint32
	Reason  string

	Rebooted bool // the machine has started anew since Begin or the last Recover: whatever is not the shipped state is Damaged
	Doubtful bool // Rebooted, and some of what is Damaged looks like unshipped commits, or what is known of the file is not all that was: worth a CopyTo into KeepAside before the rebuild, as it may be whole
	Skipped  bool // closed cleanly and unchanged since: nothing was read
}

// recoverChunk is how much of the database file is read at once, in bytes.
const recoverChunk = 1 << 20

// Recover makes a warm start: call it before anything opens the database file. newer are our own entries beyond State's slot, ascending.
//
// It reads the database file and the WAL once each, in a stream. A page whose sum is not known is absent, and stays so, unless a commit wrote it. A page is sound when its newest committed version is the shipped one, or a commit made after it:
// its frame is valid in the WAL and the shipped version is before it there or still under it in the database file, or a checkpoint from this WAL has
// overwritten that; or it is the one that Spilled recorded last. And the WAL reaches as far as it did at the last Shipped. (So a WAL that was cut
// in front of the shipped version, or a file put back from a copy, is not taken for new commits.) If every page is sound, State follows newer, the WAL is
// checkpointed into the database file, which is synced, and -wal and -shm are removed; a Recover that dies halfway can be repeated. If not, nothing is changed.
//
// Errors are those of reading and writing, and ctx's: damage is not an error. Steps: recover:recorded, recover:copied, recover:truncated, recover:synced,
// recover:removed, and rewrite:*.
func (d *Dir) Recover(ctx context.Context, newer []Shipped) (*Recovery, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.ready(); err != nil {
		return nil, err
	}
	rec, err := d.recover(ctx, newer)
	if err != nil {
		return nil, fmt.Errorf("recover %s: %w", d.path, err)
	}
	return rec, nil
}

func (d *Dir) recover(ctx context.Context, newer []Shipped) (*Recovery, error) {
	rec := &Recovery{Rebooted: !sameBoot(d.j.state.Boot, d.boot())}
	if d.skip(rec, newer) {
		return rec, nil
	}

	// 1. What has been shipped.
	v := &verdict{Recovery: rec, state: *d.j.state.clone(), journal: &d.j, wal: &walScan{}}
	for _, n := range newer {
		if err := overlay(&v.state, n.PageCount, n.Checksum, n.Pages); err != nil {
			v.all(fmt.Sprintf("entry %d does not continue the state: %v", n.Slot, err))
			return rec, nil
		}
		v.state.Slot = n.Slot
		v.journal = d.j.asOf(n.Slot)
		v.unnoted = true
	}

	// 2. What the database file holds.
	db, err := d.files.OpenFile(d.Path(), os.O_RDWR, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist) && v.state.Sums.Len() > 0:
		v.all("the database file is missing")
		return rec, nil
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		defer db.Close()
		if err := v.readDB(ctx, db); err != nil {
			return nil, err
		}
	}

	// 3. What the WAL holds. Of an empty file SQLite ignores it and deletes it.
	wal, err := d.files.Open(d.WALPath())
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		defer wal.Close()
		if v.size > 0 {
			if v.wal, err = scanWAL(ctx, wal, v.versions); err != nil {
				return nil, err
			}
		}
	}

	// 4. Each page's newest version.
	if err := v.judge(db); err != nil {
		return nil, err
	}
	if len(rec.Damaged) > 0 {
		rec.PageCount, rec.Checksum, rec.Sums, rec.Present = 0, 0, pageset.Sums{}, nil
		return rec, nil
	}

	// 5. Record what is known now: when the WAL is gone, the unshipped pages in the database file need it.
	if err := d.record(v, len(newer) > 0); err != nil {
		return nil, err
	}
	if err := d.fault("recover:recorded"); err != nil {
		return nil, err
	}

	// 6. Checkpoint. 7. Remove the WAL: not before the file is synced.
	if v.wal.end > 0 {
		if err := d.checkpoint(ctx, v, wal, db); err != nil {
			return nil, err
		}
	}
	if wal != nil {
		wal.Close() // Windows removes no open file
	}
	for _, n := range besideNames {
		if err := d.files.Remove(filepath.Join(d.path, n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err := d.fault("recover:removed"); err != nil {
			return nil, err
		}
	}
	return rec, d.files.SyncDir(d.path)
}

// skip tells whether nothing can have changed since a clean close.
func (d *Dir) skip(rec *Recovery, newer []Shipped) bool {
	if d.j.clean == nil || rec.Rebooted || len(newer) > 0 {
		return false
	}
	if fi, err := os.Stat(d.WALPath()); err == nil && fi.Size() > 0 {
		return false
	}
	for _, n := range []string{"-journal", ".lock"} {
		if _, err := os.Stat(d.Path() + n); err == nil {
			return false
		}
	}
	now, err := identify(d.Path())
	s := d.j.state
	if err != nil || now != *d.j.clean || now.size%int64(s.PageSize) != 0 {
		return false
	}
	count := now.size / int64(s.PageSize)
	if count != int64(s.Sums.Len()) || len(d.j.spilled) > 0 {
		return false // unshipped content: look
	}
	rec.PageCount, rec.Checksum, rec.Sums, rec.Skipped = uint32(count), s.Checksum, s.Sums.Snapshot(), true
	rec.Present = s.Known.Clone()
	return true
}

// verdict judges pages. state is the shipped one.
type verdict struct {
	*Recovery
	state   State
	journal *journalState
	wal     *walScan
	size    int64        // of the database file, bytes
	file    pageset.Sums // of the pages that the database file holds
	header  []byte       // of the database file
	unnoted bool         // the state had not noted the last entry: how far the WAL reached when that was made is not known

	doubtful int // damaged pages that would be unshipped ones, had the machine not restarted
	zero     []byte
}

// all damns every page.
func (v *verdict) all(reason string) {
	v.Reason = reason
	v.Unshipped = nil
	v.Doubtful = v.Rebooted && v.journal.cut
	v.Damaged = v.Damaged[:0]
	for p := range max(v.state.Sums.Len(), 1) {
		v.Damaged = append(v.Damaged, uint32(p+1))
	}
}

func (v *verdict) damage(page uint32, reason string) {
	if v.Reason == "" {
		v.Reason = fmt.Sprintf("page %d: %s", page, reason)
	}
	v.Damaged = append(v.Damaged, page)
}

// versions is what is known of a page from elsewhere than the WAL.
func (v *verdict) versions(page uint32) versions {
	var k versions
	if k.isNew = int(page) > v.state.Sums.Len(); !k.isNew {
		k.shipped, k.unknown = v.state.Sums.At(page), !v.state.Knows(page)
	}
	if k.hasFile = int(page) <= v.file.Len(); k.hasFile {
		k.inFile = v.file.At(page)
	}
	s, ok := v.journal.spilled[page]
	k.spilled, k.hasSpill = s.sum, ok
	return k
}

// absent tells whether a page is not in the database file, as far as is known from elsewhere than the WAL.
func (v *verdict) absent(page uint32) bool {
	if v.state.Known == nil || int(page) > v.state.Sums.Len() || v.state.Known.Has(page) {
		return false
	}
	_, spilled := v.journal.spilled[page]
	return !spilled
}

// readDB sums up the pages of the database file, but those that are absent.
func (v *verdict) readDB(ctx context.Context, f *fsys.File) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	v.size = fi.Size()
	size := int64(v.state.PageSize)
	v.file = pageset.NewSums(int(min(v.size/size, segment.MaxPage)))
	count := v.file.Len()
	lock := segment.LockPage(int(size))
	buf := make([]byte, max(recoverChunk, size))
	for done := 0; done < count; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(int64(len(buf)), int64(count-done)*size)
		if v.state.Known != nil { // nothing is read where nothing is
			from := done
			for done < from+int(n/size) && v.absent(uint32(done+1)) {
				done++
			}
			if done == from+int(n/size) {
				continue
			}
			done = from
		}
		if _, err := f.ReadAt(buf[:n], int64(done)*size); err != nil {
			return err
		}
		if done == 0 {
			v.header = slices.Clone(buf[:100])
		}
		for b := buf[:n]; len(b) > 0; b = b[size:] {
			if page := uint32(done + 1); page != lock && !v.absent(page) {
				v.file.Set(page, segment.PageSum(page, b[:size]))
			}
			done++
		}
	}
	return nil
}

// judge judges the database that file and WAL make together.
func (v *verdict) judge(db *fsys.File) error {
	pos, size := v.journal.pos, v.state.PageSize
	switch {
	case v.wal.pageSize != 0 && v.wal.salt1 == pos.salt1 && v.wal.salt2 == pos.salt2 && v.wal.end < pos.end:
		v.all(fmt.Sprintf("the WAL is valid up to byte %d and was, when slot %d was shipped, up to byte %d", v.wal.end, v.state.Slot, pos.end))
		return nil
	case v.wal.end > 0 && v.wal.pageSize != size:
		v.all(fmt.Sprintf("the WAL has pages of %d bytes, not %d", v.wal.pageSize, size))
		return nil
	case v.wal.end == 0 && v.size%int64(size) != 0:
		v.all(fmt.Sprintf("the database file has %d bytes: no multiple of the page size %d", v.size, size))
		return nil
	}
	v.PageCount = uint32(v.file.Len())
	if v.wal.end > 0 {
		v.PageCount = v.wal.pageCount
	}
	v.Sums = pageset.NewSums(int(v.PageCount))
	lock, zero := segment.LockPage(int(size)), make([]byte, size)
	if v.state.Known != nil {
		v.Present = pageset.NewBits(int(v.PageCount))
		v.Present.Fill(1, v.PageCount)
	}
	for page := uint32(1); page <= v.PageCount; page++ {
		if page == lock {
			continue
		}
		k := v.versions(page)
		if v.absent(page) && v.wal.pages[page] == nil {
			if !v.journal.shrunk(page) && (v.wal.end == 0 || page <= v.wal.smallest) {
				v.Present.Clear(page)
				continue
			}
			// The database shrank below it and grew again: what the file holds there is a part of it now.
			if k.hasFile {
				buf := make([]byte, size)
				if _, err := db.ReadAt(buf, int64(page-1)*int64(size)); err != nil {
					return err
				}
				k.inFile = segment.PageSum(page, buf)
				v.file.Set(page, k.inFile)
			}
		}
		if !k.hasFile && v.wal.pages[page] == nil {
			k.inFile, k.hasFile = segment.PageSum(page, zero), true // what the file holds when it is made as long as the commit says
		}
		v.page(page, k)
	}
	v.Doubtful = v.Rebooted && (v.doubtful > 0 || v.journal.cut && len(v.Damaged) > 0)
	v.sizes()
	return nil
}

// page judges one page by its newest version.
func (v *verdict) page(page uint32, k versions) {
	w := v.wal.pages[page]
	sum := k.inFile
	if w != nil {
		sum = w.sum
	}
	v.Sums.Set(page, sum)
	v.Checksum ^= sum
	switch {
	case !k.isNew && !k.unknown && sum == k.shipped && (w != nil || !k.hasSpill || k.spilled == sum):
		return // not so where something newer was spilled and the WAL reset: then that is what a checkpoint wrote, and it is lost
	case k.unknown && w != nil:
		// A commit over a page that was absent.
	case k.isNew && (w != nil || !k.hasSpill):
		// Never shipped: in a valid commit, or grown over and never written: what it holds means nothing then. sizes sees to the growth.
	case w != nil && (w.shipped || w.spilled || w.inFile || k.hasFile && k.inFile == k.shipped || k.hasSpill && k.hasFile && k.inFile == k.spilled):
		// A commit after the shipped version: that is in the WAL before it or in the file under it; or was overwritten in the file by
		// a checkpoint from this WAL.
	case w != nil && (!k.hasFile || k.inFile == v.zeroSum(page)) && (v.shrank(page) || v.journal.shrunk(page)):
		// A commit after the database shrank below it: nothing is left of the shipped version. A checkpoint makes the file as long as it
		// will be before it writes the first page (SQLITE_FCNTL_SIZE_HINT): what it has not come to is zero.
	case w == nil && k.hasSpill && sum == k.spilled:
		// Checkpointed before it was shipped, and the WAL reset.
	case w == nil && v.shrank(page), w == nil && !k.hasSpill && v.journal.shrunk(page):
		// The database shrank below it and grew again, and nobody wrote it.
	case w != nil:
		v.damage(page, "its newest version in the WAL does not follow what was shipped")
		if v.Rebooted { // a commit, and what it stands on did not reach the disk
			v.doubtful++
		}
		return
	default:
		v.damage(page, "is neither what was shipped nor a commit made since")
		return
	}
	if v.Rebooted {
		v.damage(page, "looks like a commit made since it was shipped, but the machine has restarted since")
		v.doubtful++
		return
	}
	v.Unshipped = append(v.Unshipped, page)
}

// shrank tells whether a commit in the WAL that was not shipped gave the database a size below the page. Where the last entry was not noted, nobody knows which of the commits are older than it.
func (v *verdict) shrank(page uint32) bool {
	return v.wal.end > 0 && page > v.wal.smallest && !v.unnoted
}

// zeroSum is the sum of a page of zeros.
func (v *verdict) zeroSum(page uint32) uint64 {
	if v.zero == nil {
		v.zero = make([]byte, v.state.PageSize)
	}
	return segment.PageSum(page, v.zero)
}

// sizes judges the size of the database: when it is not the shipped one, page 1, which holds it, must be a commit made since.
func (v *verdict) sizes() {
	if v.PageCount == uint32(v.state.Sums.Len()) {
		return
	}
	switch {
	case v.Rebooted:
		v.sized("the database has another size than was shipped, and the machine has restarted since")
	case len(v.Unshipped) == 0 || v.Unshipped[0] != 1:
		v.sized(fmt.Sprintf("the database has %d pages, %d were shipped, and no commit says so", v.PageCount, v.state.Sums.Len()))
	case v.wal.end == 0 && (be32(v.header[28:]) != v.PageCount || be32(v.header[24:]) != be32(v.header[92:])):
		v.sized(fmt.Sprintf("the database file has %d pages, and its header says %d", v.PageCount, be32(v.header[28:])))
	}
}

// sized damns the pages by which the sizes differ.
func (v *verdict) sized(reason string) {
	if v.Reason == "" {
		v.Reason = reason
	}
	a, b := uint32(v.state.Sums.Len()), v.PageCount
	for p := min(a, b); p < max(a, b); p++ {
		v.Damaged = append(v.Damaged, p+1)
	}
	v.Unshipped = slices.DeleteFunc(v.Unshipped, func(p uint32) bool { return p > a })
	slices.Sort(v.Damaged)
	v.Damaged = slices.Compact(v.Damaged)
}

func be32(b []byte) uint32 {
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// record makes the journal say what the files will be: newer entries, unshipped pages, this boot. It writes only what is news.
func (d *Dir) record(v *verdict, newer bool) error {
	spilled, before := make(map[uint32]spill, len(v.Unshipped)), map[uint64]uint64{}
	same := len(v.Unshipped) == len(d.j.spilled) && int(v.PageCount) >= v.state.Sums.Len()
	for _, p := range v.Unshipped {
		s, ok := d.j.spilled[p]
		if !ok || s.sum != v.Sums.At(p) {
			same = false
			s = spill{sum: v.Sums.At(p), seq: d.j.seq + 1}
		}
		spilled[p] = s
		before[s.seq] = v.state.Slot
	}
	if same && !newer && !v.Rebooted && !d.stale {
		return nil
	}
	old := d.j
	s := v.state
	s.Boot = d.boot()
	d.j = journalState{state: &s, spilled: spilled, seq: old.seq + 1, before: before}
	if n, was := v.PageCount, v.journal.shrink; n < uint32(s.Sums.Len()) || was != nil {
		if was != nil {
			n = min(n, was.pageCount)
		}
		d.j.shrink = &shrink{pageCount: n, seq: old.seq + 1}
		before[d.j.seq] = v.state.Slot
	}
	if err := d.rewrite(); err != nil {
		d.j = old
		return err
	}
	return nil
}

// checkpoint copies the newest committed version of each page from the WAL into the database file, as SQLite's does.
func (d *Dir) checkpoint(ctx context.Context, v *verdict, wal, db *fsys.File) error {
	size := int64(v.state.PageSize)
	order := make([]uint32, 0, len(v.wal.pages))
	for p := range v.wal.pages {
		if p <= v.PageCount {
			order = append(order, p)
		}
	}
	slices.Sort(order)
	buf := make([]byte, size)
	for i, p := range order {
		if i%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		w := v.wal.pages[p]
		if _, err := wal.ReadAt(buf, w.at); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if segment.PageSum(p, buf) != w.sum {
			return fmt.Errorf("%s: %w", filepath.Base(wal.Name()), errWALChanged)
		}
		if err := d.fault("recover:copy"); err != nil {
			return err
		}
		if _, err := db.WriteAt(buf, int64(p-1)*size); err != nil {
			return err
		}
	}
	if err := d.fault("recover:copied"); err != nil {
		return err
	}
	if err := db.Truncate(int64(v.PageCount) * size); err != nil {
		return err
	}
	if err := d.fault("recover:truncated"); err != nil {
		return err
	}
	if err := db.Sync(); err != nil {
		return err
	}
	return d.fault("recover:synced")
}
