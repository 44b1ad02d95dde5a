package changeset_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tonbo-go/tonbo/changeset"
)

// file is a database file whose pages are counted as they are read.
type file struct {
	b    []byte
	size int

	mu   sync.Mutex
	read map[uint32]bool
}

func readPages(t testing.TB, path string) *file {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	size := int(b[16])<<8 | int(b[17])
	if size == 1 {
		size = 65536
	}
	return &file{b: b, size: size, read: map[uint32]bool{}}
}

func (f *file) Count() uint32 { return uint32(len(f.b) / f.size) }
func (f *file) PageSize() int { return f.size }
func (f *file) ReadPage(_ context.Context, p uint32, buf []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read[p] = true
	copy(buf, f.b[int(p-1)*f.size:int(p)*f.size])
	return nil
}

// differing are the pages that differ, and a few more.
func differing(r *rand.Rand, a, b *file) (pages []uint32) {
	for p := uint32(1); p <= max(a.Count(), b.Count()); p++ {
		if p > min(a.Count(), b.Count()) || !bytes.Equal(a.b[int(p-1)*a.size:int(p)*a.size], b.b[int(p-1)*b.size:int(p)*b.size]) || r.IntN(50) == 0 {
			pages = append(pages, p)
		}
	}
	return pages
}

// sortedJSON spells a set so that the order of rows does not matter.
func sortedJSON(t testing.TB, s *changeset.Set) string {
	t.Helper()
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var out struct {
		Schema   json.RawMessage
		Triggers json.RawMessage
		Tables   []struct {
			Name, Columns, Key json.RawMessage
			Rows               []json.RawMessage
		}
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	for _, table := range out.Tables {
		slices.SortFunc(table.Rows, func(a, b json.RawMessage) int { return bytes.Compare(a, b) })
	}
	if raw, err = json.Marshal(out); err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// grown are large tables of every kind, in small pages: deep trees, and rows that need others' pages.
const grown = `
CREATE TABLE wide(id INTEGER PRIMARY KEY, v, w);
CREATE TABLE named(k TEXT PRIMARY KEY COLLATE NOCASE, v);
CREATE TABLE sorted(a TEXT, b, v, PRIMARY KEY(a DESC, b)) WITHOUT ROWID;
CREATE TABLE bag(x, y);
CREATE INDEX wide_v ON wide(v);
CREATE TABLE other(id INTEGER PRIMARY KEY, v);
WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<900) INSERT INTO wide SELECT n*7, 'value ' || (n*31 % 997), CASE WHEN n % 20 = 0 THEN randomblob(n * 3) ELSE n END FROM s;
WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<500) INSERT INTO named SELECT CASE WHEN n % 50 <> 0 THEN 'Name ' || (n*37 % 1009) END, n FROM s;
WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<700) INSERT INTO sorted SELECT CASE n % 3 WHEN 0 THEN n WHEN 1 THEN n * 1.5 ELSE 'key ' || (n*41 % 1013) END, n % 5, CASE WHEN n % 30 = 0 THEN zeroblob(n * 2) ELSE 'v' || n END FROM s;
WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<400) INSERT INTO bag SELECT n % 40, 'y' FROM s;
WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<300) INSERT INTO other SELECT n, hex(zeroblob(20)) FROM s;
`

// growth changes them.
func (w *work) growth() {
	id := int64(w.r.IntN(6500))
	switch w.r.IntN(25) {
	case 0:
		w.exec("UPDATE wide SET w = ? WHERE id BETWEEN ? AND ?", w.value(), id, id+30)
	case 1:
		w.exec("DELETE FROM wide WHERE id BETWEEN ? AND ?", id, id+int64(w.r.IntN(1500)))
	case 2:
		w.exec("INSERT OR REPLACE INTO wide VALUES(?, ?, randomblob(?))", id, w.value(), int64(w.r.IntN(3000)))
	case 3:
		for i := range int64(60) {
			w.exec("INSERT OR IGNORE INTO wide VALUES(?, ?, ?)", id+i, w.value(), i)
		}
	case 4: // in place: the row stays as long as it is
		if w.r.IntN(5) > 0 {
			return
		}
		w.exec("UPDATE wide SET w = substr(w, 1, length(w) - 3) || CAST(x'010203' AS BLOB) WHERE length(w) > 1500 AND id % 3 = ?", id%3)
	case 5:
		w.exec("UPDATE named SET v = ? WHERE k = 'name ' || ?", w.value(), id%1009)
	case 6:
		w.exec("UPDATE OR IGNORE named SET k = upper(k) WHERE rowid BETWEEN ? AND ?", id%500, id%500+20)
	case 7:
		w.exec("DELETE FROM named WHERE rowid BETWEEN ? AND ?", id%500, id%500+int64(w.r.IntN(200)))
	case 8:
		w.exec("INSERT OR REPLACE INTO named VALUES(?, ?)", w.value(), w.value())
	case 9:
		w.exec("UPDATE sorted SET v = ? WHERE b = ? AND a > ?", w.value(), id%5, w.value())
	case 10:
		w.exec("INSERT OR REPLACE INTO sorted VALUES(?, ?, ?)", w.value(), w.value(), w.value())
	case 11:
		w.exec("DELETE FROM sorted WHERE a BETWEEN ? AND ?", "key 1", "key "+fmt.Sprint(id))
	case 12:
		w.exec("DELETE FROM bag WHERE rowid BETWEEN ? AND ?", id%400, id%400+3)
	case 13:
		w.exec("INSERT INTO bag VALUES(?, ?)", w.value(), w.value())
	case 14:
		w.exec("UPDATE other SET v = v || 'x' WHERE id = ?", id%300)
	case 15:
		w.exec("DELETE FROM wide WHERE id > ?", id)
	case 16:
		for i := range int64(80) {
			w.exec("INSERT INTO sorted VALUES(?, ?, ?)", fmt.Sprint("new ", id, i), i, w.value())
		}
	case 17:
		if w.r.IntN(6) == 0 {
			w.exec("VACUUM")
		}
	case 18:
		if w.r.IntN(3) == 0 {
			w.exec("DROP TABLE IF EXISTS other")
		}
	case 19:
		if w.r.IntN(3) == 0 {
			w.exec("DROP INDEX IF EXISTS wide_v")
		}
	case 20:
		w.exec("PRAGMA incremental_vacuum(20)")
	case 21:
		if w.r.IntN(3) == 0 {
			w.exec("CREATE TABLE IF NOT EXISTS n" + w.id + "(a, b)")
			w.exec("INSERT INTO n" + w.id + " SELECT id, w FROM wide LIMIT 50")
		}
	case 22:
		w.exec("ALTER TABLE other ADD COLUMN c" + fmt.Sprint(w.r.IntN(9)) + " DEFAULT 'd'")
	case 24:
		edges := []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1<<53 + 1, math.MaxInt64 - 1, math.MaxInt64}
		w.exec("INSERT OR REPLACE INTO wide VALUES(?, ?, 'edge')", edges[w.r.IntN(len(edges))], w.value())
	case 23:
		w.exec("UPDATE wide SET id = id + 10000 WHERE id BETWEEN ? AND ?", id, id+20)
	}
}

// TestRowsFoundByPagesAreThoseThatDiffer compares by all rows and by the pages that differ: the same, whatever happened to the pages.
func TestRowsFoundByPagesAreThoseThatDiffer(t *testing.T) {
	var mu sync.Mutex
	told := map[string]int{}
	t.Run("seeds", func(t *testing.T) {
		for seed := range uint64(60) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				r := rand.New(rand.NewPCG(seed, 2))
				pragmas := []string{"", "PRAGMA auto_vacuum = FULL; ", "PRAGMA auto_vacuum = INCREMENTAL; ", "PRAGMA secure_delete = ON; "}[seed%4]
				a := connect(t, filepath.Join(dir, "a.db"))
				exec(t, a, "PRAGMA page_size = 512; "+pragmas+grown)
				begin := &work{t: t, r: r, c: a, id: "o"}
				for range r.IntN(20) { // pages are not in order, and some are free
					begin.growth()
				}
				b := copyTo(t, a, filepath.Join(dir, "b.db"))
				works := []*work{{t: t, r: r, c: b, id: "b"}}
				if seed%3 == 0 {
					works = append(works, &work{t: t, r: r, c: a, id: "a"})
				}
				for _, w := range works {
					for range 1 + r.IntN(12) {
						w.growth()
					}
				}
				path := filepath.Join(dir, "b.db")
				want := sortedJSON(t, mustCompare(t, a, path))
				fa, fb := readPages(t, filepath.Join(dir, "a.db")), readPages(t, path)
				o := changeset.Options{Pages: &changeset.Pages{A: fa, B: fb, Differ: func(context.Context) ([]uint32, bool, error) { return differing(r, fa, fb), true, nil }}}
				o.Told(func(what string) {
					mu.Lock()
					defer mu.Unlock()
					if i := strings.Index(what, "page "); i > 0 {
						what = what[:i] + "page" + strings.TrimLeft(what[i+5:], "0123456789")
					}
					told[what]++
				})
				s, err := compare(a, path, o)
				if err != nil {
					t.Fatal(err)
				}
				if got := sortedJSON(t, s); got != want {
					t.Errorf("by pages\n%.3000s\nby rows\n%.3000s", got, want)
				}
			})
		}
	})
	t.Log(told)
	if told["used"] < 30 {
		t.Errorf("hardly ever used: %v", told)
	}
}

