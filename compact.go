package tonbo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/layout"
	"github.com/tonbo-go/tonbo/internal/pageset"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/vfs"
)

// compaction is one base in the making.
type compaction struct {
	h       *handle
	owner   *fence.Owner
	vdb     *vfs.Database
	file    io.ReaderAt // of an import, which is the state; nil: there is none
	slot    uint64      // that the base covers
	state   fence.State
	force   *base.Manifest // in force, nil: none
	old     *base.Manifest // that pages come from, nil: the tail has all. The one in force, or what the tail has for one (founded)
	prior   *base.Manifest // in force, if it is of this log: what it lists of the log goes on from there
	plan    base.Plan
	packs   *packs             // of the old base, nil: not read
	packing *packing           // nil: the tail is merged
	counts  pageCounts         // of the old base's packs, and then of the new one's; nil: not known
	credit  int64              // bytes that it may put beside what settle allows
	limit   int64              // bytes that it may put if it is not due; 0: what settle allows
	settle  float64            // 0: it is due, else settleFactor or closeFactor
	due     bool               // whatever it costs
	runs    [][]*layout.Object // of the old base, newest first
	objects *layout.Deltas     // all that hold pages as of slot, newest first
	changed pageset.Set        // pages in the tail: of the levels' these are not what they were
	pages   pageset.Set        // what the new level holds
	sums    pageset.Sums       // of all pages, as of slot; 0: not known
	reader  layout.Reader
	labels  []base.Labelled
	window  time.Duration             // how long old points stay restorable; 0: not known, so the horizon stays
	raised  uint64                    // horizon that the base's entry is to have
	fresh   []string                  // keys of what was uploaded
	maps    map[string]*layout.Object // segments of this owner's whose maps are known, see compactor.maps
	made    map[string]*layout.Object // those that it has uploaded
	held    heldUpper                 // of the upper object, as far as it is known
	far     int                       // pages that were not to be had from the local file
	bytes   int64                     // of it

	tailPages int   // different pages in the tail
	tailBytes int64 // stored, of all that this log's entries brought of them, as if each were whole: what is spared who opens it is read as often, whatever it weighs
	founding  int64 // bytes of the segments that became the bottom, if this log's entries brought them
	perPage   int64 // of a page in the tail
	buf       []byte
	rested    time.Time // when it last let others have the processor
	walked    bool      // the labels between the base and the claim are known
}

// upload puts the new base's segments, and then its manifest. key is set even with an error.
func (c *compaction) upload(ctx context.Context) (m *base.Manifest, key string, err error) {
	key = fmt.Sprintf("%s%016x-%016x-%x", basePrefix(c.h.name), c.slot, c.owner.Generation(), randomNonce())
	if m, err = c.write(ctx); err != nil {
		return nil, key, err
	}
	fault("compact:segments")
	body, err := m.Encode()
	if err == nil {
		_, err = base.Decode(body) // what readers would refuse must not come into force
	}
	if err != nil {
		return nil, key, err
	}
	if err := remote.CreateUnique(ctx, c.h.store, key, body); err != nil {
		return nil, key, err
	}
	c.bytes += int64(len(body))
	fault("compact:manifest")
	return m, key, nil
}

// newCompaction returns a compaction over the base old. vdb is the local file, nil: there is none, every page comes from the remote.
func newCompaction(h *handle, owner *fence.Owner, vdb *vfs.Database, old *base.Manifest, pageSize uint32, settle float64) *compaction {
	return &compaction{
		h: h, owner: owner, vdb: vdb, force: old, old: old, settle: settle, due: settle == 0, buf: make([]byte, pageSize), state: fence.State{PageSize: pageSize},
	}
}

// lookers is how many maps a compaction reads at once: it is in no hurry.
const lookers = 2

