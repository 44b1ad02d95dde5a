package tonbo_test

import (
	"context"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
)

// weighed is a store that adds up what is put, by the kind of object.
type weighed struct {
	remote.Store
	mu  sync.Mutex
	put map[string]int64 // bytes, by "log", "seg", "base", ...
	n   map[string]int
}

func weigh(s remote.Store) *weighed {
	return &weighed{Store: s, put: map[string]int64{}, n: map[string]int{}}
}

func (w *weighed) Create(ctx context.Context, key string, body []byte) (string, error) {
	kind := key
	if p := strings.Split(key, "/"); len(p) > 3 {
		kind = p[2]
	}
	w.mu.Lock()
	w.put[kind] += int64(len(body))
	w.n[kind]++
	w.mu.Unlock()
	return w.Store.Create(ctx, key, body)
}

// sofar returns what was put in entries and by compaction, in bytes.
func (w *weighed) sofar() (entries, compaction int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.put["log"], w.put["seg"] + w.put["base"]
}

// oneRow are the ways in which a program may write one row a time.
var oneRow = []struct {
	name, sql string
	slowly    bool // there is a quiet moment after each sync
	window    bool // of a day: all of it stays
}{
	{"appended", appendRow, false, false},
	{"appended slowly", appendRow, true, false},
	{"updated anywhere", updateRow, false, false},
	{"updated anywhere slowly", updateRow, true, false},
	{"updated anywhere within the window", updateRow, false, true},
}

const (
	appendRow = "INSERT INTO t(k, v) VALUES(?, randomblob(500))"
	updateRow = "UPDATE t SET v=randomblob(500) WHERE id=1+?%19000"
)

// tenMB makes a database of 10 MB, merged into a base.
func tenMB(t testing.TB, a *account, o tonbo.Options) *tonbo.DB {
	t.Helper()
	a.create("run")
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, k INT, v BLOB)")
	exec(t, db, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<19000) INSERT INTO t(k, v) SELECT n, randomblob(500) FROM s")
	synced(t, db)
	if err := db.Compact(context.Background(), false); err != nil {
		t.Fatal(err)
	}
	return db
}

// TestEndlessWritingStaysSmall: 10,000 one-row syncs onto a database of 10 MB leave at most four times its size in the remote beside what the history window holds, and open with at
// most 12 requests; compaction puts at most four times the bytes of the entries, and both together at most four times what the changed page of each sync weighs.
func TestEndlessWritingStaysSmall(t *testing.T) {
	n := 10_000
	if os.Getenv("TONBO_TEST_LARGE") == "" {
		n = 1000
	}
	for _, w := range oneRow {
		t.Run(w.name, func(t *testing.T) {
			store := weigh(mem.New("test"))
			a := newAccount(t)
			a.store = store
			o := a.machine().Collecting()
			if o.History = time.Nanosecond; w.window {
				o.History = 24 * time.Hour
			}
			db := tenMB(t, a, o)
			entries0, compaction0 := store.sofar()
			rng := rand.New(rand.NewPCG(1, 2))
			var most int64
			for i := range n {
				exec(t, db, w.sql, rng.Int64N(1<<40))
				synced(t, db)
				if w.slowly {
					if err := db.Compact(context.Background(), true); err != nil {
						t.Fatal(err)
					}
				}
				if i%250 == 249 {
					if err := db.CollectOwn(context.Background()); err != nil {
						t.Fatal(err)
					}
					_, bytes := stored(t, a, "run")
					most = max(most, bytes)
				}
			}
			if err := db.Compact(context.Background(), true); err != nil {
				t.Fatal(err)
			}
			entries, compaction := store.sofar()
			entries, compaction = entries-entries0, compaction-compaction0
			_, now := stored(t, a, "run")
			size := db.Status().Pages * 4096
			closeDB(t, db)
			o = a.lazyMachine()
			db = open(t, "run", o)
			r := db.Status().Requests
			opening := r.Put + r.Get + r.List + r.Head
			ratio, amplification := float64(max(most, now))/float64(size), float64(compaction)/float64(entries)
			t.Logf("%d syncs onto %.1f MB: %.1f MB shipped, %.1f MB by compaction (%.2f times), %d segments, %d bases; stored at most %.1f MB (%.2f times the database), at the end %.1f MB; opened with %d requests",
				n, float64(size)/1e6, float64(entries)/1e6, float64(compaction)/1e6, amplification, store.n["seg"], store.n["base"], float64(max(most, now))/1e6, ratio, float64(now)/1e6, opening)
			if ratio > 4 && !w.window {
				t.Errorf("%.2f times the database is stored, want at most 4", ratio)
			}
			if opening > 12 {
				t.Errorf("opened with %d requests, want at most 12", opening)
			}
			if amplification > 4 {
				t.Errorf("compaction put %.2f times the bytes of the entries, want at most 4", amplification)
			}
			if changed := int64(n) * 4096; entries+compaction > 4*changed {
				t.Errorf("%d bytes were put for %d bytes of changed pages, want at most four times as many", entries+compaction, changed)
			}
			closeDB(t, db)
		})
	}
}
