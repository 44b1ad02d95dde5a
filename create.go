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

// CreateOptions of Create, Fork and Import. The zero value works.
type CreateOptions struct {
	// IdempotencyKey, 1 to 255 printable ASCII characters, makes the call one that can be repeated, after a crash and from elsewhere: every call with the same key that asks for the same gets
	// the same database, and at most one comes of them (Database.Replayed tells whether another call made it). The same key with another request is [ErrIdempotency], and so is one whose
	// database has ended meanwhile: it never makes a second one. A key is remembered while its database lives, and for 24 h at least. Three requests more.
	IdempotencyKey string
	ExpiresAt      time.Time         // from then on the database is refused ([ErrExpired]), and a janitor deletes it. Zero: never, or as TTL says
	TTL            time.Duration     // instead of ExpiresAt: so long after its creation
	Metadata       map[string]string // up to 32 pairs, keys to 64 bytes, values to 256
	Protected      bool              // Delete refuses it ([ErrProtected]), and it does not expire, until Update says otherwise
	Frozen         bool              // Open and Rewind refuse it ([ErrFrozen]); it can be forked, read, exported and deleted. What a fork begins with, it inherits; that it is frozen, it does not
	IfNotExists    bool              // no error when the database exists: the one that is there is returned
	PageSize       int               // bytes, 512 to 65536, a power of two; default 4096, or Options.Pragmas["page_size"]

	instance string // the instance key that it is made for
}

// check returns an [*OptionError] for what cannot be.
func (o CreateOptions) check(now time.Time) error {
	for i := range len(o.IdempotencyKey) {
		if c := o.IdempotencyKey[i]; c < ' ' || c > '~' {
			return &OptionError{"IdempotencyKey", fmt.Sprintf("byte %d is %q: printable ASCII is allowed", i+1, string(rune(c)))}
		}
	}
	if n := len(o.IdempotencyKey); n > 255 {
		return &OptionError{"IdempotencyKey", fmt.Sprintf("it has %d bytes, up to 255 are allowed", n)}
	}
	if _, err := expiry(now, o.ExpiresAt, o.TTL); err != nil {
		return err
	}
	return checkMetadata(o.Metadata)
}

// expiry is when a database expires, by the two ways to say it. Zero: never.
func expiry(now, at time.Time, ttl time.Duration) (time.Time, error) {
	switch {
	case !at.IsZero() && ttl != 0:
		return at, &OptionError{"TTL", "ExpiresAt is set too: set one of them"}
	case ttl < 0:
		return at, &OptionError{"TTL", fmt.Sprintf("%s is negative", ttl)}
	case ttl > 0:
		return now.Add(ttl).UTC(), nil
	case at.IsZero():
		return at, nil
	case at.UTC().Year() > 9999:
		return at, &OptionError{"ExpiresAt", fmt.Sprintf("year %d: the last one that can be told is 9999", at.UTC().Year())}
	case !at.After(now):
		return at, &OptionError{"ExpiresAt", fmt.Sprintf("%s is past, it is %s", at.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))}
	}
	return at.UTC(), nil
}

