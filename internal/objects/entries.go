package objects

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/objectwire"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// check decides about an object that a narrowed key wants to create, by what is in it. For a log entry it returns what to remember of it once it is stored.
//
// What such a key writes can damage its own database: its pages are its own. It must reach no further: not to what decides whether a database exists, and not to objects of others, which whoever reads this database with more rights would
// then read on its behalf.
func (x *exchange) check(body []byte) (*seen, error) {
	switch x.at.kind {
	case "log":
		return x.entry(body)
	case "seg":
		return nil, x.segment(body)
	case "base":
		return nil, x.base(body)
	}
	return nil, nil // the probe
}

func refuse(detail string) *Refusal {
	return &Refusal{Status: http.StatusForbidden, Code: objectwire.EntryRefused, Detail: detail}
}

// entry checks a log entry against the one before it, from which an owner copies all but its pages.
func (x *exchange) entry(body []byte) (*seen, error) {
	slot, _ := fence.ParseSlotKey(x.key)
	h, n, err := segment.DecodeHeader(body)
	if err != nil || h.Slot != slot || int64(n)+h.PayloadSize != int64(len(body)) {
		return nil, refuse("it is no log entry of that slot")
	}
	switch h.Kind {
	case segment.KindClaim, segment.KindCommit, segment.KindBase, segment.KindClose:
	default:
		return nil, x.unless(narrowed())
	}
	if slot == 1 {
		return nil, x.unless(refuse("the first slot is a create's"))
	}
	prev, found, err := x.tops.at(x.r.Context(), x.at.name, slot-1)
	switch {
	case err != nil:
		return nil, ofStore(err)
	case !found: // a log has no holes: below the head a slot may have been collected, and then this one is taken
		return nil, x.unless(refuse("the slot before it is empty"))
	}
	next := seenHeader(h)
	if why := prev.next(&next, x.at.name); why != "" {
		return nil, x.unless(refuse(why))
	}
	if h.PayloadSize > 0 {
		ix, err := segment.DecodeIndex(body[n:], h)
		if err != nil {
			return nil, refuse("its index is damaged")
		}
		for _, r := range ix.Refs {
			if err := x.mayName(r.Key); err != nil {
				return nil, err
			}
		}
	}
	return &next, nil
}

// unless is r, but where the slot is taken, which is the truth that a stale owner has to hear (R2, R5).
func (x *exchange) unless(r *Refusal) error {
	_, err := x.store.Get(x.r.Context(), x.key, remote.GetOptions{Length: 1})
	switch {
	case err == nil:
		return taken()
	case !errors.Is(err, remote.ErrNotFound):
		return ofStore(err)
	}
	return x.nothing(r)
}

// next tells what is wrong with e as the entry behind s; "": nothing.
func (s *seen) next(e *seen, name string) string {
	switch {
	case s.kind == segment.KindDelete || s.kind == segment.KindVoid:
		return "the database has ended"
	case e.id != s.id || e.prev != s.sum:
		return "it does not follow the entry before it"
	case e.kind == segment.KindClaim && e.generation != e.slot || e.kind != segment.KindClaim && e.generation != s.generation:
		return "it is of another generation than the entry before it"
	case s.frozen:
		return "the database is frozen: a narrowed key writes nothing behind that"
	case e.frozen:
		return "a narrowed key freezes and thaws nothing"
	case e.source || e.begin != s.begin:
		return "it says that the database began otherwise"
	case e.pages > s.pages && e.pages > maxPages:
		return "a narrowed key lets a database grow to so many pages and no more"
	case e.kind != segment.KindBase && (e.base != s.base || e.horizon != s.horizon):
		return "only a base changes the base in force and the horizon"
	case e.kind == segment.KindBase && (e.horizon < s.horizon || e.horizon > e.slot):
		return "the horizon falls, or is beyond the entry"
	case e.kind == segment.KindBase && !ownBase(e, name):
		return "its base is another database's"
	}
	return ""
}

// maxPages is how many pages a database can have by a narrowed key's word: 512 GiB of 4 KiB. The entry that says so may hold none of them, and who opens the database, this server for one, keeps some bits for each.
const maxPages = 1 << 27

