package tonbo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/vfs"
)

// Client creates, opens and deletes databases in one account. Safe for concurrent use; it holds nothing that needs closing.
type Client struct {
	o       Options
	store   remote.Store // counted
	counter *remote.Counter
}

// NewClient returns a client of the account that o names. It sends no request.
func NewClient(o Options) (*Client, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	store, err := openStore(context.Background(), o)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	o.Remote = store
	counter := new(remote.Counter)
	return &Client{o, remote.Counted(store, counter), counter}, nil
}

// Requests counts what the client's own calls have cost so far: Create, Fork, Export and so on. A DB that it opens counts for itself, see [DB.Status].
func (c *Client) Requests() Requests { return c.counter.Counts() }

// CreateOptions of Create. The zero value creates an empty database.
type CreateOptions struct {
	Metadata    map[string]string // up to 32 pairs, keys to 64 bytes, values to 256
	IfNotExists bool              // no error when the database exists
	PageSize    int               // bytes, 512 to 65536, a power of two; default 4096, or Options.Pragmas["page_size"]
	Frozen      bool              // Open and Rewind refuse it ([ErrFrozen]); it can be forked, read, exported and deleted. What a fork begins with, it inherits; that it is frozen, it does not
}

// Database describes a database.
type Database struct {
	Name, ID, State string // State: "active"
	CreatedAt       time.Time
	Metadata        map[string]string
	Head            Point
	Frozen          bool
	Parent          *Point // of a fork, as Fork returns it: the source's ID and the slot that it began from
}

// Create makes an empty database. Errors, for errors.Is: [ErrExists], [ErrName], [ErrUnsynced] when the outcome is not known (run it again:
// it may exist), [ErrStoreUnfit], [ErrUnauthorized], [ErrForbidden]. Three requests for a name that was never used.
func Create(ctx context.Context, name string, o Options, c ...CreateOptions) (*Database, error) {
	cl, err := NewClient(o)
	if err != nil {
		return nil, err
	}
	var co CreateOptions
	if len(c) > 0 {
		co = c[0]
	}
	return cl.Create(ctx, name, co)
}

// Delete ends a database. It cannot be undone. See [Client.Delete].
func Delete(ctx context.Context, name string, o Options) error {
	cl, err := NewClient(o)
	if err != nil {
		return err
	}
	return cl.Delete(ctx, name)
}

// Open opens a database as the package's Open does, with the client's options.
func (c *Client) Open(ctx context.Context, name string) (*DB, error) { return Open(ctx, name, c.o) }

func (c *Client) log(name string) *fence.Log {
	return fence.New(c.store, name, fence.Options{Owner: c.o.Owner, Logger: c.o.Logger})
}

// Create makes an empty database. See the package's [Create].
func (c *Client) Create(ctx context.Context, name string, o CreateOptions) (*Database, error) {
	if err := ValidateName(name); err != nil {
		return nil, err
	}
	pageSize, err := c.pageSize(o)
	if err != nil {
		return nil, wrap(name, "create", err)
	}
	if err := checkMetadata(o.Metadata); err != nil {
		return nil, wrap(name, "create", err)
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	if err := remote.ProbeOnce(ctx, c.store); err != nil {
		return nil, wrap(name, "create", err)
	}
	state, payload, sum, err := emptyState(pageSize)
	if err != nil {
		return nil, wrap(name, "create", err)
	}
	db, err := c.begin(ctx, name, o, fence.CreateOptions{State: state, Payload: payload, PayloadSum: sum, Whole: true}, nil)
	if o.IfNotExists && errors.Is(err, ErrExists) {
		return c.Get(ctx, name)
	}
	return db, wrap(name, "create", err)
}

// begin creates an incarnation, with its index record before (R11). upload, when it is set, runs between the two.
func (c *Client) begin(ctx context.Context, name string, o CreateOptions, fo fence.CreateOptions, upload func(ctx context.Context, id fence.ID, generation uint64) error) (*Database, error) {
	created := time.Now().UTC()
	fo.Before = func(ctx context.Context, x fence.Creation) error {
		r := catalog.Record{Name: name, ID: x.ID.String(), Slot: x.Slot, State: catalog.Making, CreatedAt: created, CreatedBy: c.o.Owner, Metadata: o.Metadata, Frozen: o.Frozen}
		if x.Source != nil {
			r.Parent = &catalog.Point{Name: x.Source.Name, ID: x.Source.ID.String(), Slot: x.Source.Slot}
		}
		if err := catalog.Put(ctx, c.store, &r); err != nil || upload == nil {
			return err
		}
		return upload(ctx, x.ID, x.Slot)
	}
	fo.Undo = func(ctx context.Context, x fence.Creation) {
		if err := catalog.Remove(ctx, c.store, catalog.RecordKey(name, x.Slot, x.ID)); err != nil { // a janitor finds it
			c.o.Logger.Debug("index record left behind", "database", name, "error", err)
		}
	}
	fo.Frozen = o.Frozen
	owner, err := c.log(name).Create(ctx, fo)
	if isUnknown(err) {
		return nil, &dbError{name, "create", ErrUnsynced, fmt.Errorf("run it again, the database may exist: %w", err)}
	}
	if err != nil {
		return nil, wrap(name, "create", err)
	}
	e := owner.Entry()
	db := &Database{Name: name, ID: e.ID.String(), State: "active", CreatedAt: created, Metadata: o.Metadata, Frozen: e.Frozen, Head: pointOf(e)}
	if e.Source != nil {
		db.Parent = &Point{ID: e.Source.ID.String(), Slot: e.Source.Slot}
	}
	return db, nil
}

func (c *Client) pageSize(o CreateOptions) (int, error) {
	n := o.PageSize
	if s, ok := c.o.Pragmas["page_size"]; n == 0 && ok {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			return 0, fmt.Errorf("Options.Pragmas[page_size] = %q: want a number", s)
		}
	}
	if n == 0 {
		return 4096, nil
	}
	if !segment.ValidPageSize(n) {
		return 0, fmt.Errorf("page size %d: want a power of two from 512 to 65536", n)
	}
	return n, nil
}

