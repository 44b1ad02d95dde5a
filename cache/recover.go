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
	PageCount uint32   // of the database file, in pages
	Checksum  uint64   // XOR of Sums
	Sums      []uint64 // of the file as it is now, by page number - 1; the lock page's is 0. nil when something is Damaged

	// Unshipped are the pages, ascending and within PageCount, that differ from the shipped state (State, after newer) by commits that were verified: they
	// are to be shipped. A smaller PageCount than the shipped one is such a change, too; page 1 is then among them.
	Unshipped []uint32

	// Damaged are the pages (of either size) whose content is neither shipped nor a verified commit. Any: nothing was changed, and the caller rebuilds; it may look at Unshipped
	// to tell what goes with it. Reason says what was seen first.
	Damaged []uint32
	Reason  string

	Rebooted bool // the machine has started anew since Begin or the last Recover: whatever is not the shipped state is Damaged
	Skipped  bool // closed cleanly and unchanged since: nothing was read
}

// recoverChunk is how much of the database file is read at once, in bytes.
const recoverChunk = 1 << 20

// Recover makes a warm start: call it before anything opens the database file. newer are our own entries beyond State's slot, ascending.
//
// It reads the WAL and the database file once, in a stream. A page is sound when its newest committed version is the shipped one, or a commit made after it:
// one whose frame is valid in the WAL while the WAL or the database file still shows the shipped version before it or Spilled recorded one, or else the one that Spilled recorded last. (A WAL that was cut
// in front of the shipped version, or a file put back from a copy, is thereby not taken for new commits.) If every page is sound, State follows newer, the WAL is
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
	rec := &Recovery{Rebooted: !sameBoot(d.j.state.Boot, bootID())}
	if d.skip(rec, newer) {
		return rec, nil
	}

	// 1. What has been shipped.
	v := &verdict{Recovery: rec, state: *d.j.state, journal: &d.j}
	v.state.Sums = slices.Clone(v.state.Sums)
	for _, n := range newer {
		sums, err := overlay(v.state.Sums, v.state.Checksum, n.PageCount, n.Checksum, n.Pages)
		if err != nil {
			v.all(fmt.Sprintf("entry %d does not continue the state: %v", n.Slot, err))
			return rec, nil
		}
		v.state.Sums, v.state.Checksum, v.state.Slot = sums, n.Checksum, n.Slot
	}

	// 2. What the WAL holds.
	wal, err := openWAL(d.WALPath(), d.Path())
	if err != nil {
		return nil, err
	}
	if wal != nil {
		defer wal.Close()
	}
	if err := v.readWAL(ctx, wal); err != nil {
		return nil, err
	}
	if rec.Reason != "" {
		return rec, nil
	}

	// 3. What the database file holds, page by page.
	db, err := os.OpenFile(d.Path(), os.O_RDWR, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist) && (len(v.state.Sums) > 0 || v.wal.end > 0):
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
	if len(rec.Damaged) > 0 {
		rec.Sums = nil
		return rec, nil
	}

	// 4. Record what is known now: when the WAL is gone, the unshipped pages in the database file need it.
	if err := d.record(v, len(newer) > 0); err != nil {
		return nil, err
	}
	if err := d.fault("recover:recorded"); err != nil {
		return nil, err
	}

	// 5. Checkpoint. 6. Remove the WAL: not before the file is synced.
	if v.wal.end > 0 {
		if err := d.checkpoint(ctx, v, wal, db); err != nil {
			return nil, err
		}
	}
	if wal != nil {
		wal.Close() // Windows removes no open file
	}
	for _, n := range []string{"-wal", "-shm", "-journal"} {
		if err := os.Remove(d.Path() + n); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err := d.fault("recover:removed"); err != nil {
			return nil, err
		}
	}
	return rec, syncDir(d.path)
}

