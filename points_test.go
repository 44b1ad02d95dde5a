package tonbo_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
)

func client(t testing.TB, a *account) *tonbo.Client {
	t.Helper()
	c, err := tonbo.NewClient(a.machine())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func readOnly(t testing.TB, a *account, name string, at tonbo.At) *tonbo.DB {
	t.Helper()
	o := a.machine()
	o.At = at
	db, err := tonbo.OpenReadOnly(context.Background(), name, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// stepped makes a database with n labelled steps; each has written its number once more.
func stepped(t testing.TB, a *account, name string, n int, tune func(tonbo.Options) tonbo.Options) (*tonbo.DB, []tonbo.Point) {
	t.Helper()
	a.create(name)
	o := a.machine()
	if tune != nil {
		o = tune(o)
	}
	db := open(t, name, o)
	exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
	var points []tonbo.Point
	for i := range n {
		exec(t, db, "INSERT INTO t(v) VALUES(randomblob(2000))")
		if i%4 == 3 {
			exec(t, db, "DELETE FROM t WHERE id%3=0")
			exec(t, db, "UPDATE t SET v=randomblob(100) WHERE id%5=0")
		}
		p, err := db.Checkpoint(context.Background(), fmt.Sprint("step-", i))
		if err != nil {
			t.Fatal(err)
		}
		points = append(points, p)
	}
	return db, points
}

const stateQuery = "SELECT count(*)||':'||coalesce(max(id),0)||':'||coalesce(sum(length(v)),0) FROM t"

func TestEveryPointIsReadableByLabelSlotPointAndTime(t *testing.T) {
	for name, tune := range map[string]func(tonbo.Options) tonbo.Options{
		"log":   nil,
		"bases": func(o tonbo.Options) tonbo.Options { return o.Tuned(4, time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			a := newAccount(t)
			a.create("run")
			o := a.machine()
			if tune != nil {
				o = tune(o)
			}
			db := open(t, "run", o)
			exec(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
			var points []tonbo.Point
			var want []string
			for i := range 25 {
				exec(t, db, "INSERT INTO t(v) VALUES(randomblob(3000))")
				if i%6 == 5 {
					exec(t, db, "DELETE FROM t WHERE id%3=0; VACUUM")
				}
				p, err := db.Checkpoint(context.Background(), fmt.Sprint("step-", i))
				if err != nil {
					t.Fatal(err)
				}
				points, want = append(points, p), append(want, rows(t, db, stateQuery))
			}
			if i := 7; true { // no change between: the label stands on the same state
				p, err := db.Checkpoint(context.Background(), "again")
				if err != nil || p.Slot <= points[len(points)-1].Slot {
					t.Errorf("%v %v %d", p, err, i)
				}
			}
			gen := db.Status().Generation
			for i := 0; i < 25; i += 3 {
				for _, at := range []tonbo.At{tonbo.Label(fmt.Sprint("step-", i)), tonbo.Slot(points[i].Slot), points[i], tonbo.Time(points[i].Time)} {
					ro := readOnly(t, a, "run", at)
					if got := rows(t, ro, stateQuery); got != want[i] {
						t.Errorf("%T %v: got %s, want %s", at, at, got, want[i])
					}
					closeDB(t, ro)
				}
			}
			again := readOnly(t, a, "run", tonbo.Label("again"))
			if got := rows(t, again, stateQuery); got != want[24] {
				t.Errorf("again: %s", got)
			}
			if _, err := again.Exec("INSERT INTO t(v) VALUES(1)"); err == nil || !strings.Contains(err.Error(), "readonly") {
				t.Errorf("a write on a read-only handle: %v", err)
			}
			if err := again.Synced(context.Background()); !errors.Is(err, tonbo.ErrReadOnly) {
				t.Errorf("Synced: %v", err)
			}
			if err := db.Synced(context.Background()); err != nil || db.Status().Generation != gen {
				t.Errorf("readers must not fence the owner: %v", err)
			}
			for _, at := range []tonbo.At{tonbo.Slot(10_000), tonbo.Label("nope"), tonbo.Time(time.Unix(1, 0)), tonbo.Point{ID: strings.Repeat("0", 32), Slot: 1}} {
				o := a.machine()
				o.At = at
				if _, err := tonbo.OpenReadOnly(context.Background(), "run", o); !errors.Is(err, tonbo.ErrPointGone) {
					t.Errorf("%v: %v", at, err)
				}
				left, _ := os.ReadDir(o.Dir)
				if left = slices.DeleteFunc(left, func(e os.DirEntry) bool { return e.Name() == ".blocks" }); len(left) > 0 {
					t.Errorf("%v: left %v", at, left)
				}
			}
			parsed, err := tonbo.ParsePoint(points[3].String())
			if err != nil || parsed.Slot != points[3].Slot || parsed.Label != "step-3" || !parsed.Time.Equal(points[3].Time) {
				t.Errorf("%v %v", parsed, err)
			}
		})
	}
}

func TestHistoryTellsWhatHappened(t *testing.T) {
	a := newAccount(t)
	db, points := stepped(t, a, "run", 6, nil)
	closeDB(t, db)
	var kinds []string
	labels := map[string]uint64{}
	for e, err := range client(t, a).History(context.Background(), "run") {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, e.Kind)
		if e.Label != "" {
			labels[e.Label] = e.Slot
		}
	}
	if got, want := strings.Join(kinds, " "), "close commit commit commit commit commit commit claim create"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for i, p := range points {
		if labels[fmt.Sprint("step-", i)] != p.Slot {
			t.Errorf("step-%d: %d, want %d", i, labels[fmt.Sprint("step-", i)], p.Slot)
		}
	}
}

func TestFollowingReaderSeesConsistentStates(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE a(v); CREATE TABLE b(v)")
	synced(t, db)
	ro := readOnly(t, a, "run", nil)
	for i := range 30 {
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		tx.Exec("INSERT INTO a VALUES(?)", i)
		tx.Exec("INSERT INTO b SELECT randomblob(5000)")
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if i%10 == 9 {
			exec(t, db, "DELETE FROM b; VACUUM")
			exec(t, db, "INSERT INTO b SELECT v FROM a")
		}
		synced(t, db)
		if err := ro.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
		if got, want := rows(t, ro, "SELECT count(*) FROM a"), fmt.Sprint(i+1); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got := rows(t, ro, "SELECT (SELECT count(*) FROM a)=(SELECT count(*) FROM b)"); got != "1" {
			t.Error("half a transaction")
		}
	}
	integrity(t, ro)
}

func TestRewindFencesAndCanBeUndone(t *testing.T) {
	a := newAccount(t)
	db, points := stepped(t, a, "run", 12, func(o tonbo.Options) tonbo.Options { return o.Tuned(3, time.Hour) })
	last := rows(t, db, stateQuery)
	c := client(t, a)
	before, err := c.Rewind(context.Background(), "run", tonbo.Label("step-4"))
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Synced(context.Background()); !errors.Is(err, tonbo.ErrFenced) {
		t.Errorf("the owner: %v", err)
	}
	want := rows(t, readOnly(t, a, "run", points[4]), stateQuery)
	m := a.machine()
	db = open(t, "run", m)
	if got := rows(t, db, stateQuery); got != want {
		t.Errorf("rewound: %s, want %s", got, want)
	}
	exec(t, db, "INSERT INTO t(v) VALUES('branch')")
	closeDB(t, db)
	if _, err := c.Rewind(context.Background(), "run", before); err != nil {
		t.Fatal(err)
	}
	db = open(t, "run", m) // warm: the local copy is of the other branch
	if got := rows(t, db, stateQuery); got != last {
		t.Errorf("undone: %s, want %s", got, last)
	}
	integrity(t, db)
	exec(t, db, "INSERT INTO t(v) VALUES('on')")
	closeDB(t, db)
	db = open(t, "run", a.machine())
	if got := rows(t, db, "SELECT count(*) FROM t WHERE v='on'"); got != "1" {
		t.Errorf("got %s", got)
	}
}

func TestExportImportRoundTrip(t *testing.T) {
	for _, size := range []int{10, 9000} { // inside the create entry, and in segments
		a := newAccount(t)
		path := filepath.Join(t.TempDir(), "in put?.db")
		src, err := sql.Open("sqlite3", "file:"+strings.ReplaceAll(path, "?", "%3f")+"?_pragma=journal_mode(wal)&_pragma=page_size(8192)")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := src.Exec(fmt.Sprintf("CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB); WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<%d) INSERT INTO t(v) SELECT randomblob(1000) FROM s", size)); err != nil {
			t.Fatal(err)
		}
		want := rows(t, src, stateQuery)
		c := client(t, a)
		d, err := c.Import(context.Background(), "run", path, tonbo.CreateOptions{Metadata: map[string]string{"from": "file"}}) // while src has it open
		if err != nil {
			t.Fatal(err)
		}
		src.Close()
		db := open(t, "run", a.machine())
		if got := rows(t, db, stateQuery); got != want || db.Status().ID != d.ID {
			t.Errorf("imported: %s, want %s", got, want)
		}
		exec(t, db, "INSERT INTO t(v) VALUES('one commit more')")
		synced(t, db)
		var out bytes.Buffer
		if err := c.Export(context.Background(), "run", nil, &out); err != nil { // while db is open
			t.Fatal(err)
		}
		exported := filepath.Join(t.TempDir(), "out.db")
		os.WriteFile(exported, out.Bytes(), 0o400)
		got, err := sql.Open("sqlite3", "file:"+exported+"?mode=ro")
		if err != nil {
			t.Fatal(err)
		}
		if rows(t, got, stateQuery) != rows(t, db, stateQuery) || rows(t, got, "PRAGMA integrity_check") != "ok" || rows(t, got, "PRAGMA journal_mode") != "delete" {
			t.Error("the export differs")
		}
		got.Close()
		closeDB(t, db)
		db = open(t, "run", a.machine())
		integrity(t, db)
		if _, err := c.Import(context.Background(), "run", path, tonbo.CreateOptions{}); !errors.Is(err, tonbo.ErrExists) {
			t.Errorf("import over a database: %v", err)
		}
		bad := filepath.Join(t.TempDir(), "bad.db")
		os.WriteFile(bad, []byte("not a database"), 0o600)
		if _, err := c.Import(context.Background(), "bad", bad, tonbo.CreateOptions{}); !errors.Is(err, tonbo.ErrCorrupt) {
			t.Errorf("import of junk: %v", err)
		}
	}
}

func TestVerifyNamesTheBadObject(t *testing.T) {
	a := newAccount(t)
	db, _ := stepped(t, a, "run", 20, func(o tonbo.Options) tonbo.Options { return o.Tuned(5, time.Hour) })
	exec(t, db, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<6000) INSERT INTO t(v) SELECT randomblob(1000) FROM s")
	closeDB(t, db)
	c := client(t, a)
	r, err := c.Verify(context.Background(), "run")
	if err != nil || !r.OK() || r.Bases == 0 || r.Segments == 0 || r.Entries < 20 {
		t.Fatalf("%+v %v", r, err)
	}
	ctx := context.Background()
	keys, _, err := a.store.List(ctx, "db/run/", remote.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		o, err := a.store.Get(ctx, k.Key, remote.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		damage := bytes.Clone(o.Body)
		damage[len(damage)*2/3] ^= 0x40
		a.store.Delete(ctx, k.Key)
		for what, body := range map[string][]byte{"flipped": damage, "missing": nil} {
			if body != nil {
				a.store.Create(ctx, k.Key, body)
			}
			r, err := c.Verify(ctx, "run")
			named := err != nil && strings.Contains(err.Error(), k.Key)
			if err == nil {
				for _, p := range r.Problems {
					named = named || p.Key == k.Key || strings.Contains(p.Err.Error(), k.Key)
				}
			}
			head := k.Key == keys[firstLog(keys)].Key
			if !named && !(head && what == "missing") { // without its head, the log ends one slot earlier: nobody can tell
				t.Errorf("%s %s: %+v %v", what, k.Key, r, err)
			}
			a.store.Delete(ctx, k.Key)
		}
		if _, err := a.store.Create(ctx, k.Key, o.Body); err != nil {
			t.Fatal(err)
		}
	}
}

func firstLog(keys []remote.Info) int {
	for i, k := range keys {
		if strings.HasPrefix(k.Key, "db/run/log/") {
			return i
		}
	}
	return 0
}
