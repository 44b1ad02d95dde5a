package tonbo

import (
	"context"
	"errors"
	"fmt"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/remote"
)

// expiredLabel is the label of a delete entry that a janitor wrote because the database had expired: its owner's error then says so.
const expiredLabel = "expired"

// Delete ends a database: its owner gets [ErrDeleted], its name is free again, forks of it keep what they need. It cannot be undone. A Delete that was interrupted, at whatever step, is finished by the next one, or by a janitor; until then the database counts as one, and Open refuses it.
//
// It removes none of the objects that hold the data: readers and forks that are at work on them at this moment must come to their end, and to look at who that is costs more than ten requests. They are garbage from now on, and go with the first
// [Client.Sweep], or [Client.Collect] of the name, that comes after the time of grace (an hour). No owner collects for a name that has ended: without a janitor they stay. To have the data gone at once, where no reader matters, call Collect with
// a Grace of a nanosecond right after Delete: segments and bases go then, and what log entries hold in themselves after ten minutes. Some 200 bytes for each create, claim and delete stay for ever, which keep stale writers out.
//
// Errors, for errors.Is: [ErrNotFound] when there is none, also when it was deleted before; [ErrProtected]; [ErrUnsynced] when the outcome is not known: run it again. Ten requests.
func (c *Client) Delete(ctx context.Context, name string) error {
	return c.deleteOnly(ctx, name, "")
}

