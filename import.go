package tonbo

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// Import creates a database from an existing SQLite file. The file is checked (PRAGMA integrity_check), read in one transaction, so that other programs may have
// it open, and not changed. Memory does not depend on its size. Errors, for errors.Is: [ErrExists], [ErrCorrupt] (not a sound SQLite file), [ErrUnsupported] (checksum
// databases), and Create's.
func (c *Client) Import(ctx context.Context, name string, path string, o CreateOptions) (*Database, error) {
	if err := c.checkCreate(name, o); err != nil {
		return nil, wrap(name, "import", err)
	}
	h, err := c.handle(name)
	if err != nil {
		return nil, err
	}
	defer h.stop()
	if err := remote.ProbeOnce(ctx, c.store); err != nil { // before the long part, and so is the look at the name
		return nil, wrap(name, "import", err)
	}
	if o.IdempotencyKey == "" && !o.IfNotExists {
		if _, err := c.nextSlot(ctx, name); err != nil {
			return nil, wrap(name, "import", err)
		}
	}
	db, err := c.importFile(ctx, h, path, o)
	return db, wrap(name, "import "+path, err)
}

func (c *Client) importFile(ctx context.Context, h *handle, path string, o CreateOptions) (*Database, error) {
	root, done, err := h.scratch(".import-*")
	if err != nil {
		return nil, err
	}
	defer done()
	copied := filepath.Join(root, "db")
	if err := snapshotFile(ctx, path, copied); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(copied, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	im, err := newImporter(h, f)
	if err != nil {
		return nil, err
	}
	defer im.close()
	if o.PageSize != 0 && o.PageSize != im.size {
		return nil, &OptionError{"PageSize", fmt.Sprintf("it is %d, the file has pages of %d bytes", o.PageSize, im.size)}
	}
	what := request{Kind: "import", Name: h.name}
	if o.IdempotencyKey != "" {
		hash := sha256.New()
		if _, err := io.Copy(hash, io.NewSectionReader(f, 0, math.MaxInt64)); err != nil {
			return nil, err
		}
		what.Content = hex.EncodeToString(hash.Sum(nil))
	}
	return c.begin(ctx, h.name, creation{doing: "import " + path, o: o, what: what, made: im.settle, pack: func(ctx context.Context, id fence.ID, slot uint64) (fence.CreateOptions, func(context.Context) error, error) {
		if err := im.read(ctx, root, id, slot); err != nil {
			return fence.CreateOptions{}, nil, err
		}
		upload := func(ctx context.Context) error { return h.upload(ctx, im.shipment()) }
		return fence.CreateOptions{State: im.state, Payload: im.payload, PayloadSum: im.sum, Whole: true, Stored: im.stored}, upload, nil
	}})
}

// snapshotFile copies a SQLite file as of one commit, page by page, and checks it.
func snapshotFile(ctx context.Context, from, to string) (err error) {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	var head [100]byte
	_, err = io.ReadFull(f, head[:])
	f.Close()
	if err != nil || string(head[:16]) != "SQLite format 3\x00" {
		return fmt.Errorf("%w: %s is not a SQLite database", ErrCorrupt, from)
	}
	if head[20] == 8 {
		return fmt.Errorf("%w: %s is a checksum database (8 reserved bytes per page)", ErrUnsupported, from)
	}
	src, err := sqlite3.OpenFlags(fileURI(absolute(from), "vfs=os"), sqlite3.OPEN_READONLY|sqlite3.OPEN_URI)
	if err == nil {
		err = src.Exec("SELECT 1 FROM sqlite_schema")
	}
	if _, werr := os.Stat(from + "-wal"); err != nil && errors.Is(werr, os.ErrNotExist) { // in WAL mode, where no index of it can be made: nobody else writes there
		src.Close()
		src, err = sqlite3.OpenFlags(fileURI(absolute(from), "vfs=os&immutable=1"), sqlite3.OPEN_READONLY|sqlite3.OPEN_URI)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", from, err)
	}
	defer src.Close()
	src.SetInterrupt(ctx)
	if err := src.BusyTimeout(time.Minute); err != nil {
		return err
	}
	if err := src.Backup("main", fileURI(absolute(to), "vfs=os")); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return checkFile(ctx, to)
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// checkFile runs SQLite's own check.
func checkFile(ctx context.Context, path string) error {
	c, err := sqlite3.OpenFlags(fileURI(absolute(path), "vfs=os&immutable=1"), sqlite3.OPEN_READONLY|sqlite3.OPEN_URI)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetInterrupt(ctx)
	s, _, err := c.Prepare("PRAGMA integrity_check(3)")
	if err != nil {
		return err
	}
	defer s.Close()
	var out []string
	for s.Step() {
		out = append(out, s.ColumnText(0))
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("%w: integrity_check: %w", ErrCorrupt, err)
	}
	if got := strings.Join(out, "; "); got != "ok" {
		return fmt.Errorf("%w: integrity_check: %s", ErrCorrupt, got)
	}
	return nil
}

// importer packs a file's pages into segments that the create entry names. Not into the entry, however few they are: it stays for ever (R5), and what a deleted database held is to go.
type importer struct {
	h       *handle
	f       *os.File
	size    int
	state   fence.State
	payload []byte
	sum     uint64
	stored  int64 // bytes of segments
	spool   *spool
}

func newImporter(h *handle, f *os.File) (*importer, error) {
	var head [100]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint16(head[16:]))
	if size == 1 {
		size = 65536
	}
	if !segment.ValidPageSize(size) {
		return nil, fmt.Errorf("%w: page size %d", ErrCorrupt, size)
	}
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if fi.Size()%int64(size) != 0 || fi.Size() == 0 {
		return nil, fmt.Errorf("%w: %d bytes are no whole number of pages of %d bytes", ErrCorrupt, fi.Size(), size)
	}
	// From here on it is in WAL mode: https://sqlite.org/fileformat2.html#file_format_version_numbers
	if _, err := f.WriteAt([]byte{2, 2}, 18); err != nil {
		return nil, err
	}
	return &importer{h: h, f: f, size: size, state: fence.State{PageSize: uint32(size), PageCount: uint32(fi.Size() / int64(size))}}, nil
}

// read packs the pages for a create of id in a slot: the segments' names carry it.
func (im *importer) read(ctx context.Context, dir string, id fence.ID, slot uint64) (err error) {
	im.close() // of an attempt before
	im.state.Checksum, im.stored = 0, 0
	if im.spool, err = newSpool(dir); err != nil {
		return err
	}
	header := segment.Header{
		Kind: segment.KindSegment, ID: id, Generation: slot, Slot: slot, From: slot, Time: now(), PageSize: uint32(im.size), PageCount: im.state.PageCount,
	}
	w := writers.Get().(*segment.Writer)
	defer writers.Put(w)
	w.Reset(im.size)
	buf := make([]byte, im.size)
	lock := segment.LockPage(im.size)
	for p := uint32(1); p <= im.state.PageCount; p++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if first, _ := wholeChunk(p, uint32(im.size)); first == p && w.Pages() > 0 { // they are to be the bottom as they are
			if err := im.spool.add(im.h.name, header, w); err != nil {
				return err
			}
			w.Reset(im.size)
		}
		if p == lock {
			continue
		}
		if _, err := im.f.ReadAt(buf, int64(p-1)*int64(im.size)); err != nil {
			return err
		}
		im.state.Checksum ^= segment.PageSum(p, buf)
		if err := w.Add(p, buf); err != nil {
			return err
		}
	}
	if err := im.spool.add(im.h.name, header, w); err != nil {
		return err
	}
	w.Reset(im.size)
	for _, ref := range im.spool.refs {
		im.stored += ref.Size
		if err := w.AddRef(ref); err != nil {
			return err
		}
	}
	payload, sum, err := w.Finish()
	im.payload, im.sum = append([]byte(nil), payload...), sum
	return err
}

