// Package gc collects what nothing needs any more: log slots, segments and bases (Collect), forks' pins (LetGo, Pins) and index records (Records).
//
// It keeps rules R5, R9 and R10 of docs/fencing.md, and the janitor's part of R11. It decides nothing about ownership and never writes, but for the void that ends a
// creation left half made. Any number of collectors may run at once, anywhere, and stop at any point: once garbage, always garbage.
//
// # What is garbage
//
// A point stands on its entry and every entry below it, following a rewind to its target, down to the slot of the base in force there, a whole entry or the create; on that base and
// the base's segments and packs (which are segments by their keys); and on the segments that those entries name. Needed is what these points stand on: each one from the horizon to the head, each labelled one of the live incarnation, and
// each one that a pin names. Of the rest Collect deletes
//
//   - log slots below the horizon, but never a create, claim, rewind, delete or void (R5);
//   - segments and bases of a generation below the head's (R9), and the owner's own that it has published and superseded (Options.Released).
//
// A delete or void is a horizon, and a generation, at exactly its slot + 1. The order makes it safe: the head, then the pins, then the rest. A fork puts its pin and then reads the head
// (R11), so either we see the pin, or it sees a head no older than ours.
//
// # Grace
//
// What has become garbage stays for Options.Grace, so that whoever has begun to read it finishes; a log slot also so that a LIST which is no snapshot does not see two
// states. Nothing becomes garbage but by an entry, and the log's order is the order of time, so Collect does not go by the head, but by the newest slot
// that the store says it has had for Grace: that entry's horizon and generation, and all points from there to the head. What is garbage by these has been garbage since that entry was
// stored at the latest. Both values only rise, so this keeps more than the head asks for, never less; where that slot holds a ghost they are cut to the head's.
//
// Two things become garbage without an entry. A pin goes: LetGo waits for the child in the same way, so what the pin alone held has not been stood on by any point of the child for Grace. And
// nobody reads an upload that was never published.
//
// Ages are those of the store's own clock (Last-Modified) against this machine's. Writers' clocks play no part. A collector whose clock runs ahead of the store's shortens the grace by
// as much; S3 refuses requests from a clock 15 minutes off. Only for a log slot on a store with torn LISTs is that more than a reader's 404, which is why LogFloor is far longer than a LIST takes.
package gc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
)

// LogFloor is the shortest grace of log slots: whatever Options.Grace says, they stay for so long.
const LogFloor = 10 * time.Minute

// Options of this package's functions. The zero value works.
type Options struct {
	Grace    time.Duration    // how long garbage stays; default 1 h, negative: none. Log slots: at least LogFloor
	DryRun   bool             // delete nothing, write nothing, and say in Report.Garbage what would go
	Now      func() time.Time // default time.Now
	Parallel int              // requests at once; default 8

	// Released is an owner's word on an object of its own generation. ok: no entry from slot on stands on it nor ever will, because a base or a whole entry of this owner, known to be stored,
	// has taken its place; or no entry names it nor ever will, because what was to name it was refused for certain. It may be deleted when the horizon has reached slot, no point needs it,
	// and grace has passed. Nil, and whatever else it does not know: what is of the head's generation stays (R9).
	Released func(key string) (slot uint64, ok bool)

	// Log opens the log of a name; default fence.New with default options. For tests.
	Log func(name string) *fence.Log

	floor  *time.Duration // tests alone: instead of LogFloor
	broken rule           // tests alone
}

