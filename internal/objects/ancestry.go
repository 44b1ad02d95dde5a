package objects

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// ancestry knows what forks stand on below the prefixes of others. All of it comes from the fork's create and what that names, link by link; a create is made by keys that are not narrowed alone. What a fork's own entries and bases
// name is no proof of anything: a narrowed key may have written them.
//
// A point is for ever, so what it stands on is worked out once for each fork, and remembered.
type ancestry struct {
	store remote.Store

	mu     sync.Mutex
	byName map[string]*lineage
	bytes  int // of memory that they take
}

// lineage is what the incarnations of a name that have an index record stand on.
type lineage struct {
	turn   chan struct{}    // held by who works on it
	parts  map[string]*part // by the keys of their records
	looked time.Time
	bytes  int  // of memory that parts take, as counted in the ancestry; its mu guards this and gone
	gone   bool // forgotten: who works on it still has it
}

// part is what one incarnation stands on: keys, and of log slots the entity tag of what is meant, since a ghost may fill a collected one; and whose they are.
type part struct {
	objects map[string]string
	names   map[string]bool
	bytes   int // of memory
}

const (
	maxLineages = 1024
	lineageAge  = 5 * time.Second // how long an incarnation that has ended may still be read for
	maxLinks    = 64              // forks of forks
	maxStood    = 128 << 20       // bytes of memory for what one fork stands on: a million segments. What an entry of a narrowed key's names may have long keys
	maxAllStood = 512 << 20       // and for all that are remembered
	stoodBytes  = 64              // of memory for an object, beside its key
)

func newAncestry(s remote.Store) *ancestry { return &ancestry{store: s, byName: map[string]*lineage{}} }

func (a *ancestry) of(name string) *lineage {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.byName[name]
	if l == nil {
		if len(a.byName) >= maxLineages {
			a.forget()
		}
		l = &lineage{turn: make(chan struct{}, 1), parts: map[string]*part{}}
		a.byName[name] = l
	}
	return l
}

// standing is how a fork stands to an object.
type standing struct {
	on   bool
	etag string // the one that the object must have; "": its key says enough
	near bool   // it stands on something of the same database
}

// stands tells how the database of that name, if it is a fork, stands to an object.
func (a *ancestry) stands(ctx context.Context, name, key string) (standing, error) {
	l := a.of(name)
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return standing{}, context.Cause(ctx)
	}
	if time.Since(l.looked) < lineageAge {
		if s := l.find(key); s.on {
			return s, nil
		}
	}
	// Not known, or known for long: which incarnations are there? The index has them, a fork's before its create.
	if err := a.look(ctx, name, l); err != nil {
		return standing{}, err
	}
	return l.find(key), nil
}

func (l *lineage) find(key string) (s standing) {
	of := parse(key).name
	for _, part := range l.parts {
		if etag, ok := part.objects[key]; ok {
			return standing{on: true, etag: etag, near: true}
		}
		s.near = s.near || part.names[of]
	}
	return s
}

// look brings l up to date.
func (a *ancestry) look(ctx context.Context, name string, l *lineage) error {
	now := time.Now()
	found := map[string]*part{}
	for after := ""; ; {
		page, more, err := a.store.List(ctx, catalog.RecordPrefix+name+"/", remote.ListOptions{After: after})
		if err != nil {
			return err
		}
		for _, i := range page {
			after = i.Key
			_, slot, id, ok := catalog.ParseRecordKey(i.Key)
			if !ok {
				continue
			}
			p := l.parts[i.Key]
			if p == nil {
				if p, err = a.begin(ctx, name, slot, id); err != nil {
					return err
				}
			}
			if p != nil {
				found[i.Key] = p
			}
		}
		if !more {
			break
		}
	}
	l.parts, l.looked = found, now
	a.keep(l)
	return nil
}

