package tonbo_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
)

// chained is a store that counts requests and the longest chain of them: how many came one after the other. Each takes a moment, so that those that are sent together
// overlap.
type chained struct {
	remote.Store
	delay time.Duration

	mu    sync.Mutex
	ended int // depth of the deepest request that has been answered
	n     int
}

// request is called when a request begins; what it returns, when it has been answered.
func (c *chained) request() func() {
	c.mu.Lock()
	depth := c.ended + 1
	c.n++
	c.mu.Unlock()
	time.Sleep(c.delay)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ended = max(c.ended, depth)
	}
}

func (c *chained) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended, c.n = 0, 0
}

func (c *chained) counts() (n, chain int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n, c.ended
}

func (c *chained) Create(ctx context.Context, key string, body []byte) (string, error) {
	defer c.request()()
	return c.Store.Create(ctx, key, body)
}

func (c *chained) Get(ctx context.Context, key string, o remote.GetOptions) (remote.Object, error) {
	defer c.request()()
	return c.Store.Get(ctx, key, o)
}

func (c *chained) List(ctx context.Context, prefix string, o remote.ListOptions) ([]remote.Info, bool, error) {
	defer c.request()()
	return c.Store.List(ctx, prefix, o)
}

// sized makes a database of about so many MiB, of rows that compress to nearly nothing, beside few that do not.
func (a *account) sized(name string, mib int, compact bool) {
	a.t.Helper()
	a.create(name)
	db := open(a.t, name, a.machine().Unsettled()) // no other compaction than the one below
	exec(a.t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, k INT, v BLOB)")
	const batch = 32 // MiB
	for done := 0; done < mib; done += batch {
		exec(a.t, db, fmt.Sprintf("WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<%d) INSERT INTO t(k,v) SELECT n, zeroblob(900) FROM s", min(batch, mib-done)*1100))
		synced(a.t, db)
	}
	if compact {
		if err := db.Compact(context.Background(), false); err != nil {
			a.t.Fatal(err)
		}
		exec(a.t, db, "UPDATE t SET k=0 WHERE id=1")
		synced(a.t, db)
	}
	closeDB(a.t, db)
}

func TestFirstRowCostsTheSameAtAnySize(t *testing.T) {
	sizes := []int{10, 128}
	switch os.Getenv("TONBO_TEST_LARGE") {
	case "":
	case "10GB":
		sizes = append(sizes, 1024, 10240)
	default:
		sizes = append(sizes, 1024)
	}
	for _, compact := range []bool{true, false} {
		var first int
		for _, mib := range sizes {
			t.Run(fmt.Sprintf("%dMiB/compacted=%v", mib, compact), func(t *testing.T) {
				store := &chained{Store: mem.New("test")}
				a := &account{t: t, store: store}
				a.sized("run", mib, compact)
				store.delay = 20 * time.Millisecond // long enough that what is sent together overlaps on a busy machine
				store.reset()
				o := a.machine()
				o.Hydration = tonbo.HydrateNone
				start := time.Now()
				db := open(t, "run", o)
				opened := time.Since(start)
				n, chain := store.counts()
				t.Logf("open: %s, %d requests, %d one after the other", opened, n, chain)
				if got := rows(t, db, fmt.Sprint("SELECT k IS NOT NULL FROM t WHERE id=", mib*700)); got != "1" {
					t.Fatalf("row: %q", got)
				}
				row := time.Since(start)
				n, chain = store.counts()
				st := db.Status()
				t.Logf("first row: %s, %d requests, %d one after the other, %d KiB down, %d of %d pages", row, n, chain, st.Requests.BytesDown>>10, st.PagesLocal, st.Pages)
				most := 6
				if !compact { // its upper pages are in segments that entries name
					most = 8
				}
				if chain > most {
					t.Errorf("%d requests one after the other, want at most %d", chain, most)
				}
				if first == 0 {
					first = n
				} else if compact && 2*n > 3*first {
					t.Errorf("%d requests, %d for the small one", n, first)
				}
			})
		}
	}
}
