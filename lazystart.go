package tonbo

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/tonbo-go/tonbo/cache"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/fsys"
	"github.com/tonbo-go/tonbo/internal/layout"
	"github.com/tonbo-go/tonbo/internal/pageset"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// lazily tells whether a local copy of that state may begin with pages missing: one that is no larger than what an entry may carry whole is fetched before Open returns in any case.
func (h *handle) lazily(s fence.State) bool {
	return h.o.Hydration != HydrateFull && int64(s.PageCount)*int64(s.PageSize) > h.tune.whole
}

// lazyStart begins a local copy in which the pages are that are at hand, and no others: those of the entries that have been read, the upper ones that come with the
// base, and, when st is not nil, those of the file at st that have not changed since.
func (h *handle) lazyStart(ctx context.Context, owner *fence.Owner, t *tailReader, st *cache.State) (*local, error) {
	s := owner.State()
	if !segment.ValidPageSize(int(s.PageSize)) {
		return nil, fmt.Errorf("%w: the log of %s says page size %d", ErrCorrupt, h.name, s.PageSize)
	}
	b := &beginning{h: h, state: s, known: pageset.NewBits(int(s.PageCount)), sums: pageset.NewSums(int(s.PageCount))}
	// (1) What the file has already.
	had := 0 // pages of the file
	if st != nil {
		had = st.Sums.Len()
		b.keep(st)
		tl, err := t.tail(ctx)
		if err == nil {
			err = h.changedSince(ctx, t, tl, st.Slot, b.forget)
		}
		if err != nil {
			return nil, err
		}
		if err := h.dir.Vacate(); err != nil { // until it is done the copy is neither state
			return nil, err
		}
	}
	// (2) What is at hand.
	if err := b.open(h.dir.Path()); err != nil {
		return nil, err
	}
	var floor uint64
	var prior func(pgno uint32, buf []byte) bool
	if st != nil {
		floor = st.Slot
		prior = func(pgno uint32, buf []byte) bool {
			if int64(pgno) > int64(had) || !st.Knows(pgno) {
				return false
			}
			_, err := b.f.ReadAt(buf, int64(pgno-1)*int64(len(buf)))
			return err == nil
		}
	}
	err := t.atHand(ctx, s.PageCount, floor, prior, b.put)
	if err == nil {
		err = b.f.Sync()
	}
	if cerr := b.f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, err
	}
	// (3) It is the state, as far as it goes.
	b.known.Set(segment.LockPage(int(s.PageSize)))
	if b.known.Full() {
		if sum := b.sums.Xor(); sum != s.Checksum {
			return nil, fmt.Errorf("%w: %016x for slot %d, the log says %016x", errSum, sum, t.head.Slot, s.Checksum)
		}
	}
	fault("restore:written")
	if err := h.dir.Begin(cache.State{
		Name: h.name, Store: h.store.String(), ID: owner.ID(), Generation: owner.Generation(), Slot: owner.Slot(),
		PageSize: s.PageSize, Checksum: s.Checksum, Sums: b.sums, Known: b.known,
	}); err != nil {
		return nil, err
	}
	return &local{pageCount: s.PageCount, present: h.dir.Present()}, nil
}

// beginning is a local file in the making.
type beginning struct {
	h     *handle
	f     *fsys.File
	state fence.State
	known *pageset.Bits // pages that are in the file
	sums  pageset.Sums
}

// keep takes over the pages of an earlier state, and its sums: the caller has no use for them any more.
func (b *beginning) keep(st *cache.State) {
	for first, last := range st.KnownRuns() {
		b.known.Fill(first, last)
	}
	b.sums = st.Sums
	b.sums.Resize(int(b.state.PageCount))
}

func (b *beginning) forget(first, last uint32) {
	for p := first; p <= last && p <= b.state.PageCount; p++ {
		b.known.Clear(p)
		b.sums.Set(p, 0)
	}
}

// told makes what is wrong with an object ErrCorrupt.
func (h *handle) told(err error) error {
	if errors.Is(err, layout.ErrMissing) || errors.Is(err, layout.ErrDamaged) || errors.Is(err, remote.ErrDamaged) {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return err
}

// open opens the file and makes it as long as the database is. It is sparse.
func (b *beginning) open(path string) (err error) {
	if b.f, err = fsys.At(path).OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	if err := b.f.Truncate(int64(b.state.PageCount) * int64(b.state.PageSize)); err != nil {
		return errors.Join(err, b.f.Close())
	}
	return nil
}

func (b *beginning) put(pgno uint32, page []byte) error {
	if _, err := b.f.WriteAt(page, int64(pgno-1)*int64(len(page))); err != nil {
		return err
	}
	b.sums.Set(pgno, segment.PageSum(pgno, page))
	b.known.Set(pgno)
	return nil
}
