package tonbo

import (
	"context"
	"errors"
	"fmt"
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
	DB         *DB // open; from Get, Bind and Replace nil. Close it: the last Close in a process closes the handle that its Ensures share
}

// SessionID is the session that a thread's next step runs in: "<thread>-<version>", or the thread when the database has no version. See [DB.Step].
func (i *Instance) SessionID(thread string) string { return session(thread, i.Version) }

// Instances keeps one database for each key. See [Client.Instances].
type Instances struct {
	c *Client

	mu   sync.Mutex
	open map[string]*shared // by key
}

// shared is what the Ensures of one key in this process share.
type shared struct {
	turn    chan struct{} // held while somebody works on it
	waiters int           // who hold it or wait for it; guarded by Instances.mu
	db      *DB           // nil: not open
	name    string
	leases  int // handed out and not closed
}

// Instances returns the client's instances: databases by key. All calls return the same.
func (c *Client) Instances() *Instances {
	return c.instances
}

// lock takes the turn for a key in this process.
func (i *Instances) lock(ctx context.Context, key string) (*shared, error) {
	i.mu.Lock()
	s := i.open[key]
	if s == nil {
		s = &shared{turn: make(chan struct{}, 1)}
		i.open[key] = s
	}
	s.waiters++
	i.mu.Unlock()
	select {
	case s.turn <- struct{}{}:
		return s, nil
	case <-ctx.Done():
		i.leave(key, s)
		return nil, ctx.Err()
	}
}

func (i *Instances) unlock(key string, s *shared) {
	<-s.turn
	i.leave(key, s)
}

func (i *Instances) leave(key string, s *shared) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if s.waiters--; s.waiters == 0 && s.db == nil {
		delete(i.open, key)
	}
}

// lease returns another DB of the shared handle. Its Close gives it back; the last one closes the handle. The caller has the turn.
func (i *Instances) lease(key string, s *shared) *DB {
	s.leases++
	db := s.db
	var once sync.Once
	var err error
	return &DB{DB: db.DB, h: db.h, lease: func() error {
		once.Do(func() {
			s, _ := i.lock(context.Background(), key) // it is the same one as long as its db is open
			defer i.unlock(key, s)
			if s.db != db { // replaced meanwhile, and closed then
				return
			}
			if s.leases--; s.leases == 0 {
				s.db = nil
				err = db.Close()
			}
		})
		return err
	}}
}

// drop closes the shared handle, whoever holds it: it is over. The caller has the turn.
func (s *shared) drop() error {
	db := s.db
	if db == nil {
		return nil
	}
	s.db, s.leases = nil, 0
	return db.Close()
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
	return b, err
}

// Update changes the database of a key as [Client.Update] does. [ErrNotFound]: the key has none.
func (i *Instances) Update(ctx context.Context, key string, o UpdateOptions) (*Database, error) {
	b, err := i.bound(ctx, key)
	if err != nil {
		return nil, i.wrap(key, "update", err)
	}
	d, err := i.c.Update(ctx, b.Name, o)
	if err == nil && d.ID != b.ID {
		err = fmt.Errorf("%w: %s is database %s now, the key's was %s", ErrTargetChanged, b.Name, d.ID, b.ID)
	}
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
		b, err := i.bindings(key).Head(ctx)
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
	if id, ok := fence.ParseID(database); ok && errors.Is(err, ErrNotFound) {
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
	DeleteOld bool          // delete the old database; otherwise it is frozen: it can be read, forked and exported
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
	s, err := i.lock(ctx, key)
	if err != nil {
		return nil, err
	}
	defer i.unlock(key, s)
	old, err := i.bindings(key).Head(ctx)
	if err != nil {
		return nil, err
	}
	// (1) Nobody writes to the old one any more: what is forked from it is all there is.
	had := old.Kind == catalog.Bound || old.Kind == catalog.Failing
	if had {
		if err := s.drop(); err != nil {
			i.c.o.Logger.Debug("closing a database that is replaced", "key", key, "error", err)
		}
		if err := i.retire(ctx, old); err != nil {
			return nil, err
		}
	}
	from := o.Template
	if o.From != nil {
		if !had {
			return nil, fmt.Errorf("%w: the key has none to fork from", ErrNotFound)
		}
		from = old.Name
	}
	// (2) The new one, and the key is bound to it.
	b, _, err := i.make(ctx, key, old, want{create: o.Create, template: from, at: o.From})
	if err != nil {
		return nil, err
	}
	// (3) Last, what is not wanted any more.
	if had && o.DeleteOld {
		if err := i.c.Delete(ctx, old.Name); err != nil && !errors.Is(err, ErrNotFound) {
			return nil, fmt.Errorf("replaced by %s; the old database stays: %w", b.Name, err)
		}
	}
	return instanceOf(key, b), nil
}

// retire freezes a key's database, which fences its owner. One that has ended already is as good.
func (i *Instances) retire(ctx context.Context, b *catalog.Binding) error {
	err := i.c.Freeze(ctx, b.Name)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrDeleted) {
		return nil
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
	return fmt.Errorf("instance %s: %s: %w", key, doing, err)
}
