package tonbo

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/tonbo-go/tonbo/vfs"
)

// Sizes of the write-ahead log, in bytes of its pages. The first is tuning.wal; the others are multiples of that.
const (
	checkpointAfter = 4 << 20 // not in the main file: a checkpoint begins in the background
	checkpointTurn  = 4       // in all, times that: from here on it is made to begin anew, see turn
	checkpointLimit = 16      // in all, times that: a COMMIT makes a checkpoint itself, as SQLite does
)

const (
	checkpointLinger = 100 * time.Millisecond // how long it waits for more to do before it lets go of its connection
	checkpointYield  = time.Second            // how long it makes none once somebody asks for one
	checkpointRest   = 5 * time.Millisecond   // how long Takes wait for a COMMIT that makes the log begin anew
)

// checkpointer copies committed pages from the write-ahead log into the main file while others commit, so that a COMMIT seldom has to: SQLite's own automatic checkpoint makes
// one COMMIT in every thousand pages wait until they are copied and synced (https://sqlite.org/wal.html#automatic_checkpoint). Its checkpoints are PASSIVE: they wait for
// nobody. Nobody waits for them either, but where writers leave no gap in which the log could begin anew: see turn.
//
// It is told of each COMMIT by the connection's hook (https://sqlite.org/c3ref/wal_hook.html), which takes the place of SQLite's automatic checkpoint. Its goroutine and its connection exist only
// while there is something to do.
type checkpointer struct {
	h   *handle
	vdb *vfs.Database // set before the first connection

	one sync.Mutex // held while the connection does something

	mu      sync.Mutex // guards what follows
	moved   *sync.Cond // on mu: opening has become 0, or moving false
	opening int        // connections of others that are being opened
	moving  bool       // its own is being opened or closed
	quiet   time.Time  // no checkpoint before
	stopped bool
	running chan struct{} // closed when the goroutine has ended; nil when there is none
	end     context.CancelFunc
	more    chan struct{} // there is something to do again
	serial  int64         // of the log that a checkpoint was last made of
	tried   int           // frames that the log had by then
	turned  int           // frames that it had when it was last tried to make it begin anew
	gate    chan struct{} // closed when COMMITs need not wait any more; nil: they need not
}

func newCheckpointer(h *handle) *checkpointer {
	c := &checkpointer{h: h, more: make(chan struct{}, 1)}
	c.moved = sync.NewCond(&c.mu)
	return c
}

// otherAutocheckpoint is SQLite's own default, in pages, for attached files that are not ours.
const otherAutocheckpoint = 1000

// committed is the connection's hook: its transaction has ended, and it holds no lock.
func (c *checkpointer) committed(conn *sqlite3.Conn, schema string, frames int) error {
	if schema != "main" {
		if frames >= otherAutocheckpoint {
			conn.WALCheckpoint(schema, sqlite3.CHECKPOINT_PASSIVE) // what it says does not concern the COMMIT, as in SQLite's own hook
		}
		return nil
	}
	if gate := c.begin(); gate != nil {
		select {
		case <-gate:
		case <-conn.GetInterrupt().Done():
		}
	}
	if limit := c.h.tune.wal * checkpointLimit; frames*c.vdb.PageSize() >= limit {
		if _, frames := c.vdb.WALFrames(); frames*c.vdb.PageSize() >= limit {
			c.settled() // SQLite refuses two at once
			conn.WALCheckpoint(schema, sqlite3.CHECKPOINT_PASSIVE)
		}
	}
	return nil
}

