package tonbo_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// flipped counts the answers that were damaged on their way.
func flipped(s *tonbotest.Store) (n int) {
	for _, c := range s.Calls() {
		if c.Fault == string(tonbotest.FlipBit) {
			n++
		}
	}
	return n
}

// TestWhatWasDamagedOnItsWayIsNotShared: the machine's block cache keeps objects whole where they are read whole, and none of them if it is not what was put: who comes next reads it again.
func TestWhatWasDamagedOnItsWayIsNotShared(t *testing.T) {
	ctx := context.Background()
	store := tonbotest.NewStore(mem.New("test"))
	a := &account{t: t, store: store}
	a.grown("run", 1600, true)
	db := open(t, "run", a.machine().Unsettled().Packing(0).UpperObjects())
	hydrated(t, db)
	exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id%200=0")
	compacted(t, db)
	upper := objectOf(t, db).Key
	closeDB(t, db)
	db = open(t, "run", a.machine().Unsettled().Packing(1<<20).UpperObjects())
	hydrated(t, db)
	exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id=700")
	compacted(t, db)
	pack, manifest := db.Base().Packs()[0].Key, ""
	exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id=800")
	synced(t, db)
	entry, want := fence.SlotKey("run", db.Status().Slot), digest(t, db)
	list, _, err := store.List(ctx, "db/run/base/", remote.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list {
		manifest = max(manifest, i.Key)
	}
	fork(t, client(t, a), "run", "f", nil) // what it reads of its source comes out of the cache
	closeDB(t, db)
	for what, key := range map[string]string{"manifest": manifest, "pack": pack, "upper object": upper, "entry": entry} {
		o := a.lazyMachine()
		var said bytes.Buffer
		store.ResetCalls()
		store.FlipBit(tonbotest.Match{Op: tonbotest.Get, Key: key}, 1)
		for again := range 2 {
			said.Reset()
			o.Logger = slog.New(slog.NewTextHandler(&said, nil))
			ro, err := tonbo.OpenReadOnly(ctx, "f", o)
			if err != nil {
				if again > 0 || !errors.Is(err, tonbo.ErrCorrupt) {
					t.Errorf("%s, opened %d times before: %v", what, again, err)
				}
				continue
			}
			if got := digest(t, ro); got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
			closeDB(t, ro)
		}
		if flipped(store) != 1 {
			t.Errorf("%s: %d answers were damaged", what, flipped(store))
		}
		if strings.Contains(said.String(), "upper_unusable") {
			t.Errorf("%s: %s", what, said.String())
		}
		store.Heal()
	}
}

// TestNoPackIsMadeOfWhatWasDamagedOnItsWay: a base that packs its tail puts entries and earlier packs as it has read them, and nothing else is left of them when these are collected.
func TestNoPackIsMadeOfWhatWasDamagedOnItsWay(t *testing.T) {
	ifNotRacing(t)
	ctx := context.Background()
	for of, rounds := range map[string]int{"entries": 1, "packs": 7} { // so many that the next one takes them in
		t.Run(of, func(t *testing.T) {
			store := tonbotest.NewStore(mem.New("test"))
			a := &account{t: t, store: store}
			o := a.machine().Unsettled().Packing(1 << 20)
			db, _, _ := packed(t, a, o, rounds, 1)
			var slots []uint64
			for i := range 4 {
				exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id=?", 1+i)
				synced(t, db)
				slots = append(slots, db.Status().Slot)
			}
			want := digest(t, db)
			store.ResetCalls()
			if of == "entries" {
				closeDB(t, db)
				db = open(t, "run", o) // the payloads are not in memory
				for _, s := range slots {
					store.FlipBit(tonbotest.Match{Op: tonbotest.Get, Key: fence.SlotKey("run", s), Skip: 2}, 1) // it is read for its map and its label first
				}
			} else {
				store.FlipBit(tonbotest.Match{Op: tonbotest.Get, Key: db.Base().Packs()[3].Key}, 1)
			}
			if err := db.Compact(ctx, false); flipped(store) == 0 || !errors.Is(err, tonbo.ErrCorrupt) {
				t.Errorf("%d answers were damaged, and the base: %v", flipped(store), err)
			}
			store.Heal()
			if err := db.Compact(ctx, false); err != nil {
				t.Error(err)
			}
			if n := len(db.Base().Packs()); n != 1 && of == "packs" {
				t.Errorf("%d packs: they were not merged", n)
			}
			closeDB(t, db)
			soundly(t, a, "run")
			if got := digest(t, open(t, "run", a.lazyMachine())); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// TestPackThatWasDamagedOnItsWayIsReadAgain: it stays in memory while pages are missing. Whoever reads one of them is told, and can read it then.
func TestPackThatWasDamagedOnItsWayIsReadAgain(t *testing.T) {
	ifNotRacing(t)
	store := tonbotest.NewStore(mem.New("test"))
	a := &account{t: t, store: store}
	db := settledMegabytes(t, a, a.machine().Unsettled().Packing(1<<20))
	hydrated(t, db)
	exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id=1000")
	compacted(t, db)
	pack := db.Base().Packs()[0].Key
	const query = "SELECT hex(v) FROM t WHERE id=1000"
	want := rows(t, db, query)
	closeDB(t, db)
	o := a.lazyMachine().Unsettled()
	closeDB(t, open(t, "run", o))
	db = open(t, "run", o) // what the local copy has is up to date, and packs are read for what it lacks
	store.FlipBit(tonbotest.Match{Op: tonbotest.Get, Key: pack}, 1)
	if err := db.QueryRow(query).Scan(new(string)); !errors.Is(err, tonbo.ErrCorrupt) || !strings.Contains(err.Error(), pack) || flipped(store) != 1 {
		t.Errorf("%v; %d answers were damaged", err, flipped(store))
	}
	if got := rows(t, db, query); got != want {
		t.Error("another row")
	}
}

// TestBlockOfAnEntryThatWasDamagedOnItsWayIsReadAgain: it came with the entry's map, and would have stayed in memory.
func TestBlockOfAnEntryThatWasDamagedOnItsWayIsReadAgain(t *testing.T) {
	ifNotRacing(t)
	store := tonbotest.NewStore(mem.New("test"))
	a := &account{t: t, store: store}
	db := settledMegabytes(t, a, a.machine().Unsettled())
	exec(t, db, "CREATE TABLE u AS SELECT randomblob(2000) AS v") // a page that is whole in its entry
	synced(t, db)
	key := fence.SlotKey("run", db.Status().Slot)
	var root uint32
	if err := db.QueryRow("SELECT rootpage FROM sqlite_schema WHERE name='u'").Scan(&root); err != nil {
		t.Fatal(err)
	}
	want := rows(t, db, "SELECT hex(v) FROM u")
	closeDB(t, db)
	store.FlipBit(tonbotest.Match{Op: tonbotest.Get, Key: key, Skip: 1}, 1) // where the log is read for the first time, it is not kept
	buf := make([]byte, 4096)
	err := client(t, a).PageByMaps(context.Background(), "run", buf, func(read func(p uint32) error) error { return read(root) })
	if err != nil || !strings.Contains(fmt.Sprintf("%X", buf), want) || flipped(store) != 1 {
		t.Errorf("%v; %d answers were damaged", err, flipped(store))
	}
}

// TestEntryThatWasDamagedOnItsWayIsReadAgainForABase: an owner that finds its local copy in order looks at no block of the head.
func TestEntryThatWasDamagedOnItsWayIsReadAgainForABase(t *testing.T) {
	ifNotRacing(t)
	ctx := context.Background()
	store := tonbotest.NewStore(mem.New("test"))
	a := &account{t: t, store: store}
	o := a.machine().Unsettled().Packing(0)
	db := settledMegabytes(t, a, o)
	hydrated(t, db)
	exec(t, db, "CREATE TABLE u AS SELECT randomblob(2000) AS v")
	synced(t, db)
	key := fence.SlotKey("run", db.Status().Slot)
	store.Fail(tonbotest.Match{Op: tonbotest.Create, Key: "/log/"}, -1, remote.ErrDenied)
	db.Close() // the head is the commit still
	store.Heal()
	store.FlipBit(tonbotest.Match{Op: tonbotest.Get, Key: key}, 1)
	db = open(t, "run", o)
	if st := db.Status(); st.ColdStart || flipped(store) != 1 {
		t.Fatalf("cold: %v, %d answers were damaged", st.ColdStart, flipped(store))
	}
	exec(t, db, "UPDATE u SET v=randomblob(2001)") // what the base is to have is in the entry alone now
	if err := db.Compact(ctx, false); err != nil {
		t.Error(err)
	}
	synced(t, db)
	want := rows(t, db, "SELECT hex(v) FROM u")
	closeDB(t, db)
	soundly(t, a, "run")
	if got := rows(t, open(t, "run", a.lazyMachine()), "SELECT hex(v) FROM u"); got != want {
		t.Error("another row")
	}
}

// TestEntryThatWasDamagedOnItsWayDoesNotKeepACopyFromGoingOn: a machine has some of the pages, another one has committed since. What the first one opens with is read again where its answer was damaged.
func TestEntryThatWasDamagedOnItsWayDoesNotKeepACopyFromGoingOn(t *testing.T) {
	store := tonbotest.NewStore(mem.New("test"))
	a := &account{t: t, store: store}
	a.grown("run", 1600, true)
	one, other := a.lazyMachine(), a.machine().Unsettled()
	closeDB(t, open(t, "run", one)) // few pages
	db := open(t, "run", other)
	var slots []uint64
	for i := range 3 {
		exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id=?", 200+i)
		synced(t, db)
		slots = append(slots, db.Status().Slot)
	}
	want := digest(t, db)
	closeDB(t, db)
	store.ResetCalls()
	for _, s := range slots {
		store.FlipBit(tonbotest.Match{Op: tonbotest.Get, Key: fence.SlotKey("run", s)}, 1)
	}
	db, err := tonbo.Open(t.Context(), "run", one)
	if err != nil { // the bit may be in a header
		wantIs(t, "open", err, tonbo.ErrCorrupt)
		store.Heal()
		db = open(t, "run", one)
	}
	if flipped(store) == 0 {
		t.Error("no answer was damaged")
	}
	if got := digest(t, db); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	closeDB(t, db)
	soundly(t, a, "run")
}
