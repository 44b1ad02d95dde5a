package tonbo_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/dir"
	"github.com/tonbo-go/tonbo/remote/gateway"
	"github.com/tonbo-go/tonbo/remote/s3"
)

// job is what a child process is to do: open the database, make transactions, say so.
type job struct {
	Name, URL, Dir string
	Steps          int           // transactions
	Sync           int           // Synced after every n-th one, 0: never
	Wait           int           // after that many say "wait", and go on when a line comes in on standard input
	Large          bool          // some transactions are large
	Checkpoints    bool          // in the background, a few pages each; otherwise COMMITs make them
	Strict         bool          // Options.Strict
	Lazy           bool          // Options.Hydration = HydrateNone, and a part of the table ballast is read first
	Promote        string        // a file beside the machines' directories with a change set, which is promoted first
	Exactly        bool          // the transactions are DB.Step's, each with its number as id, the same ones in each process
	Janitor        bool          // do nothing but Client.Compact
	Freeze         bool          // do nothing but freeze the database, and thaw it
	Keys           int           // do nothing but Ensure that many instance keys at once ...
	Callers        int           // ... each that many times
	Replace        bool          // ... and then replace the first one's database
	Packing        int           // bases pack their tail, each so many entries; 0: as they do by themselves
	Compact        bool          // after the transactions, wait until the log has a base behind them
	Beside         time.Duration // Options.SyncEvery, and a goroutine that calls Synced all the time
	Close          bool          // Close at the end; otherwise the process kills itself
	Loop           time.Duration // for that long, all of it again and again
	Request        int           // kill the process at this request to the store, counted from 1
	After          bool          // ... when it has been done, instead of before
	Pause          time.Duration // between rounds of a Loop, about
	Pace           time.Duration // before each transaction, about
	Label          int           // after every n-th transaction Checkpoint gives the point a label: see event "label"
	History        time.Duration // Options.History
	SharedCache    int64         // Options.SharedCache
}

// jobEnv holds the job of a child process, as JSON.
const jobEnv = "TONBO_TEST_CHILD"

// event is what a child process says, one JSON value a line.
type event struct {
	What string // see say's callers
	commit
	Path  string `json:",omitempty"` // of what was set aside
	Err   string `json:",omitempty"`
	Warm  bool   `json:",omitempty"`
	After int    `json:",omitempty"` // requests sent
}

// eachEvent calls hear with what a child process says, until its output ends.
func eachEvent(out io.Reader, hear func(event)) {
	r := bufio.NewReader(out)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil { // half a line was never said
			return
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			e = event{What: "broken", Err: fmt.Sprintf("said %q", line)}
		}
		hear(e)
	}
}

// events of a child process:
//
//	open     the database is open in generation Gen, with transactions up to Seq; Path is Status.Lost
//	try      COMMIT of Seq is about to be called
//	commit   it has returned nil
//	refused  it has returned ErrFenced
//	ack      a Synced (or Close) that began after the commit of Seq has returned nil
//	label    Checkpoint that began after the commit of Seq has returned nil, and the point has the label Path
//	unsynced Synced has returned another error than ErrFenced
//	fenced   it has returned ErrFenced; Path is FencedError.Lost
//	deleted  it has returned ErrDeleted; Path is FencedError.Lost
//	wait     it waits for a line
//	promoted Promote has returned nil
//	step     Step of number Seq has returned nil, with the result Path
//	ensured  Ensure of key Seq has returned generation Gen, database Path, started as Err says
//	replaced Replace of key Seq has returned generation Gen, database Path
//	busy     Client.Compact has returned ErrBusy
//	closed   Close has returned nil
//	broken   a promise is broken, as Err says
//	error    something else went wrong
//	done     the end

// childMain is the child process.
func childMain(raw string) int {
	var j job
	if err := json.Unmarshal([]byte(raw), &j); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	c := &child{job: j, in: bufio.NewReader(os.Stdin), end: time.Now().Add(j.Loop)}
	for {
		err := c.run()
		if err != nil {
			c.say(event{What: "error", Err: err.Error()})
			return 1
		}
		if !time.Now().Before(c.end) {
			break
		}
		time.Sleep(time.Duration(rand.Int64N(int64(2*j.Pause + 1))))
	}
	c.say(event{What: "done", After: int(c.requests.Load())})
	return 0
}

// child is the process that does a job.
type child struct {
	job
	in       *bufio.Reader
	end      time.Time
	requests atomic.Int64

	out sync.Mutex

	db    *tonbo.DB
	gen   uint64
	did   atomic.Int64 // the last transaction whose COMMIT has returned nil
	acked atomic.Int64 // the last one that Synced has acknowledged, at least
}

