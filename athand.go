package tonbo

import (
	"context"
	"errors"
	"slices"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/pageset"
	"github.com/tonbo-go/tonbo/internal/segment"
)

// handLimit bounds the bytes of pages that are put because they are at hand. What has been read is at most keptLimit, but a stranger's may be pages, or deltas, that compress to five thousandths, and disk is not bounded by what he sent.
const handLimit = 4 * keptLimit

var errEnough = errors.New("enough pages are at hand")

// atHand calls put with the pages of a state of pageCount pages that have been read already and are newer than slot floor, each once. It goes from the newest entry
// down, and then on to those that the base has packed, to the first one that has not been read: what is older may be older than that one's pages. Deltas wait for the whole page that they are against; the one as of floor
// prior brings into buf, if it has it. Pages that it does not come to, has not, or that are beyond handLimit, are left out.
func (t *tailReader) atHand(ctx context.Context, pageCount uint32, floor uint64, prior func(pgno uint32, buf []byte) bool, put func(pgno uint32, page []byte) error) error {
	pieces, err := t.pieces(ctx, floor)
	if err != nil {
		return err
	}
	h := t.h
	decided, left := pageset.NewBits(int(pageCount)), int64(handLimit)
	d := waitingDeltas{}
	once := func(pgno uint32, page []byte) error {
		if pgno > pageCount || decided.Has(pgno) {
			return nil
		}
		decided.Set(pgno)
		if left -= int64(len(page)); left < 0 {
			return errEnough
		}
		page, err := d.apply(pgno, page)
		if err != nil {
			return err
		}
		return put(pgno, page)
	}
	later := func(x segment.Delta) error {
		if x.Page <= pageCount && !decided.Has(x.Page) {
			if left -= int64(x.Size()); left < 0 {
				return errEnough
			}
			d[x.Page] = append(d[x.Page], x.Clone())
		}
		return nil
	}
	for i := len(pieces) - 1; i >= 0; i-- {
		p := pieces[i]
		if p.e.Payload == nil {
			return nil
		}
		hd := payloadHeader(p.e)
		key := fence.SlotKey(p.t.log.Name(), p.e.Slot)
		ix, err := segment.DecodeIndex(p.e.Payload, hd)
		if err != nil {
			return damaged(h, key, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := segment.EachChange(hd, ix, p.e.Payload, once, later); errors.Is(err, errEnough) {
			return nil
		} else if err != nil {
			return damaged(h, key, err)
		}
		for _, r := range ix.Refs {
			decided.Fill(r.First, r.Last)
		}
		fault("restore:entry")
	}
	if t.base != nil && (floor == 0 || floor < t.bottom()) {
		upper, key := t.base.Upper, t.head.Base
		p, err := t.packsAbove(ctx, floor)
		if err != nil {
			return err
		}
		if p != nil {
			upper, key = p.upper, t.base.Packs()[0].Key
			for _, e := range slices.Backward(p.entries) {
				if err := segment.EachChange(e.Header(t.base.PageSize), e.index, e.Payload, once, later); errors.Is(err, errEnough) {
					return nil
				} else if err != nil {
					return damaged(h, e.key, err)
				}
			}
		}
		if at, count := t.base.LevelsAt(); floor < at {
			err := damaged(h, key, upper.Each(t.base.PageSize, count, once))
			if err == nil && floor == 0 { // after: what is in both is newer there
				u, uerr := t.upperOf(ctx)
				if err = uerr; u != nil {
					err = damaged(h, u.key, u.begin(h.pages, count, once))
				}
			}
			if errors.Is(err, errEnough) {
				return nil
			}
			return err
		}
	}
	if prior == nil {
		return nil
	}
	buf := make([]byte, t.head.State.PageSize)
	for p := range d {
		if decided.Has(p) || !prior(p, buf) {
			continue
		}
		if page, err := d.apply(p, buf); err == nil { // else what was here is not that page: it is fetched
			if err := put(p, page); err != nil {
				return err
			}
		}
	}
	return nil
}

// waitingDeltas are deltas whose page before has not been found yet, newest first.
type waitingDeltas map[uint32][]segment.Delta

// apply makes a page of the one that its deltas are against. They are done with then.
func (d waitingDeltas) apply(pgno uint32, page []byte) ([]byte, error) {
	waiting := d[pgno]
	delete(d, pgno)
	for i := len(waiting) - 1; i >= 0; i-- {
		next := make([]byte, len(page))
		if err := waiting[i].Apply(next, page); err != nil {
			return nil, err
		}
		page = next
	}
	return page, nil
}
