package tonbo_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"
	sqlitedriver "github.com/ncruces/go-sqlite3/driver"
	"github.com/ncruces/go-sqlite3/ext/fts5"
	"github.com/ncruces/go-sqlite3/ext/rtree"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/sqltest"
	"github.com/tonbo-go/tonbo/vfs"
)

var (
	differentialSeed  = flag.Uint64("differential.seed", 0, "TestSQLSaysWhatItSaysOnAPlainFile: this seed alone")
	differentialSteps = flag.Int("differential.steps", 0, "TestSQLSaysWhatItSaysOnAPlainFile: steps of each seed, default 400")
)

// TestSQLSaysWhatItSaysOnAPlainFile: random SQL on two connections of a database of ours and of a plain file, on the driver's own VFS: after every step both have said the same, rows and errors, and at every
// pause both are the same file, byte for byte: ours as it is exported, as its owner leaves it, and as the next machine has it after a cold start. $TONBO_SOAK runs seeds for that long.
func TestSQLSaysWhatItSaysOnAPlainFile(t *testing.T) {
	if *differentialSeed > 0 {
		differential(t, *differentialSeed)
		return
	}
	seeds, end := uint64(6), time.Now().Add(soak(0))
	if raceEnabled || testing.Short() {
		seeds = 2
	}
	for seed := uint64(1); (seed <= seeds || time.Now().Before(end)) && !t.Failed(); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { differential(t, seed) })
	}
}

// twin is a database in two places.
type twin struct {
	t      *testing.T
	script *sqltest.Script
	said   []string // steps
	a      *account
	o      tonbo.Options // the machine where ours is
	ours   *tonbo.DB
	plain  *sql.DB
	path   string    // of the plain file
	dirs   [2]string // of other files
	conns  [2][2]*sql.Conn
	size   int

	steps, errors, acks, pauses, leaves int
}

func differential(t *testing.T, seed uint64) {
	w := &twin{t: t, script: sqltest.New(seed), a: newAccount(t), path: filepath.Join(t.TempDir(), "db"), dirs: [2]string{t.TempDir(), t.TempDir()}}
	rng := w.script.Rand()
	w.size = []int{512, 1024, 4096, 4096, 16384, 65536}[rng.IntN(6)]
	w.a.o.Pragmas = map[string]string{"page_size": fmt.Sprint(w.size)}
	w.a.o = w.a.o.Tuned(4+rng.IntN(20), time.Hour)
	w.a.o.Strict = rng.IntN(4) == 0
	w.a.create("run")
	if err := os.WriteFile(w.path, vfs.EmptyDatabase(w.size), 0o600); err != nil {
		t.Fatal(err)
	}
	defer func() {
		w.close()
		if t.Failed() {
			t.Logf("go test -run '^TestSQLSaysWhatItSaysOnAPlainFile$' -differential.seed=%d .\npages of %d bytes, strict %v; the last steps:\n%s", seed, w.size, w.a.o.Strict, strings.Join(w.said[max(0, len(w.said)-40):], "\n"))
		}
	}()
	w.open(w.a.machine())
	steps := *differentialSteps
	if steps == 0 {
		steps = 400
	}
	for i := range steps {
		w.step(w.script.Next())
		switch n := rng.IntN(100); {
		case n < 4:
			w.said = append(w.said, "Synced")
			synced(t, w.ours)
			w.acks++
		case n == 4 || i == steps-1:
			for _, s := range w.script.Settle() {
				w.step(s)
			}
			w.pause()
		}
	}
	t.Logf("%d steps, of which %d failed, %d acknowledgements, %d comparisons of the files, %d of them but for free pages", w.steps, w.errors, w.acks, w.pauses, w.leaves)
}

