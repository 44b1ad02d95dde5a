package sim

import (
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/segment"
)

const (
	numPages = 3
	pageSize = 512
)

type nonce [16]byte

// content is the version of each page; 0: never written.
type content [numPages]uint32

// over lays c over what is below it.
func (c content) over(below content) content {
	for i, v := range c {
		if v == 0 {
			c[i] = below[i]
		}
	}
	return c
}

func (c content) full() bool { return c[0] != 0 && c[1] != 0 && c[2] != 0 }

// change is what an entry does to the pages.
type change struct {
	pages content
	whole bool
}

func (c change) apply(to content) content {
	if c.whole {
		return c.pages
	}
	return c.pages.over(to)
}

func page(pgno int, version uint32) []byte {
	p := make([]byte, pageSize)
	binary.LittleEndian.PutUint32(p, version)
	p[pageSize-1] = byte(pgno)
	return p
}

// pack makes a payload of pages, and of refs. what is what the entry is to change, refs included.
func (w *world) pack(c content, refs []segment.Ref, what change) (payload []byte, sum uint64) {
	s := segment.NewWriter(pageSize)
	for i, v := range c {
		if v != 0 {
			must(s.Add(uint32(i+1), page(i+1, v)))
		}
	}
	for _, r := range refs {
		must(s.AddRef(r))
	}
	payload, sum, err := s.Finish()
	must(err)
	w.changes[sum] = what
	return payload, sum
}

// segment makes the object of a segment.
func (w *world) segment(o *own, c content) (key string, body []byte, s base.Segment) {
	payload, sum := w.pack(c, nil, change{pages: c})
	h := segment.Header{
		Kind: segment.KindSegment, ID: o.ID(), Generation: o.Generation(), Slot: o.Slot(), From: 1, Nonce: w.nonce(),
		PageSize: pageSize, PageCount: numPages, PayloadSize: int64(len(payload)), PayloadSum: sum,
	}
	body, err := segment.EncodeHeader(nil, &h)
	must(err)
	body = append(body, payload...)
	key = fmt.Sprintf("db/%s/seg/%016x-%x", o.name, h.Generation, h.Nonce)
	s = base.Segment{Key: key, From: 1, Slot: o.Slot(), Size: int64(len(body))}
	for i, v := range c {
		if v != 0 {
			if s.Pages++; s.First == 0 {
				s.First = uint32(i + 1)
			}
			s.Last = uint32(i + 1)
		}
	}
	return key, body, s
}

