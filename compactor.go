package tonbo

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/layout"
)

// tuning says when work in the background begins: above all, when the tail is merged into a base. The tail is what a cold start reads entry by entry; a base costs three requests or more.
type tuning struct {
	entries int              // entries in the tail
	bytes   int64            // of their payloads
	settle  int              // entries in the tail when nothing else is going on
	after   time.Duration    // without a commit: nothing else is going on
	collect time.Duration    // how often an owner collects
	now     func() time.Time // for bases and collection
	wal     int              // bytes of the write-ahead log that are not in the main file: a checkpoint begins in the background
	slots   uint64           // of the log since the last base, whatever is in them: its horizon rises with bases alone, and they list its labels
	packs   int64            // bytes of packs that lie above the levels of a base
	packing bool             // whatever can be packed is, for tests
	whole   int64            // wholeLimit, lower for tests
	upper   bool             // upper pages get an object of their own however few they are, for tests
	broken  broken           // for tests
}

// broken is a rule that a test breaks, to see that it is found out.
type broken int

const (
	againstUnshipped     broken = iota + 1 // deltas are against what no entry holds
	withoutDeltas                          // a base leaves out the pages that the tail holds as deltas
	unknownIsAcked                         // R2: a Synced whose append's outcome is not known returns nil
	idleIsAcked                            // R6: a Synced with nothing to ship asks nobody
	trustsTheCopy                          // a warm start takes the local copy as it is
	keepsWhatIsPassed                      // a warm start keeps commits that were not shipped although others have written since
	packsWithoutOne                        // a pack leaves out an entry
	pagesOfTheBase                         // a page that is absent comes from the base although entries above it hold it
	strictUnknownIsAcked                   // R2: a strict COMMIT whose append's outcome is not known returns nil
	staleUpper                             // a base does not say which pages of its upper object have changed
)

// A base puts the pages of the tail once more, whole, and what travels with it: the more deltas it takes in, the fewer bytes that is for each. Entries name 256 slots of their tail at most:
// what comes while a compaction is under way must find room there.
var defaultTuning = tuning{entries: 192, bytes: 4 << 20, settle: 4, after: 2 * time.Second, slots: 192, wal: checkpointAfter, packs: packedLimit, whole: wholeLimit, collect: time.Hour, now: time.Now}

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

	counts  pageCounts // of the base's packs
	shipped int64      // bytes of entries since it was opened, and of the segments that they name
	put     int64      // bytes of compactions

	maps map[string]*layout.Object // of the segments in runs of the base that this owner made. Replaced, never changed
	held heldUpper                 // of the base's upper object, if this owner has made or read it

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
	made  map[string]*layout.Object
	held  heldUpper
	count pageCounts
}

// afterShip starts a compaction when it is due. The caller holds the round.
func (h *handle) afterShip() {
	c := &h.compactor
	if h.compactionDue() {
		h.startCompaction(0)
		return
	}
	// A few large entries cost a cold start little: they wait until nobody is at work.
	if n, bytes := h.tail.ours(); n < h.tune.settle && bytes < h.tune.bytes || h.smallEnoughToCarry() {
		return
	}
	if c.idle == nil {
		c.idle = time.AfterFunc(h.tune.after, func() {
			if h.lockRound(h.life) == nil {
				h.startCompaction(settleFactor)
				h.unlockRound()
			}
		})
	} else {
		c.idle.Reset(h.tune.after)
	}
}

// compactionDue: whatever it costs. The caller holds the round.
func (h *handle) compactionDue() bool { return h.tail.long(h.tune.entries) || h.longLog() }

// longLog tells whether a base is due for the log's length alone. The caller holds the round.
func (h *handle) longLog() bool {
	owner, _ := h.current()
	return owner.Slot() >= sinceBase(owner.Last(), h.name)+h.tune.slots
}

// sinceBase is the slot of the base in force, or, if that is not of this log, the horizon.
func sinceBase(e *fence.Entry, name string) uint64 {
	var slot uint64
	if at, ok := strings.CutPrefix(e.Base, basePrefix(name)); ok && len(at) > 16 {
		slot, _ = strconv.ParseUint(at[:16], 16, 64) // an older incarnation's is below the horizon
	}
	return max(e.Horizon, slot)
}

