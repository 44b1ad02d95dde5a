package tonbo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/tonbo-go/tonbo/cache"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/internal/pageset"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/vfs"
)

// Open takes the database over and brings a local copy up to date. It never creates one.
//
// From here on the former owner's commits are refused. Errors, for errors.Is: [ErrNotFound], [ErrLocked] (the local copy is open, here
// or in another process), [ErrForeignFile], [ErrBusy] (Options.IfIdle), [ErrFrozen], [ErrExpired], [ErrDeleted] (its deletion has begun), [ErrCorrupt],
// [ErrRemoteLost], [ErrStoreUnfit], [ErrUnauthorized], [ErrForbidden]. Close the DB.
func Open(ctx context.Context, name string, o Options) (*DB, error) {
	if err := ValidateName(name); err != nil {
		return nil, err
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, wrap(name, "open", err)
	}
	h, err := openHandle(ctx, name, o)
	if err != nil {
		return nil, wrap(name, "open", err)
	}
	return newDB(h), nil
}

func openHandle(ctx context.Context, name string, o Options) (_ *handle, err error) {
	store, err := openStore(ctx, o)
	if err != nil {
		return nil, err
	}
	h := newHandle(name, o, store)
	h.share("db/" + name + "/")
	defer func() {
		if err != nil {
			h.stop()
			h.unshare()
			if h.dir != nil {
				h.dir.Close()
			}
		}
	}()
	// (1) Is there such a database? If not, nothing is written.
	probe := newProbe(ctx, h.store)
	defer probe.wait()
	head, err := h.log.HeadThen(ctx, probe.begin)
	if err != nil {
		return nil, err
	}
	if head == nil || head.Ends() || o.only != (fence.ID{}) && o.only != head.ID {
		return nil, fence.ErrNoDatabase
	}
	rec := h.readRecord(ctx, head) // beside what follows; takeOver wants it
	defer rec.wait()
	if since := time.Since(head.Time); o.IfIdle > 0 && head.Kind != fence.Close && since.Abs() < o.IfIdle {
		return nil, &dbError{name, "open", ErrBusy, fmt.Errorf("%s wrote %s ago; Options.IfIdle is %s", head.Owner, since.Round(time.Millisecond), o.IfIdle)}
	}
	// (2) The local directory is ours before we claim: a claim that cannot be served would fence an owner for nothing.
	h.dir, err = cache.Open(o.Dir, name, cache.Options{Logger: o.Logger, Fault: cacheFault})
	if err != nil {
		return nil, err
	}
	if err := h.sweepSpools(); err != nil {
		return nil, err
	}
	fault("open:locked")
	if err := probe.wait(); err != nil {
		return nil, err
	}
	// (3) Claim, and what follows from it.
	if err := h.takeOver(ctx, head, rec); err != nil {
		return nil, err
	}
	if o.SyncEvery > 0 {
		h.background.Add(1)
		go h.autoSync(o.SyncEvery)
	}
	return h, nil
}

// sweepSpools removes what a process that was killed while shipping left.
func (h *handle) sweepSpools() error {
	old, err := filepath.Glob(filepath.Join(filepath.Dir(h.dir.Path()), spoolPattern))
	if err != nil {
		return nil // the directory's own name has no meaning as a pattern: nothing is lost but room
	}
	for _, f := range old {
		if err := os.Remove(f); err != nil {
			return err
		}
	}
	return nil
}

