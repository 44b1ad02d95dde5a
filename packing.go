package tonbo

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/layout"
	"github.com/tonbo-go/tonbo/internal/pageset"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// A base need not merge the tail with the pages below it: where that would put a whole page for every few bytes that have changed, the tail's entries are packed into one object as they
// are, and the levels stay. So many bytes of packs are then merged with the levels at once, and each page that they touch is written once for all of them.
const (
	packedLimit  = 4 << 20 // bytes of packs, at most: an opening fetches them all
	packedShare  = .6      // of what the levels weigh
	packedGain   = 2       // times as many bytes a merge must put as a pack
	settledPacks = 2       // that are left when nobody has the database open any more, if that is not dear
	creditFactor = 4       // bytes that a last compaction may put for each one that was shipped since the database was opened, less what compactions have put since
	packManifest = 2 << 10 // bytes of a manifest beside what it lists
)

// packing is how a base is made that packs its tail.
type packing struct {
	merge   int // of the newest packs, which become one with it
	entries []tailEntry
	cheap   bool // worth its bytes when it is not due
}

// mayPack decides whether the tail is packed. nil: it is merged. c knows what the tail's pages weigh.
func (c *compaction) mayPack(tl *tail) (*packing, error) {
	m := c.old
	if m == nil || m.ID != c.owner.ID().String() || len(m.Levels) == 0 {
		return nil, nil
	}
	p := &packing{entries: tl.entries}
	var fresh int64
	for _, e := range tl.entries {
		ix := e.object.Known()
		if len(ix.Refs) > 0 || e.slot <= m.Slot { // large ones are merged, and so are those of a fork's source
			return nil, nil
		}
		fresh += payloadBytes(ix)
	}
	list := m.Packs()
	entries, pages, size := base.PackedTotal(list)
	var below int64
	whole := 0
	for _, level := range m.Levels {
		for _, s := range level {
			below, whole = below+s.Size, whole+s.Pages
		}
	}
	if size+fresh > min(c.h.tune.packs, int64(packedShare*float64(below))) && !c.h.tune.packing || size+fresh > c.h.tune.packs || entries+len(tl.entries) > base.MaxPacked {
		return nil, nil
	}
	if fresh == 0 && len(list) == 0 {
		return nil, nil
	}
	// What it would cost to merge them all: packs are taken in as well then.
	merged := int64(min(c.pages.Len()+pages, int(c.state.PageCount)))*max(c.perPage, below/int64(max(whole, 1))) + c.manifestBytes()
	manifest := int64(packManifest + 64*len(c.labels) + 64*len(m.Marks) + 200*len(list))
	if packedGain*(fresh+manifest) > merged && fresh > 0 && !c.h.tune.packing {
		return nil, nil
	}
	allowance := int64(c.settle * float64(fresh))
	p.cheap = fresh > 0 && fresh+manifest <= allowance
	budget := int64(0)
	if c.settle > 0 {
		budget = max(allowance, c.credit) - manifest
	}
	p.merge = base.MergePacks(list, fresh, budget, settledPacks)
	if c.credit >= fresh+manifest && (fresh > 0 || p.merge > 0) {
		p.cheap = true
	}
	return p, nil
}

// idle tells whether the base would be the one in force.
func (p *packing) idle() bool { return p != nil && len(p.entries) == 0 && p.merge == 0 }

// payloadBytes is about what the payload of an index weighs.
func payloadBytes(ix *segment.Index) int64 {
	n := int64(100)
	for i := range ix.Blocks {
		n += int64(ix.Blocks[i].Length) + 20
	}
	if ix.Delta != nil {
		n += int64(ix.Delta.Length) + 20
	}
	return n
}

// unpack puts the entries of the old base's packs before the tail's.
func (c *compaction) unpack(ctx context.Context, tl *tail) (*tail, error) {
	p, err := c.readPacks(ctx)
	if err != nil {
		return nil, err
	}
	all := &tail{}
	for _, e := range p.entries {
		all.entries = append(all.entries, tailEntry{slot: e.Slot, bytes: int64(len(e.Payload)), count: e.PageCount, sum: e.Sum, source: c.foreign(), object: e.object, named: new(named)})
	}
	all.entries = append(all.entries, tl.entries...)
	return all, nil
}

// readPacks reads those of the old base, once.
func (c *compaction) readPacks(ctx context.Context) (_ *packs, err error) {
	if c.packs == nil {
		c.packs, err = c.h.readPacks(ctx, c.old, 0, nil)
	}
	return c.packs, err
}

