package vfs

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/ncruces/go-sqlite3"

	"github.com/tonbo-go/tonbo/internal/fsys"
	"github.com/tonbo-go/tonbo/internal/pageset"
)

// Database observes one database file: which pages have changed since the last shipped state, and where their newest committed
// version is. Safe for concurrent use.
type Database struct {
	path string
	o    Options

	serial   int64         // see Token
	frames   atomic.Uint64 // see WALFrames: the log's number above, its frames in the lower half
	salts    atomic.Uint64 // of the write-ahead log's header, as they stand there; changed only behind frames
	detached atomic.Bool

	lastUnsupported atomic.Pointer[error]
	lastRefused     atomic.Pointer[error] // by BeforeCommit
	lastFetch       atomic.Pointer[error] // of the source

	files fsys.FS // what the main file and the write-ahead log are opened through

	// ckpt is held shared while pages are read back, and exclusively while the place of a committed page changes: main-file writes,
	// restart, truncation and deletion of the write-ahead log. Commits go on meanwhile. Taken before mu.
	ckpt    sync.RWMutex
	waiting atomic.Int32 // for ckpt, to change places

	telling sync.Mutex // held while BeforeReset is told, so that the last it hears of a page is the newest. Taken after ckpt and before mu

	mu   sync.Mutex
	cond *sync.Cond // on mu: uncertain has become nil, or resting; or taken, if that was a held transaction's

	// +checklocks:mu
	wal       map[uint32]version // newest committed version of each page in the write-ahead log
	walFile   *os.File           // our own handle, nil until needed
	main      *os.File           // of the main file, likewise
	salt      [8]byte            // of the write-ahead log's header
	tail      []frame            // frames behind the last commit: the transaction being written
	tailAt    int                // index of its first frame
	held      heldHeader         // a frame header that waits for its page
	uncertain *commit            // commit frame written, not yet known to count

	version      uint64 // rises with each commit that has become certain
	pageCount    uint32 // as of the last commit
	minCount     uint32 // smallest since the last Take
	shippedCount uint32 // as of the last shipped state
	dirty        pageset.Set
	commits      int                 // since the last Take
	taken        *Changes            // being shipped
	sent         map[uint32]version  // where the write-ahead log has shipped versions of pages: the last ones, but for pages that were shipped from the main file since
	spilled      map[uint32]uint64   // unshipped pages in the main file: their sums
	unsaved      map[uint32]struct{} // of these, the ones not yet told to BeforeReset
	foretold     map[uint32]uint64   // sums of pages that BeforeReset was told of before they were in the main file, since the last Take
	resting      chan struct{}       // closed when Take may go on; nil: it may
	refusal      error
	behind       bool // ErrBehind
}

// version is where a committed page is in the write-ahead log, and its checksum.
type version struct {
	off int64 // of the page, behind its frame header
	sum uint64
}

// frame is one frame of the transaction being written.
type frame struct {
	page uint32
	sum  uint64
}

// commit is a transaction whose commit frame is in the write-ahead log.
type commit struct {
	frames    []frame
	first     int
	pageCount uint32
	by        *mainFile
	shipped   bool // by BeforeCommit
}

const (
	walHeaderSize   = 32
	frameHeaderSize = 24
)

type heldHeader struct {
	valid bool
	index int
	bytes [frameHeaderSize]byte
}

func newDatabase(path string, o Options) *Database {
	d := &Database{
		path: path, o: o,
		wal: map[uint32]version{}, sent: map[uint32]version{}, spilled: map[uint32]uint64{}, unsaved: map[uint32]struct{}{}, foretold: map[uint32]uint64{},
		pageCount: o.PageCount, minCount: o.PageCount, shippedCount: o.PageCount,
	}
	d.cond = sync.NewCond(&d.mu)
	return d
}

// Refuse makes every later COMMIT fail with [CodeRefused], and err be its [Database.Reason]. nil ends that.
func (d *Database) Refuse(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refusal = err
}

