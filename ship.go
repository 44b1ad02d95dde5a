package tonbo

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/tonbo-go/tonbo/cache"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/fsys"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/vfs"
)

type writer = io.Writer

const (
	inlineLimit  = 4 << 20  // raw bytes of pages that travel inside the entry
	segmentLimit = 8 << 20  // raw bytes of pages of a segment
	transfers    = 4        // segments on the way at once
	transferring = 32 << 20 // bytes of them, when they go up
	wholeLimit   = 1 << 20  // raw bytes of a database that an entry may carry whole
	deltaPages   = 256      // pages of an entry that may hold some as differences: what it costs to find these is bounded
	longestChain = 64       // differences of a page that follow each other
)

// shipment is one entry's worth of pages.
type shipment struct {
	draft   fence.Draft
	state   fence.State
	pages   []cache.PageSum
	changes *vfs.Changes // nil: a strict COMMIT settles them itself
	slot    uint64       // that the entry is to have
	size    int64        // bytes of the entry's payload
	bytes   int64        // of all that is put for it
	commits int          // that it carries
	spool   *spool       // segments to upload before
	named   []string     // their keys
}

// giveBack is for a shipment that is not in the log and never will be. The caller holds the round.
func (h *handle) giveBack(s *shipment) {
	if s.changes != nil {
		s.changes.Return()
	}
	owner, _ := h.current()
	h.release(owner.Slot(), s.named...)
}

func (s *shipment) discard() {
	if s != nil && s.spool != nil {
		s.spool.close()
		s.spool = nil
	}
}

// writers keeps buffers of encoders between shipments.
var writers = sync.Pool{New: func() any { return segment.NewWriter(4096) }}

// encode reads the changed pages and packs them: into the entry's payload, or, when there are many, into segments spooled to the local disk.
func (h *handle) encode(ctx context.Context, c *vfs.Changes, owner *fence.Owner) (*shipment, error) {
	sh := &shipment{changes: c, commits: c.Commits, slot: owner.Slot() + 1, pages: make([]cache.PageSum, 0, c.Len())}
	w := writers.Get().(*segment.Writer)
	defer writers.Put(w)
	w.Reset(c.PageSize)
	if int64(c.Len())*int64(c.PageSize) > inlineLimit {
		s, err := newSpool(filepath.Dir(h.dir.Path()))
		if err != nil {
			return sh, err
		}
		sh.spool = s
	}
	header := segment.Header{
		Kind: segment.KindSegment, ID: owner.ID(), Generation: owner.Generation(), Slot: sh.slot, From: sh.slot, Time: now(), PageSize: uint32(c.PageSize), PageCount: c.PageCount,
	}
	sum, err := h.sumWithout(ctx, c.Pages(), c.PageCount)
	if err != nil {
		return sh, err
	}
	var shipped func(pgno uint32) (uint64, bool)
	if sh.spool == nil && !c.Whole && c.Len() <= deltaPages {
		shipped = h.shipped
	}
	err = c.EachOver(shipped, func(pgno uint32, page []byte, s uint64, before []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if sh.spool != nil && (w.Pages()+1)*c.PageSize > segmentLimit {
			if err := sh.spool.add(h.name, header, w); err != nil {
				return err
			}
			w.Reset(c.PageSize)
		}
		sum ^= s
		sh.pages = append(sh.pages, cache.PageSum{Page: pgno, Sum: s})
		if before != nil {
			if h.tune.broken == againstUnshipped {
				before = page
			}
			if ok, err := w.AddDelta(pgno, before, page, s); ok || err != nil {
				return err
			}
		}
		return w.Add(pgno, page)
	})
	if err != nil {
		return sh, err
	}
	if sh.spool != nil {
		if err := sh.spool.add(h.name, header, w); err != nil {
			return sh, err
		}
		w.Reset(c.PageSize)
		for _, ref := range sh.spool.refs {
			if err := w.AddRef(ref); err != nil {
				return sh, err
			}
		}
	}
	payload, psum, err := w.Finish()
	if err != nil {
		return sh, err
	}
	sh.state = fence.State{PageSize: uint32(c.PageSize), PageCount: c.PageCount, Checksum: sum}
	sh.draft = fence.Draft{Kind: fence.Commit, State: &sh.state, Payload: append([]byte(nil), payload...), PayloadSum: psum}
	sh.size = int64(len(payload))
	sh.bytes = sh.size
	if sh.spool != nil {
		for _, ref := range sh.spool.refs {
			sh.bytes += ref.Size
			sh.named = append(sh.named, ref.Key)
		}
	}
	return sh, nil
}

