package tonbo

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/tonbo-go/tonbo/cache"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/internal/fsys"
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
	if o.At != nil || o.Follow != 0 {
		return nil, wrap(name, "open", invalid("At", "At and Follow are OpenReadOnly's: Open takes the head over; Rewind or Fork begin at an earlier point"))
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
		return nil, fmt.Errorf("%w in %s: Create it, or check Options.URL", fence.ErrNoDatabase, h.store)
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
	h.discard = o.throwaway
	if err := h.dir.SetThrowaway(o.throwaway); err != nil {
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
		if err := fsys.At(f).Remove(f); err != nil {
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
	first.fresh = h.lazily(head.State)
	t := first
	early := begin(ctx, func(ctx context.Context) error { return first.load(ctx, h.floor(head)) })
	defer early.stop()
	owner, err := h.log.Claim(ctx, fence.ClaimOptions{Head: head, ID: h.o.only, Load: func(ctx context.Context, o *fence.Owner) error {
		if prev := o.Prev(); prev.Nonce != head.Nonce {
			t = h.newTail(prev)
			t.fresh = h.lazily(prev.State)
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
	if r != nil {
		h.mu.Lock()
		h.instance = r.Instance
		h.mu.Unlock()
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
	if r.State == catalog.Deleting {
		u.Expires = 1 // long past: the next Open looks at the record first
	}
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
	h.stopCheckpoints()
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

func (h *handle) attach(ctx context.Context, owner *fence.Owner, l *local, cold bool, t *tailReader) (err error) {
	if h.tail, err = t.tail(ctx); err != nil {
		return err
	}
	var source vfs.PageSource
	var lazy *lazy
	if l.present != nil {
		slot, count, _ := h.dir.Position()
		if lazy, err = h.newLazy(t.locator(h.tail.clone(), slot, int(owner.State().PageSize), count), l.present); err != nil {
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
	var checkpoints *checkpointer
	var yield func()
	if !h.ownCheckpoints() {
		checkpoints = newCheckpointer(h)
		yield = checkpoints.yield
	}
	vdb, err := vfs.Attach(h.dir.Path(), vfs.Options{
		PageSize: int(owner.State().PageSize), PageCount: l.pageCount, Sum: segment.PageSum,
		Source: source, BeforeCommit: h.beforeCommit(), AfterCommit: h.committed, BeforeCheckpoint: yield, Behind: h.fellBehind, Fault: vfsFault,
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
	h.dir.FollowLog(vdb.WALPosition)
	if checkpoints != nil {
		checkpoints.vdb = vdb
	}
	if l.changed {
		vdb.MarkDirty(l.unshipped, shipped)
		h.committed()
	}
	h.compactor = compactor{base: t.base}
	switch p := t.packed(); {
	case t.base.Packs() == nil:
		h.compactor.counts = pageCounts{}
	case p != nil:
		h.compactor.counts = p.counts()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.owner, h.vdb, h.cold, h.lazy, h.checkpoints = owner, vdb, cold, lazy, checkpoints
	h.epoch.Add(1)
	return nil
}

func (h *handle) beforeCommit() func(context.Context, *vfs.Held) error {
	if !h.o.Strict {
		return nil
	}
	return h.strictCommit
}