// open opens both, ours on a machine.
func (w *twin) open(o tonbo.Options) {
	t := w.t
	t.Helper()
	o.Hydration = []tonbo.Hydration{tonbo.HydrateNone, tonbo.HydrateBackground, tonbo.HydrateFull}[w.script.Rand().IntN(3)]
	w.said = append(w.said, fmt.Sprintf("Open, hydration %d", o.Hydration))
	w.o = o
	w.ours = open(t, "run", o)
	plain, err := sqlitedriver.Open("file:"+filepath.ToSlash(w.path)+"?_pragma=busy_timeout(60000)&_pragma=synchronous(normal)", fts5.Register)
	if err != nil {
		t.Fatal(err)
	}
	w.plain = plain
	for side, db := range []*sql.DB{w.ours.DB, w.plain} {
		for i := range w.conns[side] {
			c, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			w.conns[side][i] = c
			if err := raw(c, rtree.Register); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.script.Reconnected()
}

func raw(c *sql.Conn, do func(*sqlite3.Conn) error) error {
	return c.Raw(func(dc any) error { return do(dc.(sqlitedriver.Conn).Raw()) })
}

func (w *twin) close() {
	for _, conns := range w.conns {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}
	if err := errors.Join(w.ours.Close(), w.plain.Close()); err != nil {
		w.t.Error(err)
	}
}

// step does one thing on both and compares what they say.
func (w *twin) step(s sqltest.Step) {
	t := w.t
	t.Helper()
	w.said = append(w.said, s.String())
	var said [2]string
	var in [2]bool
	for side := range said {
		c := w.conns[side][s.Conn]
		said[side] = w.do(side, c, s)
		if err := raw(c, func(c *sqlite3.Conn) error { in[side] = !c.GetAutocommit(); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if said[0] != said[1] || in[0] != in[1] {
		t.Fatalf("%s\n  ours:  %s (in a transaction: %v)\n  plain: %s (%v)", s, said[0], in[0], said[1], in[1])
	}
	w.steps++
	if strings.Contains(said[0], "error ") {
		w.errors++
	}
	w.said[len(w.said)-1] += " -> " + said[0][:min(len(said[0]), 100)]
	w.script.InTransaction(s.Conn, in[0])
}

// do runs a statement and tells what came of it.
func (w *twin) do(side int, c *sql.Conn, s sqltest.Step) string {
	ctx, args := context.Background(), slices.Clone(s.Args)
	for i, a := range args {
		if own, ok := a.(sqltest.Own); ok {
			args[i] = filepath.Join(w.dirs[side], string(own))
		}
	}
	failed := func(err error) string {
		var code sqlite3.ExtendedErrorCode
		errors.As(err, &code)
		return strings.ReplaceAll(fmt.Sprintf("error %d: %v", code, err), w.dirs[side], "")
	}
	if word, _, _ := strings.Cut(s.SQL, " "); word != "SELECT" && word != "PRAGMA" && !strings.Contains(s.SQL, "RETURNING") {
		r, err := c.ExecContext(ctx, s.SQL, args...)
		if err != nil {
			return failed(err)
		}
		n, _ := r.RowsAffected()
		id, _ := r.LastInsertId()
		return fmt.Sprintf("%d rows, last %d", n, id)
	}
	r, err := c.QueryContext(ctx, s.SQL, args...)
	if err != nil {
		return failed(err)
	}
	defer r.Close()
	names, err := r.Columns()
	if err != nil {
		return failed(err)
	}
	out := strings.Builder{}
	for r.Next() {
		vals, to := make([]any, len(names)), make([]any, len(names))
		for i := range vals {
			to[i] = &vals[i]
		}
		if err := r.Scan(to...); err != nil {
			return failed(err)
		}
		if s.Blind {
			continue
		}
		for _, v := range vals {
			fmt.Fprintf(&out, "%#v|", v)
		}
		out.WriteByte('\n')
	}
	if err := r.Err(); err != nil {
		return out.String() + failed(err)
	}
	return fmt.Sprint(names, out.String())
}

// pause compares the files, perhaps after a move to another machine.
func (w *twin) pause() {
	t := w.t
	t.Helper()
	rng := w.script.Rand()
	synced(t, w.ours)
	w.pauses++
	c := client(t, w.a)
	switch rng.IntN(4) {
	case 0:
		w.said = append(w.said, "Compact")
		if err := w.ours.Compact(t.Context(), rng.IntN(2) == 0); err != nil {
			t.Fatal(err)
		}
	case 1: // refused, and nothing has changed
		w.said = append(w.said, "journal_mode=DELETE")
		if _, err := w.conns[0][0].ExecContext(t.Context(), "PRAGMA journal_mode=DELETE"); !errors.Is(err, tonbo.ErrUnsupported) {
			t.Fatalf("journal_mode=DELETE: %v", err)
		}
	}
	whole := rng.IntN(3) > 0 // else it may be left with pages that were never fetched
	if whole {
		if err := w.ours.Hydrated(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.close()
	want, err := os.ReadFile(w.path)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := c.Export(t.Context(), "run", nil, &b); err != nil {
		t.Fatal(err)
	}
	got := b.Bytes()
	if got[18] != 1 || got[19] != 1 {
		t.Fatal("the exported file is not in rollback mode")
	}
	got[18], got[19] = 2, 2
	// The last two connections of ours, of which one is the background's, may end at once, and leave to the next Open what is in the write-ahead log.
	if fi, err := os.Stat(filepath.Join(w.o.Dir, "run", "db-wal")); whole && (err != nil || fi.Size() == 0) {
		w.equal("the owner's file", ownFile(t, w.o, "run"), got)
	}
	if !bytes.Equal(got, want) { // page by page, but for free ones
		w.leaves++
		got, want = withoutFreeLeaves(got, w.size), withoutFreeLeaves(want, w.size)
	}
	w.equal("the exported file", got, want)
	o := w.o
	if rng.IntN(3) > 0 {
		o = w.a.machine()
	}
	w.open(o)
	if s := w.do(0, w.conns[0][0], sqltest.Step{SQL: "PRAGMA integrity_check"}); s != w.do(1, w.conns[1][0], sqltest.Step{SQL: "PRAGMA integrity_check"}) {
		t.Fatalf("integrity_check: %s", s)
	}
}

func (w *twin) equal(what string, got, want []byte) {
	w.t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	var differ []string
	for i := 0; i < min(len(got), len(want)) && len(differ) < 20; i++ {
		if got[i] != want[i] {
			differ = append(differ, fmt.Sprintf("page %d byte %d: %d, want %d", i/w.size+1, i%w.size, got[i], want[i]))
		}
	}
	w.t.Fatalf("%s has %d bytes, want %d: %s", what, len(got), len(want), strings.Join(differ, "; "))
}

// withoutFreeLeaves returns a database file with zeros in the leaves of its list of free pages (https://sqlite.org/fileformat2.html#the_freelist). SQLite never writes them: where the database shrank and grew
// again they hold what was there before, or zeros if a checkpoint cut the file in between, and background checkpoints come when they come.
func withoutFreeLeaves(file []byte, pageSize int) []byte {
	file = slices.Clone(file)
	page := func(n uint32) []byte { return file[int(n-1)*pageSize : int(n)*pageSize] }
	for trunk := binary.BigEndian.Uint32(file[32:]); trunk != 0; trunk = binary.BigEndian.Uint32(page(trunk)) {
		p := page(trunk)
		for leaves := p[8 : 8+4*binary.BigEndian.Uint32(p[4:])]; len(leaves) > 0; leaves = leaves[4:] {
			clear(page(binary.BigEndian.Uint32(leaves)))
		}
	}
	return file
}
