package tonbo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tonbo-go/tonbo/cache"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/blockcache"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/vfs"
)

// handle is what a DB and its connections share: one open database.
type handle struct {
	name    string
	o       Options
	counter remote.Counter
	store   remote.Store      // counted
	pages   remote.Store      // the same, for pages that other handles on this machine may have fetched
	blocks  *blockcache.Cache // what these are kept in, nil: nothing
	log     *fence.Log
	dir     *cache.Dir

	// round is held (by a value in it) by whoever talks to the log, R1.
	round chan struct{}
	group group

	conns    atomic.Int64           // open SQLite connections
	outdated atomic.Bool            // the file lacks what is shipped, and has nothing else: a Reopen begins from nothing
	held     atomic.Pointer[func()] // notes a strict COMMIT, which the remote has, once the local file has it; nil: there is none on its way
	epoch    atomic.Int64           // rises with each Reopen: connections from before are not used again
	losses   atomic.Int64           // rises when commits are set aside: a DB from before must not acknowledge them

	mu       sync.Mutex // guards what follows
	owner    *fence.Owner
	vdb      *vfs.Database
	done     chan struct{} // closed when this handle can no longer commit
	err      error         // then: why
	damage   error         // what the remote does not hold of the state that is open; nil: as far as is known, it holds all
	lost     string        // file with commits set aside
	instance string        // key that the index record named when it was opened; "" none
	fencing  chan struct{} // closed when the consequences of being fenced are drawn; nil: not fenced
	cold     bool          // the local copy was rebuilt
	closed   bool
	discard  bool                // close throws the local copy away, with what was not shipped
	drop     bool                // close removes the local copy, when the remote has all of it
	dropped  bool                // it has
	patience context.Context     // how long close ships; nil: for Options.SyncTimeout
	moving   chan struct{}       // while a Reopen runs; closed when it has ended
	leases   map[*lease]struct{} // that share it; nil: none
	pool     *sql.DB             // that Open has made; nil: another

	shut   context.CancelFunc // ends opened
	opened context.Context    // until Close is called

	inflight *shipment // appended, outcome unknown; guarded by round
	behind   error     // guarded by round: the remote holds a transaction that was rolled back here
	tail     tail      // guarded by round

	lazy        *lazy         // brings absent pages, nil when all are here; guarded by mu
	checkpoints *checkpointer // nil when Options.Pragmas sets wal_autocheckpoint; guarded by mu

	ro *reader // set when the handle is read-only: it has no owner then

	expiring  expiring
	compactor compactor
	account   account // guarded by round
	steps     stepping
	tune      tuning

	badUpper atomic.Pointer[string] // key of an upper object that is not what was put, or is gone: no base goes on with it. nil: none

	background sync.WaitGroup
	wake       chan struct{} // SyncEvery: a commit has become certain
	stop       context.CancelFunc
	life       context.Context // ends with the handle
}

func newHandle(name string, o Options, base remote.Store) *handle {
	h := &handle{name: name, o: o, round: make(chan struct{}, 1), done: make(chan struct{}), wake: make(chan struct{}, 1), tune: defaultTuning, steps: stepping{turn: make(chan struct{}, 1)}}
	if o.tune != nil {
		h.tune = *o.tune
	}
	h.store = remote.Counted(remote.OnBehalf(base, name), &h.counter)
	h.pages = h.store
	h.log = fence.New(h.store, name, fence.Options{Owner: o.Owner, Logger: o.Logger})
	h.life, h.stop = context.WithCancel(context.Background())
	h.opened, h.shut = context.WithCancel(h.life)
	h.group.run = h.syncRound
	return h
}

// lockRound takes the right to talk to the log.
func (h *handle) lockRound(ctx context.Context) error {
	select {
	case h.round <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *handle) unlockRound() { <-h.round }

// instanceKey is the key that the index record named when the database was opened; "" none.
func (h *handle) instanceKey() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.instance
}

// current returns the owner and the observed file.
func (h *handle) current() (*fence.Owner, *vfs.Database) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.owner, h.vdb
}

// pending tells what is committed here and not shipped.
func (h *handle) pending() (commits int, bytes int64) {
	_, vdb := h.current()
	return vdb.Pending()
}

// fenced ends this handle's ownership: later COMMITs are refused, and commits that were not shipped are set aside. The caller holds the round.
func (h *handle) fenced(fe *fence.FencedError) error {
	owner, _ := h.current()
	return h.over(&FencedError{
		Name: h.name, Generation: owner.Generation(), ByGeneration: fe.By.Generation, By: fe.By.Owner, At: fe.By.Time,
		Deleted: errors.Is(fe, fence.ErrDeleted), Expired: fe.By.Kind == fence.Delete && fe.By.Label == expiredLabel,
	})
}

// over ends this handle for the reason e, of which Lost is filled in. The caller holds the round.
func (h *handle) over(e *FencedError) error {
	owner, vdb := h.current()
	h.mu.Lock()
	if h.err != nil {
		defer h.mu.Unlock()
		return h.err
	}
	settled := make(chan struct{})
	h.fencing = settled
	h.mu.Unlock()
	defer close(settled)
	first := *e
	vdb.Refuse(&first) // before the copy: what commits until here is in it
	fault("fenced:refused")
	if err := vdb.Certain(h.life); err != nil { // a commit frame that is written counts as one
		h.o.Logger.Debug("set aside without waiting for a commit under way", "database", h.name, "error", err)
	}
	if commits, _ := vdb.Pending(); commits > 0 {
		h.losses.Add(1)
		e.Lost, e.aside = h.setAside(vdb, owner.Generation())
	}
	vdb.Refuse(e)
	h.end(e, e.Lost)
	h.o.Logger.Warn("fenced", "event", "fenced", "database", h.name, "generation", e.Generation, "by", e.By, "by_generation", e.ByGeneration, "lost", e.Lost)
	return e
}

