package tonbo_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
)

// packed makes a database of some megabytes of which a base packs rounds times what n updates have changed. It returns its owner, the slot of
// each update, and the digests of those that look names.
func packed(t testing.TB, a *account, o tonbo.Options, rounds, n int, look ...int) (db *tonbo.DB, slots []uint64, digests map[int]string) {
	t.Helper()
	db = settledMegabytes(t, a, o)
	hydrated(t, db)
	levels := db.Base().Levels
	digests = map[int]string{}
	for i := range rounds * n {
		exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id=?", 1+i*577%3000)
		if i%9 == 5 {
			exec(t, db, "INSERT INTO other(v) VALUES(hex(randomblob(900)))")
		}
		synced(t, db)
		if slots = append(slots, db.Status().Slot); slices.Contains(look, i) {
			digests[i] = digest(t, db)
		}
		if i%n == n-1 {
			if err := db.Compact(context.Background(), false); err != nil {
				t.Fatal(err)
			}
		}
	}
	m := db.Base()
	if len(m.Packs()) == 0 || m.Slot < slots[len(slots)-1] {
		t.Fatalf("%d packs, the base covers slot %d of %d", len(m.Packs()), m.Slot, slots[len(slots)-1])
	}
	if entries, _, _ := base.PackedTotal(m.Packs()); entries != rounds*n {
		t.Fatalf("%d entries are packed, want %d", entries, rounds*n)
	}
	if !slices.EqualFunc(m.Levels, levels, func(a, b []base.Segment) bool { return slices.Equal(a, b) }) {
		t.Fatalf("the levels have changed: %+v, before %+v", m.Levels, levels)
	}
	return db, slots, digests
}

// TestBasePacksWhatIsDearToMerge: without being asked for, where one-row updates are anywhere in the database; and each point is what it was for every reader.
func TestBasePacksWhatIsDearToMerge(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	db, slots, digests := packed(t, a, a.machine().Unsettled(), 3, 20, 3, 21, 39, 52)
	exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id=7")
	synced(t, db)
	want := digest(t, db)
	for name, o := range map[string]tonbo.Options{"lazy": a.lazyMachine(), "full": a.fullMachine(), "background": a.machine()} {
		ro, err := tonbo.OpenReadOnly(ctx, "run", o)
		if err != nil {
			t.Fatal(err)
		}
		if got := digest(t, ro); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
		hydrated(t, ro)
		closeDB(t, ro)
	}
	for i := range digests {
		ro := a.reading("run", func(o *tonbo.Options) { o.At, o.Hydration = tonbo.Slot(slots[i]), tonbo.Hydration(i%3) })
		if got := digest(t, ro); got != digests[i] {
			t.Errorf("slot %d: got %s, want %s", slots[i], got, digests[i])
		}
		hydrated(t, ro)
		closeDB(t, ro)
	}
	report, err := client(t, a).Verify(ctx, "run")
	if err != nil || !report.OK() {
		t.Errorf("Verify: %+v %v", report, err)
	}
	var file bytes.Buffer
	if err := client(t, a).Export(ctx, "run", nil, &file); err != nil {
		t.Error(err)
	}
	closeDB(t, db)
	for name, o := range map[string]tonbo.Options{"lazy": a.lazyMachine(), "full": a.fullMachine()} {
		db := open(t, "run", o)
		if got := digest(t, db); got != want {
			t.Errorf("owner, %s: got %s, want %s", name, got, want)
		}
		integrity(t, db)
		closeDB(t, db)
	}
}