// look reads the maps of what may be merged, and finds labels.
func (c *compaction) look(ctx context.Context, tl *tail) error {
	var entries []*layout.Object
	for _, e := range tl.entries {
		entries = append(entries, e.object)
	}
	if err := readMapsBy(ctx, entries, lookers); err != nil { // they name segments
		return err
	}
	bottom, err := c.foundation(ctx, tl) // its segments are not read
	if err != nil {
		return err
	}
	merged := tail{entries: tl.entries[bottom+1:]}
	above, err := merged.objects(ctx, c.h, int(c.state.PageSize))
	if err != nil {
		return err
	}
	for _, run := range c.old.Runs() {
		objects := c.level(run)
		above = append(above, objects...)
		c.runs = append(c.runs, objects)
	}
	if err := readMapsBy(ctx, above, lookers); err != nil {
		return err
	}
	if c.prior = c.old; c.prior == nil || c.prior.ID != c.owner.ID().String() {
		if c.prior, err = c.h.manifestOf(ctx, c.owner.Last()); err != nil { // below a whole entry, or none
			return err
		}
	}
	return c.walkLabels(ctx)
}

// walkLabels finds the labels between the base and the claim, once an owner: the manifest lists every labelled point, so that one is found without
// reading the whole log.
func (c *compaction) walkLabels(ctx context.Context) error {
	if c.walked {
		return nil
	}
	var before []base.Labelled
	for e, err := range c.h.back(ctx, c.owner.Entry(), labelFloor(c.prior)) {
		if err != nil {
			return err
		}
		if e.Label != "" {
			before = append(before, base.Labelled{Label: e.Label, Slot: e.Slot})
		}
	}
	slices.Reverse(before)
	if err := c.h.lockRound(ctx); err != nil {
		return err
	}
	defer c.h.unlockRound()
	if owner, _ := c.h.current(); owner == c.owner { // or it has been opened again meanwhile
		c.h.compactor.before, c.h.compactor.walked = before, true
	}
	return nil
}

// merge plans what goes into the new base, as of slot and state. labels are those since the base in force, oldest first.
func (c *compaction) merge(ctx context.Context, tl *tail, labels []base.Labelled) error {
	tl, err := c.founded(ctx, tl)
	if err != nil {
		return err
	}
	if err := c.weigh(ctx, tl); err != nil {
		return err
	}
	c.noteLabels(labels)
	if c.packing, err = c.mayPack(tl); c.packing != nil || err != nil {
		return err
	}
	if c.old.Packs() != nil { // the new level takes them in as well
		if !c.due && c.foreign() && !c.cheap() { // a source's only add to what it costs
			return nil
		}
		if tl, err = c.unpack(ctx, tl); err != nil {
			return err
		}
		if err := c.weigh(ctx, tl); err != nil {
			return err
		}
	}
	c.changed.AddAll(&c.pages)
	c.counts = pageCounts{}
	objects, err := tl.objects(ctx, c.h, int(c.state.PageSize))
	if err != nil {
		return err
	}
	for _, run := range c.runs {
		objects = append(objects, run...)
	}
	c.objects = layout.NewDeltas(append(objects, c.level(c.old.Bottom())...))
	budget := 0
	if c.settle > 0 {
		room := c.allowance()
		if c.limit > 0 && !c.due {
			room = min(room, c.limit)
		}
		budget = int((room - c.manifestBytes()) / c.perPage)
	}
	c.plan = base.MakePlan(c.old, c.pages.Len(), int(c.state.PageCount), budget)
	for _, run := range c.runs[:c.plan.Merge] {
		if err := pagesOf(ctx, run, c.add); err != nil {
			return err
		}
	}
	if c.plan.Bottom {
		c.wholeChunks()
	}
	return nil
}

// noteLabels lists the labels of the new base, of which labels are those since the base in force, oldest first.
func (c *compaction) noteLabels(labels []base.Labelled) {
	if c.prior != nil {
		c.labels = append(c.labels, c.prior.Labels...)
	}
	for _, l := range labels {
		if l.Slot <= c.slot && (len(c.labels) == 0 || c.labels[len(c.labels)-1].Slot < l.Slot) {
			c.labels = append(c.labels, l)
		}
	}
}

func (c *compaction) level(level []base.Segment) []*layout.Object {
	r := make([]*layout.Object, len(level))
	for i, s := range level {
		if r[i] = c.maps[s.Key]; r[i] == nil {
			r[i] = layout.Remote(c.h.pages, int(c.state.PageSize), s.Ref())
		}
	}
	return r
}

// foreign tells whether the base in force is of another incarnation: of a fork's source.
func (c *compaction) foreign() bool { return c.force != nil && c.force.ID != c.owner.ID().String() }

