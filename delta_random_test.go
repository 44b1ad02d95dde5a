package tonbo_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// replayer makes every state of a log from its entries alone, each from the one before, and compares it with the checksum that its writer recorded. It shares no code with the
// readers but the decoder.
type replayer struct {
	t      *testing.T
	store  remote.Store
	states map[string]map[uint64]map[uint32][]byte // by name and slot
	deltas int                                     // that it met
	chain  int                                     // the longest
	length map[string]map[uint64]map[uint32]int    // deltas of a page since it was whole
}

// replay returns the states of a log none of whose entries was collected.
func (r *replayer) replay(name string) map[uint64]map[uint32][]byte {
	r.t.Helper()
	if r.states[name] != nil {
		return r.states[name]
	}
	states, lengths := map[uint64]map[uint32][]byte{}, map[uint64]map[uint32]int{}
	for slot := uint64(1); ; slot++ {
		o, err := r.store.Get(context.Background(), fence.SlotKey(name, slot), remote.GetOptions{})
		if errors.Is(err, remote.ErrNotFound) {
			break
		}
		if err != nil {
			r.t.Fatal(err)
		}
		h, ix, payload, err := segment.Decode(o.Body)
		if err != nil {
			r.t.Fatal(err)
		}
		before, length := states[slot-1], lengths[slot-1]
		switch {
		case h.Kind == segment.KindRewind:
			before, length = states[h.To], lengths[h.To]
		case h.Source != nil:
			before, length = r.replay(h.Source.Name)[h.Source.Slot], r.length[h.Source.Name][h.Source.Slot]
		}
		now, count := maps.Clone(before), maps.Clone(length)
		if now == nil {
			now, count = map[uint32][]byte{}, map[uint32]int{}
		}
		put := func(p uint32, page []byte) error {
			now[p], count[p] = bytes.Clone(page), 0
			return nil
		}
		if err := segment.EachChange(h, ix, payload, put, func(d segment.Delta) error {
			page := make([]byte, ix.PageSize)
			if before[d.Page] == nil {
				r.t.Errorf("%s, slot %d: a delta of page %d, which was not there", name, slot, d.Page)
				return nil
			}
			if err := d.Apply(page, before[d.Page]); err != nil {
				r.t.Errorf("%s, slot %d: %v", name, slot, err)
			}
			n := count[d.Page] + 1
			put(d.Page, page)
			count[d.Page] = n
			r.deltas++
			r.chain = max(r.chain, n)
			return nil
		}); err != nil {
			r.t.Fatal(err)
		}
		for _, ref := range ix.Refs {
			o, err := r.store.Get(context.Background(), ref.Key, remote.GetOptions{})
			if err != nil {
				r.t.Fatal(err)
			}
			h, ix, payload, err := segment.Decode(o.Body)
			if err == nil {
				err = segment.EachPage(h, ix, payload, put)
			}
			if err != nil {
				r.t.Fatal(err)
			}
		}
		var sum uint64
		for p, b := range now {
			if p > h.PageCount {
				delete(now, p)
				delete(count, p)
				continue
			}
			sum ^= segment.PageSum(p, b)
		}
		if sum != h.Checksum {
			r.t.Errorf("%s, slot %d: the pages' checksum is %016x, the log says %016x", name, slot, sum, h.Checksum)
		}
		states[slot], lengths[slot] = now, count
	}
	r.states[name], r.length[name] = states, lengths
	return states
}

func newReplayer(t *testing.T, s remote.Store) *replayer {
	return &replayer{t: t, store: s, states: map[string]map[uint64]map[uint32][]byte{}, length: map[string]map[uint64]map[uint32]int{}}
}

// contents is what a database holds.
func contents(db *tonbo.DB) (string, error) {
	r, err := db.Query("SELECT id, k, v FROM t ORDER BY id")
	if err != nil {
		return "", err
	}
	defer r.Close()
	sum := sha256.New()
	n := 0
	for r.Next() {
		var id int64
		var k, v string
		if err := r.Scan(&id, &k, &v); err != nil {
			return "", err
		}
		fmt.Fprintln(sum, id, k, v)
		n++
	}
	return fmt.Sprintf("%d rows %x", n, sum.Sum(nil)[:6]), r.Err()
}

