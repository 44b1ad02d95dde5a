package tonbo

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// RegistryOptions of NewRegistry. The zero value works.
type RegistryOptions struct {
	// MaxOpen is how many databases are open at once. Where one more is needed, the one that has not been used for longest is closed first; while all are in use, who needs one more waits. Default 1,000: about 25 MiB
	// and as many files while they are idle, and 0.4 MiB and 6 files for each connection that they keep.
	MaxOpen int
	// MaxIdle is how long a database stays open that nobody uses. Default 5 minutes. < 0: until its place is needed; one that could not be closed then is closed when it can be.
	MaxIdle time.Duration
	// MaxIdleConns is how many SQLite connections the databases that nobody uses keep open, all together: each takes about 0.4 MiB, and opening one some milliseconds. Those of the databases that have not been used for longest are closed
	// first. What is in use is not bounded by it: a database has the connections that its users need. The registry looks after sql.DB's SetMaxIdleConns for that, and sets it to 2. Default 128. < 0: none stay open.
	MaxIdleConns int
	// Suspend removes the local copy of what is closed, once the remote has all of it ([DB.Suspend]): opening it again is a cold start. Otherwise it stays, and is warm.
	Suspend bool
	// Create, when it is set, makes a database that does not exist when it is used: by Client.Create, Fork or Import, for example. It is then opened. nil: Use returns ErrNotFound.
	Create func(ctx context.Context, name string) error
	// Prepare, when it is set, runs each time a database has been opened, before anybody uses it: to make its tables, or to set its pool's bounds. Its error is that of the Use, and the database is closed. A panic in it, or in Create, is
	// such an error. It may use other databases of the registry, but not such as wait for this one to be prepared.
	Prepare func(ctx context.Context, db *DB) error
	// OnError is told what no caller is: that an idle database could not be closed, and is kept, or that it was closed with commits set aside. The error names the database, the file, and the way out. It is called in a goroutine of its
	// own, perhaps several at once, and does not call Close, which waits for it.
	OnError func(name string, err error)
}

const (
	registryOpen  = 1000            // RegistryOptions.MaxOpen
	registryIdle  = 5 * time.Minute // RegistryOptions.MaxIdle
	registryConns = 128             // RegistryOptions.MaxIdleConns
	registryTurns = 32              // databases that are opened or closed at the same time
	closeRetry    = time.Second     // after a close that failed, doubled each time
	closeRetryMax = time.Minute
	evictPatience = time.Second // that what is being closed for another one has for itself
)

// Registry keeps databases of one account open for a program that serves many of them, and bounds what they take: one handle a name, opened when it is used first, closed when its place is needed or when it has not been used for long.
// Safe for concurrent use. It has no goroutine while nothing is being opened or closed. Close it.
//
// To close a database the registry has the remote hold all of its commits first. Where that fails the database stays open, and nothing is lost: see [RegistryOptions].OnError.
type Registry struct {
	c     *Client
	o     RegistryOptions
	turns chan struct{} // what opens or closes has one

	life context.Context // of what is being opened
	stop context.CancelFunc
	rush context.Context // of what is being closed: ends when Close's time is over
	hold context.CancelFunc
	work sync.WaitGroup // openings, what the timer has begun, and calls of OnError

	mu      sync.Mutex // guards what follows, and members
	all     map[string]*member
	places  int       // members that are open, or being opened or closed
	idle    list.List // of *member that are open and not in use, the least recently used first
	stuck   list.List // of *member that are idle and could not be closed
	queue   list.List // of *placeWaiter
	conns   idleConns
	users   int
	timer   *time.Timer // armed: when the next one is due
	armed   bool
	alarm   time.Time     // then: when it is due
	tenders chan struct{} // what the timer closes has one
	closed  bool
	unused  chan struct{} // set by Close: closed when nobody uses a database
	gone    chan struct{} // closed when Close has ended
	stats   RegistryStats
}

// member is a database of the registry.
type member struct {
	name    string
	db      *DB           // nil until it is open
	users   int           // of db
	opening *opening      // while it is being opened, or opened anew
	going   *going        // while it is being closed
	at      *list.Element // in idle or stuck
	last    time.Time     // when it became idle
	conns   int           // connections that it had then
	pooled  *list.Element // in conns.used

	tries int       // closes that have failed since it was last shipped
	retry time.Time // then: when the next one is due
	err   error     // and why the last one failed
}