// takeOver claims the database and makes the local copy what the log says. rec is the index record of head's incarnation.
func (h *handle) takeOver(ctx context.Context, head *fence.Entry, rec *pendingRecord) error {
	// (0) What must not be claimed: a claim that cannot be served would fence an owner for nothing.
	if err := h.notAhead(head); err != nil {
		return err
	}
	if err := h.notAnothers(ctx); err != nil {
		return err
	}
	if past(head, h.o.time()) {
		r, err := rec.wait()
		if err == nil {
			err = h.mayOpen(r)
		}
		if err != nil {
			return err
		}
	}
	fault("open:before-claim")
	defer h.markReady(ctx, rec)()
	// (1) Claim. What Open has to read is read beside it, and beside the LIST that confirms it; most often the head is still what it was.
	first := h.newTail(head)
	t := first
	early := begin(ctx, func(ctx context.Context) error { return first.load(ctx, h.floor(head)) })
	defer early.stop()
	owner, err := h.log.Claim(ctx, fence.ClaimOptions{Head: head, ID: h.o.only, Load: func(ctx context.Context, o *fence.Owner) error {
		if prev := o.Prev(); prev.Nonce != head.Nonce {
			t = h.newTail(prev)
			return t.load(ctx, h.floor(prev))
		}
		t = first
		return early.wait(ctx)
	}})
	if err != nil {
		return err
	}
	fault("open:claimed")
	r, err := rec.wait()
	if owner.ID() != head.ID { // deleted and made again since we looked
		r, err = recordOf(ctx, h.store, h.name, owner.Entry())
	}
	if err == nil {
		if err = h.mayOpen(r); err != nil {
			h.disown(ctx, owner, r)
		}
	}
	if err != nil {
		return err
	}
	h.expiring.begin(owner.Entry(), r, h.o.time())
	// (2) The local copy: warm if it can be verified, else from nothing.
	local, err := h.warmStart(ctx, owner, t)
	if err != nil {
		return err
	}
	cold := local == nil
	if cold {
		if local, err = h.coldStart(ctx, owner, t); err != nil {
			return err
		}
	}
	owner.Forget()
	fault("open:local")
	// (3) Observe it.
	if err := h.attach(ctx, owner, local, cold, t); err != nil {
		return err
	}
	if s := h.source(); s != nil {
		switch h.o.Hydration {
		case HydrateBackground:
			s.hydrate()
		case HydrateFull:
			if err := h.hydrated(ctx); err != nil {
				return errors.Join(err, h.detach())
			}
		}
	}
	// (4) Commits set aside are named until somebody has taken the file away: a process may have died before it could tell.
	if h.lost == "" {
		if h.lost, err = h.dir.Kept(); err != nil {
			return err
		}
	}
	fault("open:attached")
	return nil
}

// disown closes what was claimed and must not be opened. What the log then says of the expiry, the next Open goes by.
func (h *handle) disown(ctx context.Context, owner *fence.Owner, r *catalog.Record) {
	h.expiring.know(r, h.o.time())
	u := segment.Usage{Stored: owner.Entry().Usage.Stored, Expires: h.expiring.seconds()}
	if _, err := owner.Append(ctx, fence.Draft{Kind: fence.Close, Since: &u}); err != nil {
		h.o.Logger.Debug("not closed", "database", h.name, "error", err)
	}
}

// detach ends the observation of the local file, and the fetching of its pages.
func (h *handle) detach() error {
	h.mu.Lock()
	vdb, lazy := h.vdb, h.lazy
	h.lazy = nil
	h.mu.Unlock()
	err := vdb.Detach()
	if lazy != nil {
		err = errors.Join(err, lazy.close())
	}
	return err
}

// notAhead refuses a remote that has lost what it acknowledged: the local copy knows a later slot of the same incarnation.
func (h *handle) notAhead(head *fence.Entry) error {
	st := h.dir.State()
	if st == nil || st.ID != [16]byte(head.ID) || st.Store != h.store.String() || st.Slot <= head.Slot {
		return nil
	}
	return &dbError{h.name, "open", ErrRemoteLost, fmt.Errorf("%s ends at slot %d, the local copy %s knows slot %d; the remote was rolled back or replaced: restore it, or move the local copy away to go on with what the remote has",
		h.store, head.Slot, h.dir.Path(), st.Slot)}
}