func (im *importer) shipment() *shipment {
	sh := &shipment{state: im.state, spool: im.spool}
	im.spool = nil // upload removes it
	return sh
}

func (im *importer) close() {
	if im.spool != nil {
		im.spool.close()
		im.spool = nil
	}
}

// settle gives the database that was just made a base, whose bottom its segments are, and closes it: whoever opens it, or a fork of it, has the upper pages of its b-trees at once. They are at hand here, and all over the segments for everybody
// else. The database is there by now: what fails here is left to its first owner, and so it is when that one has come already.
func (im *importer) settle(ctx context.Context, owner *fence.Owner, r *catalog.Record) {
	s := im.state
	if owner.Entry().Frozen || int64(s.PageCount)*int64(s.PageSize) <= im.h.tune.whole { // it is fetched whole when it is opened
		return
	}
	ctx, cancel := context.WithTimeout(ctx, im.h.o.SyncTimeout)
	defer cancel()
	if err := im.base(ctx, owner, r); err != nil {
		im.h.o.Logger.Debug("an import is not settled yet", "database", im.h.name, "error", err)
		if owner.Pending() || owner.Last().Kind == fence.Base { // nobody is at work on it, and it must not look as if somebody were
			im.h.leave(ctx, owner)
		}
	}
}

func (im *importer) base(ctx context.Context, owner *fence.Owner, r *catalog.Record) error {
	h := im.h
	n := h.counter.Counts() // what came before is in the create's totals
	h.owner, h.account = owner, account{owner: owner, start: n, told: n}
	h.expiring.begin(owner.Entry(), r, h.o.time())
	create, err := h.tailOf(h.name, owner.Entry(), im.payload, true)
	if err != nil {
		return err
	}
	tl := tail{entries: []tailEntry{create}}
	c := newCompaction(h, owner, nil, nil, im.state.PageSize, closeFactor)
	c.file, c.due, c.walked, c.slot, c.state = im.f, true, true, owner.Slot(), owner.State()
	if err := c.look(ctx, &tl); err != nil {
		return err
	}
	if err := c.merge(ctx, &tl, nil); err != nil {
		return err
	}
	_, key, err := c.upload(ctx)
	if err != nil {
		return err
	}
	if _, err := owner.Append(ctx, fence.Draft{Kind: fence.Base, Base: key, BaseSlot: c.slot, Horizon: owner.Horizon(), Since: h.since(nil)}); err != nil {
		return err
	}
	fault("create:settled")
	_, err = owner.Append(ctx, fence.Draft{Kind: fence.Close, Since: h.since(nil)})
	return err
}
