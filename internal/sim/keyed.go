package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
)

// keys is the truth about idempotency keys. They are numbers; a key's name and source follow from it.
type keys struct {
	first int              // several callers use this one and the few behind it at once
	of    map[fence.ID]int // which key an id was drafted for
	made  map[int]fence.ID // what a key has made
}

// keyMade is told of every create.
func (w *world) keyMade(id fence.ID) {
	k, keyed := w.keys.of[id]
	if !keyed {
		return
	}
	if other, twice := w.keys.made[k]; twice {
		w.violated("one key made two databases", "key %d: %s and %s", k, short(other), short(id))
	}
	w.keys.made[k] = id
}

// keyed creates and forks with idempotency keys that others use as well.
func (a *actor) keyed() {
	w := a.w
	for {
		k := w.keys.first + w.rnd.IntN(3)
		name := w.names[k%len(w.names)]
		o := catalog.Once{
			Store: client{a}, Log: a.log(name), Hash: fmt.Sprint("key-", k), Request: fmt.Sprint("request ", k),
			Draft: func(ctx context.Context) (*catalog.Attempt, error) { return a.draft(ctx, k) },
			Try:   func(ctx context.Context, x *catalog.Attempt) (*fence.Entry, error) { return a.try(ctx, name, x) },
			Undo: func(ctx context.Context, x *catalog.Attempt) {
				id, _ := fence.ParseID(x.ID)
				if w.c.Keyed == "" {
					w.never[id] = true
				}
				_ = client{a}.Delete(ctx, recordKey(name, x.Slot, id))
				if x.Source != nil {
					_ = client{a}.Delete(ctx, pinOf(name, x).Key())
				}
			},
			Wait: func(ctx context.Context, _ error) error { return a.sleep(ctx, 0) },
		}
		if w.c.Keyed != "" {
			o = catalog.Break(o, w.c.Keyed)
		}
		var e *fence.Entry
		var replayed bool
		var err error
		since := w.tick
		a.call(func(ctx context.Context) { e, replayed, err = o.Run(ctx) })
		w.tracef(a.name, "key %d for %s: replayed %v, %v", k, name, replayed, err)
		h := w.truth[name]
		id, made := w.keys.made[k]
		switch {
		case err == nil:
			w.stats.Keyed++
			if replayed {
				w.stats.Replayed++
			}
			if !made || e.ID != id {
				w.violated("one key answers with two databases", "key %d: %s, made %s", k, short(e.ID), short(id))
			}
		case errors.Is(err, catalog.ErrGone):
			w.stats.Gone++
			if !made || h.live == id {
				w.violated("live database said to be gone", "key %d: %s", k, short(id))
			}
			w.keys.first = max(w.keys.first, k+1)
		case errors.Is(err, catalog.ErrOtherRequest):
			w.violated("another request", "key %d: %v", k, err)
		case errors.Is(err, fence.ErrTaken):
			if h.live == (fence.ID{}) && h.diedAt <= since {
				w.violated("absent database said to be there", "key %d for %s", k, name)
			}
			if made && h.live == id && h.bornAt <= since {
				w.violated("its own database said to be another's", "key %d for %s", k, name)
			}
		}
		if w.chance(8) {
			w.keys.first++
		}
	}
}

// draft is an attempt for a key: every third one forks another name's head.
func (a *actor) draft(ctx context.Context, k int) (*catalog.Attempt, error) {
	var id fence.ID
	if _, err := a.Read(id[:]); err != nil {
		return nil, err
	}
	a.w.keys.of[id] = k
	x := &catalog.Attempt{ID: id.String(), CreatedAt: time.Unix(int64(a.w.tick), 0)}
	if k%3 == 2 {
		source := a.w.names[(k+1)%len(a.w.names)]
		head, err := a.log(source).HeadHeader(ctx)
		if err != nil {
			return nil, err
		}
		if head == nil || head.Ends() {
			return nil, fence.ErrNoDatabase
		}
		x.Source = &catalog.Point{Name: source, ID: head.ID.String(), Slot: head.Slot}
	}
	return x, nil
}

func (a *actor) try(ctx context.Context, name string, x *catalog.Attempt) (*fence.Entry, error) {
	id, _ := fence.ParseID(x.ID)
	c := fence.CreateOptions{
		ID: id, Slot: x.Slot,
		Before: func(ctx context.Context, c fence.Creation) error {
			return a.put(ctx, recordKey(name, c.Slot, c.ID), []byte(name))
		},
		Undo: func(ctx context.Context, c fence.Creation) {
			_ = client{a}.Delete(ctx, recordKey(name, c.Slot, c.ID))
		},
	}
	if x.Source != nil {
		of := pinOf(name, x).Source
		c.Source = &of
	}
	o, err := a.log(name).Create(ctx, c)
	if err != nil {
		return nil, err
	}
	a.inLog(newOwn(o, name), o.Entry(), "create")
	return o.Entry(), nil
}

func pinOf(name string, x *catalog.Attempt) fence.Pin {
	id, _ := fence.ParseID(x.ID)
	of, _ := fence.ParseID(x.Source.ID)
	return fence.Pin{Source: fence.Source{Name: x.Source.Name, ID: of, Slot: x.Source.Slot}, Child: fence.Source{Name: name, ID: id, Slot: x.Slot}}
}