// notAnothers refuses a local copy with commits that only another remote can take: set aside they would never get there.
func (h *handle) notAnothers(ctx context.Context) error {
	st := h.dir.State()
	if st == nil || st.Store == h.store.String() || st.Lost != "" {
		return nil
	}
	rec, err := h.dir.Recover(ctx, nil)
	if err != nil || len(rec.Unshipped) == 0 && !rec.Doubtful {
		return err
	}
	return &dbError{h.name, "open", ErrForeignFile, fmt.Errorf("the local copy %s holds commits that were never shipped to %s; open it with that remote, set another Dir, or move it away", h.dir.Path(), st.Store)}
}

// local is the local file as it stands when SQLite may open it.
type local struct {
	pageCount uint32
	unshipped []vfs.PageSum // pages that differ from the last shipped state
	changed   bool          // it does differ
	present   *pageset.Bits // pages that are in the file; nil: all
}

func (h *handle) attach(ctx context.Context, owner *fence.Owner, l *local, cold bool, t *tailReader) (err error) {
	if h.tail, err = t.tail(ctx); err != nil {
		return err
	}
	var source vfs.PageSource
	var lazy *lazy
	if l.present != nil {
		slot, count, _ := h.dir.Position()
		if lazy, err = h.newLazy(h.newLocator(h.tail.clone(), t.base, slot, int(owner.State().PageSize), count), l.present); err != nil {
			return err
		}
		defer func() {
			if err != nil {
				lazy.close()
			}
		}()
		source = lazy
	}
	_, shipped, _ := h.dir.Position()
	vdb, err := vfs.Attach(h.dir.Path(), vfs.Options{
		PageSize: int(owner.State().PageSize), PageCount: l.pageCount, Sum: segment.PageSum,
		Source: source, BeforeCommit: h.beforeCommit(), AfterCommit: h.committed, Behind: h.fellBehind, Fault: vfsFault,
		BeforeReset: func(s vfs.Spill) error {
			fault("spill")
			if s.MinCount < s.MaxCount {
				if err := h.dir.Shrunk(s.MinCount); err != nil {
					return err
				}
			}
			pages := make([]cache.PageSum, len(s.Pages))
			for i, p := range s.Pages {
				pages[i] = cache.PageSum(p)
			}
			return h.dir.Spilled(pages)
		},
	})
	if err != nil {
		return err
	}
	if l.changed {
		vdb.MarkDirty(l.unshipped, shipped)
		h.committed()
	}
	h.compactor = compactor{base: t.base}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.owner, h.vdb, h.cold, h.lazy = owner, vdb, cold, lazy
	h.epoch.Add(1)
	return nil
}

func (h *handle) beforeCommit() func(context.Context, *vfs.Held) error {
	if !h.o.Strict {
		return nil
	}
	return h.strictCommit
}

// floor is the newest slot whose pages the local copy has, if it can be of use: the reader need not go below it. 0: none.
func (h *handle) floor(prev *fence.Entry) uint64 {
	st := h.dir.State()
	if st == nil || st.ID != [16]byte(prev.ID) || st.Name != h.name || st.Store != h.store.String() || st.PageSize != prev.State.PageSize || st.Lost != "" {
		return 0
	}
	if st.Boot == "" {
		return 0
	}
	return st.Slot
}

