package tonbo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
)

// request is what a call with an idempotency key asks for. Two calls are the same if the hashes of these are.
type request struct {
	Kind      string            `json:"kind"` // create, fork, import
	Name      string            `json:"name"`
	Source    string            `json:"source,omitempty"`
	At        string            `json:"at,omitempty"`
	Content   string            `json:"content,omitempty"` // of an import: its hash
	PageSize  int               `json:"page_size,omitempty"`
	ExpiresAt time.Time         `json:"expires_at,omitzero"`
	TTL       time.Duration     `json:"ttl,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"`
	Protected bool              `json:"protected,omitempty"`
	Frozen    bool              `json:"frozen,omitempty"`
}

func (r request) hash(o CreateOptions) (string, error) {
	if o.instance != "" { // whoever asks first decides what it is; the others want the same one, whatever they would have made
		r, o = request{Kind: "instance", Name: r.Name}, CreateOptions{}
	}
	r.ExpiresAt, r.TTL, r.Metadata, r.Protected, r.Frozen = o.ExpiresAt.UTC(), o.TTL, o.Metadata, o.Protected, o.Frozen
	b, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:]), nil
}

// beginOnce creates an incarnation for an idempotency key, if no call with that key has: see catalog.Once.
func (c *Client) beginOnce(ctx context.Context, name string, b creation) (*Database, error) {
	hash, err := b.what.hash(b.o)
	if err != nil {
		return nil, wrap(name, b.doing, err)
	}
	var made *catalog.Record
	once := catalog.Once{
		Store: c.store, Log: c.log(name), Hash: catalog.KeyHash(b.o.IdempotencyKey), Request: hash,
		Draft: func(ctx context.Context) (*catalog.Attempt, error) { return c.attempt(ctx, b) },
		Try: func(ctx context.Context, a *catalog.Attempt) (*fence.Entry, error) {
			fault("create:attempt")
			var e *fence.Entry
			e, made, err = c.try(ctx, name, b, a)
			return e, err
		},
		Undo: func(ctx context.Context, a *catalog.Attempt) { c.undo(ctx, name, a) },
	}
	e, replayed, err := once.Run(ctx)
	if err != nil {
		return nil, createError(name, b.doing, err)
	}
	if !replayed {
		return c.describe(e, made), nil
	}
	r, err := recordOf(ctx, c.store, name, e)
	if err != nil {
		return nil, wrap(name, b.doing, err)
	}
	d := c.describe(e, r)
	d.Name, d.Replayed = name, true
	return d, nil
}

// attempt is one at what b asks for: all calls with the key aim at it, so whatever they must agree on is fixed here.
func (c *Client) attempt(ctx context.Context, b creation) (*catalog.Attempt, error) {
	at := c.o.time().UTC()
	expires, err := expiry(at, b.o.ExpiresAt, b.o.TTL)
	if err != nil {
		return nil, err
	}
	a := &catalog.Attempt{ID: fence.ID(randomNonce()).String(), CreatedAt: at, ExpiresAt: expires}
	if b.point != nil {
		of, err := b.point(ctx)
		if err != nil {
			return nil, err
		}
		a.Source = &catalog.Point{Name: of.Name, ID: of.ID.String(), Slot: of.Slot}
	}
	return a, nil
}

// try makes an attempt. The record is the one that was put, unless another call had put it before.
func (c *Client) try(ctx context.Context, name string, b creation, a *catalog.Attempt) (*fence.Entry, *catalog.Record, error) {
	id, ok := fence.ParseID(a.ID)
	if !ok {
		return nil, nil, fmt.Errorf("%w: id %q", catalog.ErrDamaged, a.ID)
	}
	fo, upload := b.fence, func(context.Context) error { return nil }
	var err error
	if b.pack != nil {
		if fo, upload, err = b.pack(ctx, id, a.Slot); err != nil {
			return nil, nil, err
		}
	}
	if fo.ID, fo.Slot = id, a.Slot; a.Source != nil {
		of, ok := fence.ParseID(a.Source.ID)
		if !ok {
			return nil, nil, fmt.Errorf("%w: id %q", catalog.ErrDamaged, a.Source.ID)
		}
		fo.Source = &fence.Source{Name: a.Source.Name, ID: of, Slot: a.Source.Slot}
	}
	r := c.draft(name, b.o, a.CreatedAt)
	r.ExpiresAt, r.IdempotencyKey = a.ExpiresAt, catalog.KeyHash(b.o.IdempotencyKey)
	e, err := c.create(ctx, r, fo, upload, b.made)
	return e, r, err
}

// undo takes back what an attempt that has failed for good has put. Best effort: what stays, a janitor finds.
func (c *Client) undo(ctx context.Context, name string, a *catalog.Attempt) {
	id, ok := fence.ParseID(a.ID)
	if !ok {
		return
	}
	c.dropRecord(ctx, name, a.Slot, id)
	if a.Source == nil {
		return
	}
	of, ok := fence.ParseID(a.Source.ID)
	if !ok {
		return
	}
	pin := fence.Pin{Source: fence.Source{Name: a.Source.Name, ID: of, Slot: a.Source.Slot}, Child: fence.Source{Name: name, ID: id, Slot: a.Slot}}
	if err := c.store.Delete(ctx, pin.Key()); err != nil {
		c.o.Logger.Debug("pin left behind", "pin", pin.Key(), "error", err)
	}
}

// dropKey forgets an idempotency key whose database has ended, or never came to be, and that is older than 24 h. For janitors; hash is the part of its attempts' keys.
func (c *Client) dropKey(ctx context.Context, hash string) (bool, error) {
	ok, err := catalog.DropAttempts(ctx, c.store, hash, c.o.time(), keepKeys, c.log)
	if err != nil {
		return false, fmt.Errorf("forget an idempotency key: %w", err)
	}
	return ok, nil
}

// keepKeys is how long an idempotency key is remembered at least.
const keepKeys = 24 * time.Hour

// atString spells an At for a request's hash.
func atString(at At) (string, error) {
	switch at := at.(type) {
	case nil:
		return "", nil
	case Point:
		return fmt.Sprintf("slot %d of %s", at.Slot, at.ID), nil
	case Slot:
		return fmt.Sprintf("slot %d", at), nil
	case Label:
		return fmt.Sprintf("label %q", string(at)), nil
	case Time:
		return time.Time(at).UTC().Format(time.RFC3339Nano), nil
	}
	return "", errors.New("not a Point, Slot, Label or Time")
}
