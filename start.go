package tonbo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/tonbo-go/tonbo/cache"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/pageset"
	"github.com/tonbo-go/tonbo/vfs"
)

// local is the local file as it stands when SQLite may open it.
type local struct {
	pageCount uint32
	unshipped []vfs.PageSum // pages that differ from the last shipped state
	changed   bool          // it does differ
	present   *pageset.Bits // pages that are in the file; nil: all
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
			return nil, h.saveDamaged(ctx, owner, nil, nil)
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
	switch h.tune.broken {
	case trustsTheCopy:
		rec.Damaged, rec.Unshipped, rec.PageCount, unmoved = nil, nil, count, true
	case keepsWhatIsPassed:
		unmoved = unmoved || len(rec.Unshipped) > 0
	}
	switch {
	case len(rec.Damaged) > 0:
		h.o.Logger.Warn("local copy rebuilt", "event", "rebuilt", "database", h.name, "why", rec.Reason, "pages", len(rec.Damaged))
		// Without a restart of the machine, a page that cannot be explained may be a commit that was never shipped. After one it is a write that did not
		// reach the disk, unless it looks like a commit (Doubtful).
		if rec.Rebooted && !rec.Doubtful && len(rec.Unshipped) == 0 {
			return nil, nil
		}
		return nil, h.saveDamaged(ctx, owner, rec, newer)
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
		l.unshipped = append(l.unshipped, vfs.PageSum{Page: p, Sum: rec.Sums.At(p)})
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
	return h.saveFile(ctx, st.Generation, st, rec, why)
}

// saveDamaged sets a local copy aside in which not every page can be verified: there may be commits in it. newer are the entries of its own generation behind its state, and rec is what it was found to be with them.
func (h *handle) saveDamaged(ctx context.Context, owner *fence.Owner, rec *cache.Recovery, newer []cache.Shipped) error {
	generation := owner.Generation() - 1
	st := h.dir.State()
	if st != nil {
		generation = st.Generation
		if len(newer) > 0 { // the file has them, as far as it has anything
			st.Slot = newer[len(newer)-1].Slot
		}
	}
	return h.saveFile(ctx, generation, st, rec, "not every page of it can be verified")
}

// saveFile sets the local copy aside. Pages that are not in it, or damaged, are what they were as of st's slot.
func (h *handle) saveFile(ctx context.Context, generation uint64, st *cache.State, rec *cache.Recovery, why string) error {
	if fi, err := os.Stat(h.dir.Path()); errors.Is(err, os.ErrNotExist) || err == nil && fi.Size() == 0 {
		return nil
	}
	var damaged []uint32
	if rec != nil {
		damaged = rec.Damaged
	}
	path, err := h.dir.KeepAside(generation, func(w io.Writer) error {
		return h.dir.CopyTo(ctx, &plainWriter{w: w}, h.fillAsOf(st), damaged...)
	})
	if err != nil {
		return fmt.Errorf("commits that were not shipped could not be set aside: %w", err)
	}
	fault("open:lost-kept")
	h.mu.Lock()
	h.lost = path
	h.losses.Add(1)
	h.mu.Unlock()
	h.o.Logger.Warn("commits set aside", "event", "lost", "database", h.name, "file", path, "why", why)
	return nil
}

// coldStart rebuilds the local copy from the remote alone.
func (h *handle) coldStart(ctx context.Context, owner *fence.Owner, t *tailReader) (*local, error) {
	if err := h.dir.Reset(); err != nil {
		return nil, err
	}
	// Perhaps a copy was found that is of no use after all: then what it would have spared has not been looked at, such as a fork's source.
	if err := t.complete(ctx); err != nil {
		return nil, err
	}
	if h.lazily(owner.State()) {
		return h.lazyStart(ctx, owner, t, nil)
	}
	r, err := h.newRestorer(h.dir.Path(), owner.State(), t, pageset.Sums{})
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
