package tonbo_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/s3test"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/dir"
	"github.com/tonbo-go/tonbo/remote/mem"
)

// counted counts requests of every kind.
type counted struct {
	remote.Store
	n atomic.Int64
}

func (c *counted) Create(ctx context.Context, key string, body []byte) (string, error) {
	c.n.Add(1)
	return c.Store.Create(ctx, key, body)
}
func (c *counted) Get(ctx context.Context, key string, o remote.GetOptions) (remote.Object, error) {
	c.n.Add(1)
	return c.Store.Get(ctx, key, o)
}
func (c *counted) List(ctx context.Context, prefix string, o remote.ListOptions) ([]remote.Info, bool, error) {
	c.n.Add(1)
	return c.Store.List(ctx, prefix, o)
}

// process says what this process holds: memory as the system sees it, Go's heap, goroutines, files.
type processHolds struct {
	rss, heap, stacks int64
	goroutines, files int
	cpu               time.Duration
}

func holdsNow(t *testing.T) (h processHolds) {
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	h.heap, h.stacks, h.goroutines = int64(m.HeapAlloc), int64(m.StackInuse), runtime.NumGoroutine()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, resident int64
	fmt.Sscan(string(b), &size, &resident)
	h.rss = resident * int64(os.Getpagesize())
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	h.files = len(fds)
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	h.cpu = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	return h
}