// emptyState packs a database without tables.
func emptyState(pageSize int) (fence.State, []byte, uint64, error) {
	page := vfs.EmptyDatabase(pageSize)
	w := segment.NewWriter(pageSize)
	if err := w.Add(1, page); err != nil {
		return fence.State{}, nil, 0, err
	}
	payload, sum, err := w.Finish()
	return fence.State{PageSize: uint32(pageSize), PageCount: 1, Checksum: segment.PageSum(1, page)}, payload, sum, err
}

// bounded gives a ctx without a deadline the default one.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.o.SyncTimeout)
}

// Get describes a database. [ErrNotFound] when there is none of that name.
func (c *Client) Get(ctx context.Context, name string) (*Database, error) {
	if err := ValidateName(name); err != nil {
		return nil, err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	head, err := c.log(name).Head(ctx)
	if err != nil {
		return nil, wrap(name, "get", err)
	}
	if head == nil || head.Ends() {
		return nil, wrap(name, "get", fence.ErrNoDatabase)
	}
	d := &Database{Name: name, ID: head.ID.String(), State: "active", Frozen: head.Frozen, Head: pointOf(head)}
	r, err := recordOf(ctx, c.store, name, head)
	if err != nil {
		return nil, wrap(name, "get", err)
	}
	if r != nil {
		d.CreatedAt, d.Metadata = r.CreatedAt, r.Metadata
	}
	return d, nil
}

// Delete ends a database: its owner gets [ErrDeleted], its name is free again. It cannot be undone. [ErrNotFound] when there is none.
func (c *Client) Delete(ctx context.Context, name string) error {
	if err := ValidateName(name); err != nil {
		return err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	if err := remote.ProbeOnce(ctx, c.store); err != nil {
		return wrap(name, "delete", err)
	}
	id, err := c.log(name).Delete(ctx, fence.ID{})
	if err != nil {
		if isUnknown(err) {
			return &dbError{name, "delete", ErrUnsynced, fmt.Errorf("run it again, it may be deleted: %w", err)}
		}
		return wrap(name, "delete", err)
	}
	// The name is free from here on; what is left is tidying up, which a janitor does as well.
	r, err := catalog.Find(ctx, c.store, name, id)
	if err == nil {
		err = catalog.Remove(ctx, c.store, r.Key())
	}
	if errors.Is(err, remote.ErrNotFound) {
		err = nil
	}
	if err != nil {
		c.o.Logger.Debug("index record left behind", "database", name, "error", err)
	}
	return nil
}

func pointOf(e *fence.Entry) Point {
	return Point{ID: e.ID.String(), Slot: e.Slot, Generation: e.Generation, Time: e.Time, Label: e.Label}
}
