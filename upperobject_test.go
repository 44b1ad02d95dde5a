package tonbo_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// objectOf is the upper object of the base in force.
func objectOf(t testing.TB, db *tonbo.DB) *base.UpperObject {
	t.Helper()
	u := db.Base().UpperObject
	if u == nil {
		t.Fatalf("the base names no upper object: %+v", db.Base())
	}
	return u
}

func compacted(t testing.TB, db *tonbo.DB) {
	t.Helper()
	synced(t, db)
	if err := db.Compact(context.Background(), false); err != nil {
		t.Fatal(err)
	}
}

// ifNotRacing skips what says nothing about races, and takes long then: SQLite is ten times as slow.
func ifNotRacing(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("nothing of it is about races")
	}
}

// soundly verifies a database.
func soundly(t testing.TB, a *account, name string) {
	t.Helper()
	if r, err := client(t, a).Verify(context.Background(), name); err != nil || !r.OK() {
		t.Errorf("Verify %s: %+v %v", name, r, err)
	}
}

// TestUpperPagesThatStayedAreNotPutAgain: bases name the object that has them, and hold what has changed since; whoever opens the database lazily has the same rows, and so has a fork, which names the object of its source.
func TestUpperPagesThatStayedAreNotPutAgain(t *testing.T) {
	ifNotRacing(t)
	a := newAccount(t)
	a.grown("run", 5000, true)
	db := open(t, "run", a.machine().Unsettled().Packing(0))
	hydrated(t, db)
	object := *objectOf(t, db)
	before := db.Base().Upper
	for i := range 3 {
		exec(t, db, "INSERT INTO other(v) VALUES(?)", i)
		exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id=?", 1+i)
		compacted(t, db)
		u, m := objectOf(t, db), db.Base()
		if u.Key != object.Key || u.Slot >= m.Slot || u.Stale.Count() == 0 || u.Stale.Count() > 3 {
			t.Errorf("base %d names %+v, the first one %+v", i, u, object)
		}
		if m.Upper == nil || m.Upper.Pages > 3 || i > 0 && len(m.Upper.Payload) > len(before.Payload)+200 {
			t.Errorf("base %d has %d upper pages itself", i, m.Upper.Pages)
		}
		before = m.Upper
	}
	want := digest(t, db)
	closeDB(t, db)
	soundly(t, a, "run")
	fork(t, client(t, a), "run", "f", nil)
	for _, name := range []string{"run", "f"} {
		db := open(t, name, a.lazyMachine().Unsettled())
		if got := digest(t, db); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		hydrated(t, db)
		closeDB(t, db)
	}
	f := open(t, "f", a.machine().Unsettled().Packing(0))
	hydrated(t, f)
	exec(t, f, "INSERT INTO other(v) VALUES('of the fork')")
	compacted(t, f)
	if u := objectOf(t, f); u.Key != object.Key {
		t.Errorf("the fork names %s, its source %s", u.Key, object.Key)
	}
	exec(t, f, "UPDATE t SET v=randomblob(901)") // its levels are its own then
	compacted(t, f)
	for key := range f.Base().Named() {
		if !strings.HasPrefix(key, "db/f/") {
			t.Errorf("a fork all of whose pages are its own names %s", key)
		}
	}
	want = digest(t, f)
	closeDB(t, f)
	soundly(t, a, "f")
	f = open(t, "f", a.lazyMachine().Unsettled())
	if got := digest(t, f); got != want {
		t.Errorf("the fork: %s, want %s", got, want)
	}
}

