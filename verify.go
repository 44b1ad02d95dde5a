package tonbo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/pageset"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// VerifyReport tells what Verify read.
type VerifyReport struct {
	Entries, Segments, Bases int
	Bytes                    int64     // read
	Problems                 []Problem // in the order in which they were found; none: all is well
}

// Problem is an object that is not right.
type Problem struct {
	Key string
	Err error
}

// OK tells whether no problem was found.
func (r *VerifyReport) OK() bool { return len(r.Problems) == 0 }

// Verify reads everything that a database stands on, from the oldest restorable entry to the head: that each entry follows from the one before, every block's
// checksum, every segment and base, and that each base holds what the log says, by the database checksum at it and at the head. It takes nothing over. The report names
// the objects that are not right; an error means that it could not be told.
func (c *Client) Verify(ctx context.Context, name string) (*VerifyReport, error) {
	h, err := c.handle(name)
	if err != nil {
		return nil, err
	}
	defer h.stop()
	v := &verifier{h: h, report: &VerifyReport{}, seen: map[string]bool{}}
	if err := v.run(ctx); err != nil {
		return nil, wrap(name, "verify", err)
	}
	v.report.Bytes = h.counter.Counts().BytesDown
	return v.report, nil
}

type verifier struct {
	h      *handle
	report *VerifyReport
	seen   map[string]bool // segments and bases that were read
}

// problem notes err against an object, unless it is one that says nothing about the object.
func (v *verifier) problem(key string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, remote.ErrUnknown), errors.Is(err, remote.ErrUnauthorized), errors.Is(err, remote.ErrDenied):
		return err
	}
	v.report.Problems = append(v.report.Problems, Problem{key, err})
	return nil
}

func (v *verifier) run(ctx context.Context) error {
	head, err := v.h.log.Head(ctx)
	if errors.Is(err, fence.ErrDamaged) || errors.Is(err, remote.ErrDamaged) {
		return v.problem(fmt.Sprintf("db/%s/log/", v.h.name), err)
	}
	if err != nil {
		return err
	}
	if head == nil || head.Ends() {
		return fence.ErrNoDatabase
	}
	above := head
	for slot := head.Slot; slot >= head.Horizon && slot > 0; slot-- {
		key := fence.SlotKey(v.h.name, slot)
		e := head
		if slot < head.Slot {
			e, err = v.h.log.Read(ctx, slot)
			if err != nil {
				if err := v.problem(key, err); err != nil {
					return err
				}
				above = nil
				continue
			}
			if above != nil {
				if err := v.problem(key, above.Follows(e)); err != nil {
					return err
				}
			}
		}
		above = e
		v.report.Entries++
		if err := v.entry(ctx, key, e); err != nil {
			return err
		}
		if e.Kind == fence.Create {
			break
		}
	}
	return v.replay(ctx, head)
}

// entry checks one entry's blocks, the segments that it names, and the base that it stands on.
func (v *verifier) entry(ctx context.Context, key string, e *fence.Entry) error {
	ignore := func(uint32, []byte) error { return nil }
	if e.PayloadSize > 0 {
		hd := payloadHeader(e)
		ix, err := segment.DecodeIndex(e.Payload, hd)
		if err == nil {
			err = segment.EachChange(hd, ix, e.Payload, ignore, func(segment.Delta) error { return nil })
		}
		if err != nil {
			return v.problem(key, damaged(v.h, key, err))
		}
		for _, ref := range ix.Refs {
			if err := v.segment(ctx, ref, e.State.PageSize); err != nil {
				return err
			}
		}
	}
	if e.Base == "" || v.seen[e.Base] {
		return nil
	}
	v.seen[e.Base] = true
	m, err := v.h.readBase(ctx, e)
	if err != nil {
		return v.problem(e.Base, err)
	}
	v.report.Bases++
	before := len(v.report.Problems)
	for _, level := range m.Levels {
		for _, s := range level {
			if err := v.segment(ctx, segment.Ref{Key: s.Key, First: s.First, Last: s.Last, Pages: s.Pages, Size: s.Size}, m.PageSize); err != nil {
				return err
			}
		}
	}
	for _, p := range m.Packs() {
		if err := v.pack(ctx, m, p); err != nil {
			return err
		}
	}
	if err := v.upper(ctx, m); err != nil {
		return err
	}
	if len(v.report.Problems) > before {
		return nil
	}
	return v.problem(e.Base, v.baseHolds(ctx, m))
}

