package catalog

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/tonbo-go/tonbo/remote"
)

// InstancePrefix is what the keys of all bindings begin with.
const InstancePrefix = "instances/"

// Kinds of bindings.
const (
	Bind    = "bind"    // a database of this name is to be made for the key; whoever comes along makes it
	Bound   = "bound"   // the key has this database
	Failing = "failing" // it still has, and the database has not opened since Since
	Release = "release" // the key has none
)

// Binding is one entry in the log of an instance key: which database it has from here on. It is made create-if-absent in the slot behind the newest one, and never changed nor deleted, so that a writer that was
// stopped for however long cannot get a slot that has passed. Slots are named as those of a database's log: the newest lists first.
type Binding struct {
	Format        int       `json:"format"`
	Kind          string    `json:"kind"`
	Nonce         string    `json:"nonce"` // random: tells one writer's entry from another's
	Generation    uint64    `json:"generation"`
	Name          string    `json:"name,omitempty"`
	ID            string    `json:"id,omitempty"`
	Source        *Point    `json:"source,omitempty"`         // bind: fork this; slot 0: its head
	Retire        *Point    `json:"retire,omitempty"`         // bind: freeze this before
	DeleteRetired bool      `json:"delete_retired,omitempty"` // bind: and delete it when the new one is there
	Since         time.Time `json:"since,omitzero"`           // failing
	Reason        string    `json:"reason,omitempty"`         // failing
	By            string    `json:"by,omitempty"`
	At            time.Time `json:"at"`

	Slot uint64 `json:"-"`
}

// Bindings is the log of an instance key.
type Bindings struct {
	Store remote.Store
	Key   string
	By    string
}

func (l Bindings) prefix() string { return InstancePrefix + l.Key + "/" }

func (l Bindings) slotKey(slot uint64) string {
	return fmt.Sprintf("%s%016x", l.prefix(), math.MaxUint64-slot)
}

// Head returns the newest binding: a LIST and a GET. Slot 0: the key was never used.
func (l Bindings) Head(ctx context.Context) (*Binding, error) {
	page, _, err := l.Store.List(ctx, l.prefix(), remote.ListOptions{Max: 1})
	if err != nil {
		return nil, err
	}
	if len(page) == 0 {
		return &Binding{Kind: Release}, nil
	}
	key := page[0].Key
	n, err := strconv.ParseUint(key[len(l.prefix()):], 16, 64)
	if err != nil || n == math.MaxUint64 || l.slotKey(math.MaxUint64-n) != key { // slots begin at 1
		return nil, fmt.Errorf("%w: %s/%s is no binding", ErrDamaged, l.Store, key)
	}
	return l.read(ctx, math.MaxUint64-n)
}

func (l Bindings) read(ctx context.Context, slot uint64) (*Binding, error) {
	o, err := l.Store.Get(ctx, l.slotKey(slot), remote.GetOptions{})
	if err != nil {
		return nil, err
	}
	b := &Binding{Slot: slot}
	if err := decode(l.Store.String(), l.slotKey(slot), o.Body, b, func() int { return b.Format }); err != nil {
		return nil, err
	}
	switch b.Kind {
	case Bind, Bound, Failing, Release:
		return b, nil
	}
	return nil, fmt.Errorf("%w: %s/%s has the kind %q: update tonbo", ErrNewer, l.Store, l.slotKey(slot), b.Kind)
}

// Append puts next behind prev. It returns what stands there: ours tells whether that is next, and not another writer's. It tries until that is known or ctx ends; then the error is remote.ErrUnknown, and it may be
// stored at any time later.
func (l Bindings) Append(ctx context.Context, prev *Binding, next Binding) (there *Binding, ours bool, err error) {
	var nonce [16]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return nil, false, err
	}
	next.Format, next.Nonce, next.Slot = format, hex.EncodeToString(nonce[:]), prev.Slot+1
	next.By, next.At = l.By, time.Now().UTC()
	body, err := json.Marshal(next)
	if err != nil {
		return nil, false, err
	}
	var b remote.Backoff
	for unsure := false; ; unsure = true {
		_, err := l.Store.Create(ctx, l.slotKey(next.Slot), body)
		switch {
		case err == nil:
			return &next, true, nil
		case errors.Is(err, remote.ErrExists):
			there, rerr := l.read(ctx, next.Slot)
			if rerr == nil {
				return there, there.Nonce == next.Nonce, nil
			}
			if errors.Is(rerr, ErrDamaged) || errors.Is(rerr, ErrNewer) || errors.Is(rerr, remote.ErrDamaged) {
				return nil, false, rerr
			}
			err = rerr
		case !errors.Is(err, remote.ErrUnknown) && !unsure:
			return nil, false, err
		}
		if ctxErr := b.Wait(ctx, err); ctxErr != nil {
			return nil, false, fmt.Errorf("%w: %s/%s: %w, last: %w", remote.ErrUnknown, l.Store, l.slotKey(next.Slot), ctxErr, err)
		}
	}
}
