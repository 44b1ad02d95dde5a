package objects

import (
	"context"
	"sync"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// tops remembers of each database that narrowed keys work on one log entry, most often the newest, so that the next one can be checked without a request. What is remembered decides nothing about ownership, and is never an answer: an entry
// that is wrongly let through meets the store's own condition.
type tops struct {
	store remote.Store

	mu     sync.Mutex
	byName map[string]*top
}

type top struct {
	known bool // the name was used: so it stays
	entry seen // slot 0: none
	at    time.Time
}

const (
	maxTops = 20000           // names remembered
	topAge  = 5 * time.Second // how long an entry may stand for the head
)

func newTops(s remote.Store) *tops { return &tops{store: s, byName: map[string]*top{}} }

func (t *tops) get(name string) top {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.byName[name]; p != nil {
		return *p
	}
	return top{}
}

// note remembers an entry that the store has.
func (t *tops) note(name string, e seen) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.place(name)
	if p := t.byName[name]; p.entry.slot <= e.slot {
		p.entry, p.at = e, time.Now()
	}
}

func (t *tops) noteKnown(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.place(name)
}

// place makes room for a name. t.mu is held.
func (t *tops) place(name string) {
	if t.byName[name] != nil {
		return
	}
	if len(t.byName) >= maxTops {
		clear(t.byName)
	}
	t.byName[name] = &top{known: true}
}

// known tells whether the name was ever used.
func (t *tops) known(ctx context.Context, name string) (bool, error) {
	if t.get(name).known {
		return true, nil
	}
	page, _, err := t.store.List(ctx, fence.LogPrefix(name), remote.ListOptions{Max: 1})
	if err != nil || len(page) == 0 {
		return false, err
	}
	t.noteKnown(name)
	return true, nil
}

// at returns the entry in a slot.
func (t *tops) at(ctx context.Context, name string, slot uint64) (seen, bool, error) {
	if e := t.get(name).entry; e.slot == slot {
		return e, true, nil
	}
	e, found, err := header(ctx, t.store, name, slot)
	if err == nil && found {
		t.note(name, e)
	}
	return e, found, err
}

// head returns an entry that was the head a moment ago, and is no older than generation if the log has got so far.
func (t *tops) head(ctx context.Context, name string, generation uint64) (seen, bool, error) {
	if p := t.get(name); p.entry.slot >= generation && p.entry.slot > 0 && time.Since(p.at) < topAge && p.entry.kind != segment.KindDelete && p.entry.kind != segment.KindVoid {
		return p.entry, true, nil
	}
	e, err := logOf(t.store, name).HeadHeader(ctx)
	if err != nil || e == nil {
		return seen{}, false, err
	}
	s := seenEntry(e)
	t.note(name, s)
	return s, true, nil
}
