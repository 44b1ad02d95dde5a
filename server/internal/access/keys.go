package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo/remote"
)

// Errors of Keys, for errors.Is.
var (
	ErrRefused  = errors.New("no key in force")      // a secret that no key in force has
	ErrNotFound = errors.New("no such key")          // or one that the caller may not know of
	ErrHasOwner = errors.New("account has an owner") // its first owner key was made before
)

// Options of NewKeys.
type Options struct {
	Cache time.Duration    // how long a verdict is used again; 0: never
	Now   func() time.Time // default time.Now
}

// Keys are an account's. Safe for concurrent use.
type Keys struct {
	store remote.Store
	o     Options
	cache *cache
}

// NewKeys returns the keys in a store. It sends no request.
func NewKeys(s remote.Store, o Options) *Keys {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Keys{store: s, o: o, cache: newCache()}
}

// Make makes a key for maker, and tells its secret: the only time. [ErrWider] and the other errors of [Key.Covers]; a [*SpecError].
func (k *Keys) Make(ctx context.Context, maker *Key, s Spec) (*Key, string, error) {
	want, err := s.key(maker, k.o.Now())
	if err != nil {
		return nil, "", err
	}
	if err := maker.Covers(want); err != nil {
		return nil, "", err
	}
	names, err := k.name(ctx, want.Databases)
	if err != nil {
		return nil, "", fmt.Errorf("make a key: %w", err)
	}
	id := newID()
	secret := newSecret(id)
	e := entryOf(want, names, secret)
	e.By = maker.ID
	if err := k.append(ctx, id, 0, e); err != nil {
		return nil, "", fmt.Errorf("make a key: %w", err)
	}
	return e.key(id), secret, nil
}

// entryOf is the first entry of a key's log.
func entryOf(key *Key, names []named, secret string) *entry {
	h := hashOf(secret)
	return &entry{
		Kind: made, Hash: fmt.Sprintf("%x", h), Name: key.Name, Identity: key.Identity, Role: key.Role, Narrow: key.Narrow, Databases: names, Prefixes: key.Prefixes, ReadOnly: key.ReadOnly,
		ExpiresAt: key.ExpiresAt, CreatedAt: key.CreatedAt, CreatedBy: key.CreatedBy,
	}
}