// upper reads a base's upper object.
func (v *verifier) upper(ctx context.Context, m *base.Manifest) error {
	if m.UpperObject == nil || v.seen[m.UpperObject.Key] {
		return nil
	}
	v.seen[m.UpperObject.Key] = true
	v.report.Segments++
	_, err := v.h.readUpper(ctx, m)
	return v.problem(m.UpperObject.Key, err)
}

func (v *verifier) segment(ctx context.Context, ref segment.Ref, pageSize uint32) error {
	if v.seen[ref.Key] {
		return nil
	}
	v.seen[ref.Key] = true
	v.report.Segments++
	return v.problem(ref.Key, v.h.eachPageOf(ctx, ref, pageSize, nil, func(uint32, []byte) error { return nil }))
}

func (v *verifier) pack(ctx context.Context, m *base.Manifest, p base.Pack) error {
	if v.seen[p.Key] {
		return nil
	}
	v.seen[p.Key] = true
	v.report.Segments++
	r, err := v.h.readPack(ctx, m, p)
	if err != nil {
		return v.problem(p.Key, err)
	}
	ignore := func(uint32, []byte) error { return nil }
	for _, e := range r.entries {
		if err := segment.EachChange(e.Header(m.PageSize), e.index, e.Payload, ignore, func(segment.Delta) error { return nil }); err != nil {
			return v.problem(p.Key, damaged(v.h, p.Key, err))
		}
	}
	_, count := m.LevelsAt()
	return v.problem(p.Key, damaged(v.h, p.Key, r.upper.Each(m.PageSize, count, ignore)))
}

// baseHolds restores what a base says and compares the checksum, and the copies of upper pages with what they were copied from.
func (v *verifier) baseHolds(ctx context.Context, m *base.Manifest) error {
	sum, err := m.Sum()
	if err != nil {
		return err
	}
	root, done, err := v.h.scratch(".verify-*")
	if err != nil {
		return err
	}
	defer done()
	state := fence.State{PageSize: m.PageSize, PageCount: m.PageCount, Checksum: sum}
	t := v.h.newTail(&fence.Entry{Slot: m.Slot, State: state, Tail: []uint64{}})
	t.base = m
	r, err := v.h.newRestorer(filepath.Join(root, "db"), state, t, pageset.Sums{})
	if err != nil {
		return err
	}
	r.laid = func() error { return v.copies(ctx, t, r) }
	return r.run(ctx, 0)
}

// copies compares upper pages with those that r has put.
func (v *verifier) copies(ctx context.Context, t *tailReader, r *restorer) error {
	m := t.base
	_, count := m.LevelsAt()
	same := func(what string) func(uint32, []byte) error {
		return func(p uint32, page []byte) error {
			if r.sums.At(p) != segment.PageSum(p, page) {
				return fmt.Errorf("%w: page %d among the upper pages in %s/%s is another one than in the levels", ErrCorrupt, p, v.h.store, what)
			}
			return nil
		}
	}
	upper, what := m.Upper, "the manifest"
	if m.Packed != nil {
		p, err := t.packsAbove(ctx, 0)
		if err != nil {
			return err
		}
		upper, what = p.upper, m.Packs()[0].Key
	}
	if err := upper.Each(m.PageSize, count, same(what)); err != nil || m.UpperObject == nil {
		return err
	}
	u, err := v.h.readUpper(ctx, m)
	if err != nil {
		return err
	}
	return u.each(count, every, same(u.key))
}

func every(int) bool { return true }

// replay restores the head, which compares its checksum.
func (v *verifier) replay(ctx context.Context, head *fence.Entry) error {
	if len(v.report.Problems) > 0 {
		return nil // it would tell nothing new
	}
	root, done, err := v.h.scratch(".verify-*")
	if err != nil {
		return err
	}
	defer done()
	path := filepath.Join(root, "db")
	if err := v.h.restoreTo(ctx, path, head); err != nil {
		return v.problem(fence.SlotKey(v.h.name, head.Slot), err)
	}
	defer os.Remove(path)
	if err := checkFile(ctx, path); err != nil {
		return v.problem(fence.SlotKey(v.h.name, head.Slot), err)
	}
	return nil
}
