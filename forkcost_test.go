package tonbo_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	sqlitedriver "github.com/ncruces/go-sqlite3/driver"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
)

// puts is a store that adds up what is put, by the keys' beginnings.
type puts struct {
	remote.Store
	mu    sync.Mutex
	bytes map[string]int // by key
}

func (w *puts) Create(ctx context.Context, key string, body []byte) (string, error) {
	w.mu.Lock()
	w.bytes[key] += len(body)
	w.mu.Unlock()
	return w.Store.Create(ctx, key, body)
}

// since returns what was put below a prefix since it was last called, and forgets it.
func (w *puts) since(prefix string) (n, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, b := range w.bytes {
		if strings.HasPrefix(k, prefix) {
			n, bytes = n+1, bytes+b
			delete(w.bytes, k)
		}
	}
	return n, bytes
}

func newPuts(t testing.TB) (*account, *puts) {
	w := &puts{Store: mem.New("test"), bytes: map[string]int{}}
	return &account{t: t, store: w}, w
}

// importOf imports a file with so many rows, each a page of 32 KiB that packs to some hundred bytes.
func (a *account) importOf(name string, n int) {
	a.t.Helper()
	path := filepath.Join(a.t.TempDir(), name+".db")
	db, err := sqlitedriver.Open("file:" + path + "?_pragma=page_size(32768)&_pragma=journal_mode(off)&_pragma=synchronous(off)")
	if err == nil {
		_, err = db.Exec("CREATE TABLE t(id INTEGER PRIMARY KEY, k INT, v BLOB)")
	}
	if err == nil {
		_, err = db.Exec("WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<?) INSERT INTO t(id, k, v) SELECT n, n, randomblob(200) || zeroblob(31000) FROM s", n)
	}
	if err == nil {
		err = db.Close()
	}
	if err == nil {
		_, err = a.client().Import(a.t.Context(), name, path, tonbo.CreateOptions{})
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

const sumQuery = "SELECT count(*) || ':' || sum(k) || ':' || sum(length(v)) || ':' || max(hex(substr(v, 1, 8))) FROM t"

// Whatever its source has left, a fork that reads puts nothing but claims and closes, and one with a few commits these as well.
func TestForkPutsWhatItsOwnerHasWritten(t *testing.T) {
	sources := map[string]func(a *account){
		"an import": func(a *account) { a.importOf("golden", 600) },
		"an import and small commits": func(a *account) {
			a.importOf("golden", 600)
			leave(a, 40)
		},
		"a base and a long tail": func(a *account) {
			a.importOf("golden", 600)
			db := open(a.t, "golden", a.lazyMachine().Unsettled())
			exec(a.t, db, "UPDATE t SET k=0 WHERE id=1")
			synced(a.t, db)
			if err := db.Compact(a.t.Context(), false); err != nil {
				a.t.Fatal(err)
			}
			closeDB(a.t, db)
			leave(a, 170)
		},
		"packs": func(a *account) {
			a.importOf("golden", 600)
			db := open(a.t, "golden", a.lazyMachine().Packing(4<<20))
			for i := range 5 {
				exec(a.t, db, "UPDATE t SET k=0 WHERE id=?", 1+i*100)
				synced(a.t, db)
				if err := db.Compact(a.t.Context(), false); err != nil {
					a.t.Fatal(err)
				}
			}
			if len(db.Base().Packs()) < 3 {
				a.t.Fatalf("base: %+v", db.Base())
			}
			a.t.Cleanup(func() { db.Close() }) // which would merge them
		},
		"a small database": func(a *account) { // which a Close may carry whole
			a.create("golden")
			db := open(a.t, "golden", a.machine().Unsettled())
			exec(a.t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, k INT, v BLOB)")
			for range 2 {
				exec(a.t, db, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<300) INSERT INTO t(k, v) SELECT n, randomblob(1000) FROM s")
				synced(a.t, db)
			}
			for i := range 6 {
				exec(a.t, db, "UPDATE t SET k=-1 WHERE id=?", 1+i*3)
				synced(a.t, db)
			}
			a.t.Cleanup(func() { closeDB(a.t, db) })
		},
		"large commits": func(a *account) {
			a.create("golden")
			db := open(a.t, "golden", a.machine().Unsettled())
			exec(a.t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, k INT, v BLOB)")
			synced(a.t, db)
			for range 6 {
				exec(a.t, db, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<100) INSERT INTO t(k, v) SELECT n, zeroblob(60000) FROM s")
				synced(a.t, db)
			}
			closeDB(a.t, db)
		},
	}
	for name, source := range sources {
		t.Run(name, func(t *testing.T) {
			a, w := newPuts(t)
			source(a)
			fork(t, a.client(), "golden", "f", nil)
			w.since("")
			o := a.lazyMachine()
			for i := range 4 {
				if i%2 == 0 { // a machine that has nothing
					o = a.lazyMachine()
				}
				db := open(t, "f", o)
				rows(t, db, sumQuery)
				closeDB(t, db)
				if n, bytes := w.since("db/f/"); n != 2 || bytes > 2048 {
					t.Errorf("opened, read and closed: %d objects, %d bytes put", n, bytes)
				}
			}
			shipped := 0
			for range 2 {
				db := open(t, "f", o)
				for i := range 3 {
					exec(t, db, "UPDATE t SET k=-2 WHERE id=?", 1+i)
					synced(t, db)
				}
				closeDB(t, db)
				_, bytes := w.since("db/f/log/")
				shipped += bytes
			}
			if n, bytes := w.since("db/f/"); n > 0 {
				t.Errorf("six small commits of %d bytes: %d other objects of %d bytes put", shipped, n, bytes)
			}
		})
	}
}

// leave opens the golden database, makes so many small commits, and leaves them in the log.
func leave(a *account, n int) {
	a.t.Helper()
	db := open(a.t, "golden", a.lazyMachine().Unsettled())
	for i := range n {
		exec(a.t, db, "UPDATE t SET k=-1 WHERE id=?", 1+i*3)
		synced(a.t, db)
	}
	closeDB(a.t, db)
}

// A fork's own entries bound its log and its tail, however many its source has left, and so do its claims: a base comes once in so many, and is not begun again and again.
func TestForksLogStaysBounded(t *testing.T) {
	a, w := newPuts(t)
	a.importOf("golden", 600)
	leave(a, 120)
	for _, commits := range []int{0, 1} {
		t.Run(fmt.Sprint(commits, " commits a time"), func(t *testing.T) {
			name := fmt.Sprint("f-", commits)
			fork(t, a.client(), "golden", name, nil)
			w.since("")
			o := a.lazyMachine()
			bases, longest := 0, 0
			for i := range 260 / (2 + commits) {
				db := open(t, name, o)
				if commits > 0 {
					exec(t, db, "UPDATE t SET k=k+1 WHERE id=?", 1+i)
					synced(t, db)
				}
				longest = max(longest, db.TailLength())
				closeDB(t, db)
				n, _ := w.since("db/" + name + "/base/")
				bases += n
			}
			if bases < 1 || bases > 8 {
				t.Errorf("%d bases in 260 slots, want one to eight", bases)
			}
			if longest > 260 {
				t.Errorf("a tail of %d entries", longest)
			}
			if _, bytes := w.since("db/" + name + "/seg/"); bytes > 1<<20 {
				t.Errorf("%d bytes of segments for some hundred small commits", bytes)
			}
			if r, err := a.client().Verify(t.Context(), name); err != nil || len(r.Problems) > 0 {
				t.Errorf("verify: %+v, %v", r, err)
			}
		})
	}
}

// A fork of a fork of a fork stands on what all of them have left, which who opens it reads one log after the other: now and then one puts a base, with its first commit.
func TestForksOfForksStandOnFewLogs(t *testing.T) {
	a, w := newPuts(t)
	a.importOf("f-0", 100)
	bases := 0
	for i := range 40 {
		name := fmt.Sprint("f-", i)
		db := open(t, name, a.lazyMachine())
		if n := db.TailSources(); n > 17 {
			t.Fatalf("fork %d stands on %d logs of sources", i, n)
		}
		exec(t, db, "UPDATE t SET k=k+1 WHERE id=?", 1+i)
		synced(t, db)
		closeDB(t, db)
		n, _ := w.since("db/" + name + "/base/")
		bases += n
		fork(t, a.client(), name, fmt.Sprint("f-", i+1), nil)
	}
	if bases == 0 || bases > 4 {
		t.Errorf("%d bases, want one to four", bases)
	}
	if r, err := a.client().Verify(t.Context(), "f-40"); err != nil || len(r.Problems) > 0 {
		t.Errorf("verify: %+v, %v", r, err)
	}
}
