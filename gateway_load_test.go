package tonbo_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/s3test"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/gateway"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/server"
)

// served is a server of a store on loopback, and what it is asked with.
type served struct {
	url, owner string
}

func serve(t testing.TB, store remote.Store) served {
	t.Helper()
	s, err := server.New(server.Options{Options: tonbo.Options{Remote: store, Dir: t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	owner, err := s.MakeOwner(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(func() {
		srv.Close()
		s.Close()
	})
	return served{srv.URL, owner}
}

// key makes a key.
func (s served) key(t testing.TB, spec string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/v1/api-keys", strings.NewReader(spec))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.owner)
	r.Header.Set("Content-Type", "application/json")
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var made struct{ Data struct{ Secret string } }
	if err := json.Unmarshal(b, &made); err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("make a key: %d %s", resp.StatusCode, bytes.TrimSpace(b))
	}
	return made.Data.Secret
}

// client returns the store behind the server.
func (s served) client(t testing.TB, key string) *gateway.Store {
	t.Helper()
	g, err := gateway.Open(s.url, gateway.Options{APIKey: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

func TestRunThroughARealServer(t *testing.T) {
	inner := mem.New("account")
	srv := serve(t, inner)
	full := &account{t: t, store: srv.client(t, srv.owner)}
	full.create("run-42")
	sandbox := &account{t: t, store: srv.client(t, srv.key(t, `{"name": "run-sandboxes", "database_prefixes": ["run-"]}`))}
	db := open(t, "run-42", sandbox.machine())
	exec(t, db, "CREATE TABLE steps(id INTEGER PRIMARY KEY, body TEXT)")
	exec(t, db, "INSERT INTO steps(body) VALUES('one')")
	synced(t, db)
	if got := rows(t, open(t, "run-42", sandbox.machine()), "SELECT body FROM steps"); got != "one" {
		t.Errorf("got %q", got)
	}
	// What the server keeps of its keys is out of everybody's reach, the owner's too.
	keys, _, err := inner.List(t.Context(), "keys/", remote.ListOptions{})
	if err != nil || len(keys) == 0 {
		t.Fatalf("keys: %v %v", keys, err)
	}
	if page, _, err := full.store.List(t.Context(), "keys/", remote.ListOptions{}); err != nil || len(page) > 0 {
		t.Errorf("the owner lists the keys: %v %v", page, err)
	}
	if _, err := full.store.Get(t.Context(), keys[0].Key, remote.GetOptions{}); err == nil {
		t.Error("the owner reads a key")
	}
}

// TestThousandSandboxesThroughAServer: each has a database of its own, commits and syncs it once a second. TONBO_TEST_LARGE=1; TONBO_TEST_S3=versitygw for a real store behind the server.
func TestThousandSandboxesThroughAServer(t *testing.T) {
	if os.Getenv("TONBO_TEST_LARGE") == "" {
		t.Skip("minutes: set TONBO_TEST_LARGE=1")
	}
	const sandboxes, rounds = 1000, 10
	inner := remote.Store(mem.New("account"))
	if os.Getenv("TONBO_TEST_S3") != "" {
		inner = s3test.Store(t)
	}
	srv := serve(t, inner)
	c, err := tonbo.NewClient(tonbo.Options{Remote: inner, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	key := srv.key(t, `{"name": "run-sandboxes", "database_prefixes": ["run-"]}`)
	dbs := make([]*tonbo.DB, sandboxes)
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(16)
	base := t.TempDir()
	store := srv.client(t, key)
	for i := range dbs {
		g.Go(func() error {
			name := fmt.Sprintf("run-%d", i)
			if _, err := c.Create(ctx, name, tonbo.CreateOptions{}); err != nil {
				return err
			}
			db, err := tonbo.Open(ctx, name, tonbo.Options{Remote: store, Dir: fmt.Sprintf("%s/%d", base, i), SharedCache: -1})
			if err != nil {
				return err
			}
			dbs[i] = db
			_, err = db.ExecContext(ctx, "CREATE TABLE steps(id INTEGER PRIMARY KEY, body TEXT)")
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var acks []time.Duration
	var failed atomic.Int64
	begin := time.Now()
	own, others := cpuTimes()
	var wg sync.WaitGroup
	for _, db := range dbs {
		wg.Go(func() {
			next := begin.Add(rand.N(time.Second))
			for range rounds {
				time.Sleep(time.Until(next)) // the load is what is asked for: one step a second
				next = next.Add(time.Second)
				if _, err := db.Exec("INSERT INTO steps(body) VALUES(hex(randomblob(200)))"); err != nil {
					failed.Add(1)
					t.Error(err)
					return
				}
				start := time.Now()
				if err := db.Synced(context.Background()); err != nil {
					failed.Add(1)
					t.Error(err)
					return
				}
				d := time.Since(start)
				mu.Lock()
				acks = append(acks, d)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	own2, others2 := cpuTimes()
	t.Logf("CPU: %s of sandboxes and server, %s of the store's process", own2-own, others2-others)
	t.Logf("%d sandboxes, %d acknowledgements in %s (%.0f/s), %d errors: p50 %.1f ms, p99 %.1f ms, max %.1f ms; %s, load %s", sandboxes, len(acks), took.Round(time.Millisecond),
		float64(len(acks))/took.Seconds(), failed.Load(), percentile(acks, .5)/1e3, percentile(acks, .99)/1e3, percentile(acks, 1)/1e3, inner, loadNow())
	if len(acks) != sandboxes*rounds {
		t.Errorf("%d acknowledgements", len(acks))
	}
	for _, db := range dbs {
		wg.Go(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func loadNow() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	s, _, _ := strings.Cut(string(b), " ")
	return s
}

// TestIdleConnectionsOfAServer measures what one costs the server.
func TestIdleConnectionsOfAServer(t *testing.T) {
	if os.Getenv("TONBO_TEST_LARGE") == "" {
		t.Skip("a measurement: set TONBO_TEST_LARGE=1")
	}
	srv := serve(t, mem.New("account"))
	const n = 1000
	used := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	var conns []net.Conn
	before := used()
	for range n {
		c, err := net.Dial("tcp", strings.TrimPrefix(srv.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		fmt.Fprintf(c, "GET /v1/objects/probe/ok-v1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", srv.owner)
		resp, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	per := (used() - before) / n
	t.Logf("%d idle connections: %d bytes each, both ends", n, per)
	for _, c := range conns {
		c.Close()
	}
	if per > 64<<10 {
		t.Errorf("%d bytes for an idle connection", per)
	}
}

// BenchmarkRemoteSyncedThroughAServer compares Synced of a one-row commit through a server with that straight on the store, in turns.
func BenchmarkRemoteSyncedThroughAServer(b *testing.B) {
	store := s3test.Store(b)
	srv := serve(b, store)
	direct := &account{t: b, store: store}
	direct.create("direct")
	direct.create("run-1")
	narrowed := &account{t: b, store: srv.client(b, srv.key(b, `{"name": "k", "databases": ["run-1"]}`))}
	dbs := []*tonbo.DB{open(b, "direct", direct.machine()), open(b, "run-1", narrowed.machine())}
	for _, db := range dbs {
		seed(b, db.DB)
		synced(b, db)
	}
	acks := [2][]time.Duration{}
	b.ResetTimer()
	for range b.N {
		for i, db := range dbs {
			if _, err := db.Exec("INSERT INTO t(k,v) VALUES('step',randomblob(1000))"); err != nil {
				b.Fatal(err)
			}
			start := time.Now()
			synced(b, db)
			acks[i] = append(acks[i], time.Since(start))
		}
	}
	b.StopTimer()
	for i, name := range []string{"direct", "server"} {
		b.ReportMetric(percentile(acks[i], .5), "p50-"+name+"-us")
		b.ReportMetric(percentile(acks[i], .99), "p99-"+name+"-us")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkRemoteHydrationThroughAServer compares the time to every page of a database on a new machine, in turns.
func BenchmarkRemoteHydrationThroughAServer(b *testing.B) {
	store := s3test.Store(b)
	srv := serve(b, store)
	direct := &account{t: b, store: store}
	benchDatabase(b, direct, 200)
	through := &account{t: b, store: srv.client(b, srv.key(b, `{"name": "k", "databases": ["bench"]}`))}
	var took [2][]time.Duration
	var used [2]time.Duration // of processors, by all: sandbox, server, store
	b.ResetTimer()
	for range b.N {
		for i, a := range []*account{direct, through} {
			own, others := cpuTimes()
			o := a.machine()
			o.SharedCache = -1
			start := time.Now()
			db, err := tonbo.OpenReadOnly(context.Background(), "bench", o)
			if err != nil {
				b.Fatal(err)
			}
			if err := db.Hydrated(context.Background()); err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], time.Since(start))
			own2, others2 := cpuTimes()
			used[i] += own2 + others2 - own - others
			closeDB(b, db)
			os.RemoveAll(o.Dir)
		}
	}
	b.StopTimer()
	d, s := percentile(took[0], .5)/1e3, percentile(took[1], .5)/1e3
	b.ReportMetric(d, "direct-ms")
	b.ReportMetric(s, "server-ms")
	b.ReportMetric(d/s, "of-direct")
	if used[1] > 0 {
		b.ReportMetric(used[0].Seconds()/used[1].Seconds(), "cpu-of-direct")
		b.ReportMetric(used[1].Seconds()*1e3/float64(b.N), "server-cpu-ms")
	}
	b.ReportMetric(0, "ns/op")
}