// Rotate gives a key a new secret, and tells it. The old one is dead when it returns; other servers know it within their Cache. [ErrNotFound], and the errors of [Key.Covers]: whoever learns the secret can do what the key can.
func (k *Keys) Rotate(ctx context.Context, by *Key, id string) (*Key, string, error) {
	var secret string
	e, err := k.change(ctx, by, id, func(now *Key, e *entry) (*entry, error) {
		if err := by.Covers(now); err != nil {
			return nil, err
		}
		if e.Kind == revoked {
			return nil, ErrNotFound
		}
		secret = newSecret(id)
		next := *e
		next.Kind, next.Hash = rotated, fmt.Sprintf("%x", hashOf(secret))
		return &next, nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("rotate key %s: %w", id, err)
	}
	return e.key(id), secret, nil
}

// Revoke ends a key for good. Revoked already is success. [ErrNotFound], and the errors of [Key.MayEnd].
func (k *Keys) Revoke(ctx context.Context, by *Key, id string) error {
	_, err := k.change(ctx, by, id, func(now *Key, e *entry) (*entry, error) {
		if err := by.MayEnd(now); err != nil {
			return nil, err
		}
		if e.Kind == revoked {
			return nil, nil
		}
		next := *e
		next.Kind, next.Hash = revoked, ""
		return &next, nil
	})
	if err != nil {
		return fmt.Errorf("revoke key %s: %w", id, err)
	}
	return nil
}

// change appends what next makes of a key's newest entry (nil: nothing), and returns it.
func (k *Keys) change(ctx context.Context, by *Key, id string, next func(*Key, *entry) (*entry, error)) (*entry, error) {
	if !validID(id) {
		return nil, ErrNotFound
	}
	for {
		h, err := k.head(ctx, id, nil)
		if err != nil {
			return nil, err
		}
		if h == nil || !by.Sees(h.e.key(id)) {
			return nil, ErrNotFound
		}
		e, err := next(h.e.key(id), h.e)
		if e == nil || err != nil {
			return nil, err
		}
		e.By = by.ID
		err = k.append(ctx, id, h.e.slot, e)
		k.cache.forget(id) // also when the outcome is not known
		if !errors.Is(err, errPassed) {
			return e, err
		}
	}
}

// States of keys in a listing.
const (
	StateActive  = "active"
	StateExpired = "expired"
	StateRevoked = "revoked"
)

// listed is a key as a listing shows it.
func (k *Keys) listed(h *stored) *Key {
	key := h.e.key(h.id)
	switch {
	case h.e.Kind == revoked:
		key.State = StateRevoked
	case key.expired(k.o.Now()):
		key.State = StateExpired
	default:
		key.State = StateActive
	}
	return key
}

// rowsAtOnce is how many keys a listing reads at once.
const rowsAtOnce = 16

// List returns up to limit keys that by may know of, in the order of their ids, those after the id given. more: there are further ones. A LIST per 1,000 entries and a GET for each key.
func (k *Keys) List(ctx context.Context, by *Key, after string, limit int) (page []*Key, more bool, err error) {
	from := Prefix
	if after != "" {
		if !validID(after) {
			return nil, false, ErrNotFound
		}
		from = Prefix + after + "0" // behind all of its entries: '/' comes before '0'
	}
	for {
		infos, further, err := k.store.List(ctx, Prefix, remote.ListOptions{After: from})
		if err != nil {
			return nil, false, fmt.Errorf("list keys: %w", err)
		}
		// The first object of each key is its newest entry.
		var heads []remote.Info
		for _, o := range infos {
			id, _, ok := parseSlotKey(o.Key)
			if !ok {
				return nil, false, fmt.Errorf("list keys: %w: %s/%s is no entry", ErrDamaged, k.store, o.Key)
			}
			if Prefix+id+"0" != from {
				heads = append(heads, o)
			}
			from = Prefix + id + "0"
		}
		rows := make([]*stored, len(heads))
		g, gctx := errgroup.WithContext(ctx)
		g.SetLimit(rowsAtOnce)
		for i, o := range heads {
			g.Go(func() (err error) { rows[i], err = k.read(gctx, o, nil); return err })
		}
		if err := g.Wait(); err != nil {
			return nil, false, fmt.Errorf("list keys: %w", err)
		}
		for _, h := range rows {
			key := k.listed(h)
			if !by.Sees(key) {
				continue
			}
			if len(page) == limit {
				return page, true, nil
			}
			page = append(page, key)
		}
		if !further {
			return page, false, nil
		}
	}
}

// NewOwnerSecret returns a secret for [Keys.RegisterOwner].
func NewOwnerSecret() string { return newSecret(ownerID) }

// MakeOwner makes the account's first owner key and tells its secret. [ErrHasOwner] when it was made before, unless it has been revoked. Two servers that do it at once make one.
func (k *Keys) MakeOwner(ctx context.Context) (string, error) {
	secret := NewOwnerSecret()
	if err := k.owner(ctx, secret, func(*entry) bool { return false }); err != nil {
		return "", err
	}
	return secret, nil
}

// RegisterOwner makes secret, which NewOwnerSecret made, that of the account's first owner key. It is so already: nil. [ErrHasOwner]: the account has another one.
func (k *Keys) RegisterOwner(ctx context.Context, secret string) error {
	if id, ok := idOf(secret); !ok || id != ownerID {
		return &SpecError{"owner key", "it is no secret that tonbo serve --init has made"}
	}
	h := hashOf(secret)
	return k.owner(ctx, secret, func(e *entry) bool { return e.Kind != revoked && e.hash == h })
}

func (k *Keys) owner(ctx context.Context, secret string, same func(*entry) bool) error {
	for {
		h, err := k.head(ctx, ownerID, nil)
		if err != nil {
			return fmt.Errorf("make the owner key: %w", err)
		}
		slot := uint64(0)
		if h != nil {
			if same(h.e) {
				return nil
			}
			if h.e.Kind != revoked {
				return fmt.Errorf("%w since %s", ErrHasOwner, h.e.CreatedAt.UTC().Format(time.RFC3339))
			}
			slot = h.e.slot
		}
		key := &Key{Name: "owner", Identity: Identity{ID: "owner", Kind: User}, Role: Owner, CreatedAt: k.o.Now().UTC()}
		err = k.append(ctx, ownerID, slot, entryOf(key, nil, secret))
		k.cache.forget(ownerID)
		if errors.Is(err, errPassed) {
			continue
		}
		if err != nil {
			return fmt.Errorf("make the owner key: %w", err)
		}
		return nil
	}
}
