package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
)

// States of a record. They only go forward: making, ready, then deleting or expiring, then the record is removed.
const (
	Making   = "making"   // put before its create; whether that was made, the log says
	Ready    = "ready"    // its create was seen in the log
	Deleting = "deleting" // somebody deletes it; nothing stops that any more
	Expiring = "expiring" // a janitor is about to delete it: no extension is possible any more
)

// Errors, for errors.Is.
var (
	ErrDamaged = errors.New("index object damaged")
	ErrNewer   = errors.New("index object written by a newer version")
)

const format = 1

// Record is an index record.
type Record struct {
	Format         int               `json:"format"`
	Name           string            `json:"name"`
	ID             string            `json:"id"`
	Slot           uint64            `json:"slot"` // of its create
	State          string            `json:"state"`
	CreatedAt      time.Time         `json:"created_at"`
	CreatedBy      string            `json:"created_by,omitempty"`
	ExpiresAt      time.Time         `json:"expires_at,omitzero"` // zero: never
	Metadata       map[string]string `json:"metadata,omitempty"`
	Protected      bool              `json:"protected,omitempty"`
	Frozen         bool              `json:"frozen,omitempty"` // as it was created, or last changed by way of the record; the log decides
	Parent         *Point            `json:"parent,omitempty"` // a fork's
	IdempotencyKey string            `json:"idempotency_key,omitempty"`
	Instance       string            `json:"instance,omitempty"` // the instance key that has it, or had

	rest map[string]json.RawMessage // fields of a later version: whoever swaps a record keeps them
	etag string
}

// Point is one of a database's history.
type Point struct {
	Name string `json:"name"`
	ID   string `json:"id"`
	Slot uint64 `json:"slot"`
}

// Key of the record's object.
func (r *Record) Key() string {
	id, _ := fence.ParseID(r.ID)
	return RecordKey(r.Name, r.Slot, id)
}

// Expired tells whether the database has expired at a time, or a janitor is ending it because it had. A protected one does not expire.
func (r *Record) Expired(now time.Time) bool {
	return r.State == Expiring || !r.Protected && !r.ExpiresAt.IsZero() && !now.Before(r.ExpiresAt)
}

// known is a record without methods: what JSON sees.
type known Record

func (r *Record) encode() ([]byte, error) {
	b, err := json.Marshal((*known)(r))
	if err != nil || len(r.rest) == 0 {
		return b, err
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(b, &fields); err != nil {
		return nil, err
	}
	for k, v := range r.rest {
		fields[k] = v
	}
	return json.Marshal(fields)
}

// fieldNames are those that this version knows, set or not.
var fieldNames = []string{"format", "name", "id", "slot", "state", "created_at", "created_by", "expires_at", "metadata", "protected", "frozen", "parent", "idempotency_key", "instance"}

func decodeRecord(store, key string, o remote.Object) (*Record, error) {
	r := &Record{etag: o.ETag}
	if err := decode(store, key, o.Body, (*known)(r), func() int { return r.Format }); err != nil {
		return nil, err
	}
	if r.Key() != key {
		return nil, fmt.Errorf("%w: %s/%s is the record of another database (%s, %s)", ErrDamaged, store, key, r.Name, r.ID)
	}
	if err := json.Unmarshal(o.Body, &r.rest); err != nil {
		return nil, fmt.Errorf("%w: %s/%s: %w", ErrDamaged, store, key, err)
	}
	for _, f := range fieldNames {
		delete(r.rest, f)
	}
	switch r.State {
	case Making, Ready, Deleting, Expiring:
		return r, nil
	}
	return nil, fmt.Errorf("%w: %s/%s has the state %q: update tonbo", ErrNewer, store, key, r.State)
}

// decode reads an object of this package into v.
func decode(store, key string, body []byte, v any, version func() int) error {
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%w: %s/%s: %w", ErrDamaged, store, key, err)
	}
	if version() != format {
		return fmt.Errorf("%w: %s/%s has format %d: update tonbo", ErrNewer, store, key, version())
	}
	return nil
}

// Put makes the record, and repeats that until it is known to be there, or ctx ends. One that is there already is of the very same attempt at a creation, whoever put it, and stays as it
// is: its key carries a random id.
func Put(ctx context.Context, s remote.Store, r *Record) error {
	r.Format = format
	body, err := r.encode()
	if err != nil {
		return err
	}
	return createOnce(ctx, s, r.Key(), body, nil)
}

