package tonbo

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/layout"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// packs are the entries that a base holds above its levels, as they were in the log (base.Packed), oldest first. All of it is in memory, which base.PackedSize bounds. It never changes.
type packs struct {
	floor   uint64 // they are complete above this slot; 0: all of them
	entries []packedEntry
	upper   *base.Upper // as of the levels, nil: none
}

// packedEntry is one of them.
type packedEntry struct {
	segment.Packed
	key    string // of its pack
	index  *segment.Index
	object *layout.Object
}

// maxPackedDeltas is how many pages packs can hold as deltas. Each takes 8 bytes or more that do not compress, its checksum: there are no more in packedLimit. A stranger's could be many, and who looks for pages keeps some bytes for each.
const maxPackedDeltas = 1 << 19

// readPacks reads what a base holds above its levels, and above slot floor of its log, at once. What is in have, of an earlier base, is not read again.
func (h *handle) readPacks(ctx context.Context, m *base.Manifest, floor uint64, have *packs) (*packs, error) {
	list := m.Packs()
	of := make([]*packs, len(list))
	known := have.byPack()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readAhead)
	for i, p := range list {
		if k := known[p.Key]; k != nil && len(k.entries) == p.Entries {
			of[i] = k
		} else if p.Slot > floor {
			g.Go(func() (err error) { of[i], err = h.readPack(ctx, m, p); return err })
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	r := &packs{}
	deltas := 0
	for i, p := range of {
		if p == nil {
			continue
		}
		if i == 0 {
			r.upper = p.upper
		}
		for _, e := range p.entries {
			if r.entries = append(r.entries, e); e.index.Delta != nil {
				deltas += e.index.Delta.Count()
			}
		}
		if deltas > maxPackedDeltas {
			return nil, damaged(h, list[i].Key, fmt.Errorf("%w: packs with more than %d deltas", segment.ErrFormat, maxPackedDeltas))
		}
	}
	return r.above(floor), nil
}

// above leaves out what is not newer than a slot.
func (p *packs) above(floor uint64) *packs {
	if floor <= p.floor {
		return p
	}
	r := &packs{floor: floor, upper: p.upper}
	for _, e := range p.entries {
		if e.Slot > floor {
			r.entries = append(r.entries, e)
		}
	}
	return r
}

// byPack takes them apart. The first one has the upper pages.
func (p *packs) byPack() map[string]*packs {
	r := map[string]*packs{}
	if p == nil {
		return r
	}
	for _, e := range p.entries {
		k := r[e.key]
		if k == nil {
			k = &packs{}
			if len(r) == 0 && p.floor == 0 {
				k.upper = p.upper
			}
			r[e.key] = k
		}
		k.entries = append(k.entries, e)
	}
	return r
}

// readPack reads one.
func (h *handle) readPack(ctx context.Context, m *base.Manifest, p base.Pack) (*packs, error) {
	o, err := h.pages.Get(ctx, p.Key, remote.GetOptions{})
	if errors.Is(err, remote.ErrNotFound) {
		return nil, fmt.Errorf("%w: %w: %s/%s", ErrCorrupt, layout.ErrMissing, h.store, p.Key)
	}
	if err != nil {
		return nil, err
	}
	hd, pack, err := segment.DecodePack(o.Body)
	if err != nil {
		return nil, damaged(h, p.Key, err)
	}
	if fmt.Sprintf("%x", hd.ID) != m.ID || hd.From != p.From || hd.Slot != p.Slot || hd.PageSize != m.PageSize || len(pack.Entries) != p.Entries || int64(len(o.Body)) != p.Size {
		return nil, damaged(h, p.Key, fmt.Errorf("%w: it is not the pack that is meant", segment.ErrFormat))
	}
	r := &packs{entries: make([]packedEntry, len(pack.Entries))}
	for i, e := range pack.Entries {
		ix, err := e.Checked(m.PageSize) // what stays in memory must not be what was damaged on its way
		if err != nil {
			return nil, damaged(h, p.Key, err)
		}
		r.entries[i] = packedEntry{e, p.Key, ix, layout.Loaded(int(m.PageSize), fmt.Sprintf("%s#%d", p.Key, e.Slot), ix, e.Payload)}
	}
	if pack.Upper != nil {
		r.upper = &base.Upper{Sum: base.SumString(pack.UpperSum), Payload: pack.Upper}
	}
	return r, nil
}

// objects lists what the pages are in, newest first.
func (p *packs) objects() []*layout.Object {
	r := make([]*layout.Object, 0, len(p.entries))
	for i := len(p.entries) - 1; i >= 0; i-- {
		r = append(r, p.entries[i].object)
	}
	return r
}

// counts tells for each page in packs how many differences of it follow each other since its newest whole version.
func (p *packs) counts() pageCounts {
	r := pageCounts{}
	for _, e := range p.entries {
		r.follow(e.index)
	}
	return r
}

// pageCounts counts differences by page; pages that have none are not in it: a stranger's pack may name as many whole ones as it likes. It is replaced, never changed, once others know it; nil: not known.
type pageCounts map[uint32]int32

// follow takes in the next entry.
func (c pageCounts) follow(ix *segment.Index) {
	for i := range ix.Blocks {
		for _, r := range ix.Blocks[i].Runs {
			for k := range r.Count {
				delete(c, r.First+k)
			}
		}
	}
	if ix.Delta != nil {
		for _, r := range ix.Delta.Runs {
			for k := range r.Count {
				c[r.First+k]++
			}
		}
	}
}

// packsAbove reads the packs of the base that hold what is newer than slot floor of this log. nil: there are none.
func (t *tailReader) packsAbove(ctx context.Context, floor uint64) (*packs, error) {
	if t.base == nil || t.base.Packed == nil || floor > 0 && floor >= t.bottom() { // a fork's source's are older than any slot of its own
		return nil, nil
	}
	if t.packs == nil || t.packs.floor > floor {
		p, err := t.h.readPacks(ctx, t.base, floor, t.packs)
		if err != nil {
			return nil, err
		}
		t.packs = p
	}
	return t.packs.above(floor), nil
}

// packed returns the packs that have been read, if these are all.
func (t *tailReader) packed() *packs {
	if t.packs != nil && t.packs.floor == 0 {
		return t.packs
	}
	return nil
}

// locator makes one for the state that t reads, whose tail is tl. What has been read of the packs it need not read again.
func (t *tailReader) locator(tl tail, slot uint64, pageSize int, pageCount uint32) *locator {
	l := t.h.newLocator(tl, t.base, slot, pageSize, pageCount)
	l.packs.Store(t.packed())
	if t.upper != nil {
		l.upper = t.upper.object
	}
	return l
}