// Create makes an empty database. Three requests for a name that was never used (and those of the probe, once an account).
//
// Errors, for errors.Is: [ErrExists], [ErrName], [ErrInvalid], [ErrIdempotency], [ErrLimit], [ErrUnsynced] when the outcome is not known (run it again: it may exist), [ErrStoreUnfit],
// [ErrUnauthorized], [ErrForbidden].
func (c *Client) Create(ctx context.Context, name string, o CreateOptions) (*Database, error) {
	if err := c.checkCreate(name, o); err != nil {
		return nil, wrap(name, "create", err)
	}
	pageSize, err := c.pageSize(o)
	if err != nil {
		return nil, wrap(name, "create", err)
	}
	state, payload, sum, err := emptyState(pageSize)
	if err != nil {
		return nil, wrap(name, "create", err)
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	return c.begin(ctx, name, creation{
		doing: "create", o: o, what: request{Kind: "create", Name: name, PageSize: pageSize},
		fence: fence.CreateOptions{State: state, Payload: payload, PayloadSum: sum, Whole: true},
	})
}

func (c *Client) checkCreate(name string, o CreateOptions) error {
	if err := ValidateName(name); err != nil {
		return err
	}
	return o.check(c.o.time())
}

// creation is how a database begins: what Create, Fork and Import leave to begin.
type creation struct {
	doing string // "create", for errors
	o     CreateOptions
	what  request // what the idempotency key stands for
	fence fence.CreateOptions
	// point fixes the point that a fork begins with, when all calls with a key must agree on it. nil: no fork.
	point func(ctx context.Context) (*fence.Source, error)
	// pack makes fence for an id and the slot of the create, and a function that uploads what it names. nil: fence is complete as it is.
	pack func(ctx context.Context, id fence.ID, slot uint64) (fence.CreateOptions, func(context.Context) error, error)
	// made is called when the database is there, before anybody is told. nil: nothing is left to do.
	made func(ctx context.Context, o *fence.Owner, r *catalog.Record)
}

// begin creates an incarnation (R11).
func (c *Client) begin(ctx context.Context, name string, b creation) (*Database, error) {
	d, err := c.beginAnew(ctx, name, b)
	if b.o.IfNotExists && errors.Is(err, ErrExists) {
		return c.Get(ctx, name)
	}
	return d, err
}

func (c *Client) beginAnew(ctx context.Context, name string, b creation) (*Database, error) {
	if err := remote.ProbeOnce(ctx, c.store); err != nil {
		return nil, wrap(name, b.doing, err)
	}
	if b.o.IdempotencyKey != "" {
		return c.beginOnce(ctx, name, b)
	}
	r := c.draft(name, b.o, c.o.time().UTC())
	fo, upload := b.fence, func(context.Context) error { return nil }
	if b.pack != nil {
		id := fence.ID(randomNonce())
		slot, err := c.nextSlot(ctx, name)
		if err != nil {
			return nil, wrap(name, b.doing, err)
		}
		if fo, upload, err = b.pack(ctx, id, slot); err != nil {
			return nil, wrap(name, b.doing, err)
		}
		fo.ID, fo.Slot = id, slot
	}
	e, err := c.create(ctx, r, fo, upload, b.made)
	if fo.Slot != 0 && err != nil && !isUnknown(err) && !errors.As(err, new(*fence.FencedError)) { // nobody else makes this attempt, and it was not stored
		c.dropRecord(ctx, name, fo.Slot, fo.ID)
	}
	var fenced *fence.FencedError
	if errors.As(err, &fenced) && fenced.Stored && !fenced.By.Ends() && fenced.By.ID.String() == r.ID { // and somebody has opened it before we knew
		return c.Get(ctx, name)
	}
	if err != nil {
		return nil, createError(name, b.doing, err)
	}
	return c.describe(e, r), nil
}

// draft is the index record of a database to be made, without id and slot.
func (c *Client) draft(name string, o CreateOptions, at time.Time) *catalog.Record {
	expires, _ := expiry(at, o.ExpiresAt, o.TTL) // checked
	return &catalog.Record{
		Name: name, State: catalog.Making, CreatedAt: at, CreatedBy: c.o.Owner, ExpiresAt: expires, Metadata: o.Metadata, Protected: o.Protected, Frozen: o.Frozen, Instance: o.instance,
	}
}

// create makes one incarnation, with its index record before (R11). upload runs between the two, and made behind them. What the record lacks (id, slot, parent) is filled in.
func (c *Client) create(ctx context.Context, r *catalog.Record, fo fence.CreateOptions, upload func(context.Context) error, made func(context.Context, *fence.Owner, *catalog.Record)) (*fence.Entry, error) {
	fo.Frozen = r.Frozen
	if !r.Protected {
		fo.Expires = r.ExpiresAt
	}
	fo.Before = func(ctx context.Context, x fence.Creation) error {
		r.ID, r.Slot = x.ID.String(), x.Slot
		if x.Source != nil {
			r.Parent = &catalog.Point{Name: x.Source.Name, ID: x.Source.ID.String(), Slot: x.Source.Slot}
		}
		if err := catalog.Put(ctx, c.store, r); err != nil {
			return err
		}
		fault("create:recorded")
		if err := c.checkLimit(ctx, r.Name); err != nil {
			return err
		}
		return upload(ctx)
	}
	fo.Undo = func(ctx context.Context, x fence.Creation) { c.dropRecord(ctx, r.Name, x.Slot, x.ID) }
	o, err := c.log(r.Name).Create(ctx, fo)
	if err != nil {
		return nil, err
	}
	fault("create:made")
	if made != nil {
		made(ctx, o, r)
	}
	return o.Entry(), nil
}

// dropRecord removes the record of what will never be. Best effort: what stays, a janitor finds.
func (c *Client) dropRecord(ctx context.Context, name string, slot uint64, id fence.ID) {
	if err := catalog.Remove(ctx, c.store, catalog.RecordKey(name, slot, id)); err != nil {
		c.o.Logger.Debug("index record left behind", "database", name, "error", err)
	}
}

// nextSlot is the slot that a create would have now. fence.ErrTaken when the name is in use.
func (c *Client) nextSlot(ctx context.Context, name string) (uint64, error) {
	head, err := c.log(name).HeadHeader(ctx)
	switch {
	case err != nil:
		return 0, err
	case head == nil:
		return 1, nil
	case !head.Ends():
		return 0, fence.ErrTaken
	}
	return head.Slot + 1, nil
}

func createError(name, doing string, err error) error {
	if isUnknown(err) {
		return &dbError{name, doing, ErrUnsynced, fmt.Errorf("run it again, the database may exist: %w", err)}
	}
	return wrap(name, doing, err)
}

func (c *Client) pageSize(o CreateOptions) (int, error) {
	n := o.PageSize
	if s, ok := c.o.Pragmas["page_size"]; n == 0 && ok {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			return 0, &OptionError{"Pragmas", fmt.Sprintf("page_size is %q: want a number", s)}
		}
	}
	if n == 0 {
		return 4096, nil
	}
	if !segment.ValidPageSize(n) {
		return 0, &OptionError{"PageSize", fmt.Sprintf("page size %d: want a power of two from 512 to 65536", n)}
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
