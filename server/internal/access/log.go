package access

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tonbo-go/tonbo/remote"
)

// Prefix is what the keys of all objects of this package begin with.
const Prefix = "keys/"

const format = 1

// Kinds of entries.
const (
	made    = "make"   // the key is in force, with this hash
	rotated = "rotate" // likewise, with another one
	revoked = "revoke" // it is not any more, for good: but the account's first owner key can be made again
)

// Errors, for errors.Is.
var (
	ErrDamaged = errors.New("key object damaged")
	ErrNewer   = errors.New("key object written by a newer version")
)

// entry is one in a key's log: what the key is from here on. It is made create-if-absent in the slot behind the newest one, and never changed nor deleted.
type entry struct {
	Format    int       `json:"format"`
	Kind      string    `json:"kind"`
	Nonce     string    `json:"nonce"`          // random: tells one writer's entry from another's
	Hash      string    `json:"hash,omitempty"` // SHA-256 of the secret, hexadecimal; none in a revoke
	Name      string    `json:"name"`
	Identity  Identity  `json:"identity"`
	Role      Role      `json:"role"`
	Narrow    bool      `json:"narrow,omitempty"`
	Databases []named   `json:"databases,omitempty"`
	Prefixes  []string  `json:"prefixes,omitempty"`
	ReadOnly  bool      `json:"read_only,omitempty"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by,omitempty"`
	At        time.Time `json:"at"`
	By        string    `json:"by,omitempty"` // the key that did this
	slot      uint64
	hash      [32]byte
}

// named is a database that a key names: the incarnation that was live when the key was made, or else the first one to come.
type named struct {
	Name string `json:"name"`
	Slot uint64 `json:"slot"`         // of the head of its log when the key was made; 0: it had none
	ID   string `json:"id,omitempty"` // of the incarnation that was live then
}

// key is what the entry says.
func (e *entry) key(id string) *Key {
	k := &Key{
		ID: id, Name: e.Name, Identity: e.Identity, Role: e.Role, Prefixes: e.Prefixes, Narrow: e.Narrow, ReadOnly: e.ReadOnly, ExpiresAt: e.ExpiresAt, CreatedAt: e.CreatedAt, CreatedBy: e.CreatedBy,
	}
	for _, d := range e.Databases {
		k.Databases = append(k.Databases, d.Name)
	}
	if e.Kind == rotated {
		k.RotatedAt = e.At
	}
	return k
}

func slotKey(id string, slot uint64) string {
	return fmt.Sprintf("%s%s/%016x", Prefix, id, math.MaxUint64-slot)
}

func parseSlotKey(key string) (id string, slot uint64, ok bool) {
	id, inverted, ok := strings.Cut(strings.TrimPrefix(key, Prefix), "/")
	n, err := strconv.ParseUint(inverted, 16, 64)
	if !ok || err != nil || !validID(id) || slotKey(id, math.MaxUint64-n) != key {
		return "", 0, false
	}
	return id, math.MaxUint64 - n, true
}

// head returns the newest entry of a key's log: one LIST, and a GET unless last is that very object. nil: there is no such key.
func (k *Keys) head(ctx context.Context, id string, last *stored) (*stored, error) {
	page, _, err := k.store.List(ctx, Prefix+id+"/", remote.ListOptions{Max: 1})
	if err != nil || len(page) == 0 {
		return nil, err
	}
	return k.read(ctx, page[0], last)
}

// stored is an entry and the object that it was read from.
type stored struct {
	id   string
	info remote.Info
	e    *entry
}

// read returns the entry in an object of a listing, from last if it is that object.
func (k *Keys) read(ctx context.Context, info remote.Info, last *stored) (*stored, error) {
	if last != nil && last.info.Key == info.Key && last.info.ETag == info.ETag {
		return last, nil
	}
	id, slot, ok := parseSlotKey(info.Key)
	if !ok {
		return nil, fmt.Errorf("%w: %s/%s is no entry", ErrDamaged, k.store, info.Key)
	}
	o, err := k.store.Get(ctx, info.Key, remote.GetOptions{})
	if err != nil {
		return nil, err
	}
	e := &entry{slot: slot}
	if err := json.Unmarshal(o.Body, e); err != nil {
		return nil, fmt.Errorf("%w: %s/%s: %w", ErrDamaged, k.store, info.Key, err)
	}
	switch {
	case e.Format > format, e.Kind != made && e.Kind != rotated && e.Kind != revoked, !e.Role.Valid():
		return nil, fmt.Errorf("%w: %s/%s: update tonbo", ErrNewer, k.store, info.Key)
	case e.Kind != revoked:
		h, err := hex.DecodeString(e.Hash)
		if err != nil || len(h) != len(e.hash) {
			return nil, fmt.Errorf("%w: %s/%s has no hash", ErrDamaged, k.store, info.Key)
		}
		copy(e.hash[:], h)
	}
	// A key that something else has un-narrowed must not reach all.
	e.Narrow = e.Narrow || len(e.Databases)+len(e.Prefixes) > 0
	return &stored{id: id, info: o.Info, e: e}, nil
}

// errPassed is a slot that another writer has.
var errPassed = errors.New("another entry came first")

// append puts e in the slot behind prev. errPassed: another writer was faster. It tries until the outcome is known or ctx ends; then the error is remote.ErrUnknown, and it may be stored at any time later.
func (k *Keys) append(ctx context.Context, id string, prev uint64, e *entry) error {
	var nonce [16]byte
	rand.Read(nonce[:])
	e.Format, e.Nonce, e.At, e.slot = format, hex.EncodeToString(nonce[:]), k.o.Now().UTC(), prev+1
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	key := slotKey(id, e.slot)
	var b remote.Backoff
	for unsure := false; ; unsure = true {
		_, err := k.store.Create(ctx, key, body)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, remote.ErrExists):
			there, rerr := k.read(ctx, remote.Info{Key: key}, nil)
			switch {
			case rerr == nil && there.e.Nonce == e.Nonce:
				return nil
			case rerr == nil, errors.Is(rerr, ErrDamaged), errors.Is(rerr, ErrNewer):
				return errPassed
			}
			err = rerr
		case !errors.Is(err, remote.ErrUnknown) && !unsure:
			return err
		}
		if ctxErr := b.Wait(ctx, err); ctxErr != nil {
			return fmt.Errorf("%w: %s/%s: %w, last: %w", remote.ErrUnknown, k.store, key, ctxErr, err)
		}
	}
}