func (w *world) nonce() (n nonce) {
	_, _ = w.Read(n[:])
	return n
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// parts is what is in an object.
type parts struct {
	h        *segment.Header
	pages    content // of its blocks
	refs     []string
	manifest *base.Manifest
}

// parts decodes an object, once.
func (w *world) parts(o *object) *parts {
	if p := w.decoded[o.etag]; p != nil {
		return p
	}
	p := &parts{}
	if m, err := base.Decode(o.body); err == nil {
		p.manifest = m
	} else {
		h, ix, payload, err := segment.Decode(o.body)
		must(err)
		p.h = h
		for _, r := range ix.Refs {
			p.refs = append(p.refs, r.Key)
		}
		must(segment.EachPage(h, ix, payload, func(pgno uint32, page []byte) error {
			p.pages[pgno-1] = binary.LittleEndian.Uint32(page)
			return nil
		}))
	}
	w.decoded[o.etag] = p
	return p
}

// state is what a reader finds out about a point.
type state struct {
	w     *world
	tail  bool            // go by the entries' Tail, else read every slot
	pages content         // so far, newest first
	above content         // of them, those that are not in the base
	need  map[string]bool // keys of all objects that it stands on; nil: nobody asks
}

// point reads a point as fence.Entry.Carries says. It is an error if anything is missing.
func (w *world) point(name string, slot uint64, tail bool, need map[string]bool) (*state, error) {
	s := &state{w: w, tail: tail, need: need}
	e, err := s.entry(name, slot)
	if err != nil {
		return s, err
	}
	if err := s.walk(name, e, e, true); err != nil {
		return s, err
	}
	return s, nil
}

func (s *state) object(key string) (*parts, error) {
	if s.need != nil {
		s.need[key] = true
	}
	o := s.w.at(key)
	if o == nil {
		return nil, fmt.Errorf("%s is missing", s.w.short(key))
	}
	return s.w.parts(o), nil
}

func (s *state) entry(name string, slot uint64) (*parts, error) {
	p, err := s.object(fence.SlotKey(name, slot))
	if err == nil && p.h.Slot != slot {
		err = fmt.Errorf("slot %d of %s holds slot %d", slot, name, p.h.Slot)
	}
	return p, err
}

// take adds an entry's pages. done: nothing below is needed.
func (s *state) take(name string, e *parts) (done bool, err error) {
	s.pages = s.pages.over(e.pages)
	for _, key := range e.refs {
		p, err := s.object(key)
		if err != nil {
			return false, err
		}
		s.pages = s.pages.over(p.pages)
	}
	if src := e.h.Source; src != nil {
		if s.tail && e.h.Tail != nil {
			for i := len(e.h.Tail) - 1; i >= 0; i-- {
				x, err := s.entry(src.Name, e.h.Tail[i])
				if err != nil {
					return false, err
				}
				if done, err := s.take(src.Name, x); done || err != nil {
					return done, err
				}
			}
			return false, nil
		}
		x, err := s.entry(src.Name, src.Slot)
		if err != nil {
			return false, err
		}
		if x.h.ID != src.ID {
			return false, fmt.Errorf("slot %d of %s is another incarnation's", src.Slot, src.Name)
		}
		return true, s.walk(src.Name, x, x, false)
	}
	return e.h.Flags&segment.FlagWhole != 0, nil
}

// walk reads from e down to the base in force at at.
func (s *state) walk(name string, at, e *parts, outermost bool) error {
	var m *parts
	low := uint64(0)
	if at.h.Base != "" {
		var err error
		if m, err = s.object(at.h.Base); err != nil {
			return err
		}
		if m.manifest.ID == fence.ID(at.h.ID).String() {
			low = m.manifest.Slot
		}
	}
	done, err := false, error(nil)
	if s.tail && at.h.Tail != nil {
		done, err = s.take(name, e)
		if e.h.Source == nil && !done {
			for i := len(at.h.Tail) - 1; i >= 0 && err == nil && !done; i-- {
				var x *parts
				if x, err = s.entry(name, at.h.Tail[i]); err == nil {
					done, err = s.take(name, x)
				}
			}
		}
	} else {
		for e.h.Slot > low && !done {
			if done, err = s.take(name, e); err != nil || done || e.h.Kind == segment.KindCreate {
				break
			}
			next := e.h.Slot - 1
			if e.h.Kind == segment.KindRewind {
				next = e.h.To
			}
			if next <= low {
				break
			}
			prev := e
			if e, err = s.entry(name, next); err != nil {
				break
			}
			if e.h.ID != at.h.ID {
				err = fmt.Errorf("slot %d of %s is another incarnation's", next, name)
			} else if prev.h.Kind != segment.KindRewind && prev.h.Prev != e.h.Sum() {
				err = fmt.Errorf("slot %d of %s does not follow from the one below", prev.h.Slot, name)
			}
			if err != nil {
				break
			}
		}
	}
	if outermost {
		s.above = s.pages
	}
	if err != nil || m == nil {
		return err
	}
	for key := range newestFirst(m.manifest) {
		p, err := s.object(key)
		if err != nil {
			return err
		}
		s.pages = s.pages.over(p.pages)
	}
	if u := m.manifest.UpperObject; u != nil { // copies: nothing of it is taken, but it must be there
		_, err = s.object(u.Key)
	}
	return err
}

// newestFirst yields the keys of what a base names.
func newestFirst(m *base.Manifest) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, p := range slices.Backward(m.Packs()) {
			if !yield(p.Key) {
				return
			}
		}
		for _, level := range m.Levels {
			for _, s := range level {
				if !yield(s.Key) {
					return
				}
			}
		}
	}
}

// checkPages holds every point that must be there against the truth.
func (w *world) checkPages() {
	w.checked = w.removed
	for _, n := range w.names {
		h := w.truth[n]
		if h.live == (fence.ID{}) {
			continue
		}
		for s := h.born; s <= h.tail(); s++ {
			if s < h.at(h.tail()).horizon && !h.at(s).label {
				continue
			}
			w.stats.Points++
			for _, tail := range []bool{true, false} {
				st, err := w.point(n, s, tail, nil)
				if err != nil {
					w.violated("dangling", "slot %d of %s (head %d, horizon %d): %v", s, n, h.tail(), h.at(h.tail()).horizon, err)
					return
				}
				if st.pages != h.at(s).pages {
					w.violated("wrong content", "slot %d of %s: %v, want %v", s, n, st.pages, h.at(s).pages)
					return
				}
			}
		}
	}
}

func (w *world) now() time.Time { return time.Unix(int64(w.tick), 0) }