// write uploads the new level's segments and returns the manifest. It reads pages from the local file where that still has the right version.
func (c *compaction) write(ctx context.Context) (*base.Manifest, error) {
	if c.packing != nil {
		return c.writePack(ctx)
	}
	w := writers.Get().(*segment.Writer)
	defer writers.Put(w)
	w.Reset(int(c.state.PageSize))
	upper, object, err := c.upper(ctx) // soon after choose: most of these pages have not changed since
	if err != nil {
		return nil, err
	}
	var level []base.Segment
	var first, last uint32
	var sum uint64
	flush := func() error {
		if w.Pages() == 0 {
			return nil
		}
		s, err := c.segment(ctx, w, first, last)
		w.Reset(int(c.state.PageSize))
		level = append(level, s)
		return err
	}
	for p := range c.pages.All() {
		full := (w.Pages()+1)*int(c.state.PageSize) > segmentLimit
		if c.plan.Bottom {
			_, end := c.chunk(first)
			full = p > end
		}
		if w.Pages() > 0 && full {
			if err := flush(); err != nil {
				return nil, err
			}
		}
		if err := c.rest(ctx); err != nil {
			return nil, err
		}
		x, err := c.read(ctx, p)
		if err != nil {
			return nil, err
		}
		sum ^= x
		if w.Pages() == 0 {
			first = p
		}
		last = p
		if err := w.Add(p, c.buf); err != nil {
			return nil, err
		}
	}
	if err := flush(); err != nil {
		return nil, err
	}
	if c.pages.Len() == c.holds(1, c.state.PageCount) && sum != c.state.Checksum {
		return nil, fmt.Errorf("%w: %016x as of slot %d, the log says %016x", errSum, sum, c.slot, c.state.Checksum)
	}
	m := c.manifest()
	m.Upper, m.UpperObject = upper, object
	if c.plan.Bottom {
		m.Levels = [][]base.Segment{c.bottom(level)}
		if p := c.hole(m.Bottom()); p != 0 {
			return nil, fmt.Errorf("%w: page %d of %d is in no segment of the new bottom", ErrCorrupt, p, c.state.PageCount)
		}
	} else {
		m.Levels = c.old.Levels[c.plan.Merge:]
		if len(level) > 0 {
			m.Levels = append([][]base.Segment{level}, m.Levels...)
		}
	}
	c.horizon(m)
	return m, nil
}

// manifest is what all bases have.
func (c *compaction) manifest() *base.Manifest {
	return &base.Manifest{
		ID: c.owner.ID().String(), Generation: c.owner.Generation(), Slot: c.slot, Time: c.h.tune.now().UTC(),
		PageSize: c.state.PageSize, PageCount: c.state.PageCount, Checksum: base.SumString(c.state.Checksum), Labels: c.labels,
	}
}

// restEvery is how long a compaction works before it lets others have the processor, and restMost how long it lets them at once.
const (
	restEvery = time.Millisecond
	restMost  = 10 * time.Millisecond
)

