package tonbo_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	sqlitedriver "github.com/ncruces/go-sqlite3/driver"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/s3test"
	"github.com/tonbo-go/tonbo/remote"
)

// The local benchmarks compare the driver's own VFS ("plain") with ours ("tonbo"), both in WAL mode at synchronous=NORMAL, in turns of one run: the ratio
// says more than either figure. The remote ones need a server: TONBO_TEST_S3=versitygw go test -bench Remote .

// pool is one side of a local comparison.
type pool struct {
	name string
	db   *sql.DB
}

func plain(b *testing.B) pool {
	db, err := sqlitedriver.Open("file:" + filepath.Join(b.TempDir(), "plain.db") + "?_pragma=busy_timeout(60000)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	return pool{"plain", db}
}

func ours(b *testing.B) pool {
	a := newAccount(b)
	a.create("bench")
	return pool{"tonbo", open(b, "bench", a.machine()).DB}
}

func bexec(b *testing.B, db *sql.DB, q string, args ...any) {
	b.Helper()
	if _, err := db.Exec(q, args...); err != nil {
		b.Fatal(err)
	}
}

const seedRows = 20_000

func seed(b *testing.B, db *sql.DB) {
	bexec(b, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, k TEXT, v BLOB)")
	bexec(b, db, fmt.Sprintf("WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<%d) INSERT INTO t(k,v) SELECT hex(randomblob(8)), randomblob(200) FROM s", seedRows))
}

// workload prepares its statements and returns one operation.
type workload struct {
	name string
	prep func(b *testing.B, db *sql.DB) func(i int)
}

func prepare(b *testing.B, db *sql.DB, q string) *sql.Stmt {
	s, err := db.Prepare(q)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

var workloads = []workload{
	{"insert", func(b *testing.B, db *sql.DB) func(int) {
		ins := prepare(b, db, "INSERT INTO t(k,v) VALUES(?,?)")
		v := make([]byte, 200)
		rand.Read(v)
		return func(i int) {
			if _, err := ins.Exec("key", v); err != nil {
				b.Fatal(err)
			}
		}
	}},
	{"step", func(b *testing.B, db *sql.DB) func(int) {
		ins := prepare(b, db, "INSERT INTO t(k,v) VALUES(?,?)")
		upd := prepare(b, db, "UPDATE t SET k=? WHERE id=?")
		get := prepare(b, db, "SELECT v FROM t WHERE id=?")
		v := make([]byte, 200)
		rand.Read(v)
		return func(i int) {
			tx, err := db.Begin()
			if err != nil {
				b.Fatal(err)
			}
			if _, err := tx.Stmt(ins).Exec("key", v); err != nil {
				b.Fatal(err)
			}
			if _, err := tx.Stmt(upd).Exec("updated", 1+i*7919%seedRows); err != nil {
				b.Fatal(err)
			}
			if err := tx.Commit(); err != nil {
				b.Fatal(err)
			}
			for j := range 3 {
				var out []byte
				if err := get.QueryRow(1 + (i*104729+j*31)%seedRows).Scan(&out); err != nil {
					b.Fatal(err)
				}
			}
		}
	}},
	{"bulk", func(b *testing.B, db *sql.DB) func(int) {
		return func(i int) {
			bexec(b, db, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<2000) INSERT INTO t(k,v) SELECT 'bulk', zeroblob(200) FROM s")
			if i%20 == 19 {
				bexec(b, db, "DELETE FROM t WHERE id>?", seedRows)
			}
		}
	}},
	{"select", func(b *testing.B, db *sql.DB) func(int) {
		get := prepare(b, db, "SELECT v FROM t WHERE id=?")
		return func(i int) {
			var out []byte
			if err := get.QueryRow(1 + i*7919%seedRows).Scan(&out); err != nil {
				b.Fatal(err)
			}
		}
	}},
	{"scan", func(b *testing.B, db *sql.DB) func(int) {
		bexec(b, db, "PRAGMA cache_size=-200") // pages come from the file
		return func(int) {
			var n int
			if err := db.QueryRow("SELECT sum(length(v)) FROM t WHERE id<=?", seedRows).Scan(&n); err != nil {
				b.Fatal(err)
			}
		}
	}},
}

// BenchmarkLocal reports, for each workload, both sides and their ratio: tonbo's speed as a part of the plain VFS's, measured in turns.
func BenchmarkLocal(b *testing.B) {
	for _, w := range workloads {
		b.Run(w.name, func(b *testing.B) {
			sides := []pool{plain(b), ours(b)}
			ops := make([]func(int), len(sides))
			for i, s := range sides {
				s.db.SetMaxOpenConns(1)
				seed(b, s.db)
				ops[i] = w.prep(b, s.db)
			}
			turn := max(1, min(b.N/40, 500))
			spent := make([]time.Duration, len(sides))
			var ratios []float64
			b.ResetTimer()
			for done := 0; done < b.N; done += turn {
				n := min(turn, b.N-done)
				var took [2]time.Duration
				for k := range sides { // who goes first changes with each turn
					s := (k + done/turn) % len(sides)
					start := time.Now()
					for i := range n {
						ops[s](done + i)
					}
					took[s] = time.Since(start)
					spent[s] += took[s]
				}
				ratios = append(ratios, float64(took[0])/float64(took[1]))
			}
			b.StopTimer()
			slices.Sort(ratios)
			for i, s := range sides {
				b.ReportMetric(float64(spent[i].Nanoseconds())/float64(b.N), "ns/"+s.name)
			}
			b.ReportMetric(float64(spent[0])/float64(spent[1]), "ratio")
			b.ReportMetric(ratios[len(ratios)/2], "ratio-p50")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// percentile of sorted durations, in microseconds.
func percentile(d []time.Duration, p float64) float64 {
	slices.Sort(d)
	return float64(d[min(len(d)-1, int(p*float64(len(d))))].Nanoseconds()) / 1e3
}

// BenchmarkRemoteSynced compares Synced of a one-row commit with a raw conditional PUT of as many bytes, in turns on one server.
func BenchmarkRemoteSynced(b *testing.B) {
	store := s3test.Store(b)
	a := &account{t: b, store: store}
	a.create("bench")
	db := open(b, "bench", a.machine())
	seed(b, db.DB)
	synced(b, db)
	ctx := context.Background()
	row := make([]byte, 1000)
	var acks, puts []time.Duration
	before := db.Status().Requests
	b.ResetTimer()
	for i := range b.N {
		rand.Read(row)
		if _, err := db.Exec("INSERT INTO t(k,v) VALUES('step',?)", row); err != nil {
			b.Fatal(err)
		}
		r := db.Status().Requests.BytesUp
		start := time.Now()
		if err := db.Synced(ctx); err != nil {
			b.Fatal(err)
		}
		acks = append(acks, time.Since(start))
		body := make([]byte, db.Status().Requests.BytesUp-r)
		rand.Read(body)
		start = time.Now()
		if _, err := store.Create(ctx, fmt.Sprintf("raw/%d", i), body); err != nil {
			b.Fatal(err)
		}
		puts = append(puts, time.Since(start))
	}
	b.StopTimer()
	after := db.Status().Requests
	b.ReportMetric(float64(after.Put-before.Put)/float64(b.N), "puts/ack")
	b.ReportMetric(float64(after.Get+after.List+after.Head-before.Get-before.List-before.Head)/float64(b.N), "others/ack")
	b.ReportMetric(float64(after.BytesUp-before.BytesUp)/float64(b.N), "B/ack")
	b.ReportMetric(percentile(acks, .5), "p50-ack-us")
	b.ReportMetric(percentile(acks, .99), "p99-ack-us")
	b.ReportMetric(percentile(puts, .5), "p50-put-us")
	b.ReportMetric(percentile(puts, .99), "p99-put-us")
	b.ReportMetric(percentile(acks, .5)/percentile(puts, .5), "ratio-p50")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkRemoteIdleSynced is the ownership round trip alone.
func BenchmarkRemoteIdleSynced(b *testing.B) {
	a := &account{t: b, store: s3test.Store(b)}
	a.create("bench")
	db := open(b, "bench", a.machine())
	before := db.Status().Requests
	b.ResetTimer()
	for range b.N {
		synced(b, db)
	}
	after := db.Status().Requests
	b.ReportMetric(float64(after.Get-before.Get)/float64(b.N), "gets/ack")
	b.ReportMetric(float64(after.Put+after.List-before.Put-before.List)/float64(b.N), "others/ack")
}

// benchDatabase makes a database of about so many MB whose rows compress little, merged into a base.
func benchDatabase(b *testing.B, a *account, mb int) {
	a.create("bench")
	db := open(b, "bench", a.machine())
	bexec(b, db.DB, "CREATE TABLE t(id INTEGER PRIMARY KEY, k TEXT, v BLOB)")
	for done := 0; done < mb; done += 50 {
		bexec(b, db.DB, fmt.Sprintf("WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<%d) INSERT INTO t(k,v) SELECT hex(randomblob(250)), randomblob(500) FROM s", min(50, mb-done)*950))
		synced(b, db)
	}
	if err := db.Compact(context.Background(), false); err != nil {
		b.Fatal(err)
	}
	closeDB(b, db)
}

// BenchmarkRemoteColdStart opens a database on a new machine and reads one row by its key.
func BenchmarkRemoteColdStart(b *testing.B) {
	for _, mb := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("%dMB", mb), func(b *testing.B) {
			store := s3test.Store(b)
			a := &account{t: b, store: store}
			benchDatabase(b, a, mb)
			var opens []time.Duration
			var r tonbo.Requests
			b.ResetTimer()
			for range b.N {
				o := a.machine()
				o.Hydration = tonbo.HydrateNone
				start := time.Now()
				db := open(b, "bench", o)
				var n int
				if err := db.QueryRow("SELECT id FROM t WHERE id=?", mb*500).Scan(&n); err != nil {
					b.Fatal(err)
				}
				opens = append(opens, time.Since(start))
				r = db.Status().Requests
				closeDB(b, db)
				os.RemoveAll(o.Dir)
			}
			b.StopTimer()
			b.ReportMetric(float64(r.Get+r.List+r.Put+r.Head), "requests")
			b.ReportMetric(float64(r.BytesDown), "B-down")
			b.ReportMetric(percentile(opens, .5)/1e3, "p50-row-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// line is a store at the end of a line of so many bytes a second, which all requests share.
type line struct {
	remote.Store
	rate float64

	mu   sync.Mutex
	free time.Time // when all that was asked for has come through
}

func (l *line) Get(ctx context.Context, key string, g remote.GetOptions) (remote.Object, error) {
	o, err := l.Store.Get(ctx, key, g)
	if err != nil {
		return o, err
	}
	l.mu.Lock()
	if now := time.Now(); l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(float64(len(o.Body)) / l.rate * 1e9))
	d := time.Until(l.free)
	l.mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return o, nil
	case <-ctx.Done():
		return o, &remote.Error{Op: "get", Store: l.String(), Key: key, Kind: remote.ErrUnknown, Err: ctx.Err()}
	}
}

// BenchmarkRemoteHydration fetches a whole database, against a raw GET of the same objects in parallel, in turns on one server: over the loopback, where
// the processor that unpacks and compares is the bound, and over a line of 1 Gbit/s.
func BenchmarkRemoteHydration(b *testing.B) {
	const mb = 200
	inner := s3test.Store(b)
	benchDatabase(b, &account{t: b, store: inner}, mb)
	for _, over := range []struct {
		name  string
		store remote.Store
	}{{"loopback", inner}, {"1Gbit", &line{Store: inner, rate: 125e6}}} {
		b.Run(over.name, func(b *testing.B) { hydration(b, &account{t: b, store: over.store}) })
	}
}

func hydration(b *testing.B, a *account) {
	ctx := context.Background()
	probe := open(b, "bench", a.lazyMachine())
	var keys []string
	var size int64
	for _, level := range probe.Base().Levels {
		for _, s := range level {
			keys = append(keys, s.Key)
			size += s.Size
		}
	}
	closeDB(b, probe)
	var ours, raw []time.Duration
	var top uint64
	b.ResetTimer()
	for range b.N {
		o := a.machine()
		debug.FreeOSMemory()
		top = max(top, peak(func() {
			start := time.Now()
			db := open(b, "bench", o)
			if err := db.Hydrated(ctx); err != nil {
				b.Fatal(err)
			}
			ours = append(ours, time.Since(start))
			closeDB(b, db)
		}))
		os.RemoveAll(o.Dir)
		start := time.Now()
		var g errgroup.Group
		g.SetLimit(8)
		for _, k := range keys {
			g.Go(func() error { _, err := a.store.Get(ctx, k, remote.GetOptions{}); return err })
		}
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
		raw = append(raw, time.Since(start))
	}
	b.StopTimer()
	b.ReportMetric(float64(size)/percentile(ours, .5), "MB/s-hydrate")
	b.ReportMetric(float64(size)/percentile(raw, .5), "MB/s-raw")
	b.ReportMetric(percentile(raw, .5)/percentile(ours, .5), "ratio-p50")
	b.ReportMetric(float64(top>>20), "MiB-peak")
	b.ReportMetric(0, "ns/op")
}
