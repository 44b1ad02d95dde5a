package tonbo

import (
	"context"
	"fmt"
	"sync"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
)

// Client is the control plane: it creates, finds, changes and deletes databases in one account. Safe for concurrent use; it holds nothing that needs closing.
type Client struct {
	o         Options
	store     remote.Store // counted
	counter   *remote.Counter
	limiter   limiter
	leftOnce  sync.Once // what Scratches of dead processes have left in Options.Dir is looked at
	instances *Instances
}

// NewClient returns a client of the account that o names. It sends no request.
func NewClient(o Options) (*Client, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	store, err := openStore(context.Background(), o)
	if err != nil {
		return nil, fmt.Errorf("client: %w", public(err))
	}
	o.Remote = store
	counter := new(remote.Counter)
	c := &Client{o: o, store: remote.Counted(store, counter), counter: counter}
	c.instances = &Instances{c: c, turns: map[string]*turn{}, open: map[fence.ID]*sharing{}}
	return c, nil
}

// Requests counts what the client's own calls have cost so far: Create, Fork, Export and so on. A DB that it opens counts for itself, see [DB.Status].
func (c *Client) Requests() Requests { return c.counter.Counts() }

// Remote is the store that the client works on, for what stands beside databases in the same account. Requests through it are not counted by [Client.Requests].
func (c *Client) Remote() remote.Store { return c.o.Remote }

// Open opens a database as the package's Open does, with the client's options.
func (c *Client) Open(ctx context.Context, name string) (*DB, error) { return Open(ctx, name, c.o) }

// Create makes an empty database. See [Client.Create].
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

func (c *Client) log(name string) *fence.Log {
	return fence.New(c.store, name, fence.Options{Owner: c.o.Owner, Logger: c.o.Logger})
}

// bounded gives a ctx without a deadline the default one.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.o.SyncTimeout)
}

func pointOf(e *fence.Entry) Point {
	return Point{ID: e.ID.String(), Slot: e.Slot, Generation: e.Generation, Time: e.Time, Label: e.Label}
}
