package tonbo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/layout"
	"github.com/tonbo-go/tonbo/internal/segment"
)

// Tuned makes compaction start after so many entries in the tail, or when nothing was committed for a while.
func (o Options) Tuned(entries int, after time.Duration) Options {
	t := defaultTuning
	t.entries, t.settle, t.after = entries, 1, after
	o.tune = &t
	return o
}

// LongLog makes a base due only when the log has so many slots since the last one, or its tail so many entries.
func (o Options) LongLog(slots int) Options {
	t := defaultTuning
	if o.tune != nil {
		t = *o.tune
	}
	t.slots, t.entries = uint64(slots), slots
	o.tune = &t
	return o
}

// Checkpointing makes checkpoints begin in the background after so many bytes of write-ahead log.
func (o Options) Checkpointing(bytes int) Options {
	t := defaultTuning
	if o.tune != nil {
		t = *o.tune
	}
	t.wal = bytes
	o.tune = &t
	return o
}

// Checkpoints tells whether checkpoints are made in the background.
func (db *DB) Checkpoints() bool {
	db.h.mu.Lock()
	defer db.h.mu.Unlock()
	return db.h.checkpoints != nil
}

// Foretell notes in the local state what is committed and not shipped, as the checkpoints in the background do before the write-ahead log begins anew.
func (db *DB) Foretell() error {
	_, vdb := db.h.current()
	_, release, ok := vdb.HoldTakes(context.Background())
	if !ok { // pages are being read back, for a compaction, say: then they do without, too
		return nil
	}
	defer release()
	return vdb.Foretell()
}

// WALFrames tells how many frames the write-ahead log has, and a number that changes when it begins anew.
func (db *DB) WALFrames() (serial int64, frames int) {
	_, vdb := db.h.current()
	return vdb.WALFrames()
}

// Unsettled makes Close leave the log as it is.
func (o Options) Unsettled() Options {
	t := defaultTuning
	t.settle, t.after = 1<<30, time.Hour
	o.tune = &t
	return o
}

// DeltasAgainstUnshipped breaks a rule: deltas are against versions of pages that no entry holds.
func (o Options) DeltasAgainstUnshipped() Options { return o.broken(againstUnshipped) }

// BasesWithoutDeltas breaks a rule: bases leave out the pages that the tail holds as deltas.
func (o Options) BasesWithoutDeltas() Options { return o.broken(withoutDeltas) }

// UnknownIsAcked breaks R2: a Synced whose append's outcome is not known returns nil.
func (o Options) UnknownIsAcked() Options { return o.broken(unknownIsAcked) }

// IdleIsAcked breaks R6: a Synced with nothing to ship asks nobody.
func (o Options) IdleIsAcked() Options { return o.broken(idleIsAcked) }

// TrustsTheCopy breaks a rule: a warm start takes the local copy as it is.
func (o Options) TrustsTheCopy() Options { return o.broken(trustsTheCopy) }

// KeepsWhatIsPassed breaks a rule: a warm start keeps commits that were not shipped although others have written since.
func (o Options) KeepsWhatIsPassed() Options { return o.broken(keepsWhatIsPassed) }

// PacksWithoutOne breaks a rule: a pack leaves out one of its entries.
func (o Options) PacksWithoutOne() Options { return o.broken(packsWithoutOne) }

// PagesOfTheBase breaks a rule: a page that is fetched comes from the base although entries above it hold it.
func (o Options) PagesOfTheBase() Options { return o.broken(pagesOfTheBase) }

// StrictUnknownIsAcked breaks R2: a strict COMMIT whose append's outcome is not known returns nil.
func (o Options) StrictUnknownIsAcked() Options { return o.broken(strictUnknownIsAcked) }

// StaleUpper breaks a rule: bases do not say which pages of their upper object have changed.
func (o Options) StaleUpper() Options { return o.broken(staleUpper) }

// UpperObjects makes bases put upper pages into an object of their own, however few they are.
func (o Options) UpperObjects() Options {
	t := defaultTuning
	if o.tune != nil {
		t = *o.tune
	}
	t.upper = true
	o.tune = &t
	return o
}

// Small makes a database of so many bytes one that entries may carry whole, and that is not fetched lazily; larger ones are.
func (o Options) Small(bytes int64) Options {
	t := defaultTuning
	if o.tune != nil {
		t = *o.tune
	}
	t.whole = bytes
	o.tune = &t
	return o
}

