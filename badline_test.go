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

// TestStepsOverABadLineAreNeitherLostNorTakenTwice: agents make steps on a real S3 store over a line with latency and a cap, that loses answers and resets connections. What was acknowledged is there for the next machine, once.
func TestStepsOverABadLineAreNeitherLostNorTakenTwice(t *testing.T) {
	place := s3test.At(t)
	u, err := url.Parse(place.URL)
	if err != nil {
		t.Fatal(err)
	}
	endpoint, err := url.Parse(u.Query().Get("endpoint"))
	if err != nil || endpoint.Scheme != "http" {
		t.Skipf("the store is not reached by plain HTTP: %s", place.URL)
	}
	line := newBadLine(t, endpoint.Host)
	through, err := s3.Open(t.Context(), place.URL, s3.Options{Credentials: place.Credentials(), Endpoint: "http://" + line.l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer through.Close()
	direct := &account{t: t, store: place.Open(t)}
	bad := &account{t: t, store: through}
	end := time.Now().Add(soak(2 * time.Second))
	var wg sync.WaitGroup
	var total atomic.Int64
	for i := range 4 {
		name := fmt.Sprint("agent-", i)
		direct.create(name)
		wg.Go(func() {
			var acked []int
			for k := 0; k < 3 || time.Now().Before(end) && k < 10_000; {
				o := bad.machine()
				o.SyncTimeout = 20 * time.Second
				db, err := tonbo.Open(t.Context(), name, o)
				if err != nil {
					t.Logf("%s: open: %v", name, err)
					if time.Now().After(end.Add(30 * time.Second)) {
						t.Errorf("%s: it never opens", name)
						return
					}
					continue
				}
				if _, err := db.Exec("CREATE TABLE IF NOT EXISTS steps(k INTEGER)"); err != nil {
					t.Error(err)
				}
				for range 8 {
					if _, err := db.Step(t.Context(), "t", fmt.Sprint(k), func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
						_, err := tx.ExecContext(ctx, "INSERT INTO steps VALUES(?)", k)
						return nil, err
					}); err != nil {
						t.Logf("%s: step %d: %v", name, k, err)
						break // once more on another machine, under the same id
					}
					acked = append(acked, k)
					k++
				}
				db.Close() // what it could not ship was not acknowledged
			}
			total.Add(int64(len(acked)))
			db := open(t, name, direct.machine())
			want := rows(t, db, fmt.Sprintf("WITH RECURSIVE s(n) AS (SELECT 0 UNION ALL SELECT n+1 FROM s WHERE n<%d) SELECT group_concat(n) FROM s", len(acked)-1))
			if got := rows(t, db, fmt.Sprintf("SELECT group_concat(k) FROM (SELECT k FROM steps WHERE k<%d ORDER BY k)", len(acked))); got != want {
				t.Errorf("%s has %s, want %s", name, got, want)
			}
			integrity(t, db)
		})
	}
	wg.Wait()
	t.Logf("%d steps acknowledged over %d connections, %d of them cut", total.Load(), line.conns.Load(), line.cut.Load())
	if line.cut.Load() < 20 {
		t.Error("hardly a connection was cut")
	}
}