// Reason returns why an operation ended with code: an error to show in its place, nil if there is none.
func (d *Database) Reason(code sqlite3.ExtendedErrorCode) error {
	switch code {
	case CodeRefused:
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.refusal != nil {
			return d.refusal
		}
		if d.detached.Load() {
			return ErrDetached
		}
		if p := d.lastRefused.Load(); p != nil {
			return *p
		}
	case CodeUnsupported:
		if p := d.lastUnsupported.Load(); p != nil {
			return *p
		}
		return ErrUnsupported
	case CodeFetch:
		if p := d.lastFetch.Load(); p != nil {
			return *p
		}
	}
	return nil
}

// Pending tells how many commits, and how many bytes of changed pages, no Take has returned yet or were returned by one that is not settled.
func (d *Database) Pending() (commits int, bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	commits, n := d.commits, d.dirty.Len()
	if d.taken != nil { // without a transaction that is held: its COMMIT has not returned
		commits += d.taken.commits
		n += d.taken.back.Len()
	}
	return commits, int64(n) * int64(d.o.PageSize)
}

// WALFrames tells how many frames of the write-ahead log are committed, and a number that changes when the log begins anew.
func (d *Database) WALFrames() (serial int64, frames int) {
	f := d.frames.Load()
	return int64(f >> 32), int(uint32(f))
}

// WALPosition tells the salts of the write-ahead log's header, and where its last committed frame ends: 0 when there is none, or when it is not known, as while the log begins anew. It takes no lock.
func (d *Database) WALPosition() (salts [8]byte, end int64) {
	before, frames := d.WALFrames()
	s := d.salts.Load()
	if now, _ := d.WALFrames(); now != before || frames == 0 || s == 0 { // of two logs; or of one that began before us
		return salts, 0
	}
	binary.BigEndian.PutUint64(salts[:], s)
	return salts, walHeaderSize + int64(frames)*int64(frameHeaderSize+d.o.PageSize)
}

// PageCount is the size of the database in pages, as of the last commit.
func (d *Database) PageCount() uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pageCount
}

// fellBehind: a transaction that BeforeCommit shipped does not count here.
// +checklocks:d.mu
func (d *Database) fellBehind(cause error) {
	err := fmt.Errorf("%s: %w: %w", d.path, ErrBehind, cause)
	d.behind = true
	if d.o.Behind != nil {
		err = d.o.Behind(err)
	}
	if d.refusal == nil {
		d.refusal = err
	}
}

// gone tells a connection that has outlived the observation.
func (d *Database) gone() error {
	if d.detached.Load() {
		return CodeRefused
	}
	return nil
}

// lockPage is the page that holds byte 0x40000000, which SQLite never uses.
func (d *Database) lockPage() uint32 { return uint32(0x40000000/d.o.PageSize) + 1 }

// MarkDirty tells of changes that a former process left in the main file without shipping them: the pages with their sums, and the size
// of the last shipped state. Before the first connection.
func (d *Database) MarkDirty(pages []PageSum, shippedCount uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range pages {
		d.dirty.Add(p.Page)
		d.spilled[p.Page] = p.Sum
	}
	d.shippedCount = shippedCount
	d.minCount = min(d.pageCount, shippedCount)
	d.commits++
}

// certain makes the uncertain commit count.
// +checklocks:d.mu
func (d *Database) certain() {
	c := d.uncertain
	if c == nil {
		return
	}
	d.uncertain = nil
	d.version++
	size := int64(frameHeaderSize + d.o.PageSize)
	for i, f := range c.frames {
		d.wal[f.page] = version{walHeaderSize + int64(c.first+i)*size + frameHeaderSize, f.sum}
		if !c.shipped {
			d.dirty.Add(f.page)
		}
	}
	d.frames.Store(d.frames.Load()>>32<<32 | uint64(uint32(c.first+len(c.frames))))
	d.pageCount = c.pageCount
	if !c.shipped {
		d.minCount = min(d.minCount, c.pageCount)
		d.commits++
	} else {
		d.minCount = c.pageCount
	}
	d.cond.Broadcast()
	if d.o.AfterCommit != nil {
		d.o.AfterCommit()
	}
}