// Packing makes bases pack their tail whenever that is possible, until there are so many bytes of packs; 0: never.
func (o Options) Packing(bytes int64) Options {
	t := defaultTuning
	if o.tune != nil {
		t = *o.tune
	}
	t.packing, t.packs = true, bytes
	o.tune = &t
	return o
}

func (o Options) broken(b broken) Options {
	t := defaultTuning
	if o.tune != nil {
		t = *o.tune
	}
	t.broken = b
	o.tune = &t
	return o
}

// Collecting makes an owner collect after every compaction, and believe that everything is old.
func (o Options) Collecting() Options {
	t := defaultTuning
	if o.tune != nil {
		t = *o.tune
	}
	t.collect, t.now = 0, func() time.Time { return time.Now().Add(2 * time.Hour) }
	o.tune = &t
	return o
}

// FetchedFrom counts the objects that the local copy is still known to be in.
func (db *DB) FetchedFrom() int {
	s := db.h.source()
	if s == nil || s.loc.Load().ready.Load() == nil {
		return 0
	}
	return len(s.loc.Load().ready.Load().objects)
}

// Compact runs one compaction and returns its error. settle: as in a quiet moment, if that is cheap.
func (db *DB) Compact(ctx context.Context, settle bool) error {
	if settle {
		return db.h.compact(ctx, settleFactor)
	}
	return db.h.compact(ctx, 0)
}

// Differences counts, by page, how many differences follow each other in the entries of these indexes, oldest first.
func Differences(entries ...*segment.Index) map[uint32]int32 {
	c := pageCounts{}
	for _, ix := range entries {
		c.follow(ix)
	}
	return c
}

// UpperInMemory is how many bytes of an upper object a read-only handle has in memory.
func (db *DB) UpperInMemory() int {
	s, err := db.h.ro.present()
	if err != nil {
		return -1
	}
	defer db.h.ro.release(s)
	if o := s.loc.Load().upper; o != nil {
		return len(o.Payload())
	}
	return 0
}

// UpperPages lists the upper pages of a database file, as a base has them that is made of it.
func UpperPages(ctx context.Context, file io.ReaderAt, pageSize, count uint32) ([]uint32, error) {
	c := newCompaction(nil, nil, nil, nil, pageSize, 0)
	c.file, c.state.PageCount = file, count
	u, err := c.upperPages(ctx, upperLimit, upperMost, upperMost)
	if err != nil {
		return nil, err
	}
	return u.order, nil
}

// CollectOwn runs the owner's own collection.
func (db *DB) CollectOwn(ctx context.Context) error { return db.h.collect(ctx) }

// Base returns the base in force.
func (db *DB) Base() *base.Manifest {
	if db.h.lockRound(context.Background()) != nil {
		return nil
	}
	defer db.h.unlockRound()
	return db.h.compactor.base
}

// TailSources counts the logs of sources in which entries above the base are.
func (db *DB) TailSources() int {
	if db.h.lockRound(context.Background()) != nil {
		return 0
	}
	defer db.h.unlockRound()
	return db.h.tail.sources
}

// NewBottom is the bottom that a base has whose pages, pages of a database of count pages, are merged with the old bottom: the ranges of its segments. hole is the first page that is in none of them.
func NewBottom(old []base.Segment, pageSize, count uint32, pages []uint32) (bottom []base.Segment, hole uint32) {
	c := &compaction{state: fence.State{PageSize: pageSize, PageCount: count}, old: &base.Manifest{Levels: [][]base.Segment{old}}}
	for _, p := range pages {
		c.pages.Add(p)
	}
	c.wholeChunks()
	var fresh []base.Segment
	for p := range c.pages.All() { // as write does
		if n := len(fresh); n > 0 {
			if _, end := c.chunk(fresh[n-1].First); p <= end {
				fresh[n-1].Last, fresh[n-1].Pages = p, fresh[n-1].Pages+1
				continue
			}
		}
		fresh = append(fresh, base.Segment{First: p, Last: p, Pages: 1})
	}
	bottom = c.bottom(fresh)
	return bottom, c.hole(bottom)
}

// Hole is the first page of so many that is in no segment of a bottom.
func Hole(bottom []base.Segment, pageSize, count uint32) uint32 {
	return (&compaction{state: fence.State{PageSize: pageSize, PageCount: count}}).hole(bottom)
}