// ownBase tells whether the base that e puts in force was made for this incarnation: a name's earlier one may have been a fork, and its bases, until they are collected, name what the present one does not stand on. The
// generations of incarnations do not overlap, and base has seen to it that a base's is one of its own.
func ownBase(e *seen, name string) bool {
	rest, ok := strings.CutPrefix(e.base, "db/"+name+"/base/")
	parts := strings.Split(rest, "-")
	if !ok || len(parts) != 3 {
		return false
	}
	g, err := strconv.ParseUint(parts[1], 16, 64)
	return err == nil && g >= e.begin && g <= e.slot
}

// mayName decides whether something that a narrowed key writes may name a segment.
func (x *exchange) mayName(key string) error {
	if strings.HasPrefix(key, "db/"+x.at.name+"/seg/") {
		return nil
	}
	s, err := x.forks.stands(x.r.Context(), x.at.name, key)
	switch {
	case err != nil:
		return ofStore(err)
	case !s.on:
		return refuse("it names an object that the database does not stand on")
	}
	return nil
}

// segment checks an upload before its entry.
func (x *exchange) segment(body []byte) error {
	generation, nonce, ok := strings.Cut(x.at.rest, "-")
	if h, _, err := segment.DecodeHeader(body); err != nil || h.Kind != segment.KindSegment && h.Kind != segment.KindPack || !ok || len(nonce) != 32 {
		return refuse("it is no segment")
	}
	_, err := x.live(generation)
	return err
}

// base checks a manifest.
func (x *exchange) base(body []byte) error {
	parts := strings.Split(x.at.rest, "-")
	m, err := base.Decode(body)
	if err != nil || len(parts) != 3 || len(parts[2]) != 32 {
		return refuse("it is no base")
	}
	head, err := x.live(parts[1])
	if err != nil {
		return err
	}
	if m.ID != fence.ID(head.id).String() {
		return refuse("it is another database's base")
	}
	for s := range m.Named() {
		if err := x.mayName(s); err != nil {
			return err
		}
	}
	return nil
}

// live checks that the database is there, and that an object's generation is none of the future: nobody would ever collect it (R9).
func (x *exchange) live(generation string) (seen, error) {
	g, err := strconv.ParseUint(generation, 16, 64)
	if err != nil || len(generation) != 16 {
		return seen{}, refuse("it has no generation")
	}
	head, found, err := x.tops.head(x.r.Context(), x.at.name, g)
	switch {
	case err != nil:
		return seen{}, ofStore(err)
	case !found:
		return seen{}, absent()
	case head.kind == segment.KindDelete || head.kind == segment.KindVoid:
		return seen{}, refuse("the database has ended")
	case g > head.slot:
		return seen{}, refuse("it is of a generation that has not begun")
	case g < head.begin:
		return seen{}, refuse("it is of a generation of an incarnation that has ended")
	}
	return head, nil
}

// seen is what is remembered of a log entry.
type seen struct {
	slot, generation, horizon, sum, prev, begin uint64
	kind                                        segment.Kind
	id                                          [16]byte
	base                                        string
	pages                                       uint32 // of the database
	frozen, source                              bool
}

func seenHeader(h *segment.Header) seen {
	s := seen{
		slot: h.Slot, generation: h.Generation, horizon: h.Horizon, sum: h.Sum(), prev: h.Prev, kind: h.Kind, id: h.ID, base: h.Base, pages: h.PageCount,
		frozen: h.Flags&segment.FlagFrozen != 0, source: h.Source != nil,
	}
	if h.Usage != nil {
		s.begin = h.Usage.Begin
	}
	return s
}

func seenEntry(e *fence.Entry) seen {
	return seen{
		slot: e.Slot, generation: e.Generation, horizon: e.Horizon, sum: e.Sum, prev: e.Prev, kind: segment.Kind(e.Kind), id: e.ID, base: e.Base, pages: e.State.PageCount,
		frozen: e.Frozen, source: e.Source != nil, begin: e.Usage.Begin,
	}
}

func logOf(s remote.Store, name string) *fence.Log { return fence.New(s, name, fence.Options{}) }

func header(ctx context.Context, s remote.Store, name string, slot uint64) (seen, bool, error) {
	e, err := logOf(s, name).ReadHeader(ctx, slot)
	if errors.Is(err, remote.ErrNotFound) {
		return seen{}, false, nil
	}
	if err != nil {
		return seen{}, false, err
	}
	return seenEntry(e), true, nil
}