// commitPhaseTwo: the connection's transaction has ended well (SQLITE_FCNTL_COMMIT_PHASETWO).
func (d *Database) commitPhaseTwo(by *mainFile) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.uncertain != nil && d.uncertain.by == by {
		d.certain()
	}
}

// checkpointed: SQLite has copied a page from the write-ahead log into the main file. d.ckpt is held.
func (d *Database) checkpointed(p []byte, off int64) {
	if len(p) != d.o.PageSize {
		return
	}
	pgno := uint32(off/int64(d.o.PageSize)) + 1
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.dirty.Has(pgno) && (d.taken == nil || !d.taken.has(pgno)) && (d.uncertain == nil || d.uncertain.shipped) {
		// It is what is shipped. What an earlier checkpoint has noted of an older version, beside a commit that was uncertain and for a reader that needed that version, holds no more.
		delete(d.spilled, pgno)
		delete(d.unsaved, pgno)
		return
	}
	sum := d.o.Sum(pgno, p)
	d.spilled[pgno] = sum
	if told, in := d.foretold[pgno]; in && told == sum {
		delete(d.unsaved, pgno)
		return
	}
	d.unsaved[pgno] = struct{}{}
}

// lockPlaces takes ckpt to move committed pages, and lets who reads them back know that it waits.
func (d *Database) lockPlaces() {
	if d.ckpt.TryLock() {
		return
	}
	d.waiting.Add(1)
	defer d.waiting.Add(-1)
	d.ckpt.Lock()
}