// shipped returns the checksum of a page as of the last shipped entry, if the entry to be made may hold a difference against it: every reader can make that version, from the base or a
// whole page in the tail and the differences since, of which there are few enough.
func (h *handle) shipped(pgno uint32) (sum uint64, ok bool) {
	_, count, _ := h.dir.Position()
	sum, known := h.dir.Sum(pgno)
	if !known || pgno > count {
		return 0, false
	}
	chain, whole := h.tail.chain(pgno)
	if !whole {
		chain += int(h.compactor.counts[pgno])
	}
	return sum, chain < longestChain
}

// upload puts the segments that the entry names.
func (h *handle) upload(ctx context.Context, sh *shipment) error {
	if sh.spool == nil {
		return nil
	}
	defer sh.discard()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(transfers)
	room := semaphore.NewWeighted(transferring)
	p := h.progress("ship", int64(len(sh.pages))*int64(sh.state.PageSize))
	for i, ref := range sh.spool.refs {
		g.Go(func() error {
			bytes := min(ref.Size, transferring)
			if err := room.Acquire(ctx, bytes); err != nil {
				return err
			}
			defer room.Release(bytes)
			body := make([]byte, ref.Size)
			if _, err := sh.spool.f.ReadAt(body, sh.spool.at[i]); err != nil {
				return fmt.Errorf("read %s: %w", sh.spool.f.Name(), err)
			}
			if err := remote.CreateUnique(ctx, h.store, ref.Key, body); err != nil {
				return err
			}
			fault("ship:segment")
			p.add(int64(ref.Pages) * int64(sh.state.PageSize))
			return nil
		})
	}
	return g.Wait()
}

// spool holds encoded segments on the local disk, so that a large shipment needs little memory and holds up checkpoints only while
// it is read.
type spool struct {
	f    *fsys.File
	end  int64
	refs []segment.Ref
	at   []int64
}

func newSpool(dir string) (*spool, error) {
	f, err := fsys.At(dir).CreateTemp(dir, spoolPattern)
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	return &spool{f: f}, nil
}

const spoolPattern = "spool-*.tmp"

// add encodes what w holds as a segment.
func (s *spool) add(name string, header segment.Header, w *segment.Writer) error {
	pages := w.Pages()
	payload, sum, err := w.Finish()
	if err != nil {
		return err
	}
	ix, err := segment.DecodeIndex(payload, &segment.Header{PageSize: header.PageSize, PageCount: header.PageCount, PayloadSize: int64(len(payload)), PayloadSum: sum})
	if err != nil {
		return err
	}
	first, last := ix.Blocks[0].Runs[0].First, ix.Blocks[len(ix.Blocks)-1].Runs
	end := last[len(last)-1]
	header.PayloadSize, header.PayloadSum = int64(len(payload)), sum
	header.Nonce = randomNonce()
	b, err := segment.EncodeHeader(nil, &header)
	if err != nil {
		return err
	}
	for _, part := range [][]byte{b, payload} {
		if _, err := s.f.WriteAt(part, s.end); err != nil {
			return fmt.Errorf("spool %s: %w", s.f.Name(), err)
		}
		s.end += int64(len(part))
	}
	size := int64(len(b) + len(payload))
	s.at = append(s.at, s.end-size)
	s.refs = append(s.refs, segment.Ref{
		Key:   segmentKey(name, header.Generation, header.Nonce),
		First: first, Last: end.First + end.Count - 1, Pages: pages, Size: size,
	})
	return nil
}

func (s *spool) close() {
	s.f.Close()
	fsys.At(s.f.Name()).Remove(s.f.Name())
}

// wantWhole decides whether the next entry carries the whole database: when that is small and spares the next cold start many reads.
func (h *handle) wantWhole(vdb *vfs.Database, kind fence.Kind) bool {
	raw := int64(vdb.PageCount()) * int64(vdb.PageSize())
	n, bytes := h.tail.ours() // a fork that only reads puts none of what its source left
	switch {
	case raw > h.tune.whole:
		return false
	case kind == fence.Close:
		return n >= 3
	default:
		return raw <= h.tune.whole/4 && n >= 16 && bytes >= raw
	}
}
