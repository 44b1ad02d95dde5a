package tonbo

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/fsys"
	"github.com/tonbo-go/tonbo/internal/pageset"
	"github.com/tonbo-go/tonbo/internal/segment"
)

// restorer writes pages into the local file.
type restorer struct {
	h     *handle
	t     *tailReader
	f     *fsys.File
	size  int         // of a page, bytes
	state fence.State // to be reached
	p     *progressMeter
	buf   []byte       // of delta
	laid  func() error // called when the levels of the base are in the file, and nothing else; nil: nobody asks

	mu   sync.Mutex
	sums pageset.Sums
}

// newRestorer writes into the file at path, which is made if it is not there, until it is the state s. sums are of the pages that it has.
func (h *handle) newRestorer(path string, s fence.State, t *tailReader, sums pageset.Sums) (*restorer, error) {
	if !segment.ValidPageSize(int(s.PageSize)) {
		return nil, fmt.Errorf("%w: the log of %s says page size %d", ErrCorrupt, h.name, s.PageSize)
	}
	f, err := fsys.At(path).OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &restorer{h: h, t: t, f: f, size: int(s.PageSize), state: s, sums: sums, p: h.progress("restore", int64(s.PageCount)*int64(s.PageSize))}, nil
}

// apply writes the entries in their order. It reads ahead, within bounded memory.
func (r *restorer) apply(ctx context.Context, pieces []piece) error {
	for chunk := range slices.Chunk(pieces, readAhead) {
		full := make([]*fence.Entry, len(chunk))
		g, gctx := errgroup.WithContext(ctx)
		for i, p := range chunk {
			if full[i] = p.e; p.e.Payload != nil {
				continue
			}
			g.Go(func() (err error) { full[i], err = p.t.readPages(gctx, p.e.Slot); return err })
		}
		if err := g.Wait(); err != nil {
			return err
		}
		for i, e := range full {
			if err := r.resize(e.State.PageCount); err != nil {
				return err
			}
			if err := eachChange(ctx, r.h, chunk[i].t.log.Name(), e, r.put, r.delta); err != nil {
				return err
			}
			fault("restore:entry")
		}
	}
	return nil
}

// base writes the pages of a base that are newer than slot floor: levels from the bottom up, since the newest version wins, and then the entries that are packed above them.
func (r *restorer) base(ctx context.Context, m *base.Manifest, floor uint64) error {
	if m == nil {
		return nil
	}
	if at, count := m.LevelsAt(); floor < at {
		if err := r.levels(ctx, m, count, floor); err != nil {
			return err
		}
	}
	if r.laid != nil {
		if err := r.laid(); err != nil {
			return err
		}
	}
	p, err := r.t.packsAbove(ctx, floor)
	if err != nil || p == nil {
		return err
	}
	for _, e := range p.entries {
		if err := r.resize(e.PageCount); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := segment.EachChange(e.Header(m.PageSize), e.index, e.Payload, r.put, r.delta); err != nil {
			return damaged(r.h, e.key, err)
		}
		fault("restore:entry")
	}
	return nil
}

// levels writes those of the levels, which hold a state of count pages.
func (r *restorer) levels(ctx context.Context, m *base.Manifest, count uint32, floor uint64) error {
	if err := r.resize(count); err != nil {
		return err
	}
	put := func(pgno uint32, page []byte) error {
		if pgno > count {
			return nil
		}
		return r.put(pgno, page)
	}
	own := "db/" + r.h.name + "/"
	for _, level := range slices.Backward(m.Levels) {
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(transfers)
		for _, s := range level {
			if floor == 0 || s.Slot > floor && strings.HasPrefix(s.Key, own) { // a fork's source's pages are as old as its create
				ref := segment.Ref{Key: s.Key, First: s.First, Last: s.Last, Pages: s.Pages, Size: s.Size}
				g.Go(func() error { return r.h.eachPageOf(ctx, ref, m.PageSize, nil, put) })
			}
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// resize makes the state n pages long: what a shrink gave up does not come back when the database grows again.
func (r *restorer) resize(n uint32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.sums.Len()
	if r.sums.Resize(int(n)); int(n) < before {
		return r.f.Truncate(int64(n) * int64(r.size))
	}
	return nil
}

func (r *restorer) put(pgno uint32, page []byte) error {
	if _, err := r.f.WriteAt(page, int64(pgno-1)*int64(r.size)); err != nil {
		return err
	}
	sum := segment.PageSum(pgno, page)
	r.mu.Lock()
	r.sums.Set(pgno, sum)
	r.mu.Unlock()
	r.p.add(int64(len(page)))
	return nil
}

// delta puts a page that an entry holds as a difference against what the entries and the base before it have put, or the file had.
func (r *restorer) delta(d segment.Delta) error {
	if r.buf == nil {
		r.buf = make([]byte, 2*r.size)
	}
	before, page := r.buf[:r.size], r.buf[r.size:]
	if n, err := r.f.ReadAt(before, int64(d.Page-1)*int64(r.size)); err == io.EOF {
		clear(before[n:])
	} else if err != nil {
		return err
	}
	if err := d.Apply(page, before); err != nil {
		return fmt.Errorf("%w: %w", errSum, err)
	}
	return r.put(d.Page, page)
}

// run restores what is newer than slot floor, compares the whole with the checksum that its writer recorded, and makes it durable. It closes the file.
func (r *restorer) run(ctx context.Context, floor uint64) error {
	pieces, err := r.t.pieces(ctx, floor)
	if err == nil && (floor == 0 || r.t.ownBase()) {
		err = r.base(ctx, r.t.base, floor)
	}
	if err == nil {
		err = r.apply(ctx, pieces)
	}
	if err == nil {
		err = r.finish()
	}
	if cerr := r.f.Close(); err == nil {
		err = cerr
	}
	return err
}

// errSum is a restored state with another checksum than its writer recorded.
var errSum = fmt.Errorf("%w: checksum of the restored pages", ErrCorrupt)

func (r *restorer) finish() error {
	if err := r.resize(r.state.PageCount); err != nil {
		return err
	}
	if sum := r.sums.Xor(); sum != r.state.Checksum {
		return fmt.Errorf("%w: %016x for slot %d, the log says %016x", errSum, sum, r.t.head.Slot, r.state.Checksum)
	}
	if err := r.f.Truncate(int64(r.state.PageCount) * int64(r.size)); err != nil {
		return err
	}
	return r.f.Sync()
}
