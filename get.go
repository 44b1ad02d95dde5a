package tonbo

import (
	"context"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
)

// States of a database.
const (
	StateCreating = "creating" // its creation has begun, and not come to its end; a janitor ends one that never does
	StateActive   = "active"
	StateExpired  = "expired"  // Open refuses it; a janitor deletes it
	StateDeleting = "deleting" // its deletion has begun; if it was interrupted, Delete or a janitor finishes it
	StateDeleted  = "deleted"  // it is no more: what is left is an index record, for a janitor
)

// Database describes a database.
type Database struct {
	Name, ID, State string // State: one of the constants StateActive and so on
	CreatedAt       time.Time
	CreatedBy       string    // Options.Owner of who created it
	ExpiresAt       time.Time // zero: never
	Metadata        map[string]string
	Protected       bool
	Frozen          bool   // in List: as it was created, or last updated by [Client.Update]
	Parent          *Point // of a fork: the source's ID and the slot that it began from
	ParentName      string // and the name that the source had
	Head            Point  // the newest entry of its log; not in List
	Bytes           int64  // stored under the database's name by its owners' count: log, bases and segments; what a fork reads of its source is the source's. Not in List
	Replayed        bool   // from Create, Fork and Import with an IdempotencyKey: another call had made it
}

// Get describes a database. [ErrNotFound] when there is none of that name. Three requests.
func (c *Client) Get(ctx context.Context, name string) (*Database, error) {
	if err := ValidateName(name); err != nil {
		return nil, err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	head, r, err := c.look(ctx, name)
	if err != nil {
		return nil, wrap(name, "get", err)
	}
	d := c.describe(head, r)
	d.Name = name
	return d, nil
}

// look reads the head of a live database and its index record. r is nil when there is none.
func (c *Client) look(ctx context.Context, name string) (head *fence.Entry, r *catalog.Record, err error) {
	for again := false; ; again = true {
		before := head
		head, err = c.log(name).HeadHeader(ctx)
		if err != nil {
			return nil, nil, err
		}
		if head == nil || head.Ends() {
			return nil, nil, fence.ErrNoDatabase
		}
		if again && before.ID == head.ID {
			return head, nil, nil
		}
		// A record that is not there has been removed since the head was read, and then that has ended.
		if r, err = recordOf(ctx, c.store, name, head); err != nil || r != nil {
			return head, r, err
		}
	}
}

// describe puts together what the log and the index record say of a live database. r may be nil.
func (c *Client) describe(head *fence.Entry, r *catalog.Record) *Database {
	d := &Database{}
	if r != nil {
		d = fromRecord(r)
	}
	d.ID, d.State, d.Frozen, d.Head, d.Bytes = head.ID.String(), StateActive, head.Frozen, pointOf(head), int64(head.Usage.Stored)
	if r != nil {
		d.State = liveState(r, c.o.time())
	}
	return d
}

// liveState is the state of a database that is in the log.
func liveState(r *catalog.Record, now time.Time) string {
	switch {
	case r.State == catalog.Deleting:
		return StateDeleting
	case r.Expired(now):
		return StateExpired
	}
	return StateActive
}

// fromRecord is what the index record says, without a state.
func fromRecord(r *catalog.Record) *Database {
	d := &Database{
		Name: r.Name, ID: r.ID, CreatedAt: r.CreatedAt, CreatedBy: r.CreatedBy, ExpiresAt: r.ExpiresAt, Metadata: r.Metadata, Protected: r.Protected, Frozen: r.Frozen,
	}
	if r.Parent != nil {
		d.Parent, d.ParentName = &Point{ID: r.Parent.ID, Slot: r.Parent.Slot}, r.Parent.Name
	}
	return d
}
