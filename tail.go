package tonbo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/layout"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// tailKept bounds the payloads of the tail that stay in memory, in bytes: compaction finds hot pages there, which have changed in the local file since. Blocks of
// deltas stay whatever there is of them: what they are against is elsewhere, and a page is to cost no more than one block.
const tailKept = 512 << 10

// mapKept is how large a payload may be, in bytes, to stay in memory with its map.
const mapKept = 4 << 10

// tailEntry is one entry above the base (or the newest whole entry) that carries pages.
type tailEntry struct {
	slot   uint64 // of this log: of a fork's source's entries, the create's
	own    uint64 // of the log that it is in
	bytes  int64  // of its payload
	count  uint32 // pages of the database after it
	sum    uint64 // payload checksum; 0: not known
	source bool   // it is in the log of a fork's source: each of its forks has it
	object *layout.Object
	named  *named
}

// named are the segments that an entry names.
type named struct {
	mu      sync.Mutex
	objects []*layout.Object // once the entry's map is known
}

func (n *named) of(h *handle, pageSize int, ix *segment.Index) []*layout.Object {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.objects == nil {
		for _, ref := range ix.Refs {
			n.objects = append(n.objects, layout.Remote(h.pages, pageSize, ref))
		}
	}
	return n.objects
}

// tail is what a cold start reads beside the base, oldest first. Guarded by the round.
type tail struct {
	entries []tailEntry
	kept    int64 // bytes of payloads that stay in memory
	sources int   // logs of a fork's source, of that one's source, and so on, in which its entries are: who opens the database reads them one after the other
}

// add takes in a new entry. payload may be nil: it is then read when it is needed.
func (h *handle) tailOf(name string, e *fence.Entry, payload []byte, keep bool) (tailEntry, error) {
	size := int(e.State.PageSize)
	key := fence.SlotKey(name, e.Slot)
	te := tailEntry{slot: e.Slot, own: e.Slot, bytes: e.PayloadSize, named: new(named)}
	if payload == nil {
		id, slot := e.ID, e.Slot
		te.object = layout.Deferred(h.pages, size, key, func(ctx context.Context) (layout.Part, error) { return h.readMap(ctx, name, slot, id) })
		return te, nil
	}
	te.count, te.sum = e.State.PageCount, e.PayloadSum
	ix, err := segment.DecodeIndex(payload, payloadHeader(e))
	switch {
	case err != nil:
		return te, damaged(h, key, err)
	case ix.Check(payload) != nil: // damaged on its way, perhaps: it is read again when it is needed
		return h.tailOf(name, e, nil, false)
	case keep:
		te.object = layout.Loaded(size, key, ix, payload)
	default:
		p := layout.Part{Index: ix, Start: e.Size - e.PayloadSize, ETag: e.ETag}
		if err := p.KeepDelta(payload); err != nil {
			return te, h.told(err)
		}
		te.object = layout.Indexed(h.pages, size, key, e.Size, p)
	}
	return te, nil
}

// readMap reads an entry for its map. It is read whole: its header tells that it is the entry meant, and no other one in a slot that was collected.
func (h *handle) readMap(ctx context.Context, name string, slot uint64, id fence.ID) (layout.Part, error) {
	key := fence.SlotKey(name, slot)
	e, err := fence.New(h.slots(id), name, fence.Options{}).Read(ctx, slot)
	switch {
	case errors.Is(err, remote.ErrNotFound):
		return layout.Part{}, fmt.Errorf("%w: %s/%s: %w", layout.ErrMissing, h.store, key, err)
	case err != nil:
		return layout.Part{}, err
	case e.ID != id || e.PayloadSize == 0: // a ghost: a put that was held back, and came when the slot had been collected
		return layout.Part{}, fmt.Errorf("%w: %s/%s holds another entry now, a %s of incarnation %s", layout.ErrMissing, h.store, key, kindNames[e.Kind], e.ID)
	case !e.Carries(): // a claim or an end that came late, in a slot that had been collected
		return layout.Part{}, fmt.Errorf("%w: %s/%s carries no pages", layout.ErrMissing, h.store, key)
	}
	ix, err := segment.DecodeIndex(e.Payload, payloadHeader(e))
	if err != nil {
		return layout.Part{}, damaged(h, key, err)
	}
	p := layout.Part{Index: ix, Start: e.Size - e.PayloadSize, ETag: e.ETag}
	if e.PayloadSize <= mapKept && ix.Check(e.Payload) == nil { // a block that was damaged on its way is read again when it is needed
		p.Payload = e.Payload
		return p, nil
	}
	return p, p.KeepDelta(e.Payload)
}

