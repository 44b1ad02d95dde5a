package tonbo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/remote"
)

// Started says what Ensure did to have its database open.
type Started string

const (
	Created Started = "created" // the key had no database, or its database had ended: this call made one
	Resumed Started = "resumed" // it had one that nobody had open, as far as the log shows
	Running Started = "running" // it had one that is open in this process, or whose owner wrote within the last 30 seconds
)

// runningWithin is how recent an owner's last entry is for its database to count as running.
const runningWithin = 30 * time.Second

// Instance is the database of a key.
type Instance struct {
	Key        string
	Name       string // of the database; "" when the key has none
	DatabaseID string // its incarnation
	Generation uint64 // 1 for the key's first database, one more for each that takes its place. Not the writer's generation of [Status]
	Version    string // as its last Ensure with a version left it; "" from Get
	Started    Started
	DB         *DB // open; from Get, Bind and Replace nil. Close it: it refuses everything then ([ErrClosed]), a COMMIT of a transaction left open too, and the last Close in a process closes the handle that its Ensures share
}

// SessionID is the session that a thread's next step runs in: "<thread>-<version>", or the thread when the database has no version. See [DB.Step].
func (i *Instance) SessionID(thread string) string { return session(thread, i.Version) }

// Instances keeps one database for each key. See [Client.Instances].
type Instances struct {
	c *Client

	mu    sync.Mutex // guards what follows, and the refs of handles
	turns map[string]*turn
	open  map[fence.ID]*sharing
}

// turn is held by the one Ensure or Replace of a key that is at work in this process.
type turn struct {
	token   chan struct{}
	waiters int // who hold it or wait for it
}

// sharing is an open handle that Ensures of one database in this process share.
type sharing struct {
	db     *DB
	refs   int           // leases that are not closed, and Ensures that are about to make one
	closed chan struct{} // of one that is being closed: closed when it is; nil: it is open
}

// Instances returns the client's instances: databases by key. All calls return the same.
func (c *Client) Instances() *Instances {
	return c.instances
}

