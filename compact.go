package tonbo

import (
	"context"
	"errors"
	"fmt"
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

// tuning says when the tail is merged into a base. The tail is what a cold start reads entry by entry; a base costs three requests or more.
type tuning struct {
	entries int              // entries in the tail
	bytes   int64            // of their payloads
	settle  int              // entries in the tail when nothing else is going on
	after   time.Duration    // without a commit: nothing else is going on
	collect time.Duration    // how often an owner collects
	now     func() time.Time // for collection
	slots   uint64           // of the log since the last base, whatever is in them: its horizon rises with bases alone, and they list its labels
}

var defaultTuning = tuning{entries: 128, bytes: 4 << 20, settle: 4, after: 2 * time.Second, slots: 128, collect: time.Hour, now: time.Now}

// maxMarks bounds how finely a manifest remembers which slot was when.
const maxMarks = 256

// compactor runs compactions in the background, one at a time. They go on beside commits and Synced and delay them by their own append at
// most. Guarded by the round, but for done.
type compactor struct {
	base   *base.Manifest  // in force, nil: none
	key    string          // its key
	next   *pendingBase    // being published
	labels []base.Labelled // of this owner's entries, oldest first
	before []base.Labelled // of the entries between the base and the claim
	walked bool            // before is known

	released  released  // see collect.go
	collected time.Time // when this owner last did
	cancel    context.CancelFunc
	done      chan struct{} // closed when the one under way has ended; nil: none is
	idle      *time.Timer
}

type pendingBase struct {
	key   string
	m     *base.Manifest
	fresh []string // keys of the segments that it was the first to name
}

// afterShip starts a compaction when it is due. The caller holds the round.
func (h *handle) afterShip() {
	c := &h.compactor
	if len(h.tail.entries) >= h.tune.entries || h.longLog() {
		h.startCompaction(false)
		return
	}
	// A few large entries cost a cold start little: they wait until nobody is at work.
	if len(h.tail.entries) < h.tune.settle && h.tail.bytes < h.tune.bytes || h.smallEnoughToCarry() {
		return
	}
	if c.idle == nil {
		c.idle = time.AfterFunc(h.tune.after, func() {
			if h.lockRound(h.life) == nil {
				h.startCompaction(true)
				h.unlockRound()
			}
		})
	} else {
		c.idle.Reset(h.tune.after)
	}
}

// longLog tells whether a base is due for the log's length alone. The caller holds the round.
func (h *handle) longLog() bool {
	owner, _ := h.current()
	since := owner.Entry().Horizon
	if m := h.compactor.base; m != nil && m.ID == owner.ID().String() {
		since = m.Slot
	}
	return owner.Slot() >= since+h.tune.slots
}

// smallEnoughToCarry: entries carry such a database whole from time to time, which is cheaper than a base.
func (h *handle) smallEnoughToCarry() bool {
	_, vdb := h.current()
	return int64(vdb.PageCount())*int64(vdb.PageSize()) <= wholeLimit/4
}

// startCompaction runs one in the background, unless one is under way. The caller holds the round.
func (h *handle) startCompaction(settle bool) {
	c := &h.compactor
	if c.done != nil {
		select {
		case <-c.done:
		default:
			return
		}
	}
	if h.life.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(h.life)
	c.cancel, c.done = cancel, make(chan struct{})
	h.background.Add(1)
	go func(done chan struct{}) {
		defer h.background.Done()
		defer close(done)
		defer cancel()
		if err := h.compact(ctx, settle); err != nil && ctx.Err() == nil && h.ended() == nil {
			h.o.Logger.Warn("compaction failed; it is tried again after later commits", "event", "compaction_failed", "database", h.name, "error", err)
		}
		if err := h.collect(ctx); err != nil && ctx.Err() == nil && h.ended() == nil {
			h.o.Logger.Warn("collection failed; it is tried again after later commits", "event", "collection_failed", "database", h.name, "error", err)
		}
	}(c.done)
}

// stopCompaction ends the one under way and waits for it. The caller must not hold the round.
func (h *handle) stopCompaction() {
	if h.lockRound(context.Background()) != nil {
		return
	}
	cancel, done, idle := h.compactor.cancel, h.compactor.done, h.compactor.idle
	h.unlockRound()
	if idle != nil {
		idle.Stop()
	}
	if done != nil {
		cancel()
		<-done
	}
}

// settleLog spares the next cold start the tail. It is tidying up: an error is none of Close's.
func (h *handle) settleLog(ctx context.Context) {
	if h.lockRound(ctx) != nil {
		return
	}
	due := len(h.tail.entries) >= 2*h.tune.settle && !h.smallEnoughToCarry() || h.longLog()
	h.unlockRound()
	if !due {
		return
	}
	if err := h.compact(ctx, true); err != nil {
		h.o.Logger.Debug("not settled", "database", h.name, "error", err)
	}
}

// compaction is one base in the making.
type compaction struct {
	h       *handle
	owner   *fence.Owner
	vdb     *vfs.Database
	slot    uint64 // that the base covers
	state   fence.State
	old     *base.Manifest
	plan    base.Plan
	settle  bool
	runs    [][]*layout.Object // of the old base, newest first
	objects []*layout.Object   // all that hold pages as of slot, newest first
	pages   pageset.Set        // what the new level holds
	sums    map[uint32]uint64  // of these, those that are known
	reader  layout.Reader
	labels  []base.Labelled
	fresh   []string // keys of what was uploaded
	buf     []byte
}

// compact merges the tail, and as many runs as the plan says, into a base.
func (h *handle) compact(ctx context.Context, settle bool) error {
	// (1) What is to be merged, as of the last shipped slot. What has to be read for that is read before, while Synced goes on.
	c, err := h.newCompaction(ctx, settle)
	if c == nil || err != nil {
		return err
	}
	if err := h.lockRound(ctx); err != nil {
		return err
	}
	due, err := c.choose(ctx)
	h.unlockRound()
	if !due || err != nil {
		return err
	}
	fault("compact:planned")
	// (2) Segments first, then the manifest that names them (R8).
	m, key, err := c.upload(ctx)
	// (3) In force once its entry is in the log.
	if lerr := h.lockRound(h.life); lerr != nil {
		return errors.Join(err, lerr)
	}
	defer h.unlockRound()
	if err == nil {
		err = h.publish(ctx, c, m, key)
	}
	if err != nil && h.ended() == nil && (h.compactor.next == nil || h.compactor.next.key != key) { // it will never be
		h.release(c.owner.Slot(), append(c.fresh, key)...)
	}
	return err
}

// upload puts the new base's segments, and then its manifest. key is set even with an error.
func (c *compaction) upload(ctx context.Context) (m *base.Manifest, key string, err error) {
	key = fmt.Sprintf("db/%s/base/%016x-%016x-%x", c.h.name, c.slot, c.owner.Generation(), randomNonce())
	if m, err = c.write(ctx); err != nil {
		return nil, key, err
	}
	fault("compact:segments")
	body, err := m.Encode()
	if err != nil {
		return nil, key, err
	}
	if err := remote.CreateUnique(ctx, c.h.store, key, body); err != nil {
		return nil, key, err
	}
	fault("compact:manifest")
	return m, key, nil
}

// newCompaction looks at what there is and reads the maps of what may be merged. nil: there is nothing to do.
func (h *handle) newCompaction(ctx context.Context, settle bool) (*compaction, error) {
	if err := h.lockRound(ctx); err != nil {
		return nil, err
	}
	owner, vdb := h.current()
	c := &compaction{
		h: h, owner: owner, vdb: vdb, old: h.compactor.base, settle: settle, sums: map[uint32]uint64{}, buf: make([]byte, vdb.PageSize()),
		state: fence.State{PageSize: uint32(vdb.PageSize())},
	}
	entries, due := h.tail.entries, h.mergeable()
	h.unlockRound()
	if !due || h.ended() != nil {
		return nil, nil
	}
	for _, e := range entries {
		if _, err := e.object.Index(ctx); err != nil {
			return nil, err
		}
	}
	if err := c.walkLabels(ctx); err != nil {
		return nil, err
	}
	for _, run := range c.old.Runs() {
		objects := c.level(run)
		for _, o := range objects {
			if _, err := o.Index(ctx); err != nil {
				return nil, err
			}
		}
		c.runs = append(c.runs, objects)
	}
	return c, nil
}

// mergeable tells whether there is anything to make a base of: pages above the one in force, or, where the log has grown long without any, its labels.
func (h *handle) mergeable() bool {
	return len(h.tail.entries) > 0 || h.compactor.base != nil && h.longLog()
}

// walkLabels finds the labels between the base and the claim, once an owner: the manifest lists every labelled point, so that one is found without
// reading the whole log.
func (c *compaction) walkLabels(ctx context.Context) error {
	if c.h.compactor.walked {
		return nil
	}
	var floor uint64
	if c.own() {
		floor = c.old.Slot
	}
	var before []base.Labelled
	for e, err := range c.h.back(ctx, c.owner.Entry(), floor) {
		if err != nil {
			return err
		}
		if e.Label != "" {
			before = append(before, base.Labelled{Label: e.Label, Slot: e.Slot})
		}
	}
	slices.Reverse(before)
	c.h.compactor.before, c.h.compactor.walked = before, true
	return nil
}

// noteLabel remembers the label of an entry of ours. The caller holds the round.
func (h *handle) noteLabel(e *fence.Entry) {
	l := h.compactor.labels
	if e.Label != "" && (len(l) == 0 || l[len(l)-1].Slot < e.Slot) {
		h.compactor.labels = append(l, base.Labelled{Label: e.Label, Slot: e.Slot})
	}
}

// choose plans, as of the last shipped slot. due is false when there is nothing to do (any more). The caller holds the round.
func (c *compaction) choose(ctx context.Context) (due bool, err error) {
	h := c.h
	if h.held.Load() != nil { // the state is one entry behind, for a moment
		return false, nil
	}
	if h.ended() != nil || h.behind != nil || !h.mergeable() || c.owner.Pending() {
		return false, nil
	}
	if owner, _ := h.current(); owner != c.owner {
		return false, nil
	}
	c.slot, c.state.PageCount, c.state.Checksum = h.dir.Position()
	if c.slot < c.owner.Generation() { // R8
		return false, nil
	}
	tail, err := h.tail.objects(ctx, h, c.vdb.PageSize())
	if err != nil {
		return false, err
	}
	add := func(p uint32) {
		if p <= c.state.PageCount {
			c.pages.Add(p)
		}
	}
	if err := pagesOf(ctx, tail, add); err != nil {
		return false, err
	}
	c.objects = tail
	for _, run := range c.runs {
		c.objects = append(c.objects, run...)
	}
	c.objects = append(c.objects, c.level(c.old.Bottom())...)
	if c.own() {
		c.labels = append(c.labels, c.old.Labels...)
	}
	for _, l := range append(slices.Clone(h.compactor.before), h.compactor.labels...) {
		if l.Slot <= c.slot && (len(c.labels) == 0 || c.labels[len(c.labels)-1].Slot < l.Slot) {
			c.labels = append(c.labels, l)
		}
	}
	c.plan = base.MakePlan(c.old, c.pages.Len(), int(c.state.PageCount), c.settle)
	for _, run := range c.runs[:c.plan.Merge] {
		if err := pagesOf(ctx, run, add); err != nil {
			return false, err
		}
	}
	if c.plan.Bottom {
		c.wholeChunks()
	}
	for p := range c.pages.All() {
		if sum, known := h.dir.Sum(p); known {
			c.sums[p] = sum
		}
	}
	return true, nil
}

// own tells whether the old base is of this database's own log, and not a fork's source's: only then its slots mean anything here.
func (c *compaction) own() bool { return c.old != nil && c.old.ID == c.owner.ID().String() }

func (c *compaction) level(level []base.Segment) []*layout.Object {
	r := make([]*layout.Object, len(level))
	for i, s := range level {
		r[i] = layout.Remote(c.h.store, int(c.state.PageSize), s.Ref())
	}
	return r
}

// chunk is the range of pages that one segment of the bottom covers.
func (c *compaction) chunk(p uint32) (first, last uint32) {
	n := uint32(base.ChunkBytes / int(c.state.PageSize))
	first = (p-1)/n*n + 1
	return first, min(first+n-1, c.state.PageCount)
}

// holds counts the pages that a range of the bottom must hold: all but the lock page.
func (c *compaction) holds(first, last uint32) int {
	n := int(last-first) + 1
	if lock := segment.LockPage(int(c.state.PageSize)); first <= lock && lock <= last {
		n--
	}
	return n
}

// wholeChunks extends the pages to all of each chunk that has one of them, or that the old bottom does not have whole.
func (c *compaction) wholeChunks() {
	have := map[uint32]base.Segment{}
	for _, s := range c.old.Bottom() {
		have[s.First] = s
	}
	lock := segment.LockPage(int(c.state.PageSize))
	var all pageset.Set
	for first := uint32(1); first <= c.state.PageCount; {
		_, last := c.chunk(first)
		s, old := have[first]
		touched := !old || s.Last < last || s.Pages < c.holds(first, last)
		for p := first; p <= last && !touched; p++ {
			touched = c.pages.Has(p)
		}
		if touched {
			for p := first; p <= last; p++ {
				if p != lock {
					all.Add(p)
				}
			}
		}
		first = last + 1
	}
	c.pages = all
}

// write uploads the new level's segments and returns the manifest. It reads pages from the local file where that still has the right version.
func (c *compaction) write(ctx context.Context) (*base.Manifest, error) {
	w := writers.Get().(*segment.Writer)
	defer writers.Put(w)
	w.Reset(int(c.state.PageSize))
	upper, err := c.upper(ctx) // soon after choose: most of these pages have not changed since
	if err != nil {
		return nil, err
	}
	var level []base.Segment
	var first, last uint32
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
		if err := ctx.Err(); err != nil {
			return nil, err
		}
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
		if err := c.read(ctx, p); err != nil {
			return nil, err
		}
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
	m := &base.Manifest{
		ID: c.owner.ID().String(), Generation: c.owner.Generation(), Slot: c.slot, Time: time.Now().UTC(),
		PageSize: c.state.PageSize, PageCount: c.state.PageCount, Checksum: base.SumString(c.state.Checksum), Labels: c.labels, Upper: upper,
	}
	if c.plan.Bottom {
		m.Levels = [][]base.Segment{c.bottom(level)}
	} else {
		m.Levels = c.old.Levels[c.plan.Merge:]
		if len(level) > 0 {
			m.Levels = append([][]base.Segment{level}, m.Levels...)
		}
	}
	return m, nil
}

// bottom puts the chunks written anew among those that stay.
func (c *compaction) bottom(fresh []base.Segment) []base.Segment {
	var r []base.Segment
	old := c.old.Bottom()
	for _, s := range fresh {
		for len(old) > 0 && old[0].First < s.First {
			r, old = append(r, old[0]), old[1:]
		}
		if len(old) > 0 && old[0].First == s.First {
			old = old[1:]
		}
		r = append(r, s)
	}
	for _, s := range old {
		if s.First <= c.state.PageCount {
			r = append(r, s)
		}
	}
	return r
}

// read brings a page as of the base's slot into buf.
func (c *compaction) read(ctx context.Context, p uint32) error {
	want, known := c.sums[p]
	if known {
		sum, err := c.vdb.ReadPage(p, c.buf)
		if err == nil && sum == want {
			return nil
		}
		if err != nil && !errors.Is(err, vfs.ErrCorrupt) {
			return err
		}
	}
	// It has changed here since, as hot pages do, or has not been fetched yet.
	for _, o := range c.objects {
		found, err := c.reader.Page(ctx, o, p, c.buf)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		if got := segment.PageSum(p, c.buf); known && got != want {
			return fmt.Errorf("%w: page %d in %s is not what was shipped", ErrCorrupt, p, o.Key)
		}
		return nil
	}
	return fmt.Errorf("%w: page %d as of slot %d is in no object", ErrCorrupt, p, c.slot)
}

// segment puts one.
func (c *compaction) segment(ctx context.Context, w *segment.Writer, first, last uint32) (base.Segment, error) {
	s := base.Segment{First: first, Last: last, Pages: w.Pages(), From: 1, Slot: c.slot}
	payload, sum, err := w.Finish()
	if err != nil {
		return s, err
	}
	hd := segment.Header{
		Kind: segment.KindSegment, ID: c.owner.ID(), Generation: c.owner.Generation(), Slot: c.slot, From: s.From, Nonce: randomNonce(), Time: now(),
		PageSize: c.state.PageSize, PageCount: c.state.PageCount, PayloadSize: int64(len(payload)), PayloadSum: sum,
	}
	b, err := segment.EncodeHeader(nil, &hd)
	if err != nil {
		return s, err
	}
	b = append(b, payload...)
	s.Key, s.Size = segmentKey(c.h.name, hd.Generation, hd.Nonce), int64(len(b))
	c.fresh = append(c.fresh, s.Key)
	return s, remote.CreateUnique(ctx, c.h.store, s.Key, b)
}

func segmentPrefix(name string, generation uint64) string {
	return fmt.Sprintf("db/%s/seg/%016x-", name, generation)
}

func segmentKey(name string, generation uint64, nonce [16]byte) string {
	return fmt.Sprintf("%s%x", segmentPrefix(name, generation), nonce)
}

// publish appends the base's entry. The caller holds the round.
func (h *handle) publish(ctx context.Context, c *compaction, m *base.Manifest, key string) error {
	if err := h.ended(); err != nil {
		return err
	}
	if _, err := h.settle(ctx); err != nil {
		return err
	}
	horizon := h.horizon(m, c)
	h.compactor.next = &pendingBase{key, m, c.fresh}
	_, err := c.owner.Append(ctx, fence.Draft{Kind: fence.Base, Base: key, BaseSlot: c.slot, Horizon: horizon, Since: h.since(nil)})
	fault("compact:published")
	if err != nil && !c.owner.Pending() {
		h.compactor.next = nil
	}
	return h.appendError(err, nil)
}

// adopt takes note of a base whose entry has been stored. The caller holds the round.
func (h *handle) adopt(owner *fence.Owner) {
	c := &h.compactor
	if c.next == nil || owner.Base() != c.next.key {
		return
	}
	h.replaced(c.base, c.key, c.next.m, owner.Slot())
	c.base, c.key, c.next = c.next.m, c.next.key, nil
	h.tail.drop(c.base.Slot)
}

// horizon is the oldest point that stays restorable: Options.History back. The manifest's marks tell which slot that is.
func (h *handle) horizon(m *base.Manifest, c *compaction) uint64 {
	if c.own() {
		m.Marks = append(m.Marks, c.old.Marks...)
	} else {
		e := c.owner.Entry()
		m.Marks = append(m.Marks, base.Mark{Slot: e.Slot, Time: e.Time.UTC()})
	}
	m.Marks = append(m.Marks, base.Mark{Slot: m.Slot, Time: m.Time})
	horizon, window := c.owner.Horizon(), m.Time.Add(-h.o.History)
	keep := m.Marks[:0:0]
	for _, mark := range m.Marks {
		if !mark.Time.After(window) {
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
	m.Marks = keep
	return horizon
}