func (o Options) withDefaults(s remote.Store) Options {
	switch {
	case o.Grace == 0:
		o.Grace = time.Hour
	case o.Grace < 0:
		o.Grace = 0
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Parallel <= 0 {
		o.Parallel = 8
	}
	if o.Log == nil {
		o.Log = func(name string) *fence.Log { return fence.New(s, name, fence.Options{}) }
	}
	return o
}

func (o Options) logGrace() time.Duration {
	floor := LogFloor
	if o.floor != nil {
		floor = *o.floor
	}
	if o.broken == NoLogGrace {
		floor = 0
	}
	return max(o.Grace, floor)
}

// Report says what was done. With DryRun: what would be.
type Report struct {
	Name       string
	Head       uint64 // slot; 0: the name was never used
	Horizon    uint64 // log slots below it were looked at
	Generation uint64 // segments and bases below it were looked at
	Slots      int    // deleted
	Segments   int
	Bases      int
	Pins       int
	Records    int
	Bytes      int64    // of what was deleted
	Denied     int      // deletions that the store refused (403): another key's business. One of each kind is tried
	Refusal    error    // the first of those answers
	Moved      bool     // the log moved on meanwhile, or another collector is further: nothing was deleted, another time
	Garbage    []string // keys, with DryRun
}

// Add adds b's counts to r.
func (r *Report) Add(b *Report) {
	r.Slots += b.Slots
	r.Segments += b.Segments
	r.Bases += b.Bases
	r.Pins += b.Pins
	r.Records += b.Records
	r.Bytes += b.Bytes
	r.Denied += b.Denied
	r.Garbage = append(r.Garbage, b.Garbage...)
	if r.Refusal == nil {
		r.Refusal = b.Refusal
	}
	r.Moved = r.Moved || b.Moved
}

// Sweep looks at everything under a name: its index records, the pins on it, and its garbage. Chains of forks let go one link a round.
func Sweep(ctx context.Context, s remote.Store, name string, o Options) (*Report, error) {
	total := &Report{Name: name}
	for _, f := range []func(context.Context, remote.Store, string, Options) (*Report, error){Records, Pins, Collect} {
		r, err := f(ctx, s, name, o)
		if r != nil {
			total.Add(r)
			total.Head, total.Horizon, total.Generation = r.Head, r.Horizon, r.Generation
		}
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// errMoved: what must be there is not, or is another object: the log has moved on since the head was read.
var errMoved = errors.New("the log has moved on")

// errAbsent: an object is not there, and a LIST that began after the head was read says so too.
var errAbsent = errors.New("object absent")

// run is one collection, or one look at a child.
type run struct {
	ctx   context.Context
	store remote.Store
	o     Options
	name  string
	log   *fence.Log
	r     *Report
	stop  map[string]bool // kinds of objects that we may not delete
}

func newRun(ctx context.Context, s remote.Store, name string, o Options) *run {
	o = o.withDefaults(s)
	return &run{ctx: ctx, store: s, o: o, name: name, log: o.Log(name), r: &Report{Name: name}, stop: map[string]bool{}}
}

// list calls fn with the infos of all keys that begin with prefix.
func (c *run) list(prefix string, fn func(remote.Info)) error {
	after := ""
	for {
		page, more, err := c.store.List(c.ctx, prefix, remote.ListOptions{After: after})
		if err != nil {
			return err
		}
		for _, i := range page {
			fn(i)
			after = i.Key
		}
		if !more {
			return nil
		}
	}
}

// delete removes an object and counts it in n. A refusal is no failure: it is counted, and no more of that kind are tried.
func (c *run) delete(i remote.Info, n *int) error { return c.deleteAll([]remote.Info{i}, n) }

// deleteAll removes objects of one kind: the first, and then the others at once, in any order.
func (c *run) deleteAll(objects []remote.Info, n *int) error {
	for k, i := range objects {
		if k > 0 && c.o.Parallel > 1 && !c.o.DryRun && !c.stop[kindOf(i.Key)] {
			return c.deleteBeside(objects[k:], n)
		}
		if err := c.count(i, n, c.remove(c.ctx, i)); err != nil {
			return err
		}
	}
	return nil
}

func (c *run) deleteBeside(objects []remote.Info, n *int) error {
	g, ctx := errgroup.WithContext(c.ctx)
	g.SetLimit(c.o.Parallel)
	var mu sync.Mutex
	for _, i := range objects {
		g.Go(func() error {
			err := c.store.Delete(ctx, i.Key)
			mu.Lock()
			defer mu.Unlock()
			return c.count(i, n, err)
		})
	}
	return g.Wait()
}

var errNotTried = errors.New("not tried")

func (c *run) remove(ctx context.Context, i remote.Info) error {
	switch {
	case c.o.DryRun:
		c.r.Garbage = append(c.r.Garbage, i.Key)
		return nil
	case c.stop[kindOf(i.Key)]:
		return errNotTried
	}
	return c.store.Delete(ctx, i.Key)
}

// count takes in what has become of a deletion.
func (c *run) count(i remote.Info, n *int, err error) error {
	switch {
	case err == errNotTried:
		c.r.Denied++
	case errors.Is(err, remote.ErrDenied):
		c.stop[kindOf(i.Key)] = true
		c.r.Denied++
		if c.r.Refusal == nil {
			c.r.Refusal = err
		}
	case err != nil:
		return fmt.Errorf("collect %q: %w", c.name, err)
	default:
		*n++
		c.r.Bytes += i.Size
	}
	return nil
}

// kindOf is "log", "seg", "base" or "pin" of db/<name>/<kind>/..., else the first part of the key.
func kindOf(key string) string {
	p := strings.SplitN(key, "/", 4)
	if len(p) == 4 && p[0] == "db" {
		return p[2]
	}
	return p[0]
}