// smallEnoughToCarry: entries carry such a database whole from time to time, which is cheaper than a base.
func (h *handle) smallEnoughToCarry() bool {
	_, vdb := h.current()
	return int64(vdb.PageCount())*int64(vdb.PageSize()) <= h.tune.whole/4
}

// startCompaction runs one in the background, unless one is under way. The caller holds the round.
func (h *handle) startCompaction(settle float64) {
	c := &h.compactor
	if h.compacting() || h.life.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(h.life)
	c.cancel, c.done = cancel, make(chan struct{})
	h.background.Add(1)
	go func(done chan struct{}) {
		defer h.background.Done()
		defer close(done)
		defer cancel()
		defer h.rest()
		if err := h.compact(ctx, settle); err != nil && ctx.Err() == nil && h.ended() == nil {
			h.o.Logger.Warn("compaction failed; it is tried again after later commits", "event", "compaction_failed", "database", h.name, "error", err)
		}
		if err := h.collect(ctx); err != nil && ctx.Err() == nil && h.ended() == nil {
			h.o.Logger.Warn("collection failed; it is tried again after later commits", "event", "collection_failed", "database", h.name, "error", err)
		}
	}(c.done)
}

// compacting tells whether one is under way. The caller holds the round, without which none begins.
func (h *handle) compacting() bool {
	done := h.compactor.done
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
	n, _ := h.tail.ours()
	due := n >= h.tune.settle+2 && !h.smallEnoughToCarry() || h.compactionDue() || h.manyPacks() && h.credit(closeFactor) > 0
	h.unlockRound()
	if !due {
		return
	}
	if err := h.compact(ctx, closeFactor); err != nil {
		h.o.Logger.Debug("not settled", "database", h.name, "error", err)
	}
}

// mergeable tells whether there is anything to make a base of: pages above the one in force, or, where the log has grown long without any, its labels.
func (h *handle) mergeable() bool {
	return len(h.tail.entries) > 0 || h.compactor.base != nil && h.longLog() || h.manyPacks()
}

// manyPacks: an opening would have fewer requests if they were one. The caller holds the round.
func (h *handle) manyPacks() bool {
	m := h.compactor.base
	owner, _ := h.current()
	return len(m.Packs()) > settledPacks && m.ID == owner.ID().String() // a fork's source's stay as they are
}

// settleLimit is what one compaction may put that is not due, bytes, however much of the log there is to be merged: an owner that has shipped little leaves what costs more to one that ships more, or
// to one for which it is due. The caller holds the round.
func (h *handle) settleLimit() int64 {
	return max(settleFloor, creditFactor*h.compactor.shipped-h.compactor.put)
}

// settleFloor is what it may put in any case, if the tail pays for it: enough for the manifest and the pages of a hundred small commits.
const settleFloor = 1 << 20

// credit is what a last compaction may put because those before have put little. The caller holds the round.
func (h *handle) credit(settle float64) int64 {
	if settle < closeFactor {
		return 0
	}
	return creditFactor*h.compactor.shipped - h.compactor.put
}

// compact merges the tail, and as many runs as the plan says, into a base.
func (h *handle) compact(ctx context.Context, settle float64) error {
	// (1) What is to be merged, as of the last shipped slot. What has to be read for that is read before, while Synced goes on.
	var c *compaction
	var now *chosen
	for read := false; now == nil; {
		var err error
		if c, err = h.newCompaction(ctx, settle); c == nil || err != nil {
			return err
		}
		if err := h.lockRound(ctx); err != nil {
			return err
		}
		now, read = c.choose()
		h.unlockRound()
		if now == nil && read {
			return nil
		}
	}
	c.due = c.due || now.due
	if err := c.merge(ctx, &now.tail, now.labels); err != nil {
		return err
	}
	if !c.due && !c.cheap() || c.packing.idle() && !now.due {
		return nil
	}
	fault("compact:planned")
	// (2) Segments first, then the manifest that names them (R8).
	m, key, err := c.upload(ctx)
	// (3) In force once its entry is in the log.
	if lerr := h.lockRound(h.life); lerr != nil {
		return errors.Join(err, lerr)
	}
	defer h.unlockRound()
	h.compactor.put += c.bytes
	if err == nil {
		err = h.publish(ctx, c, m, key)
	}
	if err != nil && h.ended() == nil && (h.compactor.next == nil || h.compactor.next.key != key) { // it will never be
		h.release(c.owner.Slot(), append(c.fresh, key)...)
	}
	if errors.Is(err, errOvertaken) {
		return nil
	}
	return err
}