// lock takes the turn for a key in this process, and returns what gives it back.
func (i *Instances) lock(ctx context.Context, key string) (unlock func(), err error) {
	i.mu.Lock()
	t := i.turns[key]
	if t == nil {
		t = &turn{token: make(chan struct{}, 1)}
		i.turns[key] = t
	}
	t.waiters++
	i.mu.Unlock()
	leave := func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if t.waiters--; t.waiters == 0 {
			delete(i.turns, key)
		}
	}
	select {
	case t.token <- struct{}{}:
		return func() { <-t.token; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// acquire returns the open handle of a database, with a reference to it. fresh: it was opened for that.
func (i *Instances) acquire(ctx context.Context, name string, id fence.ID) (h *sharing, fresh bool, err error) {
	for {
		i.mu.Lock()
		h := i.open[id]
		if h == nil {
			h = &sharing{refs: 1, closed: make(chan struct{})} // until it is open, others wait as for one that is being closed
			i.open[id] = h
			i.mu.Unlock()
			o := i.c.o
			o.only = id
			db, err := Open(ctx, name, o)
			i.mu.Lock()
			defer i.mu.Unlock()
			close(h.closed)
			if err != nil {
				delete(i.open, id)
				return nil, false, err
			}
			h.db, h.closed = db, nil
			return h, true, nil
		}
		if h.closed == nil {
			h.refs++
			i.mu.Unlock()
			return h, false, nil
		}
		wait := h.closed
		i.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

// release gives a reference back. The last one closes the handle.
func (i *Instances) release(id fence.ID, h *sharing) error {
	i.mu.Lock()
	if h.refs--; h.refs > 0 {
		i.mu.Unlock()
		return nil
	}
	h.closed = make(chan struct{})
	i.mu.Unlock()
	err := h.db.Close()
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.open, id)
	close(h.closed)
	return err
}

func (i *Instances) bindings(key string) catalog.Bindings {
	return catalog.Bindings{Store: i.c.store, Key: key, By: i.c.o.Owner}
}

// append puts the binding next behind b, and returns what stands there.
func (i *Instances) append(ctx context.Context, key string, b *catalog.Binding, next catalog.Binding) (*catalog.Binding, bool, error) {
	there, ours, err := i.bindings(key).Append(ctx, b, next)
	if errors.Is(err, remote.ErrUnknown) {
		err = fmt.Errorf("%w: run it again: %w", ErrUnsynced, err)
	}
	return there, ours, err
}

func instanceOf(key string, b *catalog.Binding) *Instance {
	in := &Instance{Key: key, Generation: b.Generation}
	if b.Kind == catalog.Bound || b.Kind == catalog.Failing {
		in.Name, in.DatabaseID = b.Name, b.ID
	}
	return in
}

// Get tells which database a key has, without opening it. [ErrNotFound]: none.
func (i *Instances) Get(ctx context.Context, key string) (*Instance, error) {
	b, err := i.bound(ctx, key)
	if err != nil {
		return nil, i.wrap(key, "get", err)
	}
	return instanceOf(key, b), nil
}

// bound is the head of a key that has a database.
func (i *Instances) bound(ctx context.Context, key string) (*catalog.Binding, error) {
	if err := ValidateName(key); err != nil {
		return nil, err
	}
	b, err := i.bindings(key).Head(ctx)
	if err == nil && b.Kind != catalog.Bound && b.Kind != catalog.Failing {
		err = fmt.Errorf("%w: the key has none", ErrNotFound)
	}
	if err == nil {
		err = i.notAnothers(ctx, key, b)
	}
	if errors.Is(err, ErrKeyBound) {
		err = fmt.Errorf("%w: the key has none: %w", ErrNotFound, err)
	}
	return b, err
}

// idOf is the ID of the database that b names. [ErrCorrupt]: it is none, and so nobody can tell whether that database has ended.
func idOf(b *catalog.Binding) (fence.ID, error) {
	id, ok := fence.ParseID(b.ID)
	if !ok {
		return id, fmt.Errorf("%w: the key's log names database %q", ErrCorrupt, b.ID)
	}
	return id, nil
}

// notAnothers returns ErrKeyBound when the database that b names is another key's. Its own record decides whose it is, since that is swapped atomically: a Bind that died before it could see that it was too late has left b behind.
func (i *Instances) notAnothers(ctx context.Context, key string, b *catalog.Binding) error {
	id, err := idOf(b)
	if err != nil {
		return err
	}
	r, err := catalog.Find(ctx, i.c.store, b.Name, id)
	if errors.Is(err, remote.ErrNotFound) {
		return nil
	}
	if err == nil && r.Instance != "" && r.Instance != key {
		err = fmt.Errorf("%w: %s is the database of key %s", ErrKeyBound, b.Name, r.Instance)
	}
	return err
}

// own is the head of a key's log. One that names another key's database has been released.
func (i *Instances) own(ctx context.Context, key string) (*catalog.Binding, error) {
	b, err := i.bindings(key).Head(ctx)
	if err != nil || b.Kind != catalog.Bound && b.Kind != catalog.Failing {
		return b, err
	}
	if err = i.notAnothers(ctx, key, b); errors.Is(err, ErrKeyBound) {
		b, _, err = i.append(ctx, key, b, catalog.Binding{Kind: catalog.Release, Generation: b.Generation})
	}
	return b, err
}

// Update changes the database of a key as [Client.Update] does. [ErrNotFound]: the key has none.
func (i *Instances) Update(ctx context.Context, key string, o UpdateOptions) (*Database, error) {
	b, err := i.bound(ctx, key)
	if err != nil {
		return nil, i.wrap(key, "update", err)
	}
	o.only, _ = fence.ParseID(b.ID)
	d, err := i.c.Update(ctx, b.Name, o)
	return d, i.wrap(key, "update", err)
}

// Release forgets the key's database, which stays as it is: its owner is not disturbed. The next Ensure makes the next generation. A key without a database stays so.
func (i *Instances) Release(ctx context.Context, key string) error {
	if err := ValidateName(key); err != nil {
		return err
	}
	for {
		b, err := i.bindings(key).Head(ctx)
		if err == nil && b.Kind == catalog.Bind { // to release it now would leave a database behind that nobody knows of
			err = fmt.Errorf("%w: its database %s is being made; Ensure it, then release it", ErrBusy, b.Name)
		}
		if err != nil || b.Kind == catalog.Release {
			return i.wrap(key, "release", err)
		}
		_, ours, err := i.append(ctx, key, b, catalog.Binding{Kind: catalog.Release, Generation: b.Generation})
		if err != nil {
			return i.wrap(key, "release", err)
		}
		if ours {
			return nil
		}
	}
}

// Bind binds a database that exists to a key that has none: database is its name or its ID. [ErrKeyBound] when the key has another one, or another key has this one. Bound to it already is success.
func (i *Instances) Bind(ctx context.Context, key, database string) (*Instance, error) {
	if err := ValidateName(key); err != nil {
		return nil, err
	}
	d, err := i.find(ctx, database)
	if err != nil {
		return nil, i.wrap(key, "bind", err)
	}
	for {
		b, err := i.own(ctx, key)
		if err == nil {
			switch {
			case b.Kind == catalog.Release:
				b, err = i.adopt(ctx, key, b, d)
			case b.Kind == catalog.Bind:
				err = fmt.Errorf("%w: its database %s is being made", ErrKeyBound, b.Name)
			case b.ID != d.ID:
				err = fmt.Errorf("%w: to %s (%s); release it first", ErrKeyBound, b.Name, b.ID)
			}
		}
		if err != nil {
			return nil, i.wrap(key, "bind", err)
		}
		if b != nil {
			return instanceOf(key, b), nil
		}
	}
}

// find looks a database up by its name or its ID.
func (i *Instances) find(ctx context.Context, database string) (*Database, error) {
	d, err := i.c.Get(ctx, database)
	if id, ok := fence.ParseID(strings.ToLower(database)); ok && errors.Is(err, ErrNotFound) {
		for d, lerr := range i.c.List(ctx, Filter{NamesOnly: true}) {
			if lerr != nil {
				return nil, lerr
			}
			if d.ID == id.String() {
				return i.c.Get(ctx, d.Name)
			}
		}
	}
	return d, err
}

// adopt binds d to the key behind b, a key without a database. nil: another process was faster, look again.
func (i *Instances) adopt(ctx context.Context, key string, b *catalog.Binding, d *Database) (*catalog.Binding, error) {
	// (1) The database's own record says whose it is: swapped atomically, so that two keys cannot both have it.
	if err := i.mark(ctx, key, d); err != nil {
		return nil, err
	}
	// (2) The key's log.
	there, ours, err := i.append(ctx, key, b, catalog.Binding{Kind: catalog.Bound, Generation: b.Generation + 1, Name: d.Name, ID: d.ID})
	if err != nil {
		return nil, err
	}
	if !ours && there.ID != d.ID {
		return nil, nil
	}
	// (3) Another key may have marked it between the two, since this one had nothing in its log yet: it has it then.
	id, _ := fence.ParseID(d.ID)
	r, err := catalog.Find(ctx, i.c.store, d.Name, id)
	if err != nil && !errors.Is(err, remote.ErrNotFound) {
		return nil, err
	}
	if err == nil && r.Instance != key { // should this process die before it sees that: notAnothers
		if _, _, err := i.append(ctx, key, there, catalog.Binding{Kind: catalog.Release, Generation: there.Generation}); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %s has become the database of key %s", ErrKeyBound, d.Name, r.Instance)
	}
	return there, nil
}

// mark writes the key into the record of a database that none has.
func (i *Instances) mark(ctx context.Context, key string, d *Database) error {
	id, _ := fence.ParseID(d.ID)
	r, err := catalog.Find(ctx, i.c.store, d.Name, id)
	if errors.Is(err, remote.ErrNotFound) {
		return fmt.Errorf("%w: %s", ErrNotFound, d.Name)
	}
	if err != nil {
		return err
	}
	_, err = catalog.Change(ctx, i.c.store, r, func(r *catalog.Record) error {
		if r.Instance != "" && r.Instance != key {
			other, err := i.bindings(r.Instance).Head(ctx)
			if err != nil {
				return err
			}
			if other.Kind != catalog.Release && (other.ID == d.ID || other.Kind == catalog.Bind && other.Name == d.Name) {
				return fmt.Errorf("%w: %s is the database of key %s; release that one first", ErrKeyBound, d.Name, r.Instance)
			}
		}
		r.Instance = key
		return nil
	})
	return err
}

// ReplaceOptions of Replace. The zero value gives the key an empty database.
type ReplaceOptions struct {
	From      At            // fork the key's database as of this point; nil: do not
	Template  string        // or fork this database at its head
	Create    CreateOptions // of the new one
	DeleteOld bool          // delete the old database ([ErrProtected] when it is protected); otherwise it is frozen: it can be read, forked and exported
}

// Replace gives a key a new database, its next generation. The owner of the old one is fenced, and the old one is kept unless DeleteOld says otherwise. A key without a database gets its next generation as well.
func (i *Instances) Replace(ctx context.Context, key string, o ReplaceOptions) (*Instance, error) {
	if err := ValidateName(key); err != nil {
		return nil, err
	}
	in, err := i.replace(ctx, key, o)
	return in, i.wrap(key, "replace", err)
}

func (i *Instances) replace(ctx context.Context, key string, o ReplaceOptions) (*Instance, error) {
	if o.From != nil && o.Template != "" {
		return nil, invalid("From", "Template is set too: set either From or Template")
	}
	if o.Template != "" { // before anything is in the key's log that nobody could do
		if err := ValidateName(o.Template); err != nil {
			return nil, fmt.Errorf("Template: %w", err)
		}
	}
	if err := o.Create.check(i.c.o.time()); err != nil {
		return nil, err
	}
	if ctx.Value(inMigration{i, key}) != nil {
		return nil, errors.New("it was called from within the key's own Migrate")
	}
	unlock, err := i.lock(ctx, key)
	if err != nil {
		return nil, err
	}
	defer unlock()
	old, err := i.own(ctx, key)
	if err != nil {
		return nil, err
	}
	if old.Kind == catalog.Bind { // what another process has begun comes first
		if old, _, err = i.make(ctx, key, old, want{}); err != nil {
			return nil, err
		}
	}
	had := old.Kind == catalog.Bound || old.Kind == catalog.Failing
	if had && o.DeleteOld {
		_, r, err := i.c.look(ctx, old.Name)
		if err == nil && r != nil && r.ID == old.ID && r.Protected {
			return nil, fmt.Errorf("%w: %s is not deleted; take the protection away with Update first, or keep it", ErrProtected, old.Name)
		}
		if err != nil && !errors.Is(err, fence.ErrNoDatabase) && !errors.Is(err, ErrCorrupt) {
			return nil, err
		}
	}
	if o.From != nil && !had {
		return nil, fmt.Errorf("%w: the key has none to fork from", ErrNotFound)
	}
	// (1) What is to be done, in the key's log: whoever comes along from here on does it, should this process die. The point to fork from is fixed now.
	next := catalog.Binding{Kind: catalog.Bind, Generation: old.Generation + 1, Name: databaseName(key, old.Generation+1, "")}
	if had {
		next.Retire, next.DeleteRetired = &catalog.Point{Name: old.Name, ID: old.ID}, o.DeleteOld
	}
	switch {
	case o.From != nil:
		p, err := i.point(ctx, old, o.From)
		if err != nil {
			return nil, err
		}
		next.Source = &catalog.Point{Name: old.Name, ID: old.ID, Slot: p.Slot}
	case o.Template != "":
		if _, _, err := i.c.look(ctx, o.Template); err != nil { // before the old one is frozen for nothing
			return nil, wrap(o.Template, "fork", err)
		}
		next.Source = &catalog.Point{Name: o.Template}
	}
	there, ours, err := i.append(ctx, key, old, next)
	if err != nil {
		return nil, err
	}
	if !ours {
		return nil, fmt.Errorf("%w: another process has changed what the key has meanwhile; look with Get", ErrTargetChanged)
	}
	fault("replace:intent")
	// (2) The old one is frozen, the new one made, and the key bound to it.
	b, _, err := i.make(ctx, key, there, want{create: o.Create, replaces: true})
	if err != nil {
		return nil, err
	}
	if b.Generation != there.Generation || b.Kind == catalog.Release || had && b.ID == old.ID {
		return nil, fmt.Errorf("%w: another process has changed what the key has meanwhile; look with Get", ErrTargetChanged)
	}
	return instanceOf(key, b), nil
}

// point finds a point of the database that b names.
func (i *Instances) point(ctx context.Context, b *catalog.Binding, at At) (Point, error) {
	h, err := i.c.handle(b.Name)
	if err != nil {
		return Point{}, err
	}
	defer h.stop()
	head, e, err := h.resolve(ctx, at)
	if err != nil {
		return Point{}, wrap(b.Name, "find a point", err)
	}
	if head.ID.String() != b.ID {
		return Point{}, fmt.Errorf("%w: %s has ended; the database of that name is another one", ErrTargetChanged, b.ID)
	}
	return pointOf(e), nil
}

// retire freezes a database that a key had, which fences its owner. One that has ended already is as good; another one of its name is none of ours.
func (i *Instances) retire(ctx context.Context, p *catalog.Point) error {
	id, _ := fence.ParseID(p.ID)
	err := i.c.setFrozen(ctx, p.Name, true, id)
	for _, over := range []error{ErrNotFound, ErrDeleted, ErrCorrupt, ErrRemoteLost} { // a damaged log cannot be claimed by anybody else either
		if errors.Is(err, over) {
			return nil
		}
	}
	return err
}

// wrap makes err one that names the key.
func (i *Instances) wrap(key, doing string, err error) error {
	if err == nil {
		return nil
	}
	var restarting *RestartingError
	if errors.As(err, &restarting) {
		return err
	}
	return fmt.Errorf("instance %s: %s: %w", key, doing, public(err))
}
