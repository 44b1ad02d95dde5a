package tonbo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/changeset"
)

// inOrder spells the rows of a change set so that their order does not matter.
func inOrder(t testing.TB, cs *tonbo.ChangeSet) string {
	t.Helper()
	var out [][]byte
	for i := range cs.Tables {
		for _, r := range cs.Tables[i].Rows {
			raw, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, fmt.Appendf(nil, "%s %s", cs.Tables[i].Name, raw))
		}
	}
	for _, sc := range cs.Schema {
		out = append(out, fmt.Append(nil, sc))
	}
	slices.SortFunc(out, bytes.Compare)
	return string(bytes.Join(out, []byte("\n")))
}

// byRows compares whole copies.
func byRows(t testing.TB, a, b string) *tonbo.ChangeSet {
	t.Helper()
	c, err := sqlite3.Open("file:" + filepath.ToSlash(a))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Exec("ATTACH 'file:" + filepath.ToSlash(b) + "' AS other"); err != nil {
		t.Fatal(err)
	}
	cs, err := changeset.Compare(context.Background(), c, "main", "other", changeset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

// TestDiffByPagesIsTheDiffByRows compares owners with and without their pages, forks, points and read-only handles, while bases are made, with copies of them that are compared row by row.
func TestDiffByPagesIsTheDiffByRows(t *testing.T) {
	seeds := uint64(6)
	if raceEnabled {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			r := rand.New(rand.NewPCG(seed, 3))
			a := newAccount(t)
			o := a.machine().Tuned(4, time.Hour)
			c, err := tonbo.NewClient(o)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Create(ctx, "golden", tonbo.CreateOptions{PageSize: 512}); err != nil {
				t.Fatal(err)
			}
			golden := open(t, "golden", o)
			exec(t, golden, "CREATE TABLE docs(id INTEGER PRIMARY KEY, v, w); CREATE INDEX v ON docs(v); CREATE TABLE tags(k TEXT, n INT, v, PRIMARY KEY(k, n)) WITHOUT ROWID; CREATE TABLE named(k TEXT PRIMARY KEY, v)")
			exec(t, golden, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<6000) INSERT INTO docs SELECT n, 'v' || n, CASE WHEN n % 50 = 0 THEN randomblob(900) ELSE hex(randomblob(60)) END FROM s")
			exec(t, golden, "INSERT INTO tags SELECT v, id % 7, w FROM docs WHERE id % 3 = 0; INSERT INTO named SELECT 'name ' || id, v FROM docs WHERE id % 4 = 0")
			synced(t, golden)
			fork(t, c, "golden", "scratch", nil)
			so := a.machine().Tuned(4, time.Hour)
			so.Hydration = tonbo.HydrateNone
			scratch := open(t, "scratch", so)
			work := func(db *tonbo.DB) {
				for range 1 + r.IntN(3) {
					id := r.IntN(6000)
					switch r.IntN(7) {
					case 0, 1:
						exec(t, db, "UPDATE docs SET v = ? WHERE id = ?", fmt.Sprint("changed ", r.IntN(1000)), id)
					case 2:
						exec(t, db, "DELETE FROM docs WHERE id BETWEEN ? AND ?", id, id+r.IntN(60))
					case 3:
						exec(t, db, "INSERT INTO docs(v, w) SELECT 'new', randomblob(?) FROM docs LIMIT ?", r.IntN(2000), r.IntN(20))
					case 4:
						exec(t, db, "INSERT OR REPLACE INTO tags VALUES(?, ?, ?)", fmt.Sprint("v", id), id%7, id)
					case 5:
						exec(t, db, "DELETE FROM tags WHERE k = ?", fmt.Sprint("v", id/3*3))
					case 6:
						exec(t, db, "INSERT OR REPLACE INTO named VALUES(?, ?)", fmt.Sprint("name ", id), id)
					}
				}
			}
			dir := t.TempDir()
			n := 0
			export := func(name string, at tonbo.At) string {
				n++
				path := filepath.Join(dir, fmt.Sprint(n, ".db"))
				f, err := os.Create(path)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				if err := c.Export(ctx, name, at, f); err != nil {
					t.Fatal(err)
				}
				return path
			}
			live := func(db *tonbo.DB) string {
				n++
				path := filepath.Join(dir, fmt.Sprint(n, ".db"))
				exec(t, db, "VACUUM INTO ?", path)
				return path
			}
			points := []tonbo.Point{golden.Status().Point}
			for round := range 12 {
				work(scratch)
				if round%3 == 0 {
					work(golden)
				}
				if r.IntN(2) == 0 {
					synced(t, scratch)
				}
				if r.IntN(2) == 0 {
					synced(t, golden)
					points = append(points, golden.Status().Point)
				}
				point := points[r.IntN(len(points))]
				sources := []struct {
					s    tonbo.Source
					path func() string
				}{
					{golden, func() string { return live(golden) }},
					{scratch, func() string { return live(scratch) }},
					{tonbo.Ref{Client: c, Name: "golden", At: point}, func() string { return export("golden", point) }},
					{tonbo.Ref{Client: c, Name: "scratch"}, func() string { return export("scratch", nil) }},
				}
				x, y := sources[r.IntN(4)], sources[r.IntN(4)]
				if got, want := inOrder(t, diff(t, x.s, y.s)), inOrder(t, byRows(t, x.path(), y.path())); got != want {
					t.Fatalf("round %d: %.1000s\nwant %.1000s", round, got, want)
				}
			}
		})
	}
}

// TestDiffOfALiveOwnerIsOfOneCommit compares while another goroutine moves money: whatever a Diff finds, the sum is the same.
func TestDiffOfALiveOwnerIsOfOneCommit(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	c := client(t, a)
	if _, err := c.Create(ctx, "bank", tonbo.CreateOptions{PageSize: 512}); err != nil {
		t.Fatal(err)
	}
	db := open(t, "bank", a.machine())
	exec(t, db, "CREATE TABLE accounts(id INTEGER PRIMARY KEY, n INTEGER, pad)")
	exec(t, db, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<1000) INSERT INTO accounts SELECT n, 100, hex(randomblob(40)) FROM s")
	synced(t, db)
	begin := tonbo.Ref{Client: c, Name: "bank", At: db.Status().Point}
	stop, done := make(chan struct{}), make(chan error, 1)
	var commits atomic.Int64
	go func() {
		r := rand.New(rand.NewPCG(1, 4))
		for i := 0; ; i++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			from, to, n := 1+r.IntN(1000), 1+r.IntN(1000), r.IntN(50)
			_, err := db.Exec("UPDATE accounts SET n = n + CASE id WHEN ? THEN ? ELSE ? END WHERE id IN (?, ?) AND ? <> ?", from, -n, n, from, to, from, to)
			commits.Add(1)
			if err == nil && i%20 == 0 {
				err = db.Synced(ctx)
			}
			if err != nil || commits.Load() > 100_000 {
				done <- err
				return
			}
			if i%3 == 0 { // now and then nobody commits while pages are looked at
				time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
			}
		}
	}()
	for n := 0; n < 25 || commits.Load() < 500; n++ {
		cs := diff(t, begin, db)
		var sum int64
		for _, table := range cs.Tables {
			for _, r := range table.Rows {
				sum += r.After[1].(int64) - r.Before[1].(int64)
			}
		}
		if sum != 0 {
			t.Fatalf("%d came from nowhere", sum)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