func (c *child) say(e event) {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	c.out.Lock()
	defer c.out.Unlock()
	os.Stdout.Write(append(b, '\n'))
}

var errOver = errors.New("fenced")

func (c *child) run() error {
	ctx := context.Background()
	o := tonbo.Options{URL: c.URL, Dir: c.Dir, Strict: c.Strict, SyncEvery: c.Beside, SyncTimeout: time.Minute, History: c.History, SharedCache: c.SharedCache, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Pragmas: map[string]string{"wal_autocheckpoint": "30", "cache_size": "12"}}
	if c.Checkpoints {
		delete(o.Pragmas, "wal_autocheckpoint")
		o = o.Checkpointing(8 * 4096)
	}
	if c.Request > 0 || c.Loop == 0 {
		store, err := openURL(ctx, c.URL)
		if err != nil {
			return err
		}
		o.Remote = &deadly{Store: store, c: c}
	}
	if c.Packing > 0 {
		o = o.Tuned(c.Packing, 2*time.Second).Packing(8 << 20)
	}
	if c.Lazy {
		o.Hydration = tonbo.HydrateNone
	}
	if c.Keys > 0 {
		return c.ensure(ctx, o)
	}
	if c.Janitor || c.Freeze {
		return c.manage(ctx, o)
	}
	db, err := tonbo.Open(ctx, c.Name, o)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	st := db.Status()
	if c.Lazy {
		var n int
		if err := db.QueryRow("SELECT sum(length(v)) FROM ballast WHERE id<600").Scan(&n); err != nil {
			return fmt.Errorf("ballast: %w", err)
		}
	}
	c.db, c.gen = db, st.Generation
	seq, err := lastSeq(db.DB)
	if err != nil {
		return err
	}
	c.did.Store(int64(seq))
	c.acked.Store(0)
	c.say(event{What: "open", commit: commit{seq, c.gen}, Path: st.Lost, Warm: !st.ColdStart})

	stop := c.syncBeside()
	if c.Promote != "" {
		if err := c.promote(); err != nil {
			return fmt.Errorf("promote: %w", err)
		}
	}
	if c.Exactly {
		err = c.exactly()
	} else {
		err = c.work(seq)
	}
	stop()
	if err == nil && c.Compact {
		err = c.compacted(ctx)
	}
	if err != nil && !errors.Is(err, errOver) {
		return err
	}
	if !c.Close {
		kill()
	}
	// What Close acknowledges was committed before it.
	last := commit{int(c.did.Load()), c.gen}
	over := err != nil
	switch err := db.Close(); {
	case err == nil && !over && last.Seq > int(c.acked.Load()):
		c.say(event{What: "ack", commit: last})
		c.say(event{What: "closed"})
	case err == nil:
		c.say(event{What: "closed"})
	case passed(err):
		c.sayFenced(err)
	default:
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

// manage does what a janitor or an operator does.
func (c *child) manage(ctx context.Context, o tonbo.Options) error {
	cl, err := tonbo.NewClient(o)
	if err != nil {
		return err
	}
	if c.Freeze {
		if err := cl.Freeze(ctx, c.Name); err != nil {
			return err
		}
		return cl.Thaw(ctx, c.Name)
	}
	r, err := cl.Compact(ctx, c.Name)
	if errors.Is(err, tonbo.ErrBusy) { // somebody has opened it meanwhile: nothing is to be done
		c.say(event{What: "busy", Err: err.Error()})
		return nil
	}
	if err == nil && !r.Compacted {
		err = errors.New("nothing was compacted")
	}
	return err
}

// ensure ensures keys, each at a version that has to be migrated to.
func (c *child) ensure(ctx context.Context, o tonbo.Options) error {
	cl, err := tonbo.NewClient(o)
	if err != nil {
		return err
	}
	var g errgroup.Group
	for n := range c.Keys * c.Callers {
		g.Go(func() error {
			key := fmt.Sprint("key-", n%c.Keys)
			in, err := cl.Instances().Ensure(ctx, key, tonbo.EnsureOptions{Version: "v1", Migrate: func(ctx context.Context, tx *sql.Tx, from string) error {
				_, err := tx.Exec("CREATE TABLE migrated AS SELECT ? AS by_process", os.Getpid())
				return err
			}})
			if err != nil {
				return fmt.Errorf("ensure %s: %w", key, err)
			}
			c.say(event{What: "ensured", commit: commit{n % c.Keys, in.Generation}, Path: in.DatabaseID, Err: string(in.Started)})
			if err := in.DB.Close(); err != nil && !errors.Is(err, tonbo.ErrFenced) {
				return err
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil || !c.Replace {
		return err
	}
	in, err := cl.Instances().Replace(ctx, "key-0", tonbo.ReplaceOptions{DeleteOld: true})
	if err == nil {
		c.say(event{What: "replaced", commit: commit{0, in.Generation}, Path: in.DatabaseID})
	}
	return err
}

// compacted waits until the last entry is a base, or another process has taken the database over.
func (c *child) compacted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	store, err := openURL(ctx, c.URL)
	if err != nil {
		return err
	}
	for log := fence.New(store, c.Name, fence.Options{}); ; time.Sleep(time.Millisecond) {
		head, err := log.Head(ctx)
		if err != nil {
			return fmt.Errorf("wait for a base: %w", err)
		}
		if head.Kind == fence.Base || head.Generation > c.gen {
			return nil
		}
	}
}

// work makes the job's transactions.
func (c *child) work(seq int) error {
	for i := 1; i <= c.Steps; i++ {
		if (seq+i)%6 == 1 {
			if err := c.fenced(rollback(c.db.DB)); err != nil {
				return fmt.Errorf("rollback: %w", err)
			}
		}
		if c.Pace > 0 {
			time.Sleep(time.Duration(rand.Int64N(int64(2 * c.Pace))))
		}
		t := commit{seq + i, c.gen}
		c.say(event{What: "try", commit: t})
		if err := step(c.db.DB, t, c.Large); err != nil {
			if c.Strict && errors.Is(err, tonbo.ErrUnsynced) {
				return fmt.Errorf("strict commit: %w", err)
			}
			if err = c.fenced(err); err != nil {
				return fmt.Errorf("transaction %d: %w", t.Seq, err)
			}
		}
		c.did.Store(int64(t.Seq))
		c.say(event{What: "commit", commit: t})
		if c.Strict {
			c.acked.Store(int64(t.Seq))
			c.say(event{What: "ack", commit: t})
		}
		if i == c.Wait {
			c.say(event{What: "wait"})
			if _, err := c.in.ReadString('\n'); err != nil {
				return err
			}
		}
		if c.Label > 0 && t.Seq%c.Label == 0 {
			if err := c.label(t); err != nil {
				return err
			}
		}
		if err := c.fenced(housekeeping(c.db.DB, t.Seq)); err != nil {
			return fmt.Errorf("housekeeping: %w", err)
		}
		if c.Sync > 0 && t.Seq%c.Sync == 0 {
			if err := c.sync(); err != nil {
				return err
			}
			if err := c.sync(); err != nil { // with nothing to ship
				return err
			}
		}
	}
	return nil
}

// promote promotes the job's change set.
func (c *child) promote() error {
	raw, err := os.ReadFile(filepath.Join(filepath.Dir(c.Dir), c.Promote))
	if err != nil {
		return err
	}
	var cs tonbo.ChangeSet
	if err := json.Unmarshal(raw, &cs); err != nil {
		return err
	}
	if _, err := tonbo.Promote(context.Background(), c.db, &cs, tonbo.PromoteOptions{}); err != nil {
		return err
	}
	c.say(event{What: "promoted"})
	return nil
}

// exactly takes the job's steps.
func (c *child) exactly() error {
	if _, err := c.db.Exec("CREATE TABLE IF NOT EXISTS effects(step INTEGER, n INTEGER)"); err != nil {
		return err
	}
	for i := 1; i <= c.Steps; i++ {
		s, err := c.db.Step(context.Background(), "thread", fmt.Sprint(i), func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
			var n int
			err := tx.QueryRow("INSERT INTO effects SELECT ?, 1+(SELECT count(*) FROM effects) RETURNING n", i).Scan(&n)
			return fmt.Appendf(nil, "effect %d", n), err
		})
		if err = c.fenced(err); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		c.say(event{What: "step", commit: commit{i, c.gen}, Path: string(s.Result)})
	}
	return nil
}

// label gives the point after t a label.
func (c *child) label(t commit) error {
	label := fmt.Sprintf("%d of generation %d", t.Seq, t.Gen)
	if _, err := c.db.Checkpoint(context.Background(), label); err != nil {
		if err = c.fenced(err); err != nil {
			return fmt.Errorf("label %s: %w", label, err)
		}
	}
	c.acked.Store(int64(t.Seq))
	c.say(event{What: "label", commit: t, Path: label})
	return nil
}

// sync calls Synced and says what came of it.
func (c *child) sync() error {
	t := commit{int(c.did.Load()), c.gen}
	err := c.db.Synced(context.Background())
	switch {
	case err == nil:
		c.acked.Store(int64(t.Seq))
		c.say(event{What: "ack", commit: t})
		return nil
	case passed(err):
		return c.fenced(err)
	}
	c.say(event{What: "unsynced", Err: err.Error()})
	return nil
}

// syncBeside calls Synced from a goroutine of its own, until the returned function is called.
func (c *child) syncBeside() (stop func()) {
	if c.Beside == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			t := commit{int(c.did.Load()), c.gen}
			err := c.db.Synced(ctx)
			if err == nil {
				c.say(event{What: "ack", commit: t})
			} else if passed(err) {
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(c.Beside):
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// passed tells whether a handle's time is over: another has the database, or nobody has it any more.
func passed(err error) bool {
	return errors.Is(err, tonbo.ErrFenced) || errors.Is(err, tonbo.ErrDeleted)
}

func (c *child) sayFenced(err error) {
	var fe *tonbo.FencedError
	if !errors.As(err, &fe) {
		c.say(event{What: "broken", Err: fmt.Sprintf("ErrFenced without a FencedError: %v", err)})
		return
	}
	what := "fenced"
	if fe.Deleted {
		what = "deleted"
	}
	c.say(event{What: what, commit: commit{Gen: c.gen}, Path: fe.Lost, Err: err.Error()})
}

// fenced looks at an error of a statement. When we have been fenced it checks what is promised then, and returns errOver.
func (c *child) fenced(err error) error {
	if !passed(err) {
		return err
	}
	c.sayFenced(c.db.Err())
	before, err := lastSeq(c.db.DB)
	if err != nil {
		c.say(event{What: "broken", Err: fmt.Sprintf("a read after the fence: %v", err)})
	}
	t := commit{before + 1, c.gen}
	if err := step(c.db.DB, t, false); passed(err) {
		c.say(event{What: "refused", commit: t})
	} else {
		c.say(event{What: "broken", Err: fmt.Sprintf("a COMMIT after the fence: %v", err)})
	}
	if err := c.db.Synced(context.Background()); !passed(err) {
		c.say(event{What: "broken", Err: fmt.Sprintf("a Synced after the fence: %v", err)})
	}
	if after, err := lastSeq(c.db.DB); err != nil || after != before {
		c.say(event{What: "broken", Err: fmt.Sprintf("a refused COMMIT left transaction %d where %d was the last (%v)", after, before, err)})
	}
	select {
	case <-c.db.Done():
	default:
		c.say(event{What: "broken", Err: "Done is not closed"})
	}
	return errOver
}

// kill ends this process as a crash would.
func kill() {
	p, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		panic(err)
	}
	select {}
}

// openURL opens a store as tonbo.Open does.
func openURL(ctx context.Context, raw string) (remote.Store, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "file" {
		return dir.Open(filepath.FromSlash(u.Path))
	}
	if u.Scheme == "http" {
		return gateway.Open(raw, gateway.Options{APIKey: os.Getenv("TONBO_API_KEY")})
	}
	return s3.Open(ctx, raw, s3.Options{})
}

// deadly is a store that counts requests, and before or after one of which the process dies: between a PUT and its answer.
type deadly struct {
	remote.Store
	c *child
}

// request is called before each request; the function it returns, after it.
func (d *deadly) request() func() {
	n := int(d.c.requests.Add(1))
	if n == d.c.Request && !d.c.After {
		kill()
	}
	return func() {
		if n == d.c.Request {
			kill()
		}
	}
}

func (d *deadly) Create(ctx context.Context, key string, body []byte) (string, error) {
	defer d.request()()
	return d.Store.Create(ctx, key, body)
}

func (d *deadly) Get(ctx context.Context, key string, o remote.GetOptions) (remote.Object, error) {
	defer d.request()()
	return d.Store.Get(ctx, key, o)
}

func (d *deadly) List(ctx context.Context, prefix string, o remote.ListOptions) ([]remote.Info, bool, error) {
	defer d.request()()
	return d.Store.List(ctx, prefix, o)
}

func (d *deadly) Swap(ctx context.Context, key, etag string, body []byte) (string, error) {
	defer d.request()()
	return d.Store.Swap(ctx, key, etag, body)
}

func (d *deadly) Delete(ctx context.Context, key string) error {
	defer d.request()()
	return d.Store.Delete(ctx, key)
}