// upperLife changes a database of some megabytes at random, with a base after each few changes and an opening on a machine that has nothing after each base. It returns the first error of a reader that has another state than its owner.
func upperLife(t *testing.T, seed uint64, change func(tonbo.Options) tonbo.Options) (carried int, err error) {
	t.Helper()
	ctx := context.Background()
	a := newAccount(t)
	a.grown("run", 1600, true)
	r := rand.New(rand.NewPCG(seed, 1))
	o := change(a.machine().Tuned(1<<20, time.Hour))
	if seed%2 == 1 {
		o = o.Packing(256 << 10)
	}
	db := open(t, "run", o)
	hydrated(t, db)
	name := "run"
	for round := range 6 {
		for range 1 + r.IntN(12) {
			switch r.IntN(8) {
			case 0:
				exec(t, db, "DELETE FROM t WHERE id BETWEEN ?1 AND ?1+200", r.IntN(1600)) // pages of the b-tree are freed
			case 1:
				exec(t, db, fmt.Sprintf("WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<%d) INSERT INTO t(k,v) SELECT random()%%1000, randomblob(900) FROM s", 1+r.IntN(400)))
			case 2:
				exec(t, db, fmt.Sprintf("CREATE TABLE IF NOT EXISTS more%d(v); CREATE INDEX IF NOT EXISTS mine%d ON t(v, %d)", round, r.IntN(2), round))
			case 3:
				exec(t, db, fmt.Sprintf("DROP INDEX IF EXISTS mine%d", r.IntN(2)))
			case 4:
				exec(t, db, "UPDATE t SET k=random()%1000 WHERE id%50=?", r.IntN(50)) // all over the index
			default:
				exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id=?", r.IntN(1600))
			}
			synced(t, db)
		}
		if r.IntN(10) == 0 {
			exec(t, db, "VACUUM")
		}
		compacted(t, db)
		if u := db.Base().UpperObject; u != nil && u.Stale.Count() > 0 {
			carried++
		}
		want := digest(t, db)
		ro, err := tonbo.OpenReadOnly(ctx, name, a.lazyMachine())
		if err != nil {
			return carried, err
		}
		got := ""
		err = ro.QueryRow("SELECT count(*)||':'||coalesce(sum(length(v)),0)||':'||coalesce(sum(k),0)||':'||coalesce(sum(unicode(hex(substr(v,7,1)))*id),0) FROM t").Scan(&got)
		if err == nil && got != want {
			err = fmt.Errorf("base %d: a reader has %s, the owner %s", round, got, want)
		}
		if err == nil {
			err = ro.Hydrated(ctx)
		}
		ro.Close()
		if err != nil {
			return carried, err
		}
		switch r.IntN(5) {
		case 0: // another owner
			closeDB(t, db)
			o.Dir = t.TempDir()
			db = open(t, name, o)
			if err := db.Hydrated(ctx); err != nil {
				return carried, err
			}
		case 1: // a fork goes on
			next := fmt.Sprint("f", round)
			fork(t, client(t, a), name, next, nil)
			closeDB(t, db)
			name, o.Dir = next, t.TempDir()
			db = open(t, name, o)
			if err := db.Hydrated(ctx); err != nil {
				return carried, err
			}
		}
	}
	closeDB(t, db)
	report, err := client(t, a).Verify(ctx, name)
	if err == nil && !report.OK() {
		err = report.Problems[0].Err
	}
	return carried, err
}

// TestNoStaleUpperPageIsRead: whatever has become of a page since the object was made that has a copy of it.
func TestNoStaleUpperPageIsRead(t *testing.T) {
	ifNotRacing(t)
	carried := 0
	seeds := uint64(2)
	if os.Getenv("TONBO_TEST_LARGE") != "" {
		seeds = 40
	}
	for seed := range seeds {
		n, err := upperLife(t, seed, tonbo.Options.UpperObjects)
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		carried += n
	}
	if carried < 2 {
		t.Errorf("%d bases had an upper object with stale pages: nothing was tried", carried)
	}
}

// TestBaseThatDoesNotSayWhatIsStaleIsFoundOut is TestNoStaleUpperPageIsRead with its rule broken.
func TestBaseThatDoesNotSayWhatIsStaleIsFoundOut(t *testing.T) {
	ifNotRacing(t)
	for seed := range uint64(8) {
		if _, err := upperLife(t, seed, func(o tonbo.Options) tonbo.Options { return o.UpperObjects().StaleUpper() }); err != nil {
			t.Logf("seed %d: %v", seed, err)
			return
		}
	}
	t.Error("nobody notices")
}