// deltaLife is the life of one database and its forks, whose every acknowledged point is known.
type deltaLife struct {
	t      *testing.T
	seed   uint64
	r      *rand.Rand
	inner  remote.Store
	store  *tonbotest.Store
	a      *account
	c      *tonbo.Client
	dir    string
	db     *tonbo.DB
	name   string
	known  map[string]map[uint64]string // contents by name and slot
	did    []string
	gone   bool // entries are collected
	packs  int  // that bases had
	reader *tonbo.DB
}

func (l *deltaLife) fatal(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatalf("seed %d: %v\n%v", l.seed, err, l.did)
	}
}

func (l *deltaLife) options(dir string) tonbo.Options {
	o := tonbo.Options{Remote: l.store, Dir: dir, SyncTimeout: time.Minute, History: 24 * time.Hour,
		Hydration: []tonbo.Hydration{tonbo.HydrateNone, tonbo.HydrateBackground, tonbo.HydrateFull}[l.r.IntN(3)],
		Pragmas:   map[string]string{"wal_autocheckpoint": fmt.Sprint(5 + l.r.IntN(100)), "cache_size": "20"}}
	if l.r.IntN(2) == 0 {
		o = o.Tuned(4+l.r.IntN(30), time.Hour)
	}
	switch l.seed % 3 {
	case 1:
		o = o.Packing(1 << 20)
	case 2:
		o = o.Packing(64 << 10)
	}
	if l.seed%4 == 1 {
		o = o.UpperObjects()
	}
	if l.gone {
		o.History = time.Nanosecond
		o = o.Collecting()
	}
	return o
}

func (l *deltaLife) text() string {
	n := 1 + l.r.IntN(300)
	b := make([]byte, n)
	for i := range b {
		b[i] = "the quick brown fox "[l.r.IntN(20)]
	}
	return string(b)
}

// write commits something.
func (l *deltaLife) write() {
	for range 1 + l.r.IntN(3) {
		var err error
		switch l.r.IntN(12) {
		default:
			_, err = l.db.Exec("INSERT INTO t(k, v) VALUES(?, ?)", fmt.Sprintf("%x", l.r.Uint32()), l.text())
		case 5, 6, 7:
			_, err = l.db.Exec("UPDATE t SET v=? WHERE id=(SELECT id FROM t WHERE id>=? LIMIT 1)", l.text(), l.r.IntN(500))
		case 8, 9:
			_, err = l.db.Exec("UPDATE t SET k=? WHERE id=(SELECT id FROM t WHERE id>=? LIMIT 1)", fmt.Sprintf("%x", l.r.Uint32()), l.r.IntN(500))
		case 10:
			_, err = l.db.Exec("DELETE FROM t WHERE id%17=?", l.r.IntN(17))
		case 11:
			_, err = l.db.Exec("WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<80) INSERT INTO t(k, v) SELECT n, ? FROM s", l.text())
		}
		l.fatal(err)
	}
}

// acknowledged notes the point that the head is.
func (l *deltaLife) acknowledged() {
	got, err := contents(l.db)
	l.fatal(err)
	l.known[l.name][l.db.Status().Slot] = got
}

func (l *deltaLife) open(dir string) {
	l.dir = dir
	db, err := tonbo.Open(l.t.Context(), l.name, l.options(dir))
	l.fatal(err)
	l.db = db
	l.t.Cleanup(func() { db.Close() })
}

// check compares a handle with what is known of its point.
func (l *deltaLife) check(db *tonbo.DB, name string, slot uint64) {
	l.t.Helper()
	want, known := l.known[name][slot]
	if !known {
		return
	}
	got, err := contents(db)
	l.fatal(err)
	if got != want {
		l.fatal(fmt.Errorf("%s, slot %d: got %s, want %s", name, slot, got, want))
	}
	var ok string
	l.fatal(db.QueryRow("PRAGMA integrity_check").Scan(&ok))
	if ok != "ok" {
		l.fatal(errors.New(ok))
	}
}

// look reads a known point.
func (l *deltaLife) look(name string) {
	slots := slices.Sorted(maps.Keys(l.known[name]))
	if len(slots) == 0 {
		return
	}
	slot := slots[l.r.IntN(len(slots))]
	o := l.options(l.t.TempDir())
	o.At = tonbo.Slot(slot)
	ro, err := tonbo.OpenReadOnly(l.t.Context(), name, o)
	if errors.Is(err, tonbo.ErrPointGone) && l.gone {
		return
	}
	l.fatal(err)
	defer ro.Close()
	l.check(ro, name, slot)
	l.fatal(ro.Hydrated(l.t.Context())) // and the whole, by its checksum
}

