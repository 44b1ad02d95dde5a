package tonbo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/layout"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// upperEager is how large an upper object may be, bytes, for all of its pages to be put into the local copy when that begins: of a larger one, whose pages are scattered over the file, they are taken from memory when they are read.
const upperEager = 256 << 10

// upperPatience is how long who opens a database waits for its upper object, tries included: without it, there is nothing that he cannot read.
const upperPatience = 10 * time.Second

// upperCopies is what a base's upper object holds.
type upperCopies struct {
	key     string
	etag    string
	size    int64 // of the object, bytes
	index   *segment.Index
	payload []byte
	stale   base.PageMarks
	object  *layout.Object // what was not put when the local copy began; nil: nothing
}

// each calls fn with each page that is as the base's levels have it, of a database of pageCount pages there, in those blocks that want tells.
func (u *upperCopies) each(pageCount uint32, want func(block int) bool, fn func(pgno uint32, page []byte) error) error {
	i := 0
	for k := range u.index.Blocks {
		b := &u.index.Blocks[k]
		n := i
		if i += b.Count(); !want(k) {
			continue
		}
		if err := b.Pages(u.payload[b.Offset:b.Offset+int64(b.Length)], u.index.PageSize, func(p uint32, page []byte) error {
			n++
			if u.stale.Has(n-1) || p > pageCount {
				return nil
			}
			return fn(p, page)
		}); err != nil {
			return err
		}
	}
	return nil
}

// begin calls put with the pages that a local copy is to begin with, and keeps the others as an object: those in blocks that have no page that is not to be taken.
func (u *upperCopies) begin(store remote.Store, pageCount uint32, put func(pgno uint32, page []byte) error) error {
	later := make([]bool, len(u.index.Blocks))
	if len(u.payload) > upperEager {
		rest := &segment.Index{PageSize: u.index.PageSize}
		i := 0
		for k := range u.index.Blocks {
			b := &u.index.Blocks[k]
			last := b.Runs[len(b.Runs)-1]
			later[k] = last.First+(last.Count-1) <= pageCount
			for range b.Count() {
				later[k] = later[k] && !u.stale.Has(i)
				i++
			}
			if later[k] {
				rest.Blocks = append(rest.Blocks, *b)
			}
		}
		if len(rest.Blocks) > 0 {
			u.object = layout.Indexed(store, u.index.PageSize, u.key, u.size, layout.Part{Index: rest, Start: u.size - int64(len(u.payload)), ETag: u.etag, Payload: u.payload})
		}
	}
	return u.each(pageCount, func(k int) bool { return !later[k] }, put)
}

// readUpper reads a base's upper object, and makes sure that every byte of it is what was put, and that all of it unpacks: nobody is to find out later.
func (h *handle) readUpper(ctx context.Context, m *base.Manifest) (*upperCopies, error) {
	u := m.UpperObject
	o, err := h.pages.Get(ctx, u.Key, remote.GetOptions{})
	if errors.Is(err, remote.ErrNotFound) {
		return nil, fmt.Errorf("%w: %w: %s/%s", ErrCorrupt, layout.ErrMissing, h.store, u.Key)
	}
	if err != nil {
		return nil, err
	}
	hd, ix, payload, err := segment.Decode(o.Body)
	if err != nil {
		return nil, damaged(h, u.Key, err)
	}
	sum, err := u.PayloadSum()
	if err != nil {
		return nil, err
	}
	if hd.Kind != segment.KindSegment || hd.PageSize != m.PageSize || hd.PayloadSum != sum || int64(len(o.Body)) != u.Size || ix.Pages() != u.Pages || ix.Delta != nil || len(ix.Refs) > 0 {
		return nil, damaged(h, u.Key, fmt.Errorf("%w: it is not the upper object that is meant", segment.ErrFormat))
	}
	if err := segment.EachPage(hd, ix, payload, func(uint32, []byte) error { return nil }); err != nil {
		return nil, damaged(h, u.Key, err)
	}
	return &upperCopies{key: u.Key, etag: o.ETag, size: u.Size, index: ix, payload: payload, stale: u.Stale}, nil
}

// noUpper says that an upper object cannot be had, or is not what it should be: it holds copies of what the levels have, and everybody does without. In the latter case the next base makes another one: each opening would say so.
func (h *handle) noUpper(key string, err error) {
	if errors.Is(err, ErrCorrupt) || errors.Is(err, layout.ErrMissing) || errors.Is(err, layout.ErrDamaged) || errors.Is(err, remote.ErrDamaged) {
		h.badUpper.Store(&key)
	}
	h.o.Logger.Warn("copies of upper pages cannot be used; they are read where they were copied from", "event", "upper_unusable", "database", h.name, "object", key, "error", err)
}

// carriedUpper is the upper object of a base that the next one may go on with. nil: there is none.
func (h *handle) carriedUpper(m *base.Manifest) *base.UpperObject {
	if m == nil || m.UpperObject == nil {
		return nil
	}
	if bad := h.badUpper.Load(); bad != nil && *bad == m.UpperObject.Key {
		return nil
	}
	return m.UpperObject
}

// upperOf reads the upper object of the base, once, for who has nothing of the state: where the manifest or a pack has all of it, nobody wants it. nil: there is none, or it cannot be used. The error is ctx's.
func (t *tailReader) upperOf(ctx context.Context) (*upperCopies, error) {
	if t.base == nil || t.base.UpperObject == nil || t.base.UpperObject.Spare || t.upper != nil || t.noUpper {
		return t.upper, nil
	}
	soon, cancel := context.WithTimeout(ctx, upperPatience)
	defer cancel()
	u, err := t.h.readUpper(soon, t.base)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		t.h.noUpper(t.base.UpperObject.Key, err)
		u = nil
	}
	t.upper, t.noUpper = u, u == nil
	return u, nil
}