// TailLength counts the entries above the base.
func (db *DB) TailLength() int {
	if db.h.lockRound(context.Background()) != nil {
		return 0
	}
	defer db.h.unlockRound()
	return len(db.h.tail.entries)
}

// Later makes Collect believe that it is d later.
func (o CollectOptions) Later(d time.Duration) CollectOptions {
	o.now = func() time.Time { return time.Now().Add(d) }
	return o
}

// Find looks a point up.
func (c *Client) Find(ctx context.Context, name string, at At) (Point, error) {
	h, err := c.handle(name)
	if err != nil {
		return Point{}, err
	}
	defer h.stop()
	_, e, err := h.resolve(ctx, at)
	if err != nil {
		return Point{}, err
	}
	return pointOf(e), nil
}

// CompactLater is Compact d from now.
func (c *Client) CompactLater(ctx context.Context, name string, d time.Duration) (*CompactReport, error) {
	h, err := c.handle(name)
	if err != nil {
		return nil, err
	}
	defer h.stop()
	h.tune.now = func() time.Time { return time.Now().Add(d) }
	return h.compactClosed(ctx)
}

// PageByMaps reads a page of the head by the maps of its entries alone, of which none is at hand.
func (c *Client) PageByMaps(ctx context.Context, name string, buf []byte, pages func(read func(p uint32) error) error) error {
	h, err := c.handle(name)
	if err != nil {
		return err
	}
	defer h.stop()
	head, err := h.log.Head(ctx)
	if err != nil {
		return err
	}
	t := h.newTail(head)
	if err := t.load(ctx, 0); err != nil {
		return err
	}
	tl, err := t.tail(ctx)
	if err != nil {
		return err
	}
	for i, e := range tl.entries {
		if tl.entries[i], err = h.tailOf(name, &fence.Entry{Slot: e.slot, ID: head.ID, State: head.State, PayloadSize: e.bytes}, nil, false); err != nil {
			return err
		}
	}
	l := t.locator(tl, head.Slot, int(head.State.PageSize), head.State.PageCount)
	if _, err := l.objects(ctx); err != nil {
		return err
	}
	var r layout.Reader
	return pages(func(p uint32) error {
		found, err := l.ready.Load().deltas.Page(ctx, &r, p, buf)
		if err == nil && !found {
			err = fmt.Errorf("page %d is in no object", p)
		}
		return err
	})
}

// Compacting tells whether a compaction is under way.
func (db *DB) Compacting() bool {
	if db.h.lockRound(context.Background()) != nil {
		return false
	}
	defer db.h.unlockRound()
	done := db.h.compactor.done
	if done == nil {
		return false
	}
	select {
	case <-done:
		return false
	default:
		return true
	}
}

// Clocked returns o with a clock for what expires.
func (o Options) Clocked(now func() time.Time) Options {
	o.clock = now
	return o
}

// Expire does what a janitor does with a database that has expired.
func (c *Client) Expire(ctx context.Context, name string) error {
	_, r, err := c.look(ctx, name)
	if err != nil {
		return err
	}
	return c.expire(ctx, r)
}

// IsNotExpired tells whether err is Expire's of a database that has not.
func IsNotExpired(err error) bool { return errors.Is(err, errNotExpired) }

// DropKey is dropKey.
func (c *Client) DropKey(ctx context.Context, hash string) (bool, error) { return c.dropKey(ctx, hash) }

// ReadPagesOf reads a slot as those do who know that it carries pages of the live incarnation.
func (c *Client) ReadPagesOf(ctx context.Context, name string, slot uint64) error {
	h, err := c.handle(name)
	if err != nil {
		return err
	}
	defer h.stop()
	head, err := h.log.Head(ctx)
	if err != nil {
		return err
	}
	_, merr := h.readMap(ctx, name, slot, head.ID)
	_, perr := h.newTail(&fence.Entry{ID: head.ID, Slot: head.Slot + 1}).readPages(ctx, slot)
	if (merr == nil) != (perr == nil) {
		return fmt.Errorf("readMap: %v; readPages: %v", merr, perr)
	}
	return merr
}

// Waiting counts those who wait for a database to be opened.
func (r *Registry) Waiting(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.all[name]; m != nil && m.opening != nil {
		return m.opening.waiting
	}
	return 0
}

// LocalFile is the path of the local copy.
func (db *DB) LocalFile() string { return db.h.dir.Path() }