// resetWAL runs op, which ends the life of the write-ahead log's content: a restart, a truncation, a deletion. SQLite does that only
// when all of it is in the main file.
func (d *Database) resetWAL(op func() error) error {
	d.lockPlaces()
	defer d.ckpt.Unlock()
	if err := d.saveSpilled(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.certain() // the writer's lock has changed hands since, or the last connection is closing
	d.closeWAL()
	d.fault("vfs:reset")
	if err := op(); err != nil {
		return err
	}
	d.fault("vfs:reset-done")
	clear(d.wal)
	d.frames.Store((d.frames.Load()>>32 + 1) << 32)
	d.salts.Store(binary.BigEndian.Uint64(d.salt[:]))
	clear(d.sent)
	d.tail, d.tailAt, d.held.valid = d.tail[:0], 0, false
	d.rested()
	return nil
}

// saveSpilled tells BeforeReset of the unshipped pages in the main file. d.ckpt is held.
func (d *Database) saveSpilled() error {
	d.telling.Lock()
	defer d.telling.Unlock()
	d.mu.Lock()
	count := d.pageCount
	if d.uncertain != nil {
		count = d.uncertain.pageCount
	}
	low, of := d.shrunk()
	low = min(low, count)
	if low < of { // takes back what was told of before
		d.retell()
	}
	pages := make([]PageSum, 0, len(d.unsaved))
	for p := range d.unsaved {
		if p <= count {
			pages = append(pages, PageSum{p, d.spilled[p]})
		}
	}
	grown := d.unshippedGrowth(count, low < of)
	changed := low < of || count != d.shippedCount
	d.mu.Unlock()
	for _, p := range grown { // never written by SQLite, but part of the database
		buf := make([]byte, d.o.PageSize)
		if err := d.readNeverWritten(p, buf); err != nil {
			return err
		}
		pages = append(pages, PageSum{p, d.o.Sum(p, buf)})
	}
	if d.o.BeforeReset != nil && (changed || len(pages) > 0) {
		if err := d.o.BeforeReset(Spill{count, low, of, pages}); err != nil {
			return fmt.Errorf("before the write-ahead log of %s is reset: %w", d.path, err)
		}
	}
	d.mu.Lock()
	clear(d.unsaved)
	clear(d.foretold)
	d.mu.Unlock()
	return nil
}

// readNeverWritten reads a page that the database gave up and gained again without writing it. What it holds means nothing, so that an absent one becomes what it is
// in the file, and nothing is fetched while a commit waits.
func (d *Database) readNeverWritten(p uint32, buf []byte) error {
	off := int64(p-1) * int64(d.o.PageSize)
	read := func() error { return d.readFile(buf, off) }
	if d.o.Source != nil {
		return d.o.Source.Write(off, int64(d.o.PageSize), read)
	}
	return read()
}

// largest is the size of the last shipped state, or of the one that is being shipped: perhaps that is stored, and we do not live to hear of it.
// +checklocks:d.mu
func (d *Database) largest() uint32 {
	if d.taken != nil {
		return max(d.shippedCount, d.taken.PageCount)
	}
	return d.shippedCount
}

// shrunk tells how small the database has been since the last shipped state, low, if that is less than it had there: of. While an entry is in flight, either of two states is the last
// shipped one. The database was smaller than one that it grows to before it had that size, and that tells nothing.
// +checklocks:d.mu
func (d *Database) shrunk() (low, of uint32) {
	of = d.largest()
	switch {
	case d.lowest() < d.shippedCount:
		return d.lowest(), of
	case d.taken != nil && d.minCount < d.taken.PageCount:
		return d.minCount, of
	}
	return of, of
}

// lowest is the smallest size of the database since the last shipped state.
// +checklocks:d.mu
func (d *Database) lowest() uint32 {
	if d.taken != nil {
		return min(d.minCount, d.taken.minCount)
	}
	return d.minCount
}

// unshippedGrowth lists pages that the database gained since it was smallest and that are not news. again: those told of before, too.
// +checklocks:d.mu
func (d *Database) unshippedGrowth(count uint32, again bool) []uint32 {
	var r []uint32
	for p := d.lowest() + 1; p <= count; p++ {
		if _, in := d.wal[p]; !in && p != d.lockPage() {
			_, news := d.unsaved[p]
			_, told := d.spilled[p]
			if !news && (!told || again) { // a Spill with a MinCount below MaxCount takes back what was told of before
				r = append(r, p)
			}
		}
	}
	return r
}

// closeFiles gives up our own handles, and the room of what is empty. d.ckpt is held exclusively.
func (d *Database) closeFiles() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closeWAL()
	// A map keeps the room of the most that it has held.
	if len(d.wal) == 0 {
		d.wal = map[uint32]version{}
	}
	if len(d.sent) == 0 {
		d.sent = map[uint32]version{}
	}
	if len(d.spilled) == 0 {
		d.spilled = map[uint32]uint64{}
	}
	if len(d.unsaved) == 0 {
		d.unsaved = map[uint32]struct{}{}
	}
	if len(d.foretold) == 0 {
		d.foretold = map[uint32]uint64{}
	}
	f := d.main
	d.main = nil
	if f == nil {
		return nil
	}
	return f.Close()
}

// openMain returns our own handle of the main file. d.ckpt is held.
func (d *Database) openMain() (*os.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.main == nil {
		if d.detached.Load() {
			return nil, ErrDetached
		}
		f, err := os.Open(d.path)
		if err != nil {
			return nil, err
		}
		d.main = f
	}
	return d.main, nil
}

// closeWAL gives up our own handle of the write-ahead log. d.ckpt is held.
func (d *Database) closeWAL() {
	if d.walFile != nil {
		d.walFile.Close()
		d.walFile = nil
	}
}

// indexSays tells whether SQLite's own index of the write-ahead log counts frame index as committed: the header at the start of the
// -shm file holds the last committed frame and the salts (https://sqlite.org/walformat.html#the_wal_index_header).
func (d *Database) indexSays(index int) bool {
	f, err := os.Open(d.path + "-shm")
	if err != nil {
		return false
	}
	defer f.Close()
	var h [48]byte
	if _, err := f.ReadAt(h[:], 0); err != nil {
		return false
	}
	return [8]byte(h[32:40]) == d.salt && binary.NativeEndian.Uint32(h[16:]) > uint32(index)
}

// fault is the test's hook at a step.
func (d *Database) fault(step string) {
	if d.o.Fault != nil {
		d.o.Fault(step)
	}
}

// PageSize is the size of a page in bytes.
func (d *Database) PageSize() int { return d.o.PageSize }