// warmStart uses what the local directory holds, if every page of it can be verified. nil: it cannot; unshipped commits in it have been set aside.
func (h *handle) warmStart(ctx context.Context, owner *fence.Owner, t *tailReader) (*local, error) {
	st := h.dir.State()
	if h.outdated.Swap(false) {
		return nil, nil
	}
	if st == nil {
		if why := h.dir.Damaged(); why != "" {
			h.o.Logger.Warn("local copy rebuilt", "event", "rebuilt", "database", h.name, "why", why)
			return nil, h.saveDamaged(ctx, owner)
		}
		return nil, nil
	}
	prev := owner.Prev()
	floor := h.floor(prev)
	if floor == 0 {
		if st.Lost != "" && st.ID == [16]byte(prev.ID) { // set aside already
			h.mu.Lock()
			h.lost = st.Lost
			h.mu.Unlock()
			return nil, nil
		}
		return nil, h.saveUnshipped(ctx, st, "it is of another "+h.differs(st, prev))
	}
	entries, err := t.above(ctx, floor)
	if err != nil {
		return nil, err
	}
	// Entries of our own generation come first: appends whose answer we did not live to note down, however many claims have followed.
	// Those that a base has taken in are not to be had any more: then what is not the state that we know counts as unshipped.
	var newer []cache.Shipped
	compacted := floor < t.bottom()
	if !compacted {
		if newer, entries, err = h.ownEntries(ctx, t, st.Generation, entries); err != nil {
			return nil, err
		}
	}
	rec, err := h.dir.Recover(ctx, newer)
	if err != nil {
		return nil, err
	}
	if len(rec.Damaged) > 0 && len(newer) > 0 {
		// Our own entries, and they are not in the file: strict COMMITs that failed here after they were shipped. The file is then what it was before them.
		before, err := h.dir.Recover(ctx, nil)
		if err != nil {
			return nil, err
		}
		if len(before.Damaged)+len(before.Unshipped) == 0 {
			if entries, err = t.above(ctx, floor); err != nil {
				return nil, err
			}
			rec = before
		}
	}
	// A claim without pages in between changes nothing that our commits stand on; a rewind does.
	_, count, sum := h.dir.Position()
	unmoved := !compacted && len(entries) == 0 && count == prev.State.PageCount && sum == prev.State.Checksum
	switch {
	case len(rec.Damaged) > 0:
		h.o.Logger.Warn("local copy rebuilt", "event", "rebuilt", "database", h.name, "why", rec.Reason, "pages", len(rec.Damaged))
		// Without a restart of the machine, a page that cannot be explained may be a commit that was never shipped. After one it is a write that did not
		// reach the disk, unless it looks like a commit (Doubtful).
		if rec.Rebooted && !rec.Doubtful && len(rec.Unshipped) == 0 {
			return nil, nil
		}
		return nil, h.saveDamaged(ctx, owner)
	case len(rec.Unshipped) > 0 && !unmoved:
		return nil, h.saveUnshipped(ctx, st, fmt.Sprintf("%s has taken the database over since", prev.Owner))
	case !unmoved: // nothing of ours: only the pages that changed since
		return h.catchUp(ctx, owner, t, h.dir.State())
	}
	if err := h.dir.SetGeneration(owner.Generation(), owner.Slot()); err != nil {
		return nil, err
	}
	l := &local{pageCount: rec.PageCount, changed: len(rec.Unshipped) > 0, present: rec.Present}
	for _, p := range rec.Unshipped {
		l.unshipped = append(l.unshipped, vfs.PageSum{Page: p, Sum: rec.Sums[p-1]})
	}
	return l, nil
}

// ownEntries takes the entries of a generation off the front of entries.
func (h *handle) ownEntries(ctx context.Context, t *tailReader, generation uint64, entries []*fence.Entry) (own []cache.Shipped, others []*fence.Entry, err error) {
	for i, e := range entries {
		if e.Payload == nil {
			if e, err = t.readPages(ctx, e.Slot); err != nil {
				return nil, nil, err
			}
			t.keep(e)
		}
		if e.Generation != generation {
			return own, entries[i:], nil
		}
		s, err := h.sumsOf(ctx, e)
		if err != nil {
			return nil, nil, err
		}
		own = append(own, s)
	}
	return own, nil, nil
}

func (h *handle) differs(st *cache.State, prev *fence.Entry) string {
	switch {
	case st.Store != h.store.String():
		return "remote (" + st.Store + ")"
	case st.Name != h.name:
		return "database (" + st.Name + ")"
	case st.ID != [16]byte(prev.ID):
		return "incarnation: the database was deleted and created again"
	}
	return "form"
}