func TestPagesThatCannotTellAreNotTrusted(t *testing.T) {
	dir := t.TempDir()
	a := connect(t, filepath.Join(dir, "a.db"))
	exec(t, a, "PRAGMA page_size = 512; "+grown)
	path := filepath.Join(dir, "b.db")
	b := copyTo(t, a, path)
	// SQLite overwrites a payload of the same size in place: the row's own page stays as it is.
	exec(t, b, "UPDATE wide SET w = CAST(substr(w, 1, length(w) - 3) || x'010203' AS BLOB) WHERE id = 6300")
	fa, fb := readPages(t, filepath.Join(dir, "a.db")), readPages(t, path)
	var told []string
	pages := &changeset.Pages{A: fa, B: fb, Differ: func(context.Context) ([]uint32, bool, error) {
		return differing(rand.New(rand.NewPCG(1, 1)), fa, fb), true, nil
	}}
	o := changeset.Options{Pages: pages}
	o.Told(func(what string) { told = append(told, what) })
	want := sortedJSON(t, mustCompare(t, a, path))
	for _, steady := range []func(context.Context) (bool, error){nil, func(context.Context) (bool, error) { return false, nil }} {
		pages.Steady = steady
		if s, err := compare(a, path, o); err != nil || sortedJSON(t, s) != want || len(s.Tables) != 1 {
			t.Errorf("%v\n%s", err, s)
		}
	}
	pages.Differ = func(context.Context) ([]uint32, bool, error) { return nil, false, nil }
	if s, err := compare(a, path, o); err != nil || sortedJSON(t, s) != want {
		t.Errorf("%v\n%s", err, s)
	}
	broken := errors.New("no pages today")
	pages.Differ = func(context.Context) ([]uint32, bool, error) { return nil, false, broken }
	if _, err := compare(a, path, o); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if len(told) != 3 || !strings.Contains(told[0], "is of a row that is elsewhere") || !strings.Contains(told[1], "elsewhere") || told[2] != "not known" {
		t.Errorf("told %q", told)
	}
}
