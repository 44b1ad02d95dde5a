package tonbo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/remote"
)

// UpdateOptions of Update: what is nil stays as it is.
type UpdateOptions struct {
	ExpiresAt *time.Time     // the zero time: never
	TTL       *time.Duration // instead: so long from now
	// Metadata is merged: a pair replaces or joins the one there is, a nil value removes it. As in JSON merge patch (RFC 7396).
	Metadata  map[string]*string
	Protected *bool
	Frozen    *bool // as [Client.Freeze] and [Client.Thaw]: the owner, if there is one, is fenced. It comes after the rest

	only fence.ID // the incarnation meant; zero: whichever is live
}

// apply makes r what o asks for. It comes to the same whenever it is called.
func (o UpdateOptions) apply(r *catalog.Record, expires *time.Time) error {
	if expires != nil {
		r.ExpiresAt = *expires
	}
	if o.Frozen != nil {
		r.Frozen = *o.Frozen
	}
	if o.Protected != nil {
		r.Protected = *o.Protected
	}
	for k, v := range o.Metadata {
		if v == nil {
			delete(r.Metadata, k)
			continue
		}
		if r.Metadata == nil {
			r.Metadata = map[string]string{}
		}
		r.Metadata[k] = *v
	}
	return checkMetadata(r.Metadata)
}

// expiry is the expiry that o asks for, nil: as it is.
func (o UpdateOptions) expiry(now time.Time) (*time.Time, error) {
	var at time.Time
	var ttl time.Duration
	switch {
	case o.ExpiresAt == nil && o.TTL == nil:
		return nil, nil
	case o.TTL != nil && *o.TTL <= 0:
		return nil, &OptionError{"TTL", fmt.Sprintf("%s is not positive; for no expiry set ExpiresAt to the zero time", *o.TTL)}
	case o.TTL != nil:
		ttl = *o.TTL
	}
	if o.ExpiresAt != nil {
		if at = *o.ExpiresAt; o.TTL != nil {
			return nil, &OptionError{"TTL", "ExpiresAt is set too: set one of them"}
		}
	}
	t, err := expiry(now, at, ttl)
	return &t, err
}

// Update changes a database's expiry, metadata, protection and whether it is frozen, and describes what is then. Changes by several callers at once all take effect, in some order. A database that has expired can be given
// a later expiry until a janitor has begun to delete it. An owner learns of a new expiry at the latest when the old one has come, and else within a minute or at its next Synced after that.
//
// Errors, for errors.Is: [ErrNotFound], [ErrInvalid], [ErrExpired] and [ErrDeleted] (its deletion has begun), [ErrUnsynced] when the outcome is not
// known (run it again). Four requests; for Frozen those of Freeze and two more.
func (c *Client) Update(ctx context.Context, name string, o UpdateOptions) (*Database, error) {
	if err := ValidateName(name); err != nil {
		return nil, err
	}
	expires, err := o.expiry(c.o.time())
	if err != nil {
		return nil, wrap(name, "update", err)
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	head, r, err := c.look(ctx, name)
	if err == nil && o.only != (fence.ID{}) && head.ID != o.only {
		err = fence.ErrNoDatabase
	}
	if err != nil {
		return nil, wrap(name, "update", err)
	}
	if r == nil {
		return nil, wrap(name, "update", &noRecordError{c.store.String(), name, head.ID.String()})
	}
	r, err = catalog.Change(ctx, c.store, r, func(r *catalog.Record) error {
		switch r.State {
		case catalog.Deleting:
			return &dbError{name, "update", ErrDeleted, errors.New("its deletion has begun; call Delete again if it was interrupted")}
		case catalog.Expiring:
			return &dbError{name, "update", ErrExpired, errors.New("a janitor has begun to delete it")}
		}
		r.State = catalog.Ready // the head is there, so the create is
		return o.apply(r, expires)
	})
	fault("update:swapped")
	switch {
	case errors.Is(err, remote.ErrNotFound): // the record goes last
		return nil, &dbError{name, "update", ErrNotFound, errors.New("it was deleted meanwhile")}
	case isUnknown(err):
		return nil, &dbError{name, "update", ErrUnsynced, fmt.Errorf("run it again, it may be done: %w", err)}
	case err != nil:
		return nil, wrap(name, "update", err)
	}
	if o.Frozen != nil {
		if err := c.setFrozen(ctx, name, *o.Frozen, head.ID); err != nil {
			return nil, err
		}
		if head, err = c.log(name).HeadHeader(ctx); err != nil {
			return nil, wrap(name, "update", err)
		}
		if head == nil || head.Ends() {
			return nil, wrap(name, "update", fence.ErrNoDatabase)
		}
	}
	return c.describe(head, r), nil
}

// noRecordError: a live database without an index record: something else than tonbo has removed it.
type noRecordError struct{ store, name, id string }

func (e *noRecordError) Error() string {
	return fmt.Sprintf("its index record %s/%s%s/*.%s is missing: get it back from a version or backup, or fork the database", e.store, catalog.RecordPrefix, e.name, e.id)
}

func (e *noRecordError) Is(target error) bool { return target == ErrCorrupt }
