package tonbo_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/s3test"
	"github.com/tonbo-go/tonbo/remote/s3"
)

// badLine is a TCP proxy. Of its connections, counted from 1, some end badly: answers are lost after the request has gone up, in part or whole, or a reset comes at any byte of either direction.
type badLine struct {
	l     net.Listener
	to    string
	delay time.Duration // of each piece that goes up
	each  int           // bytes that go through at once, and then
	pause time.Duration // so long nothing: a cap
	conns atomic.Int64
	cut   atomic.Int64
	wg    sync.WaitGroup
}

func newBadLine(t *testing.T, to string) *badLine {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &badLine{l: l, to: to, delay: time.Millisecond, each: 16 << 10, pause: time.Millisecond}
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n := p.conns.Add(1)
			p.wg.Go(func() { p.serve(c.(*net.TCPConn), n) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.wg.Wait()
	})
	return p
}

func (p *badLine) serve(down *net.TCPConn, n int64) {
	defer down.Close()
	c, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	up := c.(*net.TCPConn)
	defer up.Close()
	upTo, downTo := 6000*(n%9), int64(30_000) // bytes until the line is cut
	switch n % 4 {
	case 1:
		downTo = 1500 * (n % 7) // an answer, after some or before the first byte of one
	case 2:
		upTo = 700 * (n % 31)
	case 3:
		downTo = 200 + 97*(n%50)
	}
	var both sync.WaitGroup
	pipe := func(to, from *net.TCPConn, limit int64, delay time.Duration) {
		b := make([]byte, p.each)
		for {
			k, err := from.Read(b)
			if delay > 0 {
				time.Sleep(delay)
			}
			if int64(k) > limit {
				to.Write(b[:limit])
				p.cut.Add(1)
				for _, c := range []*net.TCPConn{down, up} {
					c.SetLinger(0) // a reset
					c.Close()
				}
				return
			}
			limit -= int64(k)
			if _, werr := to.Write(b[:k]); werr != nil || err != nil {
				to.CloseWrite()
				if err != io.EOF {
					from.Close()
				}
				return
			}
			time.Sleep(p.pause)
		}
	}
	both.Go(func() { pipe(up, down, upTo, p.delay) })
	both.Go(func() { pipe(down, up, downTo, 0) })
	both.Wait()
}

// overALine is a place in a real S3 store, and the same one through a proxy.
type overALine struct {
	t            *testing.T
	place        s3test.Place
	endpoint     string // host:port of the store
	direct, line *account
	acked, tried atomic.Int64  // steps
	met          chan struct{} // gets one for each step acknowledged, while there is somebody to take it; nil: nobody
}

func newOverALine(t *testing.T) *overALine {
	place := s3test.At(t)
	u, err := url.Parse(place.URL)
	if err != nil {
		t.Fatal(err)
	}
	endpoint, err := url.Parse(u.Query().Get("endpoint"))
	if err != nil || endpoint.Scheme != "http" {
		t.Skipf("the store is not reached by plain HTTP: %s", place.URL)
	}
	return &overALine{t: t, place: place, endpoint: endpoint.Host, direct: &account{t: t, store: place.Open(t)}}
}

// through has the agents reach the store as o says.
func (l *overALine) through(o s3.Options) {
	l.line = &account{t: l.t, store: l.place.OpenWith(l.t, o)}
}

// agents lets four agents make steps until the context ends, and at least three each. What was acknowledged is there for the next machine, once.
func (l *overALine) agents(until context.Context) {
	t := l.t
	var wg sync.WaitGroup
	for i := range 4 {
		name := fmt.Sprint("agent-", i)
		l.direct.create(name)
		wg.Go(func() { l.agent(until, name) })
	}
	wg.Wait()
	t.Logf("%d steps acknowledged of %d tried", l.acked.Load(), l.tried.Load())
}

func (l *overALine) agent(until context.Context, name string) {
	t := l.t
	patience := time.Now().Add(soak(2*time.Second) + time.Minute)
	k := 0 // steps acknowledged: 0 to k-1
	for k < 3 || until.Err() == nil && k < 10_000 {
		o := l.line.machine()
		o.SyncTimeout = 20 * time.Second
		db, err := tonbo.Open(t.Context(), name, o)
		if err != nil {
			t.Logf("%s: open: %v", name, err)
			if time.Now().After(patience) {
				t.Errorf("%s: it never opens", name)
				return
			}
			continue
		}
		if _, err := db.Exec("CREATE TABLE IF NOT EXISTS steps(k INTEGER)"); err != nil {
			t.Error(err)
		}
		for range 8 {
			l.tried.Add(1)
			if _, err := db.Step(t.Context(), "t", fmt.Sprint(k), func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
				_, err := tx.ExecContext(ctx, "INSERT INTO steps VALUES(?)", k)
				return nil, err
			}); err != nil {
				t.Logf("%s: step %d: %v", name, k, err)
				break // once more on another machine, under the same id
			}
			l.acked.Add(1)
			k++
			select {
			case l.met <- struct{}{}:
			default:
			}
		}
		db.Close() // what it could not ship was not acknowledged
	}
	db := open(t, name, l.direct.machine())
	want := rows(t, db, fmt.Sprintf("WITH RECURSIVE s(n) AS (SELECT 0 UNION ALL SELECT n+1 FROM s WHERE n<%d) SELECT group_concat(n) FROM s", k-1))
	if got := rows(t, db, fmt.Sprintf("SELECT group_concat(k) FROM (SELECT k FROM steps WHERE k<%d ORDER BY k)", k)); got != want {
		t.Errorf("%s has %s, want %s", name, got, want)
	}
	integrity(t, db)
}

// TestStepsOverABadLineAreNeitherLostNorTakenTwice: agents make steps on a real S3 store over a line with latency and a cap, that loses answers and resets connections.
func TestStepsOverABadLineAreNeitherLostNorTakenTwice(t *testing.T) {
	l := newOverALine(t)
	line := newBadLine(t, l.endpoint)
	l.through(s3.Options{Endpoint: "http://" + line.l.Addr().String()})
	until, cancel := context.WithTimeout(t.Context(), soak(2*time.Second))
	defer cancel()
	l.agents(until)
	t.Logf("%d connections, %d of them cut", line.conns.Load(), line.cut.Load())
	if line.cut.Load() < 20 {
		t.Error("hardly a connection was cut")
	}
}