// skip tells whether nothing can have changed since a clean close.
func (d *Dir) skip(rec *Recovery, newer []Shipped) bool {
	if d.j.clean == nil || rec.Rebooted || len(newer) > 0 {
		return false
	}
	if fi, err := os.Stat(d.WALPath()); err == nil && fi.Size() > 0 {
		return false
	}
	if _, err := os.Stat(d.Path() + "-journal"); err == nil {
		return false
	}
	now, err := identify(d.Path())
	s := d.j.state
	if err != nil || now != *d.j.clean || now.size%int64(s.PageSize) != 0 {
		return false
	}
	count := now.size / int64(s.PageSize)
	if count != int64(len(s.Sums)) || len(d.j.spilled) > 0 {
		return false // unshipped content: look
	}
	rec.PageCount, rec.Checksum, rec.Sums, rec.Skipped = uint32(count), s.Checksum, slices.Clone(s.Sums), true
	return true
}

// openWAL opens the WAL; nil when there is none, or the database file is empty: SQLite ignores the WAL of an empty file and deletes it.
func openWAL(path, db string) (*os.File, error) {
	if fi, err := os.Stat(db); err == nil && fi.Size() == 0 {
		return nil, nil
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return f, err
}

// verdict judges pages. state is the shipped one.
type verdict struct {
	*Recovery
	state   State
	journal *journalState
	wal     *walScan
}

// all damns every page.
func (v *verdict) all(reason string) {
	v.Reason = reason
	v.Unshipped = nil
	v.Damaged = v.Damaged[:0]
	for p := range max(len(v.state.Sums), 1) {
		v.Damaged = append(v.Damaged, uint32(p+1))
	}
}

func (v *verdict) damage(page uint32, reason string) {
	if v.Reason == "" {
		v.Reason = fmt.Sprintf("page %d: %s", page, reason)
	}
	v.Damaged = append(v.Damaged, page)
}

// known is what is known of a page from elsewhere than the files.
func (v *verdict) known(page uint32) (shipped, spilled uint64, ok bool) {
	if int(page) <= len(v.state.Sums) {
		shipped = v.state.Sums[page-1]
	}
	s, ok := v.journal.spilled[page]
	return shipped, s.sum, ok
}

func (v *verdict) readWAL(ctx context.Context, f *os.File) (err error) {
	v.wal = &walScan{}
	if f == nil {
		return nil
	}
	if v.wal, err = scanWAL(ctx, f, v.known); err != nil {
		return err
	}
	pos := v.journal.pos
	switch {
	case v.wal.end > 0 && v.wal.pageSize != v.state.PageSize:
		v.all(fmt.Sprintf("the WAL has pages of %d bytes, not %d", v.wal.pageSize, v.state.PageSize))
	case v.wal.pageSize != 0 && v.wal.salt1 == pos.Salt1 && v.wal.salt2 == pos.Salt2 && v.wal.end < pos.Offset:
		v.all(fmt.Sprintf("the WAL is valid up to byte %d only: it was shipped up to byte %d", v.wal.end, pos.Offset))
	}
	return nil
}

// readDB judges each page by its newest version.
func (v *verdict) readDB(ctx context.Context, f *os.File) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	size := int64(v.state.PageSize)
	inFile := uint32(min(fi.Size()/size, segment.MaxPage))
	count := inFile
	if v.wal.end > 0 {
		count = v.wal.pageCount
	} else if fi.Size()%size != 0 {
		v.all(fmt.Sprintf("the database file has %d bytes: no multiple of the page size %d", fi.Size(), size))
		return nil
	}
	v.PageCount = count
	v.Sums = make([]uint64, count)
	lock := segment.LockPage(int(size))
	buf := make([]byte, max(recoverChunk, size))
	zero := make([]byte, size)
	var one []byte // the newest page 1's header, when it is the file's
	for page := uint32(1); page <= min(count, inFile); {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(int64(len(buf)), int64(min(count, inFile)-page+1)*size)
		if _, err := f.ReadAt(buf[:n], int64(page-1)*size); err != nil {
			return err
		}
		if page == 1 {
			one = slices.Clone(buf[:100])
		}
		for b := buf[:n]; len(b) > 0; b = b[size:] {
			if page != lock {
				v.page(page, segment.PageSum(page, b[:size]))
			}
			page++
		}
	}
	// Pages that the WAL's commits added, and which are not in the file: zeros until a frame writes them.
	for page := min(count, inFile) + 1; page <= count && page != 0; page++ {
		if page%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if page != lock {
			if v.wal.pages[page] != nil {
				v.page(page, 0)
			} else {
				v.page(page, segment.PageSum(page, zero))
			}
		}
	}
	return v.pageCount(one)
}

