package tonbo_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sqlitedriver "github.com/ncruces/go-sqlite3/driver"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// A database that was imported, worked on and closed opens as one that was written here: its Close has left a base, whose upper pages come with it. So it does with packs above that, and with 170 steps behind it.
func TestFirstRowOfAnImportCostsTheSame(t *testing.T) {
	store := &chained{Store: mem.New("test")}
	a := &account{t: t, store: store}
	a.importOf("run", 1280) // 40 MiB, several chunks
	first := func(doing string, requests, serial int) {
		t.Helper()
		store.delay = 20 * time.Millisecond // long enough that what is sent together overlaps on a busy machine
		defer func() { store.delay = 0 }()
		least := 0
		for range 3 { // what is sent at once may look as if it was not, where the machine is busy
			store.reset()
			db := open(t, "run", a.lazyMachine().Unsettled())
			if got := rows(t, db, "SELECT k FROM t WHERE id=700"); got != "700" {
				t.Fatalf("%s: row %q", doing, got)
			}
			n, chain := store.counts()
			closeDB(t, db)
			t.Logf("%s: %d requests, %d one after the other", doing, n, chain)
			if n > requests {
				t.Errorf("%s: %d requests, want at most %d", doing, n, requests)
			}
			if least == 0 || chain < least {
				least = chain
			}
			if least <= serial {
				break
			}
		}
		if least > serial {
			t.Errorf("%s: %d one after the other, want at most %d", doing, least, serial)
		}
	}
	steps := func(o tonbo.Options, n int) {
		t.Helper()
		db := open(t, "run", o)
		for i := range n {
			exec(t, db, "UPDATE t SET k=k+1 WHERE id=?", 1+i)
			synced(t, db)
		}
		closeDB(t, db)
	}
	steps(a.lazyMachine(), 10)
	first("closed", 11, 6)
	packs := a.lazyMachine().Unsettled().Packing(4 << 20)
	db := open(t, "run", packs)
	for i := range 2 {
		exec(t, db, "UPDATE t SET k=k+1 WHERE id=?", 1+200*i)
		synced(t, db)
		if err := db.Compact(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(db.Base().Packs()); n == 0 {
		t.Fatalf("base: %+v", db.Base())
	}
	closeDB(t, db)
	first("packs", 14, 6)
	steps(packs, 170)
	first("packs and 170 steps behind", 14+170, 7)
}

// plainOf writes a SQLite file with so many rows of about a kilobyte.
func plainOf(t testing.TB, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plain.db")
	db, err := sqlitedriver.Open("file:" + path + "?_pragma=journal_mode(off)&_pragma=synchronous(off)")
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Exec("CREATE TABLE t(id INTEGER PRIMARY KEY, k INT, v BLOB); CREATE INDEX i ON t(k)")
	if err == nil {
		_, err = db.Exec("WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<?) INSERT INTO t(k,v) SELECT n, randomblob(900) FROM s", n)
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestImportEndsWithABase: whoever opens the database, or a fork of it, has the b-trees' upper pages with the base. It is closed, and small ones, which are fetched whole, have none.
func TestImportEndsWithABase(t *testing.T) {
	a := newAccount(t)
	c := a.client()
	for name, n := range map[string]int{"small": 500, "large": 4000} {
		if _, err := c.Import(t.Context(), name, plainOf(t, n), tonbo.CreateOptions{TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		soundly(t, a, name)
		fork(t, c, name, name+"-fork", nil)
		for _, name := range []string{name, name + "-fork"} {
			db := open(t, name, a.lazyMachine().Unsettled())
			m := db.Base()
			if (m != nil) != (n > 1000) {
				t.Fatalf("%s has the base %+v", name, m)
			}
			if got := rows(t, db, "SELECT k FROM t WHERE id=321"); got != "321" {
				t.Errorf("%s: %q", name, got)
			}
			if gets := db.Status().Requests.Get; m != nil && gets > 7 { // of head, record, manifest, upper object, and of a leaf: its map and the middle of it
				t.Errorf("%s: %d GETs for a row", name, gets)
			}
			closeDB(t, db)
			if d, err := c.Get(t.Context(), name); err != nil || !strings.HasSuffix(name, "-fork") && d.ExpiresAt.IsZero() {
				t.Errorf("%s: %+v %v", name, d, err)
			}
		}
		if r, err := c.Sweep(t.Context(), tonbo.Janitor{Grace: time.Nanosecond}); err != nil || r.Collected.Bytes > 0 && n == 500 {
			t.Errorf("sweep: %+v %v", r, err)
		}
	}
	if in, err := c.Usage(t.Context(), "large"); err != nil || in.StoredBytes < 3_600_000 || in.StoredBytes > 4_200_000 {
		t.Errorf("usage: %+v %v", in, err)
	}
	frozen, err := c.Import(t.Context(), "frozen", plainOf(t, 4000), tonbo.CreateOptions{Frozen: true})
	if err != nil || !frozen.Frozen {
		t.Errorf("%+v %v", frozen, err)
	}
	soundly(t, a, "frozen")
}

// TestImportThatFailsBehindItsBaseIsClosed: whoever asks whether somebody is at work on the database (Options.IfIdle, a janitor) finds that nobody is.
func TestImportThatFailsBehindItsBaseIsClosed(t *testing.T) {
	file := plainOf(t, 1600)
	for what, fail := range map[string]func(s *tonbotest.Store, last tonbotest.Match, cancel func()){
		"the close is refused":            func(s *tonbotest.Store, last tonbotest.Match, _ func()) { s.Fail(last, 1, remote.ErrDenied) },
		"the answer to the close is lost": func(s *tonbotest.Store, last tonbotest.Match, _ func()) { s.DropAnswer(last, 1) },
		"the close does not arrive":       func(s *tonbotest.Store, last tonbotest.Match, _ func()) { s.Lose(last, 1) },
		"cancelled between base and close": func(s *tonbotest.Store, last tonbotest.Match, cancel func()) {
			s.Script(func(op tonbotest.Op, key string) tonbotest.Fault {
				if op == last.Op && key == fence.SlotKey("run", 3) {
					cancel()
				}
				return tonbotest.Pass
			})
		},
		"the answer to the base is lost, and who asks is cancelled": func(s *tonbotest.Store, last tonbotest.Match, cancel func()) {
			first := true
			s.Script(func(op tonbotest.Op, key string) tonbotest.Fault {
				if first && op == last.Op && key == fence.SlotKey("run", 2) {
					cancel()
					first = false
					return tonbotest.DropAnswer
				}
				return tonbotest.Pass
			})
		},
	} {
		t.Run(what, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			store := tonbotest.NewStore(mem.New("test"))
			a := &account{t: t, store: store}
			c := a.client()
			fail(store, tonbotest.Match{Op: tonbotest.Create, Key: fence.SlotKey("run", 3)}, cancel)
			if _, err := c.Import(ctx, "run", file, tonbo.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			store.Heal()
			o := a.lazyMachine()
			o.IfIdle = time.Hour
			db := open(t, "run", o)
			if db.Base() == nil {
				t.Error("there is no base")
			}
			closeDB(t, db)
			soundly(t, a, "run")
		})
	}
}

// TestImportThatDiesBehindItsCreateIsThere: the base that follows is a convenience. The same call again gets the database, and its owner has all of it.
func TestImportThatDiesBehindItsCreateIsThere(t *testing.T) {
	file := plainOf(t, 4000)
	for _, failpoint := range []string{"create:made", "compact:segments", "compact:manifest", "create:settled", ""} {
		t.Run(failpoint, func(t *testing.T) {
			t.Parallel()
			j := newControlJob(t, "import")
			j.File = file
			said, trace := controlProcess(t, j, failpoint)
			if (failpoint == "") != strings.HasPrefix(said[0], "imported ") {
				t.Fatalf("%q\n%s", said, trace)
			}
			again, trace := controlProcess(t, j, "")
			id, ok := strings.CutPrefix(again[0], "imported ")
			if !ok {
				t.Fatalf("%q\n%s", again, trace)
			}
			c := j.client(t)
			if d, err := c.Get(t.Context(), "file"); err != nil || d.ID != id {
				t.Errorf("%+v %v, want %s", d, err, id)
			}
			db, err := c.Open(t.Context(), "file")
			if err != nil {
				t.Fatal(err)
			}
			if got := rows(t, db, "SELECT sum(k)||' '||sum(length(v)) FROM t"); got != "8002000 3600000" {
				t.Errorf("%q", got)
			}
			closeDB(t, db)
			if r, err := c.Verify(t.Context(), "file"); err != nil || !r.OK() {
				t.Errorf("%+v %v", r, err)
			}
		})
	}
}
