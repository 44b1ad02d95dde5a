package tonbo

import (
	"context"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/layout"
	"github.com/tonbo-go/tonbo/remote"
)

// straightLimit is how many entries are looked at to see that a local copy's state is in the history of the head.
const straightLimit = 128

// straight tells whether no rewind is among the entries above slot floor, so that the state there is one that the head's came from.
func (t *tailReader) straight(ctx context.Context, floor uint64) (bool, error) {
	if t.head.Slot < floor || t.head.Slot-floor > straightLimit {
		return false, nil
	}
	kinds := make([]fence.Kind, t.head.Slot-floor)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readAhead)
	for i := range kinds {
		g.Go(func() error {
			e, err := t.read(ctx, t.head.Slot-uint64(i))
			if err == nil {
				kinds[i] = e.Kind
				t.keep(e)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		if errors.Is(err, ErrCorrupt) || errors.Is(err, remote.ErrNotFound) { // collected
			return false, nil
		}
		return false, err
	}
	for _, k := range kinds {
		if k == fence.Rewind {
			return false, nil
		}
	}
	return true, nil
}

// changedSince calls changed with every page that may differ from what it was at slot floor, which the state that t reads has come from (see straight); pages
// beyond its size are left out.
func (h *handle) changedSince(ctx context.Context, t *tailReader, tl tail, floor uint64, changed func(first, last uint32)) error {
	// (1) The entries above floor say it exactly.
	if t.head.Slot-floor <= stepBack {
		exact, err := t.changedByEntries(ctx, floor, changed)
		if exact || err != nil {
			return err
		}
	}
	// (2) There are many, or some have been collected: what the base has taken in since counts as changed.
	var entries []*layout.Object
	fresh := tail{}
	for _, e := range tl.entries {
		if e.slot > floor {
			fresh.entries = append(fresh.entries, e)
			entries = append(entries, e.object)
		}
	}
	if err := readMaps(ctx, entries); err != nil {
		return h.told(err)
	}
	size := int(t.head.State.PageSize)
	objects, err := fresh.objects(ctx, h, size)
	if err != nil {
		return h.told(err)
	}
	p, err := t.packsAbove(ctx, floor)
	if err != nil {
		return h.told(err)
	}
	if p != nil {
		objects = append(objects, p.objects()...)
	}
	if t.ownBase() { // else it is a fork's source's, and as old as the create
		own := "db/" + h.name + "/"
		for _, level := range t.base.Levels {
			for _, s := range level {
				switch {
				case s.Slot <= floor, !strings.HasPrefix(s.Key, own):
				case s.Pages >= int(s.Last-s.First): // all of that range, but perhaps the lock page
					changed(s.First, s.Last)
				default:
					objects = append(objects, layout.Remote(h.pages, size, s.Ref()))
				}
			}
		}
	}
	if err := readMaps(ctx, objects); err != nil {
		return h.told(err)
	}
	return runsOf(ctx, objects, changed)
}

// changedByEntries does it by the entries of this log above floor. exact is false when not all of them are there any more.
func (t *tailReader) changedByEntries(ctx context.Context, floor uint64, changed func(first, last uint32)) (exact bool, err error) {
	entries := make([]*fence.Entry, t.head.Slot-floor)
	g, gctx := errgroup.WithContext(ctx)
	for i := range entries {
		g.Go(func() (err error) { entries[i], err = t.read(gctx, t.head.Slot-uint64(i)); return err })
	}
	if err := g.Wait(); err != nil {
		return false, unlessGone(err)
	}
	var objects []*layout.Object
	for _, e := range entries {
		if e.Source != nil || e.Kind == fence.Create || e.Whole {
			changed(1, t.head.State.PageCount)
			return true, nil
		}
		if !e.Carries() {
			continue
		}
		te, err := t.h.tailOf(t.log.Name(), e, e.Payload, false)
		if err != nil {
			return false, err
		}
		objects = append(objects, te.object)
	}
	if err := readMaps(ctx, objects); err != nil { // of those that were damaged on their way
		return false, unlessGone(err)
	}
	for _, o := range slices.Clone(objects) {
		for _, ref := range o.Known().Refs {
			objects = append(objects, layout.Remote(t.h.pages, int(t.head.State.PageSize), ref))
		}
	}
	if err := readMaps(ctx, objects); err != nil {
		return false, unlessGone(err)
	}
	return true, runsOf(ctx, objects, changed)
}

// unlessGone passes over an error that says that something was collected.
func unlessGone(err error) error {
	if errors.Is(err, layout.ErrMissing) || errors.Is(err, remote.ErrNotFound) {
		return nil
	}
	return err
}