// RegistryStats is a snapshot of a registry.
type RegistryStats struct {
	Open        int // databases that are open, or being opened or closed
	InUse       int // of these, in use
	Kept        int // of these, idle ones that could not be closed
	Waiting     int // databases for which there is no place
	Connections int // SQLite connections that are open, of databases in use and of idle ones

	OpenedCold, OpenedWarm int64 // openings so far, by whether the local copy was rebuilt from the remote
	Evicted                int64 // closed because their place was needed
	Expired                int64 // closed because nobody had used them for MaxIdle, or since they could not be closed before
	Replaced               int64 // closed and opened anew when they were used, since another process had taken them over, or they were over otherwise
	FailedCloses           int64 // closes that failed, each try
}

// NewRegistry returns a registry of the client's databases. It opens nothing.
func NewRegistry(c *Client, o RegistryOptions) *Registry {
	if o.MaxOpen <= 0 {
		o.MaxOpen = registryOpen
	}
	if o.MaxIdle == 0 {
		o.MaxIdle = registryIdle
	}
	if o.MaxIdleConns == 0 {
		o.MaxIdleConns = registryConns
	}
	r := &Registry{c: c, o: o, conns: idleConns{max: max(0, o.MaxIdleConns)}, turns: make(chan struct{}, registryTurns), tenders: make(chan struct{}, registryTurns/2), all: map[string]*member{}, gone: make(chan struct{})}
	r.life, r.stop = context.WithCancel(context.Background())
	r.rush, r.hold = context.WithCancel(context.Background())
	return r
}

// use is one Use, or one call of Create or Prepare. The context that its function gets knows of it.
type use struct {
	m     *member
	outer *use // that it is within
	db    *DB  // its own, of m's handle; nil in Create and Prepare
}

// useKey is the key of contexts for uses of one registry.
type useKey struct{ r *Registry }

// within tells whether u is, or is within, a use of m.
func (u *use) within(m *member) bool {
	for ; u != nil; u = u.outer {
		if u.m == m {
			return true
		}
	}
	return false
}

// Use runs fn with a database, which stays open until fn has returned; it is not closed by fn, and not used after it. Any number of calls use one database at the same time: they share its handle. Give fn's context to what is called in it: a
// Use of another database within it is known by that.
//
// What fn commits is acknowledged when fn calls [DB.Synced] or [DB.Step] of the DB that it gets, as everywhere: a nil does not stand for what another use has set aside since by [DB.Reopen]. What it leaves unshipped is shipped when the database is closed, or by Options.SyncEvery. For a database that is open Use does not wait for the remote, also while
// the registry is shipping it, unless it is just being closed: to make room for another one that has been kept from its place by such a Use before, or since all of it is shipped.
//
// The error is fn's, or why the database could not be opened: as of [Open], or of Create and Prepare. One whose handle is over, since another process has taken it over for example, is opened anew, as soon as nobody uses it: until
// then Use returns why. When MaxOpen databases are in use, Use waits for a place; when ctx ends first, the error is [ErrLimit] too; and a Use within another one of this registry does not wait but
// returns ErrLimit at once, since its place may be the one waited for. [ErrClosed]: the registry is closed.
func (r *Registry) Use(ctx context.Context, name string, fn func(ctx context.Context, db *DB) error) error {
	if err := ValidateName(name); err != nil {
		return err
	}
	if err := notNil("fn", fn == nil); err != nil {
		return wrap(name, "use", err)
	}
	u, err := r.acquire(ctx, name)
	if err != nil {
		return err
	}
	defer r.release(u)
	return fn(context.WithValue(ctx, useKey{r}, u), u.db)
}

