package tonbo

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
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
//
// name "": all databases of the account together, also those that were deleted. That takes a LIST for each 1,000 objects of the account, and two requests for each live database.
func (c *Client) Usage(ctx context.Context, name string) (*Usage, error) {
	if name == "" {
		u, err := c.accountUsage(ctx)
		if err != nil {
			return nil, fmt.Errorf("usage of the account: %w", public(err))
		}
		return u, nil
	}
	if err := ValidateName(name); err != nil {
		return nil, err
	}
	u := &Usage{Name: name}
	live, err := c.addUsage(ctx, u, name)
	if err == nil && !live {
		err = fence.ErrNoDatabase
	}
	if err == nil {
		u.StoredBytes, err = storedUnder(ctx, c.store, "db/"+name+"/")
	}
	if err != nil {
		return nil, wrap(name, "usage", err)
	}
	return u, nil
}

// addUsage adds what the live database of a name has used. False: there is none.
func (c *Client) addUsage(ctx context.Context, u *Usage, name string) (bool, error) {
	head, err := c.log(name).HeadHeader(ctx)
	if err != nil || head == nil || head.Ends() {
		return false, err
	}
	u.Databases++
	u.add(&head.Usage, head.Time, time.Now())
	return true, nil
}

func (c *Client) accountUsage(ctx context.Context) (*Usage, error) {
	u := &Usage{}
	// (1) Those that have ended.
	if err := catalog.Totals(ctx, c.store, func(t segment.Usage) { u.add(&t, time.Time{}, time.Time{}) }); err != nil {
		return nil, err
	}
	// (2) Those that live.
	var names []string
	if err := catalog.Names(ctx, c.store, "", "", func(name string, _ []catalog.Incarnation) bool { names = append(names, name); return true }); err != nil {
		return nil, err
	}
	each := make([]Usage, len(names))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelRows)
	for n, name := range names {
		g.Go(func() error { _, err := c.addUsage(gctx, &each[n], name); return err })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for n := range each {
		u.merge(&each[n])
	}
	// (3) All that is stored, the small objects beside the logs included.
	var err error
	u.StoredBytes, err = storedUnder(ctx, c.store, "")
	return u, err
}

// merge adds b's totals.
func (u *Usage) merge(b *Usage) {
	u.Databases += b.Databases
	u.Creates += b.Creates
	u.Opens += b.Opens
	u.Commits += b.Commits
	u.WriteUnits += b.WriteUnits
	u.BytesShipped += b.BytesShipped
	u.BytesFetched += b.BytesFetched
	u.Requests = Requests{
		Put: u.Requests.Put + b.Requests.Put, Get: u.Requests.Get + b.Requests.Get, Head: u.Requests.Head + b.Requests.Head, List: u.Requests.List + b.Requests.List,
		Delete: u.Requests.Delete + b.Requests.Delete, BytesUp: u.BytesShipped, BytesDown: u.BytesFetched,
	}
	u.StorageByteDays += b.StorageByteDays
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