// begin starts a checkpoint in the background when one is due. A COMMIT waits for gate, if there is one.
func (c *checkpointer) begin() (gate <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped || !c.due() {
		return c.gate
	}
	if c.running != nil {
		select {
		case c.more <- struct{}{}:
		default:
		}
		return c.gate
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.running, c.end = make(chan struct{}), cancel
	go c.run(ctx)
	return nil
}

// due tells that a checkpoint should begin. The caller holds mu.
func (c *checkpointer) due() bool {
	serial, frames := c.vdb.WALFrames()
	if serial != c.serial {
		c.serial, c.tried, c.turned = serial, 0, 0
	}
	if (frames-c.tried)*c.vdb.PageSize() < c.h.tune.wal {
		return false
	}
	return c.quiet.IsZero() || !time.Now().Before(c.quiet)
}

func (c *checkpointer) run(ctx context.Context) {
	defer func() {
		c.h.rest() // its connection may have been the last one
		c.mu.Lock()
		defer c.mu.Unlock()
		close(c.running)
		c.running = nil
		c.end()
	}()
	conn, err := c.open(ctx)
	if err != nil {
		c.failed(ctx, err)
	}
	if conn == nil {
		return
	}
	defer func() {
		defer c.move(ctx)()
		c.one.Lock()
		defer c.one.Unlock()
		conn.Close()
	}()
	t := time.NewTimer(checkpointLinger)
	defer t.Stop()
	for {
		if err := c.checkpoint(ctx, conn); err != nil {
			c.failed(ctx, err)
			return
		}
		t.Reset(checkpointLinger)
		select {
		case <-c.more:
		case <-t.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// enter is called by who opens a connection, and leave when it is open. SQLite lets nobody in while the only connection is being opened, which may mean to recover the
// write-ahead log, or closed, which deletes it (https://sqlite.org/wal.html#sometimes_queries_return_sqlite_busy_in_wal_mode): that is not to be the one for checkpoints.
func (c *checkpointer) enter(ctx context.Context) (leave func(), err error) {
	defer context.AfterFunc(ctx, c.wake)()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.moving {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c.moved.Wait()
	}
	c.opening++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.opening--
		c.moved.Broadcast()
	}, nil
}

// move waits until nobody opens a connection, and keeps others from it until done. When ctx has ended it does not wait: connections are refused then.
func (c *checkpointer) move(ctx context.Context) (done func()) {
	defer context.AfterFunc(ctx, c.wake)()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.opening > 0 && ctx.Err() == nil {
		c.moved.Wait()
	}
	c.moving = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.moving = false
		c.moved.Broadcast()
	}
}

func (c *checkpointer) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved.Broadcast()
}

// open makes the connection, if it is still wanted.
func (c *checkpointer) open(ctx context.Context) (*sqlite3.Conn, error) {
	defer c.move(ctx)()
	c.one.Lock()
	defer c.one.Unlock()
	c.mu.Lock()
	due := c.due()
	c.mu.Unlock()
	if !due {
		return nil, nil
	}
	return sqlite3.OpenContext(ctx, fileURI(c.vdb.Path(), "vfs="+vfs.Name+"&tonbo="+c.vdb.Token()+"&"+c.h.pragmas("synchronous")))
}

// checkpoint makes one, if it is still due. A reader of an older state may keep it from copying everything: that is tried again when as much has come on top.
func (c *checkpointer) checkpoint(ctx context.Context, conn *sqlite3.Conn) error {
	c.one.Lock()
	defer c.one.Unlock()
	c.mu.Lock()
	due := c.due()
	c.mu.Unlock()
	if !due {
		return nil
	}
	_, err := c.copy(conn)
	if err != nil {
		return err
	}
	turn := c.h.tune.wal * checkpointTurn / c.vdb.PageSize()
	c.mu.Lock()
	_, frames := c.vdb.WALFrames()
	due = frames >= turn && frames-c.turned >= turn/4
	c.mu.Unlock()
	if !due {
		return nil
	}
	return c.turn(ctx, conn)
}

// copy makes a checkpoint, and tells how many frames were left over.
func (c *checkpointer) copy(conn *sqlite3.Conn) (left int, err error) {
	c.mu.Lock()
	_, c.tried = c.vdb.WALFrames()
	c.mu.Unlock()
	_, done, err := conn.WALCheckpoint("main", sqlite3.CHECKPOINT_PASSIVE)
	_, frames := c.vdb.WALFrames()
	return frames - done, err
}

// copyAndTell is copy, and beside it what is noted before the log begins anew: both wait for the disk.
func (c *checkpointer) copyAndTell(conn *sqlite3.Conn) (left int, err error) {
	told := make(chan error, 1)
	go func() { told <- c.vdb.Foretell() }()
	left, err = c.copy(conn)
	return left, errors.Join(err, <-told)
}

// turn makes the write-ahead log begin anew although writers leave no gap. It does so when the first COMMIT after a checkpoint finds all of the log in the main file, so COMMITs have to wait for the
// last bit. What can be done before is done before; and what a Synced reads they do not wait for, the log grows meanwhile.
func (c *checkpointer) turn(ctx context.Context, conn *sqlite3.Conn) error {
	// (1) Come close behind the writers.
	for last := 1 << 30; ; {
		left, err := c.copy(conn)
		if err != nil {
			return err
		}
		if left == 0 || left > last/2 {
			break
		}
		last = left
	}
	// (2) Nobody reads pages back from here on until the log has begun anew.
	over, release, ok := c.vdb.HoldTakes(ctx)
	if !ok {
		return nil
	}
	defer release()
	if _, err := c.copyAndTell(conn); err != nil {
		return err
	}
	// (3) COMMITs wait.
	gate := make(chan struct{})
	c.mu.Lock()
	c.gate = gate
	c.mu.Unlock()
	left, err := c.copyAndTell(conn)
	// (4) They go on.
	c.mu.Lock()
	c.gate = nil
	_, c.turned = c.vdb.WALFrames()
	c.mu.Unlock()
	close(gate)
	if err != nil || left > 0 { // somebody reads an older state, or was within a transaction
		return err
	}
	t := time.NewTimer(checkpointRest)
	defer t.Stop()
	select {
	case <-over:
	case <-t.C:
	}
	return nil
}

// failed: COMMITs make the checkpoint, later, and say what is wrong.
func (c *checkpointer) failed(ctx context.Context, err error) {
	if ctx.Err() == nil {
		c.h.o.Logger.Debug("no checkpoint in the background", "database", c.h.name, "error", c.h.reason(err))
	}
}

// yield waits until the connection does nothing, and makes none for a while: SQLite refuses two at once, and a reader is in a checkpoint's way.
func (c *checkpointer) yield() {
	c.mu.Lock()
	c.quiet = time.Now().Add(checkpointYield)
	c.mu.Unlock()
	c.settled()
}

// settled waits until the connection does nothing.
func (c *checkpointer) settled() {
	c.one.Lock()
	defer c.one.Unlock()
}

// stop waits until nothing runs, and nothing begins any more.
func (c *checkpointer) stop() {
	c.mu.Lock()
	c.stopped = true
	running := c.running
	if running != nil {
		c.end()
	}
	c.mu.Unlock()
	if running != nil {
		<-running
	}
}

// ownCheckpoints tells that the program looks after checkpoints itself: Options.Pragmas sets when COMMITs make them.
func (h *handle) ownCheckpoints() bool {
	for k := range h.o.Pragmas {
		if strings.EqualFold(k, "wal_autocheckpoint") {
			return true
		}
	}
	return false
}

// stopCheckpoints ends the checkpoints in the background, until the file is observed again.
func (h *handle) stopCheckpoints() {
	h.mu.Lock()
	c := h.checkpoints
	h.checkpoints = nil
	h.mu.Unlock()
	if c != nil {
		c.stop()
	}
}
