package tonbo

import (
	"context"
	"errors"
	"slices"

	"github.com/tonbo-go/tonbo/changeset"
	"github.com/tonbo-go/tonbo/internal/layout"
	"github.com/tonbo-go/tonbo/vfs"
)

// sidePages reads the pages of one side of a Diff.
type sidePages interface {
	changeset.PageReader
	// begin is called before the transaction that the pages are to be those of.
	begin(ctx context.Context) error
	// state lists, newest first, the objects that the pages are in, and the pages that are in none of them or have changed since.
	state(ctx context.Context) (objects []*layout.Object, changed []uint32, err error)
	// steady tells whether the pages have been the same since begin.
	steady(ctx context.Context) (bool, error)
}

// prefilterLimit is how many pages may differ for a look at them to be worth it.
const prefilterLimit = 1 << 13

// prefilter lets a comparison find by the pages which rows differ. Forks name the same objects: a page that is in no object but these is the same on both sides.
// Whatever goes wrong with it, all rows are compared instead.
func prefilter(ctx context.Context, a, b *diffSide) *changeset.Pages {
	for _, s := range []*diffSide{a, b} {
		if err := s.pages.begin(ctx); err != nil {
			s.h.o.Logger.Debug("rows are compared without looking at pages", "database", s.h.name, "error", err)
			return nil
		}
	}
	return &changeset.Pages{
		A: a.pages, B: b.pages,
		Differ: func(ctx context.Context) (pages []uint32, ok bool, err error) {
			pages, err = differingPages(ctx, a.pages, b.pages)
			if err != nil && ctx.Err() == nil {
				a.h.o.Logger.Debug("rows are compared without looking at pages", "database", a.h.name, "with", b.h.name, "error", err)
				return nil, false, nil
			}
			return pages, err == nil, err
		},
		Steady: func(ctx context.Context) (bool, error) {
			for _, s := range []*diffSide{a, b} {
				if ok, err := s.pages.steady(ctx); err != nil || !ok {
					return false, err
				}
			}
			return true, nil
		},
	}
}

var errFarApart = errors.New("too many pages differ")

// differingPages lists the pages that may differ.
//
// Let C be the objects that both sides are in, in the same order. A page that no other object of either side holds is in the same object of C on both, or in none: it is the same.
func differingPages(ctx context.Context, a, b sidePages) ([]uint32, error) {
	if a.PageSize() != b.PageSize() {
		return nil, errFarApart
	}
	objectsA, changed, err := a.state(ctx)
	if err != nil {
		return nil, err
	}
	objectsB, more, err := b.state(ctx)
	if err != nil {
		return nil, err
	}
	for p := min(a.Count(), b.Count()) + 1; p <= max(a.Count(), b.Count()) && len(more) <= prefilterLimit; p++ {
		more = append(more, p)
	}
	differ := map[uint32]bool{}
	for _, p := range slices.Concat(changed, more) {
		differ[p] = true
	}
	apart, err := notShared(objectsA, objectsB)
	if err != nil {
		return nil, err
	}
	n := len(differ)
	for _, o := range apart {
		if n += o.Pages; n > prefilterLimit {
			return nil, errFarApart
		}
	}
	if err := readMaps(ctx, apart); err != nil {
		return nil, err
	}
	if err := runsOf(ctx, apart, func(first, last uint32) {
		for p := first; p <= last && len(differ) <= prefilterLimit; p++ {
			differ[p] = true
		}
	}); err != nil {
		return nil, err
	}
	if len(differ) > prefilterLimit {
		return nil, errFarApart
	}
	pages := make([]uint32, 0, len(differ))
	for p := range differ {
		pages = append(pages, p)
	}
	slices.Sort(pages)
	return pages, nil
}

// notShared lists the objects that one side alone has. The others must be in the same order on both. Keys stand for content: an object is written once, and a slot that was collected is never
// that of a live point.
func notShared(a, b []*layout.Object) (apart []*layout.Object, err error) {
	at := map[string]int{}
	for i, o := range a {
		at[o.Key] = i
	}
	shared := map[string]bool{}
	last := -1
	for _, o := range b {
		i, ok := at[o.Key]
		if !ok {
			apart = append(apart, o)
			continue
		}
		if i <= last {
			return nil, errors.New("objects are in another order")
		}
		last, shared[o.Key] = i, true
	}
	for _, o := range a {
		if !shared[o.Key] {
			apart = append(apart, o)
		}
	}
	return apart, nil
}

// snapshotPages are those of a read-only handle's point: they never change.
type snapshotPages struct{ s *snapshot }

func (p snapshotPages) Count() uint32 { return p.s.entry.State.PageCount }
func (p snapshotPages) PageSize() int { return p.s.pages.size }
func (p snapshotPages) ReadPage(ctx context.Context, pgno uint32, buf []byte) error {
	return p.s.ReadPages(ctx, buf, int64(pgno-1)*int64(len(buf)))
}
func (p snapshotPages) begin(context.Context) error          { return nil }
func (p snapshotPages) steady(context.Context) (bool, error) { return true, nil }
func (p snapshotPages) state(ctx context.Context) ([]*layout.Object, []uint32, error) {
	l := p.s.loc.Load()
	objects, err := l.objects(ctx)
	if l.upper != nil { // copies: of the other side, they are perhaps not known
		objects = slices.DeleteFunc(slices.Clone(objects), func(o *layout.Object) bool { return o == l.upper })
	}
	return objects, nil, err
}

// ownerPages are those of an owner's local copy, as long as nobody commits.
type ownerPages struct {
	h    *handle
	vdb  *vfs.Database
	view vfs.View
}

func (p *ownerPages) Count() uint32 { return p.view.PageCount }
func (p *ownerPages) PageSize() int { return p.vdb.PageSize() }

func (p *ownerPages) ReadPage(ctx context.Context, pgno uint32, buf []byte) error {
	if s := p.h.source(); s != nil {
		if err := s.Ensure(ctx, int64(pgno-1)*int64(len(buf)), int64(len(buf))); err != nil {
			return err
		}
	}
	_, err := p.vdb.ReadPage(pgno, buf)
	return err
}

func (p *ownerPages) begin(ctx context.Context) (err error) {
	p.view, err = p.vdb.View(ctx)
	return err
}

func (p *ownerPages) steady(ctx context.Context) (bool, error) {
	now, err := p.vdb.View(ctx)
	return err == nil && now.Version == p.view.Version, err
}

// state is that of the last shipped entry, and what has changed since. What is shipped in between is in both.
func (p *ownerPages) state(ctx context.Context) ([]*layout.Object, []uint32, error) {
	now, err := p.vdb.View(ctx)
	if err != nil {
		return nil, nil, err
	}
	if now.Version != p.view.Version { // the transaction has begun since: before that commit, or after it?
		return nil, nil, errors.New("a commit came in between")
	}
	owner, _ := p.h.current()
	e := owner.Last()
	if e.Payload == nil && e.PayloadSize > 0 {
		if e, err = p.h.log.Read(ctx, e.Slot); err != nil {
			return nil, nil, err
		}
	}
	t := p.h.newTail(e)
	if err := t.load(ctx, 0); err != nil {
		return nil, nil, err
	}
	tl, err := t.tail(ctx)
	if err != nil {
		return nil, nil, err
	}
	objects, err := t.locator(tl, e.Slot, int(e.State.PageSize), e.State.PageCount).objects(ctx)
	return objects, now.Changed, err
}
