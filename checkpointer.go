package tonbo

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/tonbo-go/tonbo/vfs"
)

// Sizes of the write-ahead log, in bytes of its pages.
const (
	checkpointAfter = 1 << 20 // not in the main file: a checkpoint begins in the background
	checkpointUntil = 4 << 20 // in all: none begins any more; the log can begin anew only when one has found no gap behind it
	checkpointLimit = 6 << 20 // in all: a COMMIT makes a checkpoint itself, as SQLite does
)

const (
	checkpointLinger = 100 * time.Millisecond // how long it waits for more to do before it lets go of its connection
	checkpointYield  = time.Second            // how long it makes none once somebody asks for one
)

// checkpointer copies committed pages from the write-ahead log into the main file while others commit, so that a COMMIT seldom has to: SQLite's own automatic checkpoint makes
// one COMMIT in every thousand pages wait until they are copied and synced (https://sqlite.org/wal.html#automatic_checkpoint). Its checkpoints are PASSIVE: they wait for
// nobody, and nobody waits for them. When writers leave no gap in which the log could begin anew, a COMMIT makes the rest of a checkpoint, which is little then.
//
// Its goroutine and its connection exist only while there is something to do.
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
}

func newCheckpointer(h *handle) *checkpointer {
	c := &checkpointer{h: h, more: make(chan struct{}, 1)}
	c.moved = sync.NewCond(&c.mu)
	return c
}

// autocheckpoint is when a COMMIT makes a checkpoint itself, in pages.
func autocheckpoint(pageSize int) string { return strconv.Itoa(checkpointLimit / pageSize) }

// committed is called at the end of each COMMIT.
func (c *checkpointer) committed() {
	c.begin()
	if _, frames := c.vdb.WALFrames(); frames*c.vdb.PageSize() >= checkpointLimit { // the COMMIT is to make a checkpoint, and SQLite refuses it while there is one: the log would grow
		c.settled()
	}
}

// begin starts a checkpoint in the background when one is due.
func (c *checkpointer) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped || !c.due() {
		return
	}
	if c.running != nil {
		select {
		case c.more <- struct{}{}:
		default:
		}
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.running, c.end = make(chan struct{}), cancel
	go c.run(ctx)
}

// due tells that a checkpoint should begin. The caller holds mu.
func (c *checkpointer) due() bool {
	serial, frames := c.vdb.WALFrames()
	if serial != c.serial {
		c.serial, c.tried = serial, 0
	}
	if !c.quiet.IsZero() && time.Now().Before(c.quiet) {
		return false
	}
	size := c.vdb.PageSize()
	return (frames-c.tried)*size >= c.h.tune.wal && frames*size < checkpointUntil
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
		if err := c.checkpoint(conn); err != nil {
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
func (c *checkpointer) checkpoint(conn *sqlite3.Conn) error {
	c.one.Lock()
	defer c.one.Unlock()
	c.mu.Lock()
	due := c.due()
	if due {
		_, c.tried = c.vdb.WALFrames()
	}
	c.mu.Unlock()
	if !due {
		return nil
	}
	_, _, err := conn.WALCheckpoint("main", sqlite3.CHECKPOINT_PASSIVE)
	return err
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