// saveUnshipped sets commits aside that were never shipped and cannot be any more, if there are any.
func (h *handle) saveUnshipped(ctx context.Context, st *cache.State, why string) error {
	rec, err := h.dir.Recover(ctx, nil)
	if err != nil {
		return err
	}
	if len(rec.Unshipped) == 0 && !rec.Doubtful && (len(rec.Damaged) == 0 || rec.Rebooted) {
		return nil
	}
	return h.saveFile(ctx, st.Generation, why)
}

// saveDamaged sets a local copy aside in which not every page can be verified: there may be commits in it.
func (h *handle) saveDamaged(ctx context.Context, owner *fence.Owner) error {
	generation := owner.Generation() - 1
	if st := h.dir.State(); st != nil {
		generation = st.Generation
	}
	return h.saveFile(ctx, generation, "not every page of it can be verified")
}

func (h *handle) saveFile(ctx context.Context, generation uint64, why string) error {
	if fi, err := os.Stat(h.dir.Path()); errors.Is(err, os.ErrNotExist) || err == nil && fi.Size() == 0 {
		return nil
	}
	path, err := h.dir.KeepAside(generation, func(w io.Writer) error { return h.dir.CopyTo(ctx, &plainWriter{w: w}, h.fillAsOf(h.dir.State())) })
	if err != nil {
		return fmt.Errorf("commits that were not shipped could not be set aside: %w", err)
	}
	fault("open:lost-kept")
	h.mu.Lock()
	h.lost = path
	h.mu.Unlock()
	h.o.Logger.Warn("commits set aside", "event", "lost", "database", h.name, "file", path, "why", why)
	return nil
}

// coldStart rebuilds the local copy from the remote alone.
func (h *handle) coldStart(ctx context.Context, owner *fence.Owner, t *tailReader) (*local, error) {
	if err := h.dir.Reset(); err != nil {
		return nil, err
	}
	if h.lazily(owner.State()) {
		return h.lazyStart(ctx, owner, t, nil)
	}
	r, err := h.newRestorer(h.dir.Path(), owner.State(), t, nil)
	if err != nil {
		return nil, err
	}
	return h.rebuild(ctx, owner, r, 0)
}

// catchUp writes the pages that others have changed into a local copy that is exactly an earlier slot, or lets them be absent. nil: it cannot be used.
func (h *handle) catchUp(ctx context.Context, owner *fence.Owner, t *tailReader, st *cache.State) (*local, error) {
	if st.Known != nil || h.lazily(owner.State()) {
		straight, err := t.straight(ctx, st.Slot)
		if err != nil {
			return nil, err
		}
		if straight {
			return h.lazyStart(ctx, owner, t, st)
		}
		if st.Known != nil {
			return nil, nil
		}
	}
	if err := h.dir.Vacate(); err != nil { // until it is done the copy is neither state
		return nil, err
	}
	r, err := h.newRestorer(h.dir.Path(), owner.State(), t, st.Sums)
	if err != nil {
		return nil, err
	}
	l, err := h.rebuild(ctx, owner, r, st.Slot)
	if errors.Is(err, errSum) { // it was rewound in between
		return nil, nil
	}
	return l, err
}

func (h *handle) rebuild(ctx context.Context, owner *fence.Owner, r *restorer, floor uint64) (*local, error) {
	if err := r.run(ctx, floor); err != nil {
		return nil, err
	}
	fault("restore:written")
	s := owner.State()
	if err := h.dir.Begin(cache.State{
		Name: h.name, Store: h.store.String(), ID: owner.ID(), Generation: owner.Generation(), Slot: owner.Slot(),
		PageSize: s.PageSize, Checksum: s.Checksum, Sums: r.sums,
	}); err != nil {
		return nil, err
	}
	return &local{pageCount: s.PageCount}, nil
}