// createOnce makes an object that may have been made by somebody else before, until it is known to be there.
func createOnce(ctx context.Context, s remote.Store, key string, body []byte, wait func(context.Context, error) error) error {
	if wait == nil {
		wait = new(remote.Backoff).Wait
	}
	for {
		_, err := s.Create(ctx, key, body)
		if err == nil || errors.Is(err, remote.ErrExists) {
			return nil
		}
		if !errors.Is(err, remote.ErrUnknown) {
			return err
		}
		if ctxErr := wait(ctx, err); ctxErr != nil {
			return fmt.Errorf("%w, last: %w", ctxErr, err)
		}
	}
}

// Read reads a record. remote.ErrNotFound: there is none.
func Read(ctx context.Context, s remote.Store, key string) (*Record, error) {
	o, err := s.Get(ctx, key, remote.GetOptions{})
	if err != nil {
		return nil, err
	}
	return decodeRecord(s.String(), key, o)
}

// Find reads an incarnation's record when the slot of its create is not known: a LIST more. remote.ErrNotFound: there is none.
func Find(ctx context.Context, s remote.Store, name string, id fence.ID) (*Record, error) {
	var key string
	err := list(ctx, s, RecordPrefix+name+"/", "", func(i remote.Info) bool {
		if strings.HasSuffix(i.Key, "."+id.String()) {
			key = i.Key
		}
		return key == ""
	})
	if err != nil {
		return nil, err
	}
	if key == "" {
		return nil, &remote.Error{Op: "find", Store: s.String(), Key: RecordPrefix + name + "/*." + id.String(), Kind: remote.ErrNotFound}
	}
	return Read(ctx, s, key)
}

// Change swaps a record for what change makes of it, if nobody else has meanwhile (If-Match); else it reads it anew and calls change again. change may be called any number of times and must come
// to the same: the answer to a swap may be lost. Its error ends Change. The record that is in place is returned. remote.ErrNotFound: there is none any more.
func Change(ctx context.Context, s remote.Store, r *Record, change func(*Record) error) (*Record, error) {
	var b remote.Backoff
	key := r.Key()
	for {
		before, err := r.encode()
		if err != nil {
			return nil, err
		}
		next := r.clone()
		if err := change(next); err != nil {
			return nil, err
		}
		body, err := next.encode()
		if err != nil {
			return nil, err
		}
		if bytes.Equal(before, body) {
			return r, nil
		}
		etag, err := s.Swap(ctx, key, r.etag, body)
		switch {
		case err == nil:
			next.etag = etag
			return next, nil
		case errors.Is(err, remote.ErrChanged):
		case errors.Is(err, remote.ErrUnknown):
			if ctxErr := b.Wait(ctx, err); ctxErr != nil {
				return nil, fmt.Errorf("%w, last: %w", ctxErr, err)
			}
		default:
			return nil, err
		}
		if r, err = Read(ctx, s, key); err != nil {
			return nil, err
		}
	}
}

// MarkReady swaps a record that is making to ready, once: the caller has seen its create in the log. Best effort, another one does it as well.
func MarkReady(ctx context.Context, s remote.Store, r *Record) error {
	next := r.clone()
	next.State = Ready
	body, err := next.encode()
	if err != nil {
		return err
	}
	_, err = s.Swap(ctx, r.Key(), r.etag, body)
	return err
}

func (r *Record) clone() *Record {
	c := *r
	if r.Metadata != nil {
		c.Metadata = make(map[string]string, len(r.Metadata))
		for k, v := range r.Metadata {
			c.Metadata[k] = v
		}
	}
	return &c
}

// Remove removes a record. That of a live incarnation must not be: see R11.
func Remove(ctx context.Context, s remote.Store, key string) error { return s.Delete(ctx, key) }

// list calls fn with the infos of the keys that begin with prefix and sort after after, until fn returns false.
func list(ctx context.Context, s remote.Store, prefix, after string, fn func(remote.Info) bool) error {
	for {
		page, more, err := s.List(ctx, prefix, remote.ListOptions{After: after})
		if err != nil {
			return err
		}
		for _, i := range page {
			if after = i.Key; !fn(i) {
				return nil
			}
		}
		if !more {
			return nil
		}
	}
}

// Records calls fn with each index record of a name.
func Records(ctx context.Context, s remote.Store, name string, fn func(*Record)) error {
	var keys []string
	err := list(ctx, s, RecordPrefix+name+"/", "", func(i remote.Info) bool {
		keys = append(keys, i.Key)
		return true
	})
	if err != nil {
		return err
	}
	for _, k := range keys {
		r, err := Read(ctx, s, k)
		if errors.Is(err, remote.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		fn(r)
	}
	return nil
}