// keep counts what l takes, and forgets all others when that is too much for all. l's turn is held.
func (a *ancestry) keep(l *lineage) {
	n := 0
	for _, p := range l.parts {
		n += p.bytes
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if l.gone {
		return
	}
	a.bytes += n - l.bytes
	l.bytes = n
	if a.bytes > maxAllStood {
		a.forget()
	}
}

// forget drops every lineage: each is worked out again when it is asked for. a.mu is held.
func (a *ancestry) forget() {
	for _, l := range a.byName {
		l.gone = true
	}
	clear(a.byName)
	a.bytes = 0
}

// begin works out what an incarnation stands on, by its create. nil: there is none yet.
func (a *ancestry) begin(ctx context.Context, name string, slot uint64, id fence.ID) (*part, error) {
	e, err := logOf(a.store, name).ReadHeader(ctx, slot)
	if errors.Is(err, remote.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	w := walk{a: a, part: part{objects: map[string]string{}, names: map[string]bool{}}}
	if e.Kind != fence.Create || e.ID != id || e.Source == nil {
		return &w.part, nil
	}
	for links := 0; e != nil; links++ {
		if links == maxLinks {
			return nil, fmt.Errorf("%w: %s is a fork of more than %d others", fence.ErrDamaged, name, maxLinks)
		}
		w.names[e.Source.Name] = true
		if e, err = w.link(ctx, e); err != nil {
			return nil, err
		}
	}
	return &w.part, nil
}

// walk follows a fork's create to what it names, as a reader does. What is gone is left out: nobody needs it.
type walk struct {
	a  *ancestry
	mu sync.Mutex
	part
}

func (w *walk) add(key, etag string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, there := w.objects[key]; !there {
		w.bytes += len(key) + stoodBytes
	}
	if w.bytes > maxStood {
		return fmt.Errorf("%w: a fork stands on too many objects: %d so far", fence.ErrDamaged, len(w.objects))
	}
	w.objects[key] = etag
	w.names[parse(key).name] = true
	return nil
}

// link adds what a fork's create names in its source's log, and returns the create at which that ends, if it is a fork's in turn.
func (w *walk) link(ctx context.Context, create *fence.Entry) (*fence.Entry, error) {
	low := uint64(0)
	if create.Base != "" {
		m, err := w.base(ctx, create.Base)
		if err != nil {
			return nil, err
		}
		if m != nil && m.ID == create.Source.ID.String() {
			low = m.Slot
		}
	}
	log := logOf(w.a.store, create.Source.Name)
	if create.Tail != nil {
		return w.tail(ctx, log, create)
	}
	for slot := create.Source.Slot; slot > low; {
		e, err := log.ReadHeader(ctx, slot)
		if errors.Is(err, remote.ErrNotFound) {
			return nil, nil
		}
		if err != nil || e.ID != create.Source.ID {
			return nil, err
		}
		if err := w.entry(ctx, log.Name(), e); err != nil {
			return nil, err
		}
		switch {
		case e.Kind == fence.Create && e.Source != nil:
			return e, nil
		case e.Kind == fence.Create, e.Whole:
			return nil, nil
		case e.Kind == fence.Rewind:
			slot = e.To
		default:
			slot--
		}
	}
	return nil, nil
}

// tail adds the slots that the create lists.
func (w *walk) tail(ctx context.Context, log *fence.Log, create *fence.Entry) (*fence.Entry, error) {
	var begin *fence.Entry
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, slot := range create.Tail {
		g.Go(func() error {
			e, err := log.ReadHeader(gctx, slot)
			if errors.Is(err, remote.ErrNotFound) {
				return nil
			}
			if err != nil || e.ID != create.Source.ID {
				return err
			}
			if e.Kind == fence.Create && e.Source != nil {
				w.mu.Lock()
				begin = e
				w.mu.Unlock()
			}
			return w.entry(gctx, log.Name(), e)
		})
	}
	return begin, g.Wait()
}

// tailGuess is how many bytes from the end of an entry are read at first, to find the segments that it names.
const tailGuess = 16 << 10

// entry adds a slot and the segments that it names.
func (w *walk) entry(ctx context.Context, name string, e *fence.Entry) error {
	key := fence.SlotKey(name, e.Slot)
	if err := w.add(key, e.ETag); err != nil || e.PayloadSize == 0 {
		return err
	}
	for n := int64(tailGuess); ; {
		o, err := w.a.store.Get(ctx, key, remote.GetOptions{Offset: -n, IfMatch: e.ETag})
		if errors.Is(err, remote.ErrNotFound) || errors.Is(err, remote.ErrChanged) {
			return nil
		}
		if err != nil {
			return err
		}
		ix, _, need, err := segment.DecodeIndexTail(o.Body, o.Size)
		if need > n {
			n = need
			continue
		}
		if err != nil {
			return fmt.Errorf("%w: %s: %w", fence.ErrDamaged, key, err)
		}
		for _, r := range ix.Refs {
			if err := w.add(r.Key, ""); err != nil {
				return err
			}
		}
		return nil
	}
}

// base adds a base and its segments.
func (w *walk) base(ctx context.Context, key string) (*base.Manifest, error) {
	o, err := w.a.store.Get(ctx, key, remote.GetOptions{})
	if errors.Is(err, remote.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := base.Decode(o.Body)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", fence.ErrDamaged, key, err)
	}
	if err := w.add(key, ""); err != nil {
		return nil, err
	}
	for s := range m.Named() {
		if err := w.add(s, ""); err != nil {
			return nil, err
		}
	}
	return m, nil
}
