package sim

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// Rules that lazy readers break here.
const (
	FromNewestBase = "a missing page is answered from the newest base"
	GhostRead      = "an entry is not compared with the one meant"
)

// ReaderRules names all of them.
var ReaderRules = []string{FromNewestBase, GhostRead}

// snapshot is a point that a reader has open. It knows where the pages are, and has read none of them.
type snapshot struct {
	name   string
	slot   uint64
	places []place         // newest first
	known  map[int][]place // what those have turned out to be, by place
}

// place is an object that may hold pages.
type place struct {
	key     string
	id      fence.ID // an entry's incarnation; zero: it is a segment
	pages   content
	fetched bool
}

// reader opens a database's head without owning it, and reads one page now and another one much later.
func (a *actor) reader() {
	w := a.w
	for {
		s := a.snapshot(a.anyName())
		for s != nil && !w.chance(12) {
			a.pause(none)
			p := w.rnd.IntN(numPages)
			v, err := a.page(s, p)
			switch {
			case errors.Is(err, errGone) && w.c.Readers == FromNewestBase:
				if now := a.snapshot(s.name); now != nil {
					now.places = now.places[max(0, len(now.places)-1):]
					if v, err = a.page(now, p); err != nil {
						continue
					}
					break
				}
				continue
			case errors.Is(err, errGone): // the whole snapshot moves, nothing of the old one is kept
				w.stats.Moves++
				s = a.snapshot(s.name)
				continue
			case err != nil:
				continue
			}
			w.stats.Reads++
			if want := w.truth[s.name].at(s.slot).pages[p]; v != want {
				w.violated("wrong page", "%s reads page %d of %s as of slot %d: version %d, want %d", a.name, p+1, s.name, s.slot, v, want)
			}
		}
		a.pause(none)
	}
}

var errGone = errors.New("an object of the snapshot is gone")

// snapshot finds the head and what it stands on, as fence.Entry.Carries says. nil: not now.
func (a *actor) snapshot(name string) *snapshot {
	head, err := a.head(name)
	if err != nil || head == nil || head.Ends() {
		return nil
	}
	s := &snapshot{name: name, slot: head.Slot, known: map[int][]place{}}
	if a.expand(s, name, head) != nil {
		return nil
	}
	if head.Base != "" && !head.Whole {
		m, err := a.manifest(head.Base)
		if err != nil {
			return nil
		}
		for key := range newestFirst(m) {
			s.places = append(s.places, place{key: key})
		}
	}
	return s
}

// expand adds the entries that carry the pages of e's state.
func (a *actor) expand(s *snapshot, name string, e *fence.Entry) error {
	if e.PayloadSize > 0 {
		s.places = append(s.places, place{key: fence.SlotKey(name, e.Slot), id: e.ID})
	}
	if e.Whole {
		return nil
	}
	from, id := name, e.ID
	if e.Source != nil {
		from, id = e.Source.Name, e.Source.ID
	}
	for i := len(e.Tail) - 1; i >= 0; i-- {
		x, err := a.entry(from, e.Tail[i])
		if err != nil {
			return err
		}
		if x.ID != id || !x.Carries() {
			return errGone
		}
		if x.Source != nil {
			return a.expand(s, from, x)
		}
		s.places = append(s.places, place{key: fence.SlotKey(from, x.Slot), id: id})
	}
	return nil
}

func (a *actor) entry(name string, slot uint64) (e *fence.Entry, err error) {
	a.call(func(ctx context.Context) { e, err = a.log(name).ReadHeader(ctx, slot) })
	return e, err
}

func (a *actor) manifest(key string) (m *base.Manifest, err error) {
	a.call(func(ctx context.Context) {
		var o remote.Object
		if o, err = (client{a}).Get(ctx, key, remote.GetOptions{}); err == nil {
			m, err = base.Decode(o.Body)
		}
	})
	return m, err
}

// page finds a page's version in a snapshot: the newest object that holds it.
func (a *actor) page(s *snapshot, p int) (uint32, error) {
	for i, x := range s.places {
		objects, ok := s.known[i]
		if !ok {
			var err error
			if objects, err = a.fetch(x); err != nil {
				return 0, err
			}
			s.known[i] = objects
		}
		for j := range objects {
			if !objects[j].fetched {
				o, err := a.fetch(objects[j])
				if err != nil {
					return 0, err
				}
				objects[j] = o[0]
			}
			if v := objects[j].pages[p]; v != 0 {
				return v, nil
			}
		}
	}
	return 0, nil
}

// fetch reads an object: its pages, and the segments that it names.
func (a *actor) fetch(x place) (r []place, err error) {
	a.call(func(ctx context.Context) {
		var o remote.Object
		o, err = client{a}.Get(ctx, x.key, remote.GetOptions{})
		if errors.Is(err, remote.ErrNotFound) {
			err = errGone
		}
		if err != nil {
			return
		}
		h, ix, payload, derr := segment.Decode(o.Body)
		must(derr)
		if x.id != (fence.ID{}) && (h.ID != x.id || h.PayloadSize == 0) && a.w.c.Readers != GhostRead { // a ghost in its place
			a.w.stats.GhostReads++
			err = errGone
			return
		}
		x.fetched = true
		must(segment.EachPage(h, ix, payload, func(pgno uint32, page []byte) error {
			x.pages[pgno-1] = binary.LittleEndian.Uint32(page)
			return nil
		}))
		r = append(r, x)
		for _, ref := range ix.Refs {
			r = append(r, place{key: ref.Key})
		}
	})
	return r, err
}