// writePack uploads the new pack and returns the manifest.
func (c *compaction) writePack(ctx context.Context) (*base.Manifest, error) {
	p, old := c.packing, c.old
	list := old.Packs()
	keep := list[:len(list)-p.merge]
	pack := &segment.Pack{}
	upper := old.Upper // as of the levels: it travels with the oldest pack
	// (1) The entries: of the packs that become one with them, and of the tail.
	if p.merge > 0 {
		of, err := c.readPacks(ctx)
		if err != nil {
			return nil, err
		}
		for _, e := range of.entries {
			if len(keep) == 0 || e.Slot > keep[len(keep)-1].Slot {
				pack.Entries = append(pack.Entries, e.Packed)
			}
		}
		upper = of.upper
	}
	for i := range p.entries {
		if c.h.tune.broken == packsWithoutOne && i == len(p.entries)/2 && i > 0 {
			continue
		}
		e, err := c.packed(ctx, &p.entries[i])
		if err != nil {
			return nil, err
		}
		pack.Entries = append(pack.Entries, e)
	}
	if len(keep) == 0 && upper != nil {
		sum, err := upper.PayloadSum()
		if err != nil {
			return nil, err
		}
		if _, count := old.LevelsAt(); upper.Check(c.state.PageSize, count) == nil { // else they are left out: copies
			pack.Upper, pack.UpperSum = upper.Payload, sum
		}
	}
	// (2) The manifest: the levels stay.
	m := c.manifest()
	m.Levels, m.UpperObject, m.Packed = old.Levels, c.h.carriedUpper(old), &base.Packed{Packs: keep[:len(keep):len(keep)]}
	m.Packed.Slot, m.Packed.PageCount = old.LevelsAt()
	if len(pack.Entries) > 0 {
		k, err := c.uploadPack(ctx, pack)
		if err != nil {
			return nil, err
		}
		m.Packed.Packs = append(m.Packed.Packs, k)
	}
	c.count(p.entries)
	c.horizon(m)
	return m, nil
}

// packed is an entry of the tail as it is in the log. What is not in memory is read from there.
func (c *compaction) packed(ctx context.Context, e *tailEntry) (segment.Packed, error) {
	if payload := e.object.Payload(); payload != nil && e.sum != 0 {
		return segment.Packed{Slot: e.slot, PageCount: e.count, Sum: e.sum, Payload: payload}, nil
	}
	key := fence.SlotKey(c.h.name, e.slot)
	o, err := c.h.log.Read(ctx, e.slot)
	switch {
	case errors.Is(err, remote.ErrNotFound):
		return segment.Packed{}, fmt.Errorf("%w: %s/%s: %w", layout.ErrMissing, c.h.store, key, err)
	case err != nil:
		return segment.Packed{}, err
	case o.ID != c.owner.ID() || o.PayloadSize == 0 || e.sum != 0 && o.PayloadSum != e.sum:
		return segment.Packed{}, fmt.Errorf("%w: %s/%s holds another entry now", layout.ErrMissing, c.h.store, key)
	}
	return segment.Packed{Slot: e.slot, PageCount: o.State.PageCount, Sum: o.PayloadSum, Payload: o.Payload}, nil
}

// uploadPack puts it.
func (c *compaction) uploadPack(ctx context.Context, pack *segment.Pack) (base.Pack, error) {
	var pages pageset.Set
	last := pack.Entries[len(pack.Entries)-1]
	for i := range pack.Entries {
		ix, err := pack.Entries[i].Checked(c.state.PageSize) // what was damaged on its way must not be all that is left of it
		if err != nil {
			return base.Pack{}, fmt.Errorf("%w: slot %d: %w", ErrCorrupt, pack.Entries[i].Slot, err)
		}
		pagesIn(ix, func(first, last uint32) {
			for p := first; p <= last; p++ {
				pages.Add(p)
			}
		})
	}
	hd := segment.Header{
		Kind: segment.KindPack, ID: c.owner.ID(), Generation: c.owner.Generation(), Slot: last.Slot, From: pack.Entries[0].Slot, Nonce: randomNonce(), Time: now(),
		PageSize: c.state.PageSize, PageCount: last.PageCount, Checksum: c.state.Checksum,
	}
	if last.PageCount != c.state.PageCount {
		return base.Pack{}, fmt.Errorf("%w: %d pages behind slot %d, %d as of slot %d", ErrCorrupt, last.PageCount, last.Slot, c.state.PageCount, c.slot)
	}
	b, err := segment.EncodePack(&hd, pack)
	if err != nil {
		return base.Pack{}, err
	}
	k := base.Pack{Key: segmentKey(c.h.name, hd.Generation, hd.Nonce), From: hd.From, Slot: hd.Slot, Entries: len(pack.Entries), Pages: pages.Len(), Size: int64(len(b))}
	c.fresh, c.bytes = append(c.fresh, k.Key), c.bytes+k.Size
	if err := remote.CreateUnique(ctx, c.h.store, k.Key, b); err != nil {
		return k, err
	}
	fault("compact:packed")
	return k, nil
}

// count takes the entries into the counts of differences, as far as these are known.
func (c *compaction) count(entries []tailEntry) {
	if c.counts == nil && c.packs != nil {
		c.counts = c.packs.counts()
	}
	if c.counts == nil {
		return
	}
	counts := maps.Clone(c.counts)
	for _, e := range entries {
		counts.follow(e.object.Known())
	}
	c.counts = counts
}