// TestVerifyComparesUpperPages: a copy that is not what the levels have is a problem of the base that says so.
func TestVerifyComparesUpperPages(t *testing.T) {
	ifNotRacing(t)
	a := newAccount(t)
	a.grown("run", 4000, true)
	soundly(t, a, "run")
	db := open(t, "run", a.machine().Unsettled().Packing(0).StaleUpper())
	hydrated(t, db)
	key := objectOf(t, db).Key
	exec(t, db, "INSERT INTO other(v) VALUES('one more')")
	compacted(t, db)
	closeDB(t, db)
	r, err := client(t, a).Verify(context.Background(), "run")
	if err != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Key, "/base/") || !strings.Contains(r.Problems[0].Err.Error(), key) {
		t.Errorf("Verify: %+v %v", r, err)
	}
}

// TestUpperObjectThatCannotBeReadIsDoneWithout: an upper object that is missing, damaged, forged or another one keeps nobody from opening the database. The log names it, and so does Verify.
func TestUpperObjectThatCannotBeReadIsDoneWithout(t *testing.T) {
	ifNotRacing(t)
	ctx := context.Background()
	damage := func(_ *account, _ string, b []byte) []byte { b[len(b)/2] ^= 1; return b } // a block: its map is right
	for what, change := range map[string]func(a *account, key string, body []byte) []byte{
		"missing":   func(*account, string, []byte) []byte { return nil },
		"cut":       func(_ *account, _ string, b []byte) []byte { return b[:len(b)-1] },
		"damaged":   damage,
		"packed":    damage, // and the next base packs its tail
		"forged":    (*account).forgedUpper,
		"an entry":  func(a *account, _ string, _ []byte) []byte { return a.object("db/run/log/") },
		"a segment": func(a *account, key string, _ []byte) []byte { return a.object("db/run/seg/", key) },
	} {
		t.Run(what, func(t *testing.T) {
			a := newAccount(t)
			want := a.grown("run", 4000, true)
			db := open(t, "run", a.machine().Unsettled())
			key := objectOf(t, db).Key
			closeDB(t, db)
			o, err := a.store.Get(ctx, key, remote.GetOptions{})
			if err == nil {
				b := change(a, key, bytes.Clone(o.Body))
				if err = a.store.Delete(ctx, key); err == nil && b != nil {
					_, err = a.store.Create(ctx, key, b)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			var said bytes.Buffer
			m := a.lazyMachine().Unsettled().Packing(0)
			if what == "packed" {
				m = m.Packing(1 << 20)
			}
			m.Logger = slog.New(slog.NewTextHandler(&said, nil))
			db = open(t, "run", m)
			if got := digest(t, db); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			if !strings.Contains(said.String(), "upper_unusable") || !strings.Contains(said.String(), key) {
				t.Errorf("said: %s", said.String())
			}
			r, err := client(t, a).Verify(ctx, "run")
			if err != nil || len(r.Problems) != 1 || r.Problems[0].Key != key || !errors.Is(r.Problems[0].Err, tonbo.ErrCorrupt) {
				t.Errorf("Verify: %+v %v", r, err)
			}
			// The next base has another one, or none where its levels are the ones before, and nobody has anything to say of that.
			exec(t, db, "INSERT INTO other(v) VALUES('and on')")
			compacted(t, db)
			if u := db.Base().UpperObject; (u == nil) != (what == "packed") || u != nil && u.Key == key {
				t.Errorf("the next base, with %d packs, names %+v", len(db.Base().Packs()), u)
			}
			closeDB(t, db)
			said.Reset()
			m.Dir = t.TempDir()
			db = open(t, "run", m)
			if got := digest(t, db); got != want {
				t.Errorf("then %s, want %s", got, want)
			}
			if said.Len() > 0 {
				t.Errorf("then said: %s", said.String())
			}
		})
	}
}

// forgedUpper makes an upper object whose checksums are right, and whose first block does not unpack, and has the base name it.
func (a *account) forgedUpper(key string, body []byte) []byte {
	a.t.Helper()
	ctx := context.Background()
	hd, ix, payload, err := segment.Decode(body)
	if err != nil {
		a.t.Fatal(err)
	}
	// (1) The block, and its checksum in the index. docs/format.md: the footer has the offset of the index, its checksum, and its own.
	le, footer := binary.LittleEndian, len(payload)-40
	index := payload[le.Uint64(payload[footer+8:]):footer]
	b := &ix.Blocks[0]
	stored := payload[b.Offset : b.Offset+int64(b.Length)]
	for i := range stored {
		stored[i] = 0xff
	}
	at := bytes.Index(index, le.AppendUint64(nil, b.Sum))
	le.PutUint64(index[at:], xxhash.Sum64(stored))
	hd.PayloadSum = xxhash.Sum64(index)
	le.PutUint64(payload[footer+16:], hd.PayloadSum)
	le.PutUint64(payload[footer+32:], xxhash.Sum64(payload[footer:footer+32]))
	forged, err := segment.EncodeHeader(nil, hd)
	if err != nil {
		a.t.Fatal(err)
	}
	// (2) The manifest.
	list, _, err := a.store.List(ctx, "db/run/base/", remote.ListOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	for _, i := range list {
		o, err := a.store.Get(ctx, i.Key, remote.GetOptions{})
		if err != nil {
			a.t.Fatal(err)
		}
		m, err := base.Decode(o.Body)
		if err == nil && m.UpperObject != nil && m.UpperObject.Key == key {
			m.UpperObject.Sum = base.SumString(hd.PayloadSum)
			if o.Body, err = m.Encode(); err == nil {
				err = a.store.Delete(ctx, i.Key)
			}
			if err == nil {
				_, err = a.store.Create(ctx, i.Key, o.Body)
			}
		}
		if err != nil {
			a.t.Fatal(err)
		}
	}
	return append(forged, payload...)
}

// TestBaseIsMadeThoughTheUpperObjectCannotBeHad: the store refuses its map, for now. The base goes without it, or has another one.
func TestBaseIsMadeThoughTheUpperObjectCannotBeHad(t *testing.T) {
	ifNotRacing(t)
	for what, refused := range map[string]error{
		"denied":      remote.ErrDenied,
		"unavailable": &remote.Error{Op: "get", Kind: remote.ErrUnknown, Status: 503, Err: tonbotest.ErrInjected},
	} {
		t.Run(what, func(t *testing.T) {
			store := tonbotest.NewStore(mem.New("test"))
			a := &account{t: t, store: store}
			a.grown("run", 1600, true)
			db := open(t, "run", a.machine().Unsettled().Packing(0).UpperObjects())
			hydrated(t, db)
			exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id%200=0")
			compacted(t, db)
			key := objectOf(t, db).Key
			closeDB(t, db)
			db = open(t, "run", a.machine().Unsettled().Packing(0).UpperObjects())
			hydrated(t, db)
			exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id=700")
			want := digest(t, db)
			store.Fail(tonbotest.Match{Op: tonbotest.Get, Key: key}, -1, refused)
			compacted(t, db)
			store.Heal()
			if u := db.Base().UpperObject; u != nil && u.Key == key {
				t.Errorf("the base names %+v, of which it knew nothing", u)
			}
			closeDB(t, db)
			soundly(t, a, "run")
			if got := digest(t, open(t, "run", a.lazyMachine())); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// TestOpenWaitsForTheUpperObjectNoLongerThanItIsWorth: a store that does not answer for it keeps Open for ten seconds, and the reading of a tail that the head does not list not at all. Time is the bubble's.
func TestOpenWaitsForTheUpperObjectNoLongerThanItIsWorth(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := tonbotest.NewStore(mem.New("test"))
		a := &account{t: t, store: store}
		a.grown("run", 1600, true)
		db := open(t, "run", a.machine().Unsettled().LongLog(1<<20).Packing(0).UpperObjects())
		hydrated(t, db)
		exec(t, db, "UPDATE t SET v=randomblob(900) WHERE id%200=0")
		compacted(t, db)
		key := objectOf(t, db).Key
		const steps = 300 // more than an entry lists
		for i := range steps {
			exec(t, db, "UPDATE t SET k=k+1 WHERE id=?", 1+i)
			synced(t, db)
		}
		want := digest(t, db)
		closeDB(t, db)
		gate := store.Block(tonbotest.Match{Op: tonbotest.Get, Key: key})
		store.ResetCalls()
		began, done := time.Now(), make(chan error)
		go func() {
			var err error
			db, err = tonbo.Open(context.Background(), "run", a.lazyMachine().Unsettled().LongLog(1<<20))
			done <- err
		}()
		synctest.Wait()
		read := 0
		for _, c := range store.Calls() {
			if c.Op == tonbotest.Get && strings.Contains(c.Key, "/log/") {
				read++
			}
		}
		if read < steps {
			t.Errorf("%d of %d entries were read beside it", read, steps)
		}
		err := <-done
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 9*time.Second || took > 11*time.Second {
			t.Errorf("Open took %v", took)
		}
		gate.Open()
		if got := digest(t, db); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		closeDB(t, db)
	})
}

// object is some object below a prefix, which is none of those.
func (a *account) object(prefix string, but ...string) []byte {
	a.t.Helper()
	page, _, err := a.store.List(context.Background(), prefix, remote.ListOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	for _, i := range page {
		if len(but) > 0 && i.Key == but[0] {
			continue
		}
		o, err := a.store.Get(context.Background(), i.Key, remote.GetOptions{})
		if err != nil {
			a.t.Fatal(err)
		}
		return o.Body
	}
	a.t.Fatal("nothing below " + prefix)
	return nil
}

// TestUpperObjectOfABaseThatNeverCameIsCollected: its manifest could not be put.
func TestUpperObjectOfABaseThatNeverCameIsCollected(t *testing.T) {
	ctx := context.Background()
	store := tonbotest.NewStore(mem.New("test"))
	a := &account{t: t, store: store}
	a.grown("run", 4000, false)
	db := open(t, "run", a.machine().Unsettled().Packing(0).Collecting())
	hydrated(t, db)
	before := segments(t, store)
	store.Fail(tonbotest.Match{Op: tonbotest.Create, Key: "/base/"}, -1, remote.ErrDenied)
	synced(t, db)
	if err := db.Compact(ctx, false); err == nil {
		t.Fatal("a base was put")
	}
	store.Heal()
	if n := len(segments(t, store)); n <= len(before) {
		t.Fatalf("%d objects, before %d", n, len(before))
	}
	exec(t, db, "INSERT INTO other(v) VALUES('later')")
	compacted(t, db)
	exec(t, db, "INSERT INTO other(v) VALUES('later')")
	compacted(t, db)
	if err := db.CollectOwn(ctx); err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for k := range db.Base().Named() {
		named[k] = true
	}
	if u := objectOf(t, db); !named[u.Key] {
		t.Errorf("%s is not among what the base names", u.Key)
	}
	other := 0
	for _, k := range segments(t, store) {
		if !named[k] {
			other++
		}
	}
	if other > 3 { // of the base before
		t.Errorf("%d segments that the base does not name", other)
	}
	want := digest(t, db)
	closeDB(t, db)
	soundly(t, a, "run")
	db = open(t, "run", a.lazyMachine())
	if got := digest(t, db); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestForkKeepsItsSourcesUpperObject: the source has another one, is collected and deleted.
func TestForkKeepsItsSourcesUpperObject(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	want := a.grown("run", 4000, true)
	db := open(t, "run", a.machine().Unsettled().Packing(0).Collecting())
	hydrated(t, db)
	key := objectOf(t, db).Key
	fork(t, client(t, a), "run", "f", nil)
	for i := range 2 {
		exec(t, db, "UPDATE t SET v=randomblob(901+?)", i)
		compacted(t, db)
	}
	if objectOf(t, db).Key == key {
		t.Fatal("the source has the same upper object still")
	}
	closeDB(t, db)
	c := client(t, a)
	if err := c.Delete(ctx, "run"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Sweep(ctx, tonbo.Janitor{Grace: time.Nanosecond}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.store.Get(ctx, key, remote.GetOptions{Length: 1}); err != nil {
		t.Errorf("the fork's upper object: %v", err)
	}
	soundly(t, a, "f")
	f := open(t, "f", a.lazyMachine())
	if got := digest(t, f); got != want {
		t.Errorf("the fork: %s, want %s", got, want)
	}
}