// page judges a page whose content in the database file has the sum inFile.
func (v *verdict) page(page uint32, inFile uint64) {
	shipped, spilled, hasSpill := v.known(page)
	isNew := int(page) > len(v.state.Sums)
	w := v.wal.pages[page]
	sum := inFile
	if w != nil {
		sum = w.sum
	}
	v.Sums[page-1] = sum
	v.Checksum ^= sum
	switch {
	case !isNew && sum == shipped:
		return
	case v.Rebooted:
		v.damage(page, "is not what was shipped, and the machine has restarted since")
		return
	case isNew && w != nil:
		// A page that was never shipped, in a valid commit.
	case isNew && !hasSpill:
		// A page that the database grew over and nobody wrote: what it holds means nothing, but it is shipped as it is. pageCount sees to the growth.
	case w == nil && hasSpill && sum == spilled:
		// Checkpointed before it was shipped.
	case w == nil && v.wal.end > 0 && page > v.wal.smallest, w == nil && !hasSpill && v.journal.shrunk(page):
		// The database shrank below it and grew again, and nobody wrote it.
	case w != nil && (w.shipped || inFile == shipped || hasSpill && (w.spilled || inFile == spilled)):
		// A commit after the shipped version.
	case w != nil:
		v.damage(page, "its newest version in the WAL does not follow what was shipped")
		return
	default:
		v.damage(page, "is neither what was shipped nor a commit made since")
		return
	}
	v.Unshipped = append(v.Unshipped, page)
}

// pageCount judges the size of the database: when it is not the shipped one, page 1, which holds it, must be a commit since. one is the header of page 1 in the
// database file.
func (v *verdict) pageCount(one []byte) error {
	if v.PageCount == uint32(len(v.state.Sums)) {
		return nil
	}
	switch {
	case v.Rebooted:
		v.sized("the database has another size than was shipped, and the machine has restarted since")
	case len(v.Unshipped) == 0 || v.Unshipped[0] != 1:
		v.sized(fmt.Sprintf("the database has %d pages, %d were shipped, and no commit says so", v.PageCount, len(v.state.Sums)))
	case v.wal.end == 0 && (len(one) < 100 || be32(one[28:]) != v.PageCount || be32(one[24:]) != be32(one[92:])):
		v.sized(fmt.Sprintf("the database file has %d pages, and its header says %d", v.PageCount, be32(one[28:])))
	}
	return nil
}

// sized damns the pages by which the sizes differ.
func (v *verdict) sized(reason string) {
	if v.Reason == "" {
		v.Reason = reason
	}
	a, b := uint32(len(v.state.Sums)), v.PageCount
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
	spilled := make(map[uint32]spill, len(v.Unshipped))
	same := len(v.Unshipped) == len(d.j.spilled) && int(v.PageCount) >= len(v.state.Sums)
	for _, p := range v.Unshipped {
		s, ok := d.j.spilled[p]
		if !ok || s.sum != v.Sums[p-1] {
			same = false
			s = spill{sum: v.Sums[p-1], seq: d.j.seq + 1}
		}
		spilled[p] = s
	}
	if same && !newer && !v.Rebooted && !d.stale {
		return nil
	}
	old := d.j
	s := v.state
	s.Boot = bootID()
	d.j = journalState{state: &s, spilled: spilled, seq: old.seq + 1}
	if n := v.PageCount; n < uint32(len(s.Sums)) || old.shrink != nil {
		if old.shrink != nil {
			n = min(n, old.shrink.pageCount)
		}
		d.j.shrink = &shrink{pageCount: n, seq: old.seq + 1}
	}
	if err := d.rewrite(); err != nil {
		d.j = old
		return err
	}
	return nil
}

// checkpoint copies the newest committed version of each page from the WAL into the database file, as SQLite's does.
func (d *Dir) checkpoint(ctx context.Context, v *verdict, wal, db *os.File) error {
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