func (l *deltaLife) run(steps int) {
	ctx := l.t.Context()
	forks := 0
	var beside sync.WaitGroup
	defer beside.Wait()
	for range steps {
		op := l.r.IntN(40)
		l.did = append(l.did, fmt.Sprint(op))
		switch {
		case op < 18:
			l.write()
			l.fatal(l.db.Synced(ctx))
			l.acknowledged()
		case op < 20:
			l.write()
		case op == 20:
			_, err := l.db.Checkpoint(ctx, fmt.Sprint("label-", l.r.IntN(100)))
			l.fatal(err)
			l.acknowledged()
		case op == 21:
			_, err := l.db.Exec("PRAGMA wal_checkpoint(" + []string{"PASSIVE", "RESTART", "TRUNCATE"}[l.r.IntN(3)] + ")")
			l.fatal(err)
		case op == 22:
			_, err := l.db.Exec("VACUUM")
			l.fatal(err)
		case op == 23: // shrink, and then grow again
			_, err := l.db.Exec("DELETE FROM t WHERE id%2=0; VACUUM")
			l.fatal(err)
			if l.r.IntN(2) == 0 {
				l.fatal(l.db.Synced(ctx))
				l.acknowledged()
			}
		case op == 24:
			l.fatal(l.db.Compact(ctx, l.r.IntN(2) == 0))
			l.packs += len(l.db.Base().Packs())
		case op == 25:
			beside.Wait()
			db := l.db
			beside.Go(func() { db.Compact(ctx, false) })
		case op == 26: // the answer is lost, or the request is
			log := tonbotest.Match{Op: tonbotest.Create, Key: "/log/"}
			if l.r.IntN(2) == 0 {
				l.store.DropAnswer(log, 1)
			} else {
				l.store.Lose(log, 1)
			}
			l.write()
			short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			l.db.Synced(short)
			cancel()
			if l.r.IntN(2) == 0 {
				l.write()
			}
			l.store.Heal()
			l.fatal(l.db.Synced(ctx))
			l.acknowledged()
		case op == 27: // close, and open again, here or elsewhere
			beside.Wait()
			want, err := contents(l.db)
			l.fatal(err)
			l.fatal(l.db.Close())
			if l.r.IntN(2) == 0 {
				l.dir = l.t.TempDir()
			}
			l.open(l.dir)
			if got, err := contents(l.db); got != want {
				l.fatal(fmt.Errorf("opened again: got %s, want %s (%v)", got, want, err))
			}
		case op == 28: // taken over: what was not acknowledged is not there
			beside.Wait()
			l.fatal(l.db.Synced(ctx))
			old, want := l.db, ""
			want, err := contents(old)
			l.fatal(err)
			l.open(l.t.TempDir())
			if got, err := contents(l.db); got != want {
				l.fatal(fmt.Errorf("taken over: got %s, want %s (%v)", got, want, err))
			}
			if err := old.Synced(ctx); !errors.Is(err, tonbo.ErrFenced) {
				l.fatal(fmt.Errorf("the one before: %v", err))
			}
			old.Close()
		case op == 29:
			beside.Wait()
			l.fatal(l.db.Synced(ctx))
			l.acknowledged()
			l.fatal(l.db.Reopen(ctx))
		case op == 30 && !l.gone: // back to a point
			beside.Wait()
			slots := slices.Sorted(maps.Keys(l.known[l.name]))
			if len(slots) == 0 {
				continue
			}
			slot := slots[l.r.IntN(len(slots))]
			l.fatal(l.db.Synced(ctx))
			l.acknowledged()
			old := l.db
			_, err := l.c.Rewind(ctx, l.name, tonbo.Slot(slot))
			l.fatal(err)
			old.Close()
			l.open(l.dir)
			got, err := contents(l.db)
			l.fatal(err)
			if want := l.known[l.name][slot]; got != want {
				l.fatal(fmt.Errorf("rewound to %d: got %s, want %s", slot, got, want))
			}
		case op == 31 && forks < 3 && !l.gone: // a fork, with which it goes on, or not
			slots := slices.Sorted(maps.Keys(l.known[l.name]))
			if len(slots) == 0 {
				continue
			}
			beside.Wait()
			slot := slots[l.r.IntN(len(slots))]
			forks++
			name := fmt.Sprint("fork-", forks)
			_, err := l.c.Fork(ctx, l.name, name, tonbo.ForkOptions{At: tonbo.Slot(slot)})
			l.fatal(err)
			source, want := l.name, l.known[l.name][slot]
			l.fatal(l.db.Close())
			l.name, l.known[name] = name, map[uint64]string{}
			l.open(l.t.TempDir())
			got, err := contents(l.db)
			l.fatal(err)
			if got != want {
				l.fatal(fmt.Errorf("fork of slot %d: got %s, want %s", slot, got, want))
			}
			if l.r.IntN(3) == 0 {
				l.write()
				l.fatal(l.db.Close())
				l.name = source
				l.open(l.t.TempDir())
			}
		case op == 32 && l.gone:
			l.fatal(l.db.CollectOwn(ctx))
		case op < 36:
			l.look(l.name)
		case op < 38: // a handle that follows
			if l.reader == nil || l.reader.Status().Name != l.name {
				ro, err := tonbo.OpenReadOnly(ctx, l.name, l.options(l.t.TempDir()))
				l.fatal(err)
				l.t.Cleanup(func() { ro.Close() })
				l.reader = ro
			}
			l.fatal(l.reader.Refresh(ctx))
			if !l.gone {
				l.check(l.reader, l.name, l.reader.Status().Slot)
			}
		case op == 38: // another machine, which looks and goes
			beside.Wait()
			l.fatal(l.db.Synced(ctx))
			want, err := contents(l.db)
			l.fatal(err)
			l.fatal(l.db.Close())
			here := l.dir
			l.open(l.t.TempDir())
			if got, err := contents(l.db); got != want {
				l.fatal(fmt.Errorf("elsewhere: got %s, want %s (%v)", got, want, err))
			}
			l.write()
			want, err = contents(l.db)
			l.fatal(err)
			l.fatal(l.db.Close())
			l.open(here)
			if got, err := contents(l.db); got != want {
				l.fatal(fmt.Errorf("back: got %s, want %s (%v)", got, want, err))
			}
		}
	}
}

