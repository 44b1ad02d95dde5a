package tonbo_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

// entryAt decodes an entry.
func entryAt(t testing.TB, a *account, name string, slot uint64) (*segment.Header, *segment.Index) {
	t.Helper()
	o, err := a.store.Get(context.Background(), fence.SlotKey(name, slot), remote.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h, ix, _, err := segment.Decode(o.Body)
	if err != nil {
		t.Fatal(err)
	}
	return h, ix
}

// settledMegabytes makes a database of a few megabytes, all of it in a base, and opens it.
func settledMegabytes(t testing.TB, a *account, o tonbo.Options) *tonbo.DB {
	t.Helper()
	a.grown("run", 3000, true)
	return open(t, "run", o)
}

func TestOneRowIsShippedAsWhatHasChanged(t *testing.T) {
	a := newAccount(t)
	db := settledMegabytes(t, a, a.machine().Unsettled())
	hydrated(t, db) // a page that is not here has no version before
	for i := range 20 {
		exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id=?", 7+i)
		before := db.Status().Requests.BytesUp
		synced(t, db)
		if n := db.Status().Requests.BytesUp - before; n > 1500 {
			t.Errorf("update %d: %d bytes for 900 new ones", i, n)
		}
		h, ix := entryAt(t, a, "run", db.Status().Slot)
		if ix.Delta == nil || h.Kind != segment.KindCommit {
			t.Errorf("update %d: no page was shipped as a delta", i)
		}
	}
	exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id%5=0") // nearly every page: whole ones
	synced(t, db)
	if _, ix := entryAt(t, a, "run", db.Status().Slot); ix.Delta != nil {
		t.Errorf("%d of %d pages as deltas", ix.Delta.Count(), ix.Pages())
	}
}

// TestDeltasOutliveCheckpoints: the version before is found in the write-ahead log and, once that has been reset, in the main file; when the main file is ahead, the page is shipped whole.
func TestDeltasOutliveCheckpoints(t *testing.T) {
	a := newAccount(t)
	db := settledMegabytes(t, a, a.machine().Unsettled())
	hydrated(t, db)
	update := func() { exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id=1500") }
	checkpoint := func(kind string) { exec(t, db, "PRAGMA wal_checkpoint("+kind+")") }
	for name, c := range map[string]struct {
		before func()
		delta  bool
	}{
		"nothing":        {func() {}, true},
		"passive":        {func() { checkpoint("PASSIVE") }, true},
		"truncate":       {func() { checkpoint("TRUNCATE") }, true},
		"unshipped":      {func() { update(); checkpoint("TRUNCATE") }, false},
		"unshipped page": {func() { update(); update() }, true},
	} {
		update()
		synced(t, db)
		c.before()
		update()
		synced(t, db)
		if _, ix := entryAt(t, a, "run", db.Status().Slot); (ix.Delta != nil) != c.delta {
			t.Errorf("%s: deltas: %v, want %v", name, ix.Delta != nil, c.delta)
		}
	}
	want := digest(t, db)
	if got := digest(t, open(t, "run", a.fullMachine())); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestPageIsWholeAgainAfterManyDeltas(t *testing.T) {
	a := newAccount(t)
	db := settledMegabytes(t, a, a.machine().Unsettled().Tuned(1<<20, time.Hour))
	hydrated(t, db)
	run, longest := map[uint32]int{}, 0
	for i := range 150 {
		exec(t, db, "UPDATE t SET v=? WHERE id=1500", fmt.Sprint(i, strings.Repeat("x", 900)))
		synced(t, db)
		_, ix := entryAt(t, a, "run", db.Status().Slot)
		for _, b := range ix.Blocks {
			for _, r := range b.Runs {
				for n := range r.Count {
					run[r.First+n] = 0
				}
			}
		}
		if ix.Delta == nil {
			continue
		}
		for _, r := range ix.Delta.Runs {
			for n := range r.Count {
				run[r.First+n]++
				longest = max(longest, run[r.First+n])
			}
		}
	}
	if longest != 64 {
		t.Errorf("%d deltas of a page in a row, want 64", longest)
	}
	want := digest(t, db)
	if got := digest(t, open(t, "run", a.lazyMachine())); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestPageOfManyDeltasCostsOneBlock: what they are against is one block; they have come with the tail.
func TestPageOfManyDeltasCostsOneBlock(t *testing.T) {
	a := newAccount(t)
	db := settledMegabytes(t, a, a.machine().Unsettled())
	hydrated(t, db)
	for i := range 40 {
		exec(t, db, "UPDATE t SET v=? WHERE id=1500", fmt.Sprint("version ", i))
		synced(t, db)
	}
	o := a.lazyMachine().Unsettled() // the machine is lost
	ro, err := tonbo.OpenReadOnly(context.Background(), "run", o)
	if err != nil {
		t.Fatal(err)
	}
	defer ro.Close()
	if got := rows(t, ro, "SELECT v FROM t WHERE id=1499"); got == "" { // its neighbour's path, and the map of the base's segment
		t.Error("no row")
	}
	if got := rows(t, ro, "SELECT v FROM t WHERE id=2900"); got == "" {
		t.Error("no row")
	}
	before := ro.Status().Requests
	if got := rows(t, ro, "SELECT v FROM t WHERE id=1500"); got != "version 39" {
		t.Errorf("got %s", got)
	}
	if n := ro.Status().Requests.Get - before.Get; n > 1 {
		t.Errorf("%d GETs for a page whose deltas are here, want at most 1", n)
	}
}

// TestRefreshMakesDeltasOfWhatIsHere: a reader that has the page before needs nothing but the entry.
func TestRefreshMakesDeltasOfWhatIsHere(t *testing.T) {
	a := newAccount(t)
	db := settledMegabytes(t, a, a.machine().Unsettled())
	hydrated(t, db)
	ro := a.reading("run", nil)
	hydrated(t, ro)
	for i := range 5 {
		exec(t, db, "UPDATE t SET v=? WHERE id=1500", fmt.Sprint("version ", i))
		synced(t, db)
		if err := ro.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
		if st := ro.Status(); st.PagesLocal != st.Pages {
			t.Errorf("refresh %d: %d of %d pages are here", i, st.PagesLocal, st.Pages)
		}
		if got := rows(t, ro, "SELECT v FROM t WHERE id=1500"); got != fmt.Sprint("version ", i) {
			t.Errorf("got %s", got)
		}
	}
}

// TestWarmStartMakesDeltasOfWhatIsHere: so does an owner that comes back.
func TestWarmStartMakesDeltasOfWhatIsHere(t *testing.T) {
	a := newAccount(t)
	o := a.machine().Unsettled()
	db := settledMegabytes(t, a, o)
	hydrated(t, db)
	closeDB(t, db)
	other := open(t, "run", a.machine().Unsettled())
	hydrated(t, other)
	for i := range 5 {
		exec(t, other, "UPDATE t SET v=? WHERE id=1500", fmt.Sprint("version ", i))
		synced(t, other)
	}
	closeDB(t, other)
	o.Hydration = tonbo.HydrateNone
	db = open(t, "run", o)
	if st := db.Status(); st.PagesLocal != st.Pages || st.ColdStart {
		t.Errorf("%d of %d pages are here, cold start %v", st.PagesLocal, st.Pages, st.ColdStart)
	}
	if got := rows(t, db, "SELECT v FROM t WHERE id=1500"); got != "version 4" {
		t.Errorf("got %s", got)
	}
	integrity(t, db)
}

func TestStrictCommitsShipDeltas(t *testing.T) {
	a := newAccount(t)
	o := a.machine().Unsettled()
	o.Strict = true
	db := settledMegabytes(t, a, o)
	hydrated(t, db)
	for i := range 10 {
		exec(t, db, "UPDATE t SET v=? WHERE id=1500", fmt.Sprint("version ", i))
		if _, ix := entryAt(t, a, "run", db.Status().Slot); ix.Delta == nil {
			t.Errorf("commit %d: no delta", i)
		}
	}
	want := digest(t, db)
	if got := digest(t, open(t, "run", a.fullMachine())); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestForkGoesOnFromTheSourcesDeltas: in the middle of a row of deltas, in the source's log and then in its own.
func TestForkGoesOnFromTheSourcesDeltas(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	db := settledMegabytes(t, a, a.machine().Unsettled())
	hydrated(t, db)
	var slots []uint64
	for i := range 9 {
		exec(t, db, "UPDATE t SET v=? WHERE id=1500", fmt.Sprint("version ", i))
		synced(t, db)
		slots = append(slots, db.Status().Slot)
	}
	c := client(t, a)
	fork(t, c, "run", "f", tonbo.Slot(slots[4]))
	f := open(t, "f", a.machine().Unsettled())
	hydrated(t, f)
	if got := rows(t, f, "SELECT v FROM t WHERE id=1500"); got != "version 4" {
		t.Errorf("got %s", got)
	}
	for i := range 4 {
		exec(t, f, "UPDATE t SET v=? WHERE id=1500", fmt.Sprint("fork ", i))
		synced(t, f)
	}
	for _, o := range []tonbo.Options{a.lazyMachine(), a.fullMachine()} {
		g := open(t, "f", o)
		if got := rows(t, g, "SELECT v FROM t WHERE id=1500"); got != "fork 3" {
			t.Errorf("got %s", got)
		}
		hydrated(t, g)
		integrity(t, g)
		if err := g.Compact(ctx, false); err != nil {
			t.Fatal(err)
		}
		exec(t, g, "UPDATE t SET v='fork 3' WHERE id=1500")
		closeDB(t, g)
	}
	if err := c.Delete(ctx, "run"); err != nil { // the fork has all that it needs
		t.Fatal(err)
	}
	if _, err := c.Collect(ctx, "run", tonbo.CollectOptions{}.Later(48*time.Hour)); err != nil && !errors.Is(err, tonbo.ErrNotFound) {
		t.Fatal(err)
	}
	if got := rows(t, open(t, "f", a.fullMachine()), "SELECT v FROM t WHERE id=1500"); got != "fork 3" {
		t.Errorf("got %s", got)
	}
}

// TestDeltaAgainstWhatNoEntryHoldsIsFoundOut breaks the rule: nobody gets a wrong page.
func TestDeltaAgainstWhatNoEntryHoldsIsFoundOut(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	db := settledMegabytes(t, a, a.machine().Unsettled().DeltasAgainstUnshipped())
	hydrated(t, db)
	exec(t, db, "UPDATE t SET v='first' WHERE id=1500")
	synced(t, db)
	slot := db.Status().Slot
	if _, ix := entryAt(t, a, "run", slot); ix.Delta == nil {
		t.Fatal("the rule was not broken")
	}
	for _, h := range []tonbo.Hydration{tonbo.HydrateNone, tonbo.HydrateFull} {
		ro := a.machine()
		ro.Hydration = h
		r, err := tonbo.OpenReadOnly(ctx, "run", ro)
		if err == nil {
			var v string
			err = r.QueryRow("SELECT v FROM t WHERE id=1500").Scan(&v)
			if err == nil {
				t.Errorf("read %q", v)
			}
			closeDB(t, r)
		}
		if !errors.Is(err, tonbo.ErrCorrupt) {
			t.Errorf("read-only, hydration %v: %v", h, err)
		}
	}
	if report, err := client(t, a).Verify(ctx, "run"); err != nil || report.OK() {
		t.Errorf("Verify: %+v %v", report, err)
	}
	if _, err := tonbo.Open(ctx, "run", a.fullMachine()); !errors.Is(err, tonbo.ErrCorrupt) {
		t.Errorf("Open: %v", err)
	}
}

// TestBaseThatLeavesDeltasOutIsFoundOut breaks the rule.
func TestBaseThatLeavesDeltasOutIsFoundOut(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	db := settledMegabytes(t, a, a.machine().Unsettled().BasesWithoutDeltas().Packing(0)) // a base that merges
	hydrated(t, db)
	exec(t, db, "UPDATE t SET v='first' WHERE id=1500")
	exec(t, db, "CREATE TABLE new(v)")
	synced(t, db)
	if _, ix := entryAt(t, a, "run", db.Status().Slot); ix.Delta == nil || len(ix.Blocks) == 0 {
		t.Fatal("no deltas beside whole pages")
	}
	if err := db.Compact(ctx, false); err != nil {
		t.Fatal(err)
	}
	if report, err := client(t, a).Verify(ctx, "run"); err != nil || report.OK() || !slices.ContainsFunc(report.Problems, func(p tonbo.Problem) bool { return strings.Contains(p.Key, "/base/") }) {
		t.Errorf("Verify: %+v %v", report, err)
	}
	if _, err := tonbo.Open(ctx, "run", a.fullMachine()); !errors.Is(err, tonbo.ErrCorrupt) {
		t.Errorf("Open: %v", err)
	}
}

// TestDeltasStayAtHandInALongTail: payloads do not stay in memory there, but for their deltas.
func TestDeltasStayAtHandInALongTail(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	db := settledMegabytes(t, a, a.machine().Unsettled())
	hydrated(t, db)
	deltas := 0
	for i := range 35 {
		exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id%150=?", i%2)
		synced(t, db)
		_, ix := entryAt(t, a, "run", db.Status().Slot)
		if ix.Delta == nil || ix.Delta.Length < 8<<10 {
			t.Fatalf("no large block of deltas: %+v", ix.Delta)
		}
		deltas += ix.Delta.Length
	}
	if deltas < 600<<10 {
		t.Fatalf("%d bytes of deltas: all of it is kept", deltas)
	}
	want, slot := digest(t, db), db.Status().Slot
	check := func() {
		t.Helper()
		ro := a.reading("run", func(o *tonbo.Options) { o.At, o.Hydration = tonbo.Slot(slot), tonbo.HydrateNone })
		if got := digest(t, ro); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		hydrated(t, ro)
		closeDB(t, ro)
	}
	check()
	// Entries that were not read when it was opened are read for their maps.
	c := client(t, a)
	var file bytes.Buffer
	if err := c.Export(ctx, "run", tonbo.Slot(slot), &file); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	if err := c.PageByMaps(ctx, "run", buf, func(read func(uint32) error) error {
		for p := uint32(2); int(p) <= file.Len()/4096; p++ { // page 1 says that an export has no write-ahead log
			if err := read(p); err != nil {
				return err
			}
			if !bytes.Equal(buf, file.Bytes()[(p-1)*4096:p*4096]) {
				return fmt.Errorf("page %d differs", p)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id%150<2") // not shipped: the file has no longer what the base is to hold
	if err := db.Compact(ctx, false); err != nil {
		t.Fatal(err)
	}
	if db.Base().Slot != slot {
		t.Fatalf("the base is of slot %d, want %d", db.Base().Slot, slot)
	}
	if report, err := c.Verify(ctx, "run"); err != nil || !report.OK() {
		t.Errorf("Verify: %+v %v", report, err)
	}
	check()
}

// TestWhoHasEveryPageKeepsNoMaps: what a lazily opened database was fetched from, deltas and all, is let go of.
func TestWhoHasEveryPageKeepsNoMaps(t *testing.T) {
	a := newAccount(t)
	db := settledMegabytes(t, a, a.machine().Unsettled())
	hydrated(t, db)
	for i := range 5 {
		exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id%150=?", i)
		synced(t, db)
	}
	db = open(t, "run", a.lazyMachine().Unsettled())
	if rows(t, db, "SELECT count(*) FROM t") != "3000" || db.FetchedFrom() < 6 {
		t.Fatalf("fetched from %d objects", db.FetchedFrom())
	}
	hydrated(t, db)
	if n := db.FetchedFrom(); n != 0 {
		t.Errorf("%d objects are still known", n)
	}
	exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id%150=7")
	synced(t, db)
	if want, got := digest(t, db), digest(t, open(t, "run", a.fullMachine())); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