// acquire counts a user of the database, which is opened for it.
func (r *Registry) acquire(ctx context.Context, name string) (*use, error) {
	outer, _ := ctx.Value(useKey{r}).(*use)
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("database %s: %w", name, err)
		}
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			return nil, r.closedError(name)
		}
		m := r.all[name]
		if m == nil {
			m = &member{name: name}
			r.all[name] = m
			r.open(ctx, m, outer)
		}
		var ended <-chan struct{} // of what must be over before it is looked at again
		var over error            // of its handle
		if m.opening == nil {
			over = m.db.Err()
		}
		switch {
		case m.going != nil && m.going.firm:
			ended = m.going.ended
		case m.opening != nil && outer.within(m):
			r.mu.Unlock()
			return nil, wrap(name, "use", errors.New("it was called from within the database's own Create or Prepare"))
		case m.opening != nil && m.opening.left:
			ended = m.opening.done
		case m.opening != nil:
		case over == nil || m.users > 0 && outer.within(m):
			defer r.mu.Unlock()
			return r.pin(m, outer), nil
		case m.users > 0:
			r.mu.Unlock()
			return nil, over
		default:
			r.unlist(m)
			r.open(ctx, m, outer)
		}
		if ended != nil {
			r.mu.Unlock()
			select {
			case <-ended:
			case <-ctx.Done():
			}
			continue
		}
		o := m.opening
		o.waiting++
		var full <-chan struct{}
		if outer != nil {
			full = o.full
		}
		r.mu.Unlock()
		return r.await(ctx, m, o, outer, full)
	}
}

// await waits for an opening. full: and no longer than until that is closed.
func (r *Registry) await(ctx context.Context, m *member, o *opening, outer *use, full <-chan struct{}) (*use, error) {
	var cause error
	select {
	case <-o.done:
	case <-full:
	case <-ctx.Done():
		cause = ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-o.done:
		if o.err != nil {
			return nil, o.err
		}
		return &use{m, outer, m.db.fromNow()}, nil // it has been counted
	default:
	}
	if o.waiting--; o.waiting == 0 {
		o.left = true
		o.cancel()
	}
	if o.queued || cause == nil {
		return nil, r.limited(m.name, cause)
	}
	return nil, fmt.Errorf("database %s: open: %w", m.name, cause)
}

// pin counts a use of m, which is open. The caller holds r.mu.
func (r *Registry) pin(m *member, outer *use) *use {
	r.unlist(m)
	m.users++
	r.users++
	return &use{m, outer, m.db.fromNow()}
}

func (r *Registry) release(u *use) {
	r.mu.Lock()
	r.users--
	if u.m.users--; u.m.users == 0 {
		r.rest(u.m)
	}
	if r.users == 0 && r.unused != nil {
		close(r.unused)
		r.unused = nil
	}
	r.mu.Unlock()
	r.trim()
}

func (r *Registry) closedError(name string) error {
	return fmt.Errorf("database %s: the registry is closed: %w", name, ErrClosed)
}

// limited is ErrLimit: there is no place. cause: why it is not waited for any longer; nil: it was not. The caller holds r.mu.
func (r *Registry) limited(name string, cause error) error {
	err := &placesError{name: name, max: r.o.MaxOpen, kept: r.stuck.Len(), cause: cause}
	if first := r.stuck.Front(); first != nil {
		err.why = first.Value.(*member).err
	}
	return err
}

// placesError is ErrLimit of a registry.
type placesError struct {
	name      string
	max, kept int
	cause     error // why it is not waited for; nil: it is within another use
	why       error // why one of those that are kept could not be closed
}

func (e *placesError) Error() string {
	s := fmt.Sprintf("database %s: the registry's %d databases are in use", e.name, e.max)
	if e.kept > 0 {
		s += fmt.Sprintf(", but for %d that could not be closed (%v)", e.kept, e.why)
	}
	if e.cause == nil {
		return s + "; this call, within the use of another one, does not wait; raise RegistryOptions.MaxOpen"
	}
	return s + "; raise RegistryOptions.MaxOpen: " + e.cause.Error()
}

func (e *placesError) Is(target error) bool { return target == ErrLimit }

func (e *placesError) Unwrap() error { return e.cause }

// Stats describes the registry. It sends no request.
func (r *Registry) Stats() RegistryStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stats
	s.Open, s.Kept, s.Waiting = r.places, r.stuck.Len(), r.queue.Len()
	for _, m := range r.all {
		if m.users > 0 {
			s.InUse++
		}
		if m.db != nil {
			s.Connections += m.db.Stats().OpenConnections
		}
	}
	return s
}