// TestPacksAreMergedWhenThereIsMuchOfThem, with the levels: what they held is there, and they are collected.
func TestPacksAreMergedWhenThereIsMuchOfThem(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	o := a.machine().Tuned(1<<20, time.Hour).Packing(150 << 10).Collecting()
	o.History = time.Nanosecond
	db := settledMegabytes(t, a, o)
	hydrated(t, db)
	merged := 0
	for i := range 300 {
		exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id=?", 1+i*577%3000)
		synced(t, db)
		if i%15 == 14 {
			before := len(db.Base().Packs())
			if err := db.Compact(ctx, false); err != nil {
				t.Fatal(err)
			}
			if before > 0 && len(db.Base().Packs()) == 0 {
				merged++
			}
		}
	}
	if merged == 0 {
		t.Fatal("packs were never merged with the levels")
	}
	for range 2 { // what the last base has replaced
		exec(t, db, "UPDATE t SET v=randomblob(10) WHERE id=1")
		synced(t, db)
		if err := db.Compact(ctx, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.CollectOwn(ctx); err != nil {
		t.Fatal(err)
	}
	named := slices.Collect(db.Base().Named())
	there := segments(t, a.store)
	if len(there) > len(named)+4 {
		t.Errorf("%d segments and packs are stored, the base names %d", len(there), len(named))
	}
	for _, k := range named {
		if !slices.Contains(there, k) {
			t.Errorf("%s is gone", k)
		}
	}
	want := digest(t, db)
	if got := digest(t, open(t, "run", a.fullMachine())); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestPackThatLeavesAnEntryOutIsFoundOut breaks the rule: nobody gets a wrong page.
func TestPackThatLeavesAnEntryOutIsFoundOut(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	db := settledMegabytes(t, a, a.machine().Unsettled().Packing(1<<20).PacksWithoutOne())
	hydrated(t, db)
	for i := range 5 { // each is a difference against the one before
		exec(t, db, "UPDATE t SET v=substr(v, -500)||? WHERE id=1500", fmt.Sprint("and ", i))
		synced(t, db)
	}
	if err := db.Compact(ctx, false); err != nil {
		t.Fatal(err)
	}
	if n, _, _ := base.PackedTotal(db.Base().Packs()); n != 4 {
		t.Fatalf("%d entries are packed: the rule was not broken", n)
	}
	if report, err := client(t, a).Verify(ctx, "run"); err != nil || report.OK() || !slices.ContainsFunc(report.Problems, func(p tonbo.Problem) bool { return strings.Contains(p.Key, "/base/") }) {
		t.Errorf("Verify: %+v %v", report, err)
	}
	for _, o := range []tonbo.Options{a.lazyMachine(), a.fullMachine()} {
		r, err := tonbo.OpenReadOnly(ctx, "run", o)
		if err == nil {
			var v string
			if err = r.QueryRow("SELECT v FROM t WHERE id=1500").Scan(&v); err == nil {
				t.Errorf("read %q", v)
			}
			closeDB(t, r)
		}
		if !errors.Is(err, tonbo.ErrCorrupt) {
			t.Errorf("read-only: %v", err)
		}
	}
	if _, err := tonbo.Open(ctx, "run", a.fullMachine()); !errors.Is(err, tonbo.ErrCorrupt) {
		t.Errorf("Open: %v", err)
	}
}

// TestDamagedPackIsNamed, and so is one that is missing.
func TestDamagedPackIsNamed(t *testing.T) {
	ctx := context.Background()
	for what, change := range map[string]func([]byte) []byte{
		"a bit in a payload": func(b []byte) []byte { b[len(b)/2] ^= 4; return b },
		"cut":                func(b []byte) []byte { return b[:len(b)-1] },
		"gone":               func([]byte) []byte { return nil },
	} {
		t.Run(what, func(t *testing.T) {
			a := newAccount(t)
			db, _, _ := packed(t, a, a.machine().Unsettled(), 1, 12)
			key := db.Base().Packs()[0].Key
			closeDB(t, db)
			o, err := a.store.Get(ctx, key, remote.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := a.store.Delete(ctx, key); err != nil {
				t.Fatal(err)
			}
			if b := change(o.Body); b != nil {
				if _, err := a.store.Create(ctx, key, b); err != nil {
					t.Fatal(err)
				}
			}
			report, err := client(t, a).Verify(ctx, "run")
			if err != nil || !slices.ContainsFunc(report.Problems, func(p tonbo.Problem) bool { return p.Key == key }) {
				t.Errorf("Verify: %+v %v", report, err)
			}
			for _, o := range []tonbo.Options{a.lazyMachine(), a.fullMachine()} {
				db, err := tonbo.Open(ctx, "run", o)
				if err == nil {
					err = db.Hydrated(ctx)
					db.Close()
				}
				if !errors.Is(err, tonbo.ErrCorrupt) || !strings.Contains(err.Error(), key) {
					t.Errorf("Open: %v", err)
				}
			}
		})
	}
}

// TestDamagedUpperPagesOfAPackAreNamed: no entry needs them, but who opens the database lazily reads them first.
func TestDamagedUpperPagesOfAPackAreNamed(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	db := settledMegabytes(t, a, a.machine().Unsettled().Packing(0))
	exec(t, db, "CREATE TABLE more(v)") // page 1 is another one than in the upper object
	compacted(t, db)
	closeDB(t, db)
	db = open(t, "run", a.machine().Unsettled().Packing(1<<20))
	exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id=1000")
	compacted(t, db)
	key := db.Base().Packs()[0].Key
	closeDB(t, db)
	o, err := a.store.Get(ctx, key, remote.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, pack, err := segment.DecodePack(o.Body)
	if err != nil || len(pack.Upper) == 0 {
		t.Fatalf("%d bytes of upper pages: %v", len(pack.Upper), err)
	}
	pack.Upper[0] ^= 4 // a part of the object
	if err := a.store.Delete(ctx, key); err != nil {
		t.Fatal(err)
	}
	if _, err := a.store.Create(ctx, key, o.Body); err != nil {
		t.Fatal(err)
	}
	report, err := client(t, a).Verify(ctx, "run")
	if err != nil || len(report.Problems) != 1 || report.Problems[0].Key != key {
		t.Errorf("Verify: %+v %v", report, err)
	}
	if _, err := tonbo.Open(ctx, "run", a.lazyMachine()); !errors.Is(err, tonbo.ErrCorrupt) || !strings.Contains(err.Error(), key) {
		t.Errorf("Open: %v", err)
	}
}

// TestWholePagesInPacksTakeNoMemory: an index of a few bytes names hundreds of them, and nobody has looked whether they are there when differences are counted.
func TestWholePagesInPacksTakeNoMemory(t *testing.T) {
	deltas := func(first, count uint32) *segment.Index {
		return &segment.Index{PageSize: 512, Delta: &segment.Block{Runs: []segment.Run{{First: first, Count: count}}}}
	}
	whole := &segment.Index{PageSize: 512}
	for i := range uint32(2000) {
		whole.Blocks = append(whole.Blocks, segment.Block{Runs: []segment.Run{{First: 1 + 512*i, Count: 512}}})
	}
	got := tonbo.Differences(deltas(7, 3), deltas(2_000_000, 1), whole, deltas(9, 2), deltas(9, 1))
	if want := map[uint32]int32{9: 2, 10: 1, 2_000_000: 1}; !maps.Equal(got, want) {
		t.Errorf("%d pages are counted, want %v", len(got), want)
	}
}

// TestForkStandsOnItsSourcesPacks, and a fork of that one does; both go on in their own log, and need the source no more when they have bases of their own.
func TestForkStandsOnItsSourcesPacks(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	o := a.machine().Unsettled()
	db, slots, digests := packed(t, a, o, 3, 12, 17)
	exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id=3")
	synced(t, db)
	want := digest(t, db)
	c := client(t, a)
	fork(t, c, "run", "head", nil)
	fork(t, c, "run", "middle", tonbo.Slot(slots[17]))
	fork(t, c, "head", "grandchild", nil)
	for name, want := range map[string]string{"head": want, "middle": digests[17], "grandchild": want} {
		for _, o := range []tonbo.Options{a.lazyMachine().Unsettled(), a.fullMachine().Unsettled()} {
			f := open(t, name, o)
			if got := digest(t, f); got != want {
				t.Errorf("%s: got %s, want %s", name, got, want)
			}
			hydrated(t, f)
			integrity(t, f)
			closeDB(t, f)
		}
	}
	state := map[string]string{}
	for _, name := range []string{"head", "grandchild", "middle"} {
		f := open(t, name, a.lazyMachine().Packing(1<<20))
		for i := range 12 {
			exec(t, f, "UPDATE t SET v=? WHERE id=?", fmt.Sprint(name, i), 1+i*577%3000)
			synced(t, f)
			if i%4 == 3 {
				if err := f.Compact(ctx, false); err != nil {
					t.Fatal(err)
				}
			}
		}
		if f.Base().Packs() == nil {
			t.Errorf("%s packs nothing", name)
		}
		state[name] = digest(t, f)
		closeDB(t, f)
	}
	if err := c.Delete(ctx, "run"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"run", "head", "grandchild", "middle", "run"} {
		if _, err := c.Collect(ctx, name, tonbo.CollectOptions{}.Later(48*time.Hour)); err != nil && !errors.Is(err, tonbo.ErrNotFound) {
			t.Fatal(err)
		}
	}
	for name, want := range state {
		f := open(t, name, a.fullMachine())
		if got := digest(t, f); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
		integrity(t, f)
	}
}

// TestRewindIntoWhatIsPacked: the point stands on the base before, and packs go on from there.
func TestRewindIntoWhatIsPacked(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	o := a.machine().Unsettled()
	db, slots, digests := packed(t, a, o, 3, 10, 24, 13, 2)
	c := client(t, a)
	for _, i := range []int{24, 13, 2} {
		closeDB(t, db)
		if _, err := c.Rewind(ctx, "run", tonbo.Slot(slots[i])); err != nil {
			t.Fatal(err)
		}
		db = open(t, "run", o.Packing(1<<20))
		if got := digest(t, db); got != digests[i] {
			t.Errorf("rewound to slot %d: got %s, want %s", slots[i], got, digests[i])
		}
		for k := range 6 {
			exec(t, db, "UPDATE t SET v=? WHERE id=?", fmt.Sprint(i, k), 1+k*577%3000)
			synced(t, db)
		}
		if err := db.Compact(ctx, false); err != nil {
			t.Fatal(err)
		}
		if db.Base().Packs() == nil {
			t.Error("nothing is packed")
		}
		want := digest(t, db)
		if got := digest(t, a.reading("run", func(o *tonbo.Options) { o.Hydration = tonbo.HydrateFull })); got != want {
			t.Errorf("elsewhere: got %s, want %s", got, want)
		}
	}
	if report, err := c.Verify(ctx, "run"); err != nil || !report.OK() {
		t.Errorf("Verify: %+v %v", report, err)
	}
}

// TestLocalCopyIsBroughtUpFromPacks: what others have changed since is in packs, and the entries that were there are collected.
func TestLocalCopyIsBroughtUpFromPacks(t *testing.T) {
	ctx := context.Background()
	for h, lost := range map[tonbo.Hydration]bool{tonbo.HydrateNone: true, tonbo.HydrateFull: false} {
		t.Run(fmt.Sprint(h), func(t *testing.T) {
			a := newAccount(t)
			here := a.machine().Unsettled()
			db, _, _ := packed(t, a, here, 2, 8)
			exec(t, db, "UPDATE t SET v='here' WHERE id=20")
			closeDB(t, db)
			other := open(t, "run", a.machine().Unsettled().Packing(1<<20))
			hydrated(t, other)
			for i := range 21 {
				exec(t, other, "UPDATE t SET v=? WHERE id=?", fmt.Sprint("there ", i), 1+i*577%3000)
				synced(t, other)
				if i%7 == 6 {
					if err := other.Compact(ctx, false); err != nil {
						t.Fatal(err)
					}
				}
			}
			if len(other.Base().Packs()) == 0 {
				t.Fatal("nothing is packed")
			}
			want := digest(t, other)
			closeDB(t, other)
			if lost {
				if _, err := client(t, a).Collect(ctx, "run", tonbo.CollectOptions{}.Later(48*time.Hour)); err != nil {
					t.Fatal(err)
				}
			}
			here.Hydration = h
			db = open(t, "run", here)
			if db.Status().ColdStart {
				t.Error("the local copy was of no use")
			}
			if got := digest(t, db); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			hydrated(t, db)
			integrity(t, db)
			closeDB(t, db)
		})
	}
}

// TestReaderFollowsAcrossPacks: each state is the owner's, with all pages here and with few.
func TestReaderFollowsAcrossPacks(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	db, _, _ := packed(t, a, a.machine().Unsettled(), 2, 8)
	readers := []*tonbo.DB{a.reading("run", func(o *tonbo.Options) { o.Hydration = tonbo.HydrateNone }), a.reading("run", func(o *tonbo.Options) { o.Hydration = tonbo.HydrateFull })}
	for round := range 4 {
		for i := range 5 {
			exec(t, db, "UPDATE t SET v=? WHERE id=?", fmt.Sprint(round, i), 1+i*577%3000)
			synced(t, db)
		}
		if err := db.Compact(ctx, false); err != nil {
			t.Fatal(err)
		}
		want := digest(t, db)
		for _, ro := range readers {
			if err := ro.Refresh(ctx); err != nil {
				t.Fatal(err)
			}
			if got := digest(t, ro); got != want {
				t.Errorf("round %d: got %s, want %s", round, got, want)
			}
		}
	}
}

// TestPacksBecomeOneAtTheEnd: nobody who opens the database has to fetch many.
func TestPacksBecomeOneAtTheEnd(t *testing.T) {
	a := newAccount(t)
	db, _, _ := packed(t, a, a.machine(), 6, 9)
	if n := len(db.Base().Packs()); n < 5 {
		t.Fatalf("%d packs", n)
	}
	want := digest(t, db)
	closeDB(t, db)
	db = open(t, "run", a.lazyMachine())
	if n := len(db.Base().Packs()); n > 2 {
		t.Errorf("%d packs are left", n)
	}
	if r := db.Status().Requests; r.Get+r.Put+r.List+r.Head > 12 {
		t.Errorf("opened with %+v", r)
	}
	if got := digest(t, db); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestChainsOfDifferencesEndAcrossPacks: a page is shipped whole from time to time, whatever has been packed, and also by an owner that comes back.
func TestChainsOfDifferencesEndAcrossPacks(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	o := a.machine().Tuned(1<<20, time.Hour).Packing(1 << 20)
	db := settledMegabytes(t, a, o)
	hydrated(t, db)
	row, longest := 0, 0
	for i := range 100 {
		exec(t, db, "UPDATE t SET v=? WHERE id=1500", fmt.Sprint("version ", i))
		synced(t, db)
		if _, ix := entryAt(t, a, "run", db.Status().Slot); ix.Delta != nil && len(ix.Blocks) == 0 {
			row++
		} else {
			row = 0
		}
		longest = max(longest, row)
		if i%20 == 19 {
			if err := db.Compact(ctx, false); err != nil {
				t.Fatal(err)
			}
		}
		if i == 50 {
			closeDB(t, db)
			if db = open(t, "run", a.fullMachine().Tuned(1<<20, time.Hour).Packing(1<<20)); db.Base().Packs() == nil {
				t.Fatal("nothing is packed")
			}
		}
	}
	if longest != 64 {
		t.Errorf("%d deltas of a page in a row, want 64", longest)
	}
}

// TestOwnerWhoseObjectsWereCollectedUsesItsOwnPacks: a lazily opened copy goes on from the newest base of its own.
func TestOwnerWhoseObjectsWereCollectedUsesItsOwnPacks(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	db, _, _ := packed(t, a, a.machine().Unsettled(), 2, 8)
	closeDB(t, db)
	o := a.lazyMachine().Packing(1 << 20).Collecting()
	o.History = time.Nanosecond
	db = open(t, "run", o)
	for i := range 8 {
		exec(t, db, "UPDATE other SET v=? WHERE id=1", fmt.Sprint(i))
		synced(t, db)
		if i%2 == 1 {
			if err := db.Compact(ctx, false); err != nil {
				t.Fatal(err)
			}
			if err := db.CollectOwn(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	if db.Base().Packs() == nil {
		t.Fatal("nothing is packed")
	}
	want := digest(t, a.reading("run", nil))
	if got := digest(t, db); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	hydrated(t, db)
	integrity(t, db)
}

// TestOldBuildsRefusePacks: they would show pages of an earlier state.
func TestOldBuildsRefusePacks(t *testing.T) {
	a := newAccount(t)
	db, _, _ := packed(t, a, a.machine().Unsettled(), 1, 8)
	key, m := db.Status().ID, db.Base()
	b, err := m.Encode()
	if err != nil || key == "" {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(b, []byte(`{"format":2,`)) && !bytes.HasPrefix(b, []byte(`{"format":3,`)) { // they know 1
		t.Errorf("%s", b[:40])
	}
	o, err := a.store.Get(t.Context(), m.Packs()[0].Key, remote.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if h, _, err := segment.DecodeHeader(o.Body); err != nil || h.Kind != segment.KindPack {
		t.Errorf("%+v %v", h, err)
	}
}

// TestNarrowedKeyPacks: it reads the packs that its fork stands on, and puts its own.
func TestNarrowedKeyPacks(t *testing.T) {
	inner := mem.New("test")
	full := &account{t: t, store: inner}
	db, _, _ := packed(t, full, full.machine().Unsettled(), 2, 8)
	want := digest(t, db)
	fork(t, client(t, full), "run", "f", nil)
	sandbox := &account{t: t, store: through(t, inner, "f")}
	f := open(t, "f", sandbox.lazyMachine().Packing(1<<20))
	if got := digest(t, f); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for i := range 9 {
		exec(t, f, "UPDATE t SET v=? WHERE id=?", fmt.Sprint("sandbox ", i), 1+i*577%3000)
		synced(t, f)
		if i%3 == 2 {
			if err := f.Compact(t.Context(), false); err != nil {
				t.Fatal(err)
			}
		}
	}
	if f.Base().Packs() == nil {
		t.Error("nothing is packed")
	}
	want = digest(t, f)
	closeDB(t, f)
	if got := digest(t, open(t, "f", sandbox.fullMachine())); got != want {
		t.Errorf("another sandbox: got %s, want %s", got, want)
	}
}

// TestClosedDatabaseWithPacksIsCompacted by a janitor, which has no local copy: it packs on, and whoever opens the database next finds all of it.
func TestClosedDatabaseWithPacksIsCompacted(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	o := a.machine().Unsettled()
	db, _, _ := packed(t, a, o, 2, 8)
	for round := range 2 {
		for i := range 30 {
			exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id=?", 5+i*577%3000)
			synced(t, db)
		}
		before, _, _ := base.PackedTotal(db.Base().Packs())
		want := digest(t, db)
		closeDB(t, db)
		report, err := client(t, a).Compact(ctx, "run")
		if err != nil || !report.Compacted || report.Entries < 30 {
			t.Fatalf("%+v %v", report, err)
		}
		o.Hydration = tonbo.Hydration(round)
		db = open(t, "run", o)
		if n, _, _ := base.PackedTotal(db.Base().Packs()); n != before+report.Entries {
			t.Errorf("%d entries are packed, %d before, %d were merged", n, before, report.Entries)
		}
		if got := digest(t, db); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got := digest(t, a.reading("run", nil)); got != want {
			t.Errorf("elsewhere: got %s, want %s", got, want)
		}
	}
	if report, err := client(t, a).Verify(ctx, "run"); err != nil || !report.OK() {
		t.Errorf("Verify: %+v %v", report, err)
	}
}