// setAside copies the local database, with the commits that were not shipped, out of the way.
func (h *handle) setAside(vdb *vfs.Database, generation uint64) (string, error) {
	ctx, cancel := withRound(h.life), func() {}
	if s := h.source(); s != nil && s.left() > 0 { // pages have to be fetched. What does not get done is done by the next Open.
		ctx, cancel = context.WithTimeout(ctx, h.o.SyncTimeout)
	}
	defer cancel()
	path, err := h.dir.KeepAside(generation, func(w writer) error { return vdb.CopyTo(ctx, w) })
	if err != nil {
		return "", err
	}
	fault("fenced:kept")
	if err := h.dir.SetLost(path); err != nil { // they would be set aside once more at the next Open: twice is better than never
		h.o.Logger.Warn("state not written", "database", h.name, "error", err)
	}
	return path, nil
}

// end records why this handle can no longer commit.
func (h *handle) end(err error, lost string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		h.err = err
		close(h.done)
		for l := range h.leases {
			close(l.done)
		}
	}
	if lost != "" {
		h.lost = lost
	}
}

// reason translates what SQLite reports as a private result code into the error behind it.
func (h *handle) reason(err error) error {
	if err == nil {
		return nil
	}
	if h.ro != nil {
		return h.ro.moved(translate(h.name, h.ro, err))
	}
	_, vdb := h.current()
	if vdb == nil {
		return err
	}
	why := translate(h.name, vdb, err)
	var fenced *FencedError
	if !errors.As(why, &fenced) {
		return why
	}
	// The file with the commits that were not shipped is perhaps still being written: the error is to name it.
	h.mu.Lock()
	fencing := h.fencing
	h.mu.Unlock()
	if fencing != nil {
		<-fencing
		why = translate(h.name, vdb, err)
	}
	return why
}

// close ships what is unshipped, ends the ownership and lets go of the files. The connections are closed, or refused from now on.
func (h *handle) close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	moving := h.moving
	h.mu.Unlock()
	h.shut() // a Reopen under way ends now
	if moving != nil {
		<-moving
	}
	h.mu.Lock()
	vdb, ended, discard, drop, patience := h.vdb, h.err, h.discard, h.drop, h.patience
	h.mu.Unlock()

	if patience == nil {
		patience = context.Background()
	}
	ctx, cancel := context.WithTimeout(patience, h.o.SyncTimeout)
	defer cancel()
	closing := fmt.Errorf("database %s: %w", h.name, ErrClosed)
	// (1) No new commits.
	vdb.Refuse(closing)
	fault("close:refused")
	h.stopCompaction()
	h.stopCheckpoints()
	// (2) Ship the last ones, in the close entry.
	var err error
	if discard {
	} else if ended == nil {
		settle, stop := context.WithTimeout(ctx, h.o.SyncTimeout/4) // what follows must not go without
		h.settleLog(settle)
		stop()
		err = h.closeLog(ctx)
	} else if commits, _ := vdb.Pending(); commits > 0 { // nil would say that the remote has them
		err = h.unsynced("close", ended)
	}
	fault("close:shipped")
	// (3) Nothing runs any more: what begins from here on is refused, and then what had begun is waited for.
	h.stop()
	h.end(closing, "")
	h.group.wait()
	if h.lockRound(context.Background()) == nil {
		h.unlockRound()
	}
	h.background.Wait()
	h.expiring.stop()
	// (4) Let go of the files. They stay: what could not be shipped is found by the next Open.
	if derr := h.detach(); derr != nil && err == nil {
		err = wrap(h.name, "close", derr)
	}
	h.unshare()
	fault("close:detached")
	if discard {
		return errors.Join(err, wrap(h.name, "close", h.dir.Remove()))
	}
	if drop && err == nil && ended == nil && vdb.Certain(ctx) == nil {
		if commits, _ := vdb.Pending(); commits == 0 {
			if err := h.dir.Remove(); err != nil {
				return wrap(h.name, "remove the local copy", err)
			}
			h.mu.Lock()
			h.dropped = true
			h.mu.Unlock()
			return nil
		}
	}
	if err == nil && ended == nil {
		if cerr := h.dir.CleanClose(); cerr != nil {
			h.o.Logger.Debug("close not recorded", "database", h.name, "error", cerr)
		}
	}
	if cerr := h.dir.Close(); cerr != nil && err == nil {
		err = wrap(h.name, "close", cerr)
	}
	return err
}

// autoSync ships in the background, at most every after a commit.
func (h *handle) autoSync(every time.Duration) {
	defer h.background.Done()
	for {
		select {
		case <-h.life.Done():
			return
		case <-h.wake:
		}
		t := time.NewTimer(every)
		select {
		case <-h.life.Done():
			t.Stop()
			return
		case <-t.C:
		}
		ctx, cancel := context.WithTimeout(h.life, h.o.SyncTimeout)
		if err := h.group.do(ctx); err != nil && h.life.Err() == nil {
			h.o.Logger.Warn("background sync failed", "event", "sync_failed", "database", h.name, "error", err)
			if h.ended() == nil { // try again, unless it is over
				h.committed()
			}
		}
		cancel()
	}
}

// committed is told of each commit that has become certain.
func (h *handle) committed() {
	if note := h.held.Swap(nil); note != nil {
		(*note)()
	}
	select {
	case h.wake <- struct{}{}:
	default:
	}
}