// manyDatabases opens n databases of an account in this process, each with a row that is shipped. They are closed with the test.
func manyDatabases(t *testing.T, c *tonbo.Client, n int, opened func(*tonbo.DB)) []*tonbo.DB {
	t.Helper()
	dbs := make([]*tonbo.DB, n)
	t.Cleanup(func() {
		var g errgroup.Group
		g.SetLimit(8)
		for _, db := range dbs {
			if db != nil {
				g.Go(db.Close)
			}
		}
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	ctx := t.Context()
	var g errgroup.Group
	g.SetLimit(8)
	for i := range dbs {
		g.Go(func() error {
			name := fmt.Sprintf("agent-%d-%d", n, i)
			if _, err := c.Create(ctx, name, tonbo.CreateOptions{}); err != nil {
				return err
			}
			db, err := c.Open(ctx, name)
			if err != nil {
				return err
			}
			dbs[i] = db
			for _, q := range []string{"CREATE TABLE steps(id INTEGER PRIMARY KEY, body TEXT)", "INSERT INTO steps(body) VALUES('begun')"} {
				if _, err := db.ExecContext(ctx, q); err != nil {
					return err
				}
			}
			if err := db.Synced(ctx); err != nil {
				return err
			}
			opened(db)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return dbs
}

// TestManyIdleDatabasesInOneProcess: 10,000 databases hold a file each, no goroutine of ours, little memory, and send nothing in a minute. The remote is a directory: its objects are in no process's memory ($TMPDIR on a RAM disk makes it quick).
func TestManyIdleDatabasesInOneProcess(t *testing.T) {
	if os.Getenv("TONBO_TEST_LARGE") == "" {
		t.Skip("set TONBO_TEST_LARGE=1: minutes")
	}
	const n, watch = 10_000, time.Minute
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < n+n/2 {
		t.Skipf("%d files may be open (%v): raise ulimit -n", limit.Cur, err)
	}
	store, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	count := &counted{Store: store}
	a := &account{t: t, store: count}
	o := a.machine()
	o.MaxDatabases = -1
	c := newClient(t, o)
	rest := func(db *tonbo.DB) { db.SetMaxIdleConns(-1) } // as after a minute
	manyDatabases(t, c, 1, rest)                          // what there is once for all
	before := holdsNow(t)
	begun := time.Now()
	manyDatabases(t, c, n, rest)
	made := time.Since(begun)
	time.Sleep(70 * time.Second) // they put their logs in order, and a sql.DB's second goroutine ends
	for last := int64(-1); last != count.n.Load(); time.Sleep(time.Second) {
		last = count.n.Load()
	}
	after := holdsNow(t)
	requests := count.n.Load()
	time.Sleep(watch)
	requests = count.n.Load() - requests
	idle := holdsNow(t)
	each := func(b int64) float64 { return float64(b) / float64(n) / 1024 }
	t.Logf("%d databases, made in %v: %.1f KiB resident each (%.1f of Go's heap, %.1f of stacks), %.3f files, %.3f goroutines each; %d requests and %v of processor in %v", n, made.Round(time.Second),
		each(after.rss-before.rss), each(after.heap-before.heap), each(after.stacks-before.stacks), float64(after.files-before.files)/float64(n), float64(after.goroutines-before.goroutines)/float64(n), requests, idle.cpu-after.cpu, watch)
	if got := each(after.heap - before.heap + after.stacks - before.stacks); got > 32 {
		t.Errorf("%.1f KiB each, want 32 at most", got)
	}
	if got := after.files - before.files; got > n+8 {
		t.Errorf("%d files, want one each", got)
	}
	if got := after.goroutines - before.goroutines; got > n+8 { // a sql.DB has one
		t.Errorf("%d goroutines, want none but sql.DB's", got)
	}
	if requests != 0 {
		t.Errorf("%d requests of databases that do nothing", requests)
	}
}

// TestThousandDatabasesMakeAStepASecond: 1,000 databases of one process make an exactly-once step a second each, all of which are in the remote, at a PUT each; a while later they hold what idle ones hold. The store is in memory, or what $TONBO_TEST_S3 names.
func TestThousandDatabasesMakeAStepASecond(t *testing.T) {
	if os.Getenv("TONBO_TEST_LARGE") == "" {
		t.Skip("set TONBO_TEST_LARGE=1: minutes")
	}
	const n, rounds = 1000, 30
	var store remote.Store = mem.New("many")
	if os.Getenv("TONBO_TEST_S3") != "" {
		store = s3test.Store(t)
	}
	count := &counted{Store: store}
	a := &account{t: t, store: count}
	o := a.machine()
	o.MaxDatabases = -1
	c := newClient(t, o)
	manyDatabases(t, c, 100, func(db *tonbo.DB) { db.SetMaxIdleConns(-1) }) // what there is once for all
	before := holdsNow(t)
	dbs := manyDatabases(t, c, n, func(*tonbo.DB) {})
	ctx := t.Context()
	begun, requests := holdsNow(t), count.n.Load()
	start := time.Now().Add(time.Second)
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	late := 0
	for i, db := range dbs {
		wg.Go(func() {
			for k := range rounds {
				due := start.Add(time.Duration(k)*time.Second + time.Duration(i)*time.Second/n)
				time.Sleep(time.Until(due))
				_, err := db.Step(ctx, "t", fmt.Sprint(k), func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
					_, err := tx.ExecContext(ctx, "INSERT INTO steps(body) VALUES(?)", strings.Repeat("x", 500))
					return nil, err
				})
				mu.Lock()
				d := time.Since(due) // with the time that it had to wait for the step before
				if took = append(took, d); d > time.Second {
					late++
				}
				mu.Unlock()
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	lasted := time.Since(start)
	busy := holdsNow(t)
	requests = count.n.Load() - requests
	if t.Failed() {
		return
	}
	slices.Sort(took)
	each := func(b int64) float64 { return float64(b) / n / 1024 }
	t.Logf("%d databases at a step a second for %d s, which took %v: from when it was due p50 %v, p99 %v, longest %v, %d of %d more than a second late; %.2f requests a step, %v of processor a second; %.1f KiB and %.2f files each", n, rounds, lasted.Round(time.Millisecond),
		took[len(took)/2], took[len(took)*99/100], took[len(took)-1], late, len(took), float64(requests)/float64(len(took)), (busy.cpu-begun.cpu)/time.Duration(lasted.Seconds()), each(busy.rss-before.rss), float64(busy.files-before.files)/n)
	for i, db := range dbs {
		var steps int
		if err := db.QueryRow("SELECT count(*) FROM steps").Scan(&steps); err != nil || steps != rounds+1 {
			t.Errorf("database %d has %d rows: %v", i, steps, err)
		}
	}
	for end := time.Now().Add(4 * time.Minute); ; time.Sleep(time.Second) { // a connection is closed a minute after its last use, and the goroutine that does it ends within the next one
		idle := holdsNow(t)
		if files, goroutines := idle.files-before.files, idle.goroutines-before.goroutines; files <= n+8 && goroutines <= n+8 {
			t.Logf("%v later: %.1f KiB, %.2f files and %.2f goroutines each", time.Since(start.Add(lasted)).Round(time.Second), each(idle.rss-before.rss), float64(files)/n, float64(goroutines)/n)
			break
		} else if time.Now().After(end) {
			t.Errorf("idle, they hold %d files and %d goroutines", files, goroutines)
			break
		}
	}
}

// TestTenThousandDatabasesThroughARegistry: 10,000 databases are used one after the other while 1,000 of them make an acknowledged step a second each; no more than 2,000 are open, and those that are idle keep 1,200 connections. The store is in memory.
func TestTenThousandDatabasesThroughARegistry(t *testing.T) {
	if os.Getenv("TONBO_TEST_LARGE") == "" {
		t.Skip("set TONBO_TEST_LARGE=1: minutes")
	}
	const n, active, open, conns, rounds = 10_000, 1000, 2000, 1200, 20
	a := newAccount(t)
	o := a.machine()
	o.MaxDatabases = -1
	c := newClient(t, o)
	r := tonbo.NewRegistry(c, creating(c, tonbo.RegistryOptions{MaxOpen: open, MaxIdleConns: conns, MaxIdle: time.Hour}))
	ctx := t.Context()
	step := func(ctx context.Context, db *tonbo.DB) error {
		if _, err := db.ExecContext(ctx, "INSERT INTO t VALUES(?)", strings.Repeat("x", 500)); err != nil {
			return err
		}
		return db.Synced(ctx)
	}
	name := func(i int) string { return fmt.Sprintf("agent-%d", i) }
	before := holdsNow(t)
	var g errgroup.Group
	g.SetLimit(8)
	for i := range n {
		g.Go(func() error { return r.Use(ctx, name(i), step) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	made := holdsNow(t)
	each := func(b int64) float64 { return float64(b) / open / 1024 }
	t.Logf("%d used once: %+v; %.1f KiB resident for each of %d that are open, %d files, %d goroutines", n, r.Stats(), each(made.rss-before.rss), open, made.files-before.files, made.goroutines-before.goroutines)
	for i := range active { // they were closed meanwhile
		g.Go(func() error { return r.Use(ctx, name(i), step) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	start := time.Now().Add(time.Second)
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	done := make(chan struct{})
	for i := range active {
		wg.Go(func() {
			for k := range rounds {
				due := start.Add(time.Duration(k)*time.Second + time.Duration(i)*time.Second/active)
				time.Sleep(time.Until(due))
				if err := r.Use(ctx, name(i), step); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				took = append(took, time.Since(due))
				mu.Unlock()
			}
		})
	}
	others := make(chan int)
	go func() { // the others come and go
		k := 0
		for i := active; ; i = active + (i+1-active)%(n-active) {
			select {
			case <-done:
				others <- k
				return
			case <-time.After(20 * time.Millisecond):
			}
			if err := r.Use(ctx, name(i), step); err != nil {
				t.Error(err)
			}
			k++
		}
	}()
	wg.Wait()
	close(done)
	k := <-others
	busy := holdsNow(t)
	s := r.Stats()
	if s.Open > open || s.Connections > conns {
		t.Errorf("beyond the bounds: %+v", s)
	}
	slices.Sort(took)
	if len(took) > 0 {
		t.Logf("%d of them at a step a second, and %d uses of others beside: from when it was due p50 %v, p99 %v, longest %v; %.1f KiB for each that is open; %+v", active, k, took[len(took)/2], took[len(took)*99/100], took[len(took)-1], each(busy.rss-before.rss), s)
	}
	if err := r.Close(ctx); err != nil {
		t.Error(err)
	}
	for _, i := range []int{0, active - 1, active, n - 1} {
		db, err := c.Open(ctx, name(i))
		if err != nil {
			t.Fatal(err)
		}
		var rows, want int
		if want = 1; i < active {
			want += 1 + rounds
		}
		if err := db.QueryRow("SELECT count(*) FROM t").Scan(&rows); err != nil || rows < want {
			t.Errorf("%s has %d rows, want %d at least: %v", name(i), rows, want, err)
		}
		closeDB(t, db)
	}
}

// fewFilesEnv makes the test binary run its test with few files.
const fewFilesEnv = "TONBO_TEST_FEW_FILES"

// TestOpenBeyondTheLimitOfFilesNamesIt, and what is open goes on.
func TestOpenBeyondTheLimitOfFilesNamesIt(t *testing.T) {
	if os.Getenv(fewFilesEnv) == "" {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := osexec.CommandContext(t.Context(), exe, "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), fewFilesEnv+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	a := newAccount(t)
	for i := range 40 {
		a.create(fmt.Sprint("run-", i))
	}
	o := a.machine()
	db := open(t, "run-0", o)
	exec(t, db, "CREATE TABLE t(v)")
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: uint64(len(fds) + 12), Max: uint64(len(fds) + 12)}); err != nil {
		t.Fatal(err)
	}
	var opened []*tonbo.DB
	for i := 1; i < 40; i++ {
		var next *tonbo.DB
		if next, err = tonbo.Open(t.Context(), fmt.Sprint("run-", i), o); err != nil {
			break
		}
		opened = append(opened, next)
	}
	if err == nil || !errors.Is(err, syscall.EMFILE) || !strings.Contains(err.Error(), "ulimit -n") {
		t.Errorf("after %d databases: %v", len(opened), err)
	}
	exec(t, db, "INSERT INTO t VALUES(1)") // its connection is open
	for _, next := range opened {
		closeDB(t, next)
	}
	synced(t, db)
	after := open(t, "run-39", o)
	exec(t, after, "CREATE TABLE t(v)")
	synced(t, after)
}