// deleteOnly is Delete of one incarnation; "": whichever is live.
func (c *Client) deleteOnly(ctx context.Context, name, id string) error {
	if err := ValidateName(name); err != nil {
		return err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	if err := remote.ProbeOnce(ctx, c.store); err != nil {
		return wrap(name, "delete", err)
	}
	head, err := c.log(name).HeadHeader(ctx)
	if err != nil {
		return wrap(name, "delete", err)
	}
	if head == nil || head.Ends() {
		return wrap(name, "delete", c.resumeDelete(ctx, name))
	}
	if id != "" && head.ID.String() != id {
		return wrap(name, "delete", fence.ErrNoDatabase)
	}
	r, err := recordOf(ctx, c.store, name, head)
	if err == nil {
		err = c.end(ctx, head, r, name, catalog.Deleting)
	}
	if isUnknown(err) {
		return &dbError{name, "delete", ErrUnsynced, fmt.Errorf("run it again, it may be deleted: %w", err)}
	}
	return wrap(name, "delete", err)
}

// endQuiet is end for a janitor that takes the database for forgotten: fence.ErrBusy, and nothing has happened, when its log has moved on since head was read. The log comes first here: a mark in the record could not be taken
// back for certain, and the next one to meet it would delete what is in use.
func (c *Client) endQuiet(ctx context.Context, head *fence.Entry, r *catalog.Record, name string) error {
	// (1) As it is now: nobody has protected it, or begun to delete it.
	r, err := catalog.Read(ctx, c.store, r.Key())
	if errors.Is(err, remote.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := mayEnd(r, catalog.Deleting, c); err != nil {
		return err
	}
	// (2) Right behind the head that it was judged by, or not at all.
	var ended *fence.Entry
	if _, err := c.log(name).Delete(ctx, head.ID, fence.DeleteOptions{Head: head, Once: true, Stored: func(e *fence.Entry) { ended = e }}); err != nil {
		return err
	}
	// (3) The record says so, for whoever finishes this if it is cut short.
	r, err = catalog.Change(ctx, c.store, r, func(r *catalog.Record) error {
		if r.State == catalog.Making || r.State == catalog.Ready {
			r.State = catalog.Deleting
		}
		return nil
	})
	if err == nil {
		err = c.tidy(ctx, r, ended)
	}
	if err != nil && !errors.Is(err, remote.ErrNotFound) {
		c.o.Logger.Debug("index record left behind", "database", name, "error", err)
	}
	return nil
}

// end ends the incarnation that head is of. r is its index record, which goes to the state given; nil: it has none.
func (c *Client) end(ctx context.Context, head *fence.Entry, r *catalog.Record, name, state string) (err error) {
	// (1) The record says that it ends: from here on nothing stops that, no protection and no extension (If-Match).
	if r != nil {
		r, err = catalog.Change(ctx, c.store, r, func(r *catalog.Record) error { return mayEnd(r, state, c) })
		if errors.Is(err, remote.ErrNotFound) { // another Delete has come to its end
			r, err = nil, nil
		}
		if err != nil {
			return err
		}
	}
	fault("delete:marked")
	// (2) The log says that it has ended (R7: the id, not the name). This is the acknowledgement.
	var ended *fence.Entry
	d := fence.DeleteOptions{Head: head, Stored: func(e *fence.Entry) { ended = e }}
	if r != nil && r.State == catalog.Expiring {
		d.Label = expiredLabel
	}
	if _, err := c.log(name).Delete(ctx, head.ID, d); err != nil && !errors.Is(err, fence.ErrNoDatabase) { // gone is what we want
		return err
	}
	fault("delete:ended")
	// (3) The name is free. What is left is tidying up, also behind earlier deletions that were interrupted; when it fails, the next Delete or a janitor does it.
	if r != nil {
		err = c.tidy(ctx, r, ended)
	}
	if err == nil {
		_, err = c.tidyName(ctx, name)
	}
	if err != nil {
		c.o.Logger.Debug("index record left behind", "database", name, "error", err)
	}
	return nil
}

// mayEnd makes r a record of a database that is being ended, or says why not.
func mayEnd(r *catalog.Record, state string, c *Client) error {
	switch {
	case r.State == catalog.Deleting || r.State == catalog.Expiring: // begun before
		return nil
	case r.Protected:
		return &dbError{r.Name, "delete", ErrProtected, errors.New("take the protection away with Update first")}
	case state == catalog.Expiring && !r.Expired(c.o.time()):
		return &dbError{r.Name, "expire", nil, fmt.Errorf("%w: it expires at %s", errNotExpired, r.ExpiresAt)}
	}
	r.State = state
	return nil
}

var errNotExpired = errors.New("database has not expired")

// tidy is what follows the end of an incarnation: what it has used is kept for the account's usage, a mark for collectors is put, and then its index record goes. end is its delete; nil: look it up.
func (c *Client) tidy(ctx context.Context, r *catalog.Record, end *fence.Entry) (err error) {
	if end == nil {
		if end, err = c.endOf(ctx, r); err != nil {
			return err
		}
	}
	if end != nil {
		if err := catalog.PutTotals(ctx, c.store, r.Name, end); err != nil {
			return err
		}
	}
	fault("delete:totals")
	if err := catalog.MarkEnded(ctx, c.store, r, c.o.time().UTC()); err != nil {
		return err
	}
	fault("delete:noted")
	return catalog.Remove(ctx, c.store, r.Key())
}

// endOf finds the delete of an incarnation. It is never collected (R5), and stands at the head, or right below the next incarnation's create and what was never made in between. Nil: there is none.
func (c *Client) endOf(ctx context.Context, r *catalog.Record) (*fence.Entry, error) {
	l := c.log(r.Name)
	e, err := l.HeadHeader(ctx)
	for err == nil && e != nil && e.Slot > r.Slot {
		if e.Kind == fence.Delete && e.ID.String() == r.ID {
			return e, nil
		}
		below := e.Slot - 1
		if b := e.Usage.Begin; b > 0 && e.ID.String() != r.ID { // a later incarnation's: below its create
			below = min(below, b-1)
		}
		if e, err = l.ReadHeader(ctx, below); errors.Is(err, remote.ErrNotFound) {
			return nil, nil
		}
	}
	return nil, err
}

// resumeDelete finishes deletions of a name without a live database. fence.ErrNoDatabase: there is none to finish.
func (c *Client) resumeDelete(ctx context.Context, name string) error {
	n, err := c.tidyName(ctx, name)
	if err == nil && n == 0 {
		return fence.ErrNoDatabase
	}
	return err
}

// tidyName finishes the deletions of a name whose end is in the log, and returns how many there were: one LIST when there are none.
func (c *Client) tidyName(ctx context.Context, name string) (n int, err error) {
	var ended []*catalog.Record
	err = catalog.Records(ctx, c.store, name, func(r *catalog.Record) {
		if r.State == catalog.Deleting || r.State == catalog.Expiring {
			ended = append(ended, r)
		}
	})
	if err != nil || len(ended) == 0 {
		return 0, err
	}
	head, err := c.log(name).HeadHeader(ctx)
	if err != nil {
		return 0, err
	}
	for _, r := range ended {
		if head != nil && head.ID.String() == r.ID && !head.Ends() { // another one, whose deletion has begun
			continue
		}
		if err := c.tidy(ctx, r, nil); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// expire ends a database that has expired, for janitors. An extension and this cannot both win: the record is swapped to expiring first. errNotExpired: it was extended; ErrProtected.
func (c *Client) expire(ctx context.Context, r *catalog.Record) error {
	head, err := c.log(r.Name).HeadHeader(ctx)
	switch {
	case err != nil:
	case head == nil || head.Ends() || head.ID.String() != r.ID:
		if r.State == catalog.Deleting || r.State == catalog.Expiring { // interrupted before the end
			err = c.tidy(ctx, r, nil)
		}
	default:
		err = c.end(ctx, head, r, r.Name, catalog.Expiring)
	}
	return wrap(r.Name, "expire", err)
}
