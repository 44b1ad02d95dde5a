package tonbo

import (
	"context"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// Usage is what a database, or all of an account, has cost since it was created. The totals travel in the log, so they outlive every machine.
//
// Requests and bytes are those of the database's owners, from Open to Close: what a [Client] asks for itself, what readers ask, and what an owner asked after its last entry, is not in them.
type Usage struct {
	Name            string // "": the account
	Databases       int    // live ones
	Creates         int64  // 1 for a database
	Opens           int64  // takeovers by Open, each a cold or warm start
	Commits         int64  // SQLite transactions that were shipped
	WriteUnits      int64  // one a creation, one an open, and for each shipment one per 10 KiB begun, but at least one per commit in it
	BytesShipped    int64  // bytes of bodies put: entries, segments and bases
	BytesFetched    int64  // bytes of bodies got
	Requests        Requests
	StoredBytes     int64   // now in the remote, by a listing
	StorageByteDays float64 // stored bytes, by the owners' count, times the days that they were stored
}

// add adds the totals of one incarnation. until is when it stopped, or now.
func (u *Usage) add(t *segment.Usage, at, until time.Time) {
	u.Creates++
	u.Opens += int64(t.Opens)
	u.Commits += int64(t.Commits)
	u.WriteUnits += 1 + int64(t.Opens) + int64(t.Units)
	u.BytesShipped += int64(t.Up)
	u.BytesFetched += int64(t.Down)
	u.Requests.Put += int64(t.Put)
	u.Requests.Get += int64(t.Get)
	u.Requests.Head += int64(t.Head)
	u.Requests.List += int64(t.List)
	u.Requests.Delete += int64(t.Delete)
	u.Requests.BytesUp, u.Requests.BytesDown = u.BytesShipped, u.BytesFetched
	u.StorageByteDays += (t.ByteSeconds + float64(t.Stored)*max(0, until.Sub(at).Seconds())) / (24 * 60 * 60)
}

// Usage tells what a database has cost: two requests, and a LIST for each 1,000 of its objects. [ErrNotFound] when there is none of that name.
func (c *Client) Usage(ctx context.Context, name string) (*Usage, error) {
	if err := ValidateName(name); err != nil {
		return nil, err
	}
	head, err := c.log(name).HeadHeader(ctx)
	if err == nil && (head == nil || head.Ends()) {
		err = fence.ErrNoDatabase
	}
	if err != nil {
		return nil, wrap(name, "usage", err)
	}
	u := &Usage{Name: name, Databases: 1}
	u.add(&head.Usage, head.Time, time.Now())
	if u.StoredBytes, err = storedUnder(ctx, c.store, "db/"+name+"/"); err != nil {
		return nil, wrap(name, "usage", err)
	}
	return u, nil
}

// storedUnder adds up the sizes of the objects whose keys begin with prefix.
func storedUnder(ctx context.Context, s remote.Store, prefix string) (bytes int64, err error) {
	after := ""
	for {
		page, more, err := s.List(ctx, prefix, remote.ListOptions{After: after})
		if err != nil {
			return 0, err
		}
		for _, o := range page {
			bytes, after = bytes+o.Size, o.Key
		}
		if !more {
			return bytes, nil
		}
	}
}