// newDeltaLife makes a database, in some lives one that is large enough to be opened lazily.
func newDeltaLife(t *testing.T, seed uint64) *deltaLife {
	l := &deltaLife{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 7)), inner: mem.New("test"), name: "run", known: map[string]map[uint64]string{"run": {}}, gone: seed%4 == 3}
	l.store = tonbotest.NewStore(l.inner)
	l.a = &account{t: t, store: l.store}
	l.c = client(t, l.a)
	size := []int{4096, 4096, 1024, 512, 65536}[l.r.IntN(5)]
	_, err := l.c.Create(t.Context(), "run", tonbo.CreateOptions{PageSize: size})
	l.fatal(err)
	l.open(t.TempDir())
	_, err = l.db.Exec("CREATE TABLE t(id INTEGER PRIMARY KEY, k TEXT, v TEXT); CREATE INDEX i ON t(k)")
	l.fatal(err)
	if l.r.IntN(2) == 0 {
		_, err = l.db.Exec("WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<1200) INSERT INTO t(k, v) SELECT n*7919%1200, hex(zeroblob(500)) FROM s")
		l.fatal(err)
	}
	l.fatal(l.db.Synced(t.Context()))
	return l
}

// TestDeltasMakeEveryPoint lives random lives: every acknowledged point is what it was, for all readers, and each entry makes its state of the one before it, byte for byte.
func TestDeltasMakeEveryPoint(t *testing.T) {
	end := time.Now().Add(soak(2 * time.Second))
	deltas, longest, packs := 0, 0, 0
	for seed := uint64(1); (seed <= 3 || time.Now().Before(end)) && !t.Failed(); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l := newDeltaLife(t, seed)
			l.run(70)
			l.fatal(l.db.Close())
			packs += l.packs
			for name := range l.known {
				report, err := l.c.Verify(t.Context(), name)
				l.fatal(err)
				if !report.OK() {
					l.fatal(fmt.Errorf("%s: %+v", name, report.Problems))
				}
				for range 3 {
					l.look(name)
				}
			}
			if l.gone {
				return
			}
			r := newReplayer(t, l.inner)
			for name := range l.known {
				r.replay(name)
			}
			deltas += r.deltas
			longest = max(longest, r.chain)
			if t.Failed() {
				t.Logf("seed %d: %v", seed, l.did)
			}
		})
	}
	t.Logf("%d deltas, at most %d of a page in a row; %d packs", deltas, longest, packs)
	if (deltas == 0 || packs == 0) && !t.Failed() {
		t.Error("no page was ever shipped as a delta, or no entry was packed")
	}
}