// rest is called between pages. While somebody waits for a Synced, a compaction works a third of the time.
func (c *compaction) rest(ctx context.Context) error {
	worked := time.Since(c.rested)
	if worked < restEvery {
		return ctx.Err()
	}
	if len(c.h.round) > 0 && !c.rested.IsZero() {
		t := time.NewTimer(min(2*worked, restMost))
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	c.rested = time.Now()
	return ctx.Err()
}

// read brings a page as of the base's slot into buf, and returns its sum.
func (c *compaction) read(ctx context.Context, p uint32) (uint64, error) {
	if c.file != nil {
		_, err := c.file.ReadAt(c.buf, int64(p-1)*int64(len(c.buf)))
		return segment.PageSum(p, c.buf), err
	}
	want := c.sums.At(p)
	known := want != 0
	if known && c.vdb != nil {
		sum, err := c.vdb.ReadPage(p, c.buf)
		if err == nil && sum == want {
			return sum, nil
		}
		if err != nil && !errors.Is(err, vfs.ErrCorrupt) {
			return 0, err
		}
	}
	// It has changed here since, as hot pages do, or is not here.
	c.far++
	found, err := c.objects.Page(ctx, &c.reader, p, c.buf)
	if err != nil {
		return 0, err
	}
	if !found {
		return 0, fmt.Errorf("%w: page %d as of slot %d is in no object", ErrCorrupt, p, c.slot)
	}
	got := segment.PageSum(p, c.buf)
	if known && got != want {
		return 0, fmt.Errorf("%w: page %d as of slot %d is not what was shipped", ErrCorrupt, p, c.slot)
	}
	return got, nil
}

// segment puts one of a level.
func (c *compaction) segment(ctx context.Context, w *segment.Writer, first, last uint32) (base.Segment, error) {
	s, hd, payload, err := c.put(ctx, w, first, last)
	if err != nil || c.plan.Bottom {
		return s, err
	}
	ix, err := segment.DecodeIndex(payload, hd) // a run: it will be merged, and its map is needed then
	if err != nil {
		return s, err
	}
	if c.made == nil {
		c.made = map[string]*layout.Object{}
	}
	c.made[s.Key] = layout.Indexed(c.h.pages, int(c.state.PageSize), s.Key, s.Size, layout.Part{Index: ix, Start: s.Size - int64(len(payload))})
	return s, nil
}

// put puts what w holds as a segment. The payload is valid until w is used again.
func (c *compaction) put(ctx context.Context, w *segment.Writer, first, last uint32) (s base.Segment, hd *segment.Header, payload []byte, err error) {
	s = base.Segment{First: first, Last: last, Pages: w.Pages(), From: 1, Slot: c.slot}
	payload, sum, err := w.Finish()
	if err != nil {
		return s, nil, nil, err
	}
	hd = &segment.Header{
		Kind: segment.KindSegment, ID: c.owner.ID(), Generation: c.owner.Generation(), Slot: c.slot, From: s.From, Nonce: randomNonce(), Time: now(),
		PageSize: c.state.PageSize, PageCount: c.state.PageCount, PayloadSize: int64(len(payload)), PayloadSum: sum,
	}
	b, err := segment.EncodeHeader(nil, hd)
	if err != nil {
		return s, nil, nil, err
	}
	b = append(b, payload...)
	s.Key, s.Size = segmentKey(c.h.name, hd.Generation, hd.Nonce), int64(len(b))
	c.fresh, c.bytes = append(c.fresh, s.Key), c.bytes+s.Size
	return s, hd, payload, remote.CreateUnique(ctx, c.h.store, s.Key, b)
}

func basePrefix(name string) string { return "db/" + name + "/base/" }

func segmentPrefix(name string, generation uint64) string {
	return fmt.Sprintf("db/%s/seg/%016x-", name, generation)
}

func segmentKey(name string, generation uint64, nonce [16]byte) string {
	return fmt.Sprintf("%s%x", segmentPrefix(name, generation), nonce)
}

// horizon finds the oldest point that stays restorable: window back from the base's time. The manifest's marks tell which slot that is, and it gets its own.
func (c *compaction) horizon(m *base.Manifest) {
	m.Window = int64((c.window + time.Second - 1) / time.Second)
	if c.prior != nil {
		m.Marks = append(m.Marks, c.prior.Marks...)
	}
	mark := func(slot uint64, at time.Time) {
		if n := len(m.Marks); n == 0 || m.Marks[n-1].Slot < slot {
			m.Marks = append(m.Marks, base.Mark{Slot: slot, Time: at.UTC()})
		}
	}
	if prev := c.owner.Prev(); prev != nil && prev.ID == c.owner.ID() {
		mark(prev.Slot, prev.Time)
	}
	mark(c.owner.Entry().Slot, c.owner.Entry().Time)
	mark(m.Slot, m.Time)
	horizon, begin := c.owner.Horizon(), m.Time.Add(-c.window)
	keep := m.Marks[:0:0]
	for _, mark := range m.Marks {
		if c.window > 0 && !mark.Time.After(begin) {
			horizon = max(horizon, mark.Slot)
			continue
		}
		keep = append(keep, mark)
	}
	if len(keep) > maxMarks { // coarser where they are old
		thin := keep[:0:0]
		for i, mark := range keep {
			if i%2 == 0 || i > len(keep)/2 {
				thin = append(thin, mark)
			}
		}
		keep = thin
	}
	m.Marks, c.raised = keep, horizon
}