// errOvertaken: another compaction has published a base meanwhile. That one does.
var errOvertaken = errors.New("another base is in force")

// newCompaction looks at what there is and reads the maps of what may be merged. nil: there is nothing to do.
func (h *handle) newCompaction(ctx context.Context, settle float64) (*compaction, error) {
	if err := h.lockRound(ctx); err != nil {
		return nil, err
	}
	owner, vdb := h.current()
	c := newCompaction(h, owner, vdb, h.compactor.base, uint32(vdb.PageSize()), settle)
	c.window, c.maps, c.counts, c.credit = h.o.History, h.compactor.maps, h.compactor.counts, h.credit(settle)
	c.walked, c.limit, c.held = h.compactor.walked, h.settleLimit(), h.compactor.held
	tl, due := h.tail.clone(), h.mergeable()
	h.unlockRound()
	if !due || h.ended() != nil {
		return nil, nil
	}
	return c, c.look(ctx, &tl)
}

// chosen is what a compaction merges, as of the moment that it was chosen.
type chosen struct {
	tail   tail
	labels []base.Labelled
	due    bool // whatever it costs
}

// choose fixes the state that the base is to be of: the last shipped one. It returns nil when there is nothing to do (any more), or, read being false, when there is what look has
// not seen. The caller holds the round: what takes time comes after.
func (c *compaction) choose() (now *chosen, read bool) {
	h := c.h
	if h.held.Load() != nil { // the state is one entry behind, for a moment
		return nil, true
	}
	if h.ended() != nil || h.behind != nil || !h.mergeable() || c.owner.Pending() {
		return nil, true
	}
	if owner, _ := h.current(); owner != c.owner || h.compactor.base != c.force {
		return nil, true
	}
	slot, count, sum, sums := h.dir.Snapshot()
	if slot < c.owner.Generation() { // R8
		return nil, true
	}
	if !h.tail.known() {
		return nil, false
	}
	c.slot, c.state.PageCount, c.state.Checksum, c.sums = slot, count, sum, sums
	return &chosen{h.tail.clone(), h.compactor.noted(), h.compactionDue()}, true
}

// noted lists the labels since the claim's base, oldest first. The caller holds the round.
func (c *compactor) noted() []base.Labelled {
	return append(slices.Clone(c.before), c.labels...)
}

// noteLabel remembers the label of an entry of ours. The caller holds the round.
func (h *handle) noteLabel(e *fence.Entry) {
	l := h.compactor.labels
	if e.Label != "" && (len(l) == 0 || l[len(l)-1].Slot < e.Slot) {
		h.compactor.labels = append(l, base.Labelled{Label: e.Label, Slot: e.Slot})
	}
}

// publish appends the base's entry. The caller holds the round.
func (h *handle) publish(ctx context.Context, c *compaction, m *base.Manifest, key string) error {
	if err := h.ended(); err != nil {
		return err
	}
	if _, err := h.settle(ctx); err != nil {
		return err
	}
	// It says where the pages are by way of the base that was in force when it was planned: behind another one since, what came between would be nowhere.
	if owner, _ := h.current(); owner != c.owner || h.compactor.base != c.force {
		return errOvertaken
	}
	h.compactor.next = &pendingBase{key, m, c.fresh, c.made, c.held, c.counts}
	_, err := c.owner.Append(ctx, fence.Draft{Kind: fence.Base, Base: key, BaseSlot: c.slot, Horizon: c.raised, Since: h.since(nil)})
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
	maps := map[string]*layout.Object{}
	for _, run := range c.next.m.Runs() {
		for _, s := range run {
			for _, known := range []map[string]*layout.Object{c.maps, c.next.made} {
				if o := known[s.Key]; o != nil {
					maps[s.Key] = o
				}
			}
		}
	}
	c.maps, c.held, c.counts = maps, c.next.held, c.next.count
	c.base, c.key, c.next = c.next.m, c.next.key, nil
	h.tail.drop(c.base.Slot)
}