// push adds an entry that has just been stored.
func (h *handle) push(e *fence.Entry, payload []byte, whole bool) {
	if whole {
		for _, old := range h.tail.entries {
			h.release(e.Slot, old.segments()...)
		}
		h.tail = tail{}
	}
	keep := h.tail.kept+int64(len(payload)) <= tailKept
	te, err := h.tailOf(h.name, e, payload, keep)
	if err != nil { // we have just made it: the log is right, and compaction will read it from there
		te, _ = h.tailOf(h.name, e, nil, false)
	}
	if keep {
		h.tail.kept += int64(len(payload))
	}
	h.tail.entries = append(h.tail.entries, te)
	h.compactor.shipped += e.Size
	if ix := te.object.Known(); ix != nil {
		for _, r := range ix.Refs {
			h.compactor.shipped += r.Size
		}
	}
}

// clone copies what add and drop change.
func (t *tail) clone() tail {
	c := *t
	c.entries = append([]tailEntry(nil), t.entries...)
	return c
}

// drop removes the entries up to slot: a base covers them.
func (t *tail) drop(slot uint64) {
	rest := tail{}
	for _, e := range t.entries {
		if e.slot > slot {
			rest.entries = append(rest.entries, e)
		}
	}
	*t = rest
}

// ours counts the entries of this log, and the bytes of their payloads.
func (t *tail) ours() (n int, bytes int64) {
	for i := range t.entries {
		if e := &t.entries[i]; !e.source {
			n, bytes = n+1, bytes+e.bytes
		}
	}
	return n, bytes
}

// long tells whether the tail has so many entries that a base is due, whatever it costs. What a fork's source left counts once the fork has written a third as much itself, or anything where that would
// leave too much to who opens it: a fork of a fork has what both of these left.
func (t *tail) long(most int) bool {
	n, _ := t.ours()
	return len(t.entries) >= most && oursIn*n >= len(t.entries) || n > 0 && (t.sources >= mostSources || len(t.entries) >= tailsIn*most)
}

const (
	oursIn      = 4  // entries of a tail that there may be for each one of its own log, for the log's sake to be merged
	tailsIn     = 3  // times as many entries as make a base due, in all
	mostSources = 16 // logs of sources; a key of a server that is narrowed reads through 64
)

// chain counts the deltas of a page that follow its newest whole version in the tail, or, when whole is false, what is below. Where a map has not been read, there may be any number of them.
func (t *tail) chain(p uint32) (n int, whole bool) {
	for i := len(t.entries) - 1; i >= 0; i-- {
		ix := t.entries[i].object.Known()
		switch {
		case ix == nil:
			return math.MaxInt, true
		case ix.HasDelta(p):
			n++
		case ix.Search(p) >= 0:
			return n, true
		}
		for _, r := range ix.Refs {
			if r.First <= p && p <= r.Last { // perhaps in there: then that is it, and else there may be some more
				return n, true
			}
		}
	}
	return n, false
}

// objects lists what the tail's pages are in, newest first: the entries, and the segments that they name. Entries that have not been read are.
func (t *tail) objects(ctx context.Context, h *handle, pageSize int) ([]*layout.Object, error) {
	var r []*layout.Object
	for i := len(t.entries) - 1; i >= 0; i-- {
		o := t.entries[i].object
		ix, err := o.Index(ctx)
		if err != nil {
			return nil, err
		}
		r = append(append(r, o), t.entries[i].named.of(h, pageSize, ix)...)
	}
	return r, nil
}

// known tells whether the maps of all entries have been read.
func (t *tail) known() bool {
	return !slices.ContainsFunc(t.entries, func(e tailEntry) bool { return e.object.Known() == nil })
}

// pagesOf calls add for each page that is in the blocks of objects, whole or as a delta. Their maps must have been read, or are now.
func pagesOf(ctx context.Context, objects []*layout.Object, add func(pgno uint32)) error {
	return runsOf(ctx, objects, func(first, last uint32) {
		for p := first; p <= last; p++ {
			add(p)
		}
	})
}

// runsOf is pagesOf for runs of pages.
func runsOf(ctx context.Context, objects []*layout.Object, add func(first, last uint32)) error {
	for _, o := range objects {
		ix, err := o.Index(ctx)
		if err != nil {
			return err
		}
		pagesIn(ix, add)
	}
	return nil
}

// pagesIn calls add for each run of pages that an index has, whole or as deltas.
func pagesIn(ix *segment.Index, add func(first, last uint32)) {
	for i := range ix.Blocks {
		for _, r := range ix.Blocks[i].Runs {
			add(r.First, r.First+(r.Count-1))
		}
	}
	if ix.Delta != nil {
		for _, r := range ix.Delta.Runs {
			add(r.First, r.First+(r.Count-1))
		}
	}
}
