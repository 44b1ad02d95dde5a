package tonbo_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
)

func ensure(t testing.TB, c *tonbo.Client, key string, o tonbo.EnsureOptions) *tonbo.Instance {
	t.Helper()
	in, err := c.Instances().Ensure(context.Background(), key, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.DB.Close() })
	return in
}

func TestEnsureKeepsOneDatabaseForAKey(t *testing.T) {
	a := newAccount(t)
	c := a.client()
	first := ensure(t, c, "customer:4821", tonbo.EnsureOptions{})
	if first.Started != tonbo.Created || first.Generation != 1 || first.Name != "customer:4821" || first.DatabaseID == "" || first.SessionID("orders") != "orders" {
		t.Fatalf("first: %+v", first)
	}
	exec(t, first.DB, "CREATE TABLE t(x)")
	exec(t, first.DB, "INSERT INTO t VALUES(1)")
	again := ensure(t, c, "customer:4821", tonbo.EnsureOptions{})
	if again.Started != tonbo.Running || again.DatabaseID != first.DatabaseID || again.Generation != 1 {
		t.Errorf("again, here: %+v", again)
	}
	if first.DB.Err() != nil || first.DB.Status().Generation != again.DB.Status().Generation {
		t.Error("the second Ensure of one process has fenced the first")
	}
	closeDB(t, first.DB)
	closeDB(t, first.DB) // does nothing
	if count(t, again.DB.DB, "t") != 1 {
		t.Error("the first one's Close took the database from the second")
	}

	elsewhere := ensure(t, a.client(), "customer:4821", tonbo.EnsureOptions{})
	if elsewhere.Started != tonbo.Running || elsewhere.DatabaseID != first.DatabaseID || count(t, elsewhere.DB.DB, "t") != 1 {
		t.Errorf("on another machine, while it is open here: %+v", elsewhere)
	}
	if err := again.DB.Synced(context.Background()); !errors.Is(err, tonbo.ErrFenced) {
		t.Errorf("taken over: %v", err)
	}
	back := ensure(t, c, "customer:4821", tonbo.EnsureOptions{})
	if back.Started != tonbo.Running || again.DB.Err() != nil { // the shared handle is ours again
		t.Errorf("taken back: %+v, %v", back, again.DB.Err())
	}
	closeDB(t, back.DB)
	closeDB(t, again.DB)
	closeDB(t, elsewhere.DB)
	if in := ensure(t, a.client(), "customer:4821", tonbo.EnsureOptions{}); in.Started != tonbo.Resumed || in.DatabaseID != first.DatabaseID {
		t.Errorf("after all have closed: %+v", in)
	}
	in, err := c.Instances().Get(context.Background(), "customer:4821")
	if err != nil || in.DatabaseID != first.DatabaseID || in.DB != nil {
		t.Errorf("Get: %+v, %v", in, err)
	}
	if _, err := c.Instances().Get(context.Background(), "customer:1"); !errors.Is(err, tonbo.ErrNotFound) {
		t.Errorf("Get of an unknown key: %v", err)
	}
}

// Eight machines and many callers on each ask for the same keys at once: each key gets one database, made by exactly one of them.
func TestConcurrentEnsuresMakeOneDatabaseForEachKey(t *testing.T) {
	const machines, callers, keys = 4, 5, 6
	a := newAccount(t)
	var mu sync.Mutex
	ids := map[string]map[string]int{}
	created := map[string]int{}
	var wg sync.WaitGroup
	for range machines {
		c := a.client()
		for range callers {
			for k := range keys {
				wg.Go(func() {
					key := fmt.Sprint("key-", k)
					in, err := c.Instances().Ensure(context.Background(), key, tonbo.EnsureOptions{Create: tonbo.CreateOptions{Metadata: map[string]string{"asked": fmt.Sprint(k)}}})
					if err != nil {
						t.Error(err)
						return
					}
					defer in.DB.Close()
					mu.Lock()
					defer mu.Unlock()
					if ids[key] == nil {
						ids[key] = map[string]int{}
					}
					ids[key][in.DatabaseID]++
					if in.Started == tonbo.Created {
						created[key]++
					}
				})
			}
		}
	}
	wg.Wait()
	for k := range keys {
		key := fmt.Sprint("key-", k)
		if len(ids[key]) != 1 || created[key] != 1 {
			t.Errorf("%s: databases %v, %d say Created", key, ids[key], created[key])
		}
	}
	if n, err := a.client().Count(context.Background(), tonbo.Filter{}); err != nil || n != keys {
		t.Errorf("%d databases, want %d (%v)", n, keys, err)
	}
}

func TestDeletedOrExpiredDatabaseIsFollowedByTheNextGeneration(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	c := a.client()
	one := ensure(t, c, "k", tonbo.EnsureOptions{})
	exec(t, one.DB, "CREATE TABLE t(x)")
	if err := a.client().Delete(ctx, one.Name); err != nil {
		t.Fatal(err)
	}
	two := ensure(t, c, "k", tonbo.EnsureOptions{Create: tonbo.CreateOptions{TTL: 50 * time.Millisecond}})
	if two.Started != tonbo.Created || two.Generation != 2 || two.DatabaseID == one.DatabaseID {
		t.Fatalf("after a delete: %+v", two)
	}
	if err := two.DB.QueryRow("SELECT count(*) FROM t").Scan(new(int)); err == nil {
		t.Error("the next generation has the old one's table")
	}
	closeDB(t, two.DB)
	for { // until it has expired
		d, err := c.Get(ctx, two.Name)
		if err != nil || d.ExpiresAt.Before(time.Now()) {
			break
		}
	}
	three := ensure(t, c, "k", tonbo.EnsureOptions{})
	if three.Started != tonbo.Created || three.Generation != 3 {
		t.Errorf("after its expiry: %+v", three)
	}
	if _, err := c.Instances().Ensure(ctx, "k", tonbo.EnsureOptions{ExpectID: one.DatabaseID}); !errors.Is(err, tonbo.ErrTargetChanged) {
		t.Errorf("expecting the first: %v", err)
	}
}

func TestExpectedDatabaseIsNeverMade(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	c := a.client()
	if _, err := c.Instances().Ensure(ctx, "k", tonbo.EnsureOptions{ExpectID: strings.Repeat("0", 32)}); !errors.Is(err, tonbo.ErrTargetChanged) {
		t.Errorf("a key that was never used: %v", err)
	}
	if n, err := c.Count(ctx, tonbo.Filter{}); n != 0 || err != nil {
		t.Errorf("%d databases, %v", n, err)
	}
	in := ensure(t, c, "k", tonbo.EnsureOptions{})
	if got := ensure(t, c, "k", tonbo.EnsureOptions{ExpectID: in.DatabaseID}); got.DatabaseID != in.DatabaseID {
		t.Errorf("got %+v", got)
	}
	if err := c.Delete(ctx, in.Name); err != nil {
		t.Fatal(err)
	}
	if _, err := a.client().Instances().Ensure(ctx, "k", tonbo.EnsureOptions{ExpectID: in.DatabaseID}); !errors.Is(err, tonbo.ErrTargetChanged) {
		t.Errorf("deleted: %v", err)
	}
	if n, err := c.Count(ctx, tonbo.Filter{}); n != 0 || err != nil {
		t.Errorf("%d databases, %v", n, err)
	}
}

func TestAdoptedDatabaseHasOneKey(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	c := a.client()
	a.create("old")
	d, err := c.Get(ctx, "old")
	if err != nil {
		t.Fatal(err)
	}
	in := ensure(t, c, "k", tonbo.EnsureOptions{Adopt: d.ID})
	if in.Started != tonbo.Resumed || in.Name != "old" || in.DatabaseID != d.ID || in.Generation != 1 {
		t.Fatalf("%+v", in)
	}
	if again := ensure(t, c, "k", tonbo.EnsureOptions{Adopt: "old"}); again.DatabaseID != d.ID { // by name, and already its own
		t.Errorf("%+v", again)
	}
	for what, call := range map[string]func() error{
		"another key adopts it":           func() error { _, err := c.Instances().Ensure(ctx, "k2", tonbo.EnsureOptions{Adopt: "old"}); return err },
		"another key is bound to it":      func() error { _, err := c.Instances().Bind(ctx, "k2", "old"); return err },
		"the key adopts another database": func() error { a.create("other"); _, err := c.Instances().Bind(ctx, "k", "other"); return err },
	} {
		if err := call(); !errors.Is(err, tonbo.ErrKeyBound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := c.Instances().Bind(ctx, "k3", "nobody"); !errors.Is(err, tonbo.ErrNotFound) {
		t.Errorf("nothing to bind: %v", err)
	}
	// An Ensured database cannot be adopted either, until its key is released.
	made := ensure(t, c, "k4", tonbo.EnsureOptions{})
	if _, err := c.Instances().Bind(ctx, "k5", made.Name); !errors.Is(err, tonbo.ErrKeyBound) {
		t.Errorf("adopting another key's: %v", err)
	}
	if err := c.Instances().Release(ctx, "k4"); err != nil {
		t.Fatal(err)
	}
	if in, err := c.Instances().Bind(ctx, "k5", made.Name); err != nil || in.DatabaseID != made.DatabaseID {
		t.Errorf("released, then bound: %+v, %v", in, err)
	}
	if next := ensure(t, c, "k4", tonbo.EnsureOptions{}); next.Generation != 2 || next.Started != tonbo.Created || next.Name == made.Name {
		t.Errorf("after its release: %+v", next)
	}
}

func TestOnlyOneOfManyKeysAdoptsADatabase(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	a.create("one")
	var bound atomic.Int64
	var wg sync.WaitGroup
	for k := range 12 {
		wg.Go(func() {
			_, err := a.client().Instances().Bind(ctx, fmt.Sprint("k", k), "one")
			switch {
			case err == nil:
				bound.Add(1)
			case !errors.Is(err, tonbo.ErrKeyBound):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	has := 0
	for k := range 12 {
		if _, err := a.client().Instances().Get(ctx, fmt.Sprint("k", k)); err == nil {
			has++
		}
	}
	if bound.Load() != 1 || has != 1 {
		t.Errorf("%d say that they have it, %d have it", bound.Load(), has)
	}
}

func TestReplacedDatabaseIsKeptAndItsOwnerFenced(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	c := a.client()
	old := ensure(t, a.client(), "k", tonbo.EnsureOptions{})
	exec(t, old.DB, "CREATE TABLE t(x)")
	exec(t, old.DB, "INSERT INTO t VALUES(1)")
	synced(t, old.DB)
	in, err := c.Instances().Replace(ctx, "k", tonbo.ReplaceOptions{From: tonbo.Slot(old.DB.Status().Slot)})
	if err != nil || in.Generation != 2 || in.DatabaseID == old.DatabaseID {
		t.Fatalf("%+v, %v", in, err)
	}
	if err := old.DB.Synced(ctx); !errors.Is(err, tonbo.ErrFenced) {
		t.Errorf("the old owner: %v", err)
	}
	d, err := c.Get(ctx, old.Name)
	if err != nil || d.ID != old.DatabaseID || !d.Frozen {
		t.Errorf("the old database: %+v, %v", d, err)
	}
	next := ensure(t, c, "k", tonbo.EnsureOptions{})
	if next.DatabaseID != in.DatabaseID || next.Started == tonbo.Created || count(t, next.DB.DB, "t") != 1 {
		t.Errorf("%+v", next)
	}
	if in, err = c.Instances().Replace(ctx, "k", tonbo.ReplaceOptions{DeleteOld: true}); err != nil || in.Generation != 3 {
		t.Fatalf("%+v, %v", in, err)
	}
	if _, err := c.Get(ctx, next.Name); !errors.Is(err, tonbo.ErrNotFound) {
		t.Errorf("DeleteOld: %v", err)
	}
}

// damaged gives the key a database that does not open: an entry of its log is lost, with this body.
func damaged(t *testing.T, a *account, key string) (in *tonbo.Instance, lost string, body []byte) {
	t.Helper()
	ctx := context.Background()
	in = ensure(t, a.client(), key, tonbo.EnsureOptions{})
	exec(t, in.DB, "CREATE TABLE t(x)")
	synced(t, in.DB)
	lost = fence.SlotKey(in.Name, in.DB.Status().Slot)
	closeDB(t, in.DB)
	obj, err := a.store.Get(ctx, lost, remote.GetOptions{})
	if err == nil {
		err = a.store.Delete(ctx, lost)
	}
	if err != nil {
		t.Fatal(err)
	}
	return in, lost, obj.Body
}

func TestDamagedDatabaseIsReplacedOnlyWhenAsked(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	in, lost, body := damaged(t, a, "k")
	var restarting *tonbo.RestartingError
	for range 2 {
		_, err := a.client().Instances().Ensure(ctx, "k", tonbo.EnsureOptions{})
		if !errors.As(err, &restarting) || !errors.Is(err, tonbo.ErrRestarting) || !errors.Is(err, tonbo.ErrCorrupt) || restarting.RetryAfter <= 0 {
			t.Fatalf("damaged: %v", err)
		}
	}
	_, err := a.client().Instances().Ensure(ctx, "k", tonbo.EnsureOptions{ReplaceAfter: time.Hour})
	if !errors.As(err, &restarting) {
		t.Errorf("before its time: %v", err)
	}
	// Mended, it is the key's database as before.
	if _, err := a.store.Create(ctx, lost, body); err != nil {
		t.Fatal(err)
	}
	mended := ensure(t, a.client(), "k", tonbo.EnsureOptions{})
	if mended.DatabaseID != in.DatabaseID || mended.Generation != 1 {
		t.Errorf("mended: %+v", mended)
	}
	closeDB(t, mended.DB)
	if err := a.store.Delete(ctx, lost); err != nil {
		t.Fatal(err)
	}
	next := ensure(t, a.client(), "k", tonbo.EnsureOptions{ReplaceAfter: time.Nanosecond})
	if next.Generation != 2 || next.DatabaseID == in.DatabaseID {
		t.Errorf("replaced: %+v", next)
	}
	if d, err := a.client().Get(ctx, in.Name); err != nil || d.ID != in.DatabaseID {
		t.Errorf("the damaged one is gone: %+v, %v", d, err)
	}
}

func TestMigrationRunsOnceWhoeverAsks(t *testing.T) {
	a := newAccount(t)
	closeDB(t, ensure(t, a.client(), "k", tonbo.EnsureOptions{Version: "v1", Migrate: func(ctx context.Context, tx *sql.Tx, from string) error {
		if from != "" {
			t.Errorf("a new database migrates from %q", from)
		}
		_, err := tx.Exec("CREATE TABLE migrations(version TEXT)")
		return err
	}}).DB)
	mine := errors.New("no such column")
	if _, err := a.client().Instances().Ensure(context.Background(), "k", tonbo.EnsureOptions{Version: "v2", Migrate: func(ctx context.Context, tx *sql.Tx, from string) error {
		tx.Exec("INSERT INTO migrations VALUES('failed')")
		return mine
	}}); !errors.Is(err, mine) {
		t.Errorf("a failing migration: %v", err)
	}
	var wg sync.WaitGroup
	for range 6 {
		c := a.client()
		wg.Go(func() {
			in, err := c.Instances().Ensure(context.Background(), "k", tonbo.EnsureOptions{Version: "v2", Migrate: func(ctx context.Context, tx *sql.Tx, from string) error {
				if from != "v1" {
					t.Errorf("migrates from %q", from)
				}
				_, err := tx.Exec("INSERT INTO migrations VALUES('v2')")
				return err
			}})
			if err != nil {
				t.Error(err)
				return
			}
			if in.Version != "v2" || in.SessionID("orders") != "orders-v2" {
				t.Errorf("%+v", in)
			}
			in.DB.Close() // whoever was taken over meanwhile has nothing to lose
		})
	}
	wg.Wait()
	in := ensure(t, a.client(), "k", tonbo.EnsureOptions{})
	if n := count(t, in.DB.DB, "migrations"); n != 1 || in.Version != "v2" {
		t.Errorf("%d migrations in the database, version %q", n, in.Version)
	}
	s, err := in.DB.Step(context.Background(), "orders", "turn-1", func(context.Context, *sql.Tx) ([]byte, error) { return nil, nil })
	if err != nil || s.Session != "orders-v2" {
		t.Errorf("step: %+v, %v", s, err)
	}
}

func TestInstancesAreForkedFromATemplate(t *testing.T) {
	a := newAccount(t)
	a.create("golden")
	db := open(t, "golden", a.machine())
	exec(t, db, "CREATE TABLE t(x)")
	exec(t, db, "INSERT INTO t VALUES(1)")
	closeDB(t, db)
	for _, key := range []string{"a", "b"} {
		in := ensure(t, a.client(), key, tonbo.EnsureOptions{Template: "golden"})
		exec(t, in.DB, "INSERT INTO t VALUES(2)")
		if in.Started != tonbo.Created || count(t, in.DB.DB, "t") != 2 {
			t.Errorf("%+v", in)
		}
	}
	if _, err := a.client().Instances().Ensure(context.Background(), "c", tonbo.EnsureOptions{Template: "nobody"}); !errors.Is(err, tonbo.ErrNotFound) {
		t.Errorf("no template: %v", err)
	}
}

func TestAKeyWhoseNameIsTakenGetsAnotherName(t *testing.T) {
	a := newAccount(t)
	a.create("k")
	in := ensure(t, a.client(), "k", tonbo.EnsureOptions{})
	if in.Started != tonbo.Created || in.Name == "k" || !strings.HasPrefix(in.Name, "k.g1-") {
		t.Errorf("%+v", in)
	}
	long := strings.Repeat("x", 200)
	if err := a.client().Delete(context.Background(), ensure(t, a.client(), long, tonbo.EnsureOptions{}).Name); err != nil {
		t.Fatal(err)
	}
	if in := ensure(t, a.client(), long, tonbo.EnsureOptions{}); len(in.Name) != 200 || !strings.HasSuffix(in.Name, ".g2") {
		t.Errorf("%+v", in)
	}
}

func TestBadEnsuresSayWhatIsWrong(t *testing.T) {
	ctx := context.Background()
	c := newAccount(t).client()
	for want, o := range map[string]tonbo.EnsureOptions{
		"IdempotencyKey": {Create: tonbo.CreateOptions{IdempotencyKey: "x"}},
		"Adopt or":       {Adopt: "a", Template: "b"},
		"Version has":    {Version: strings.Repeat("v", 201)},
	} {
		if _, err := c.Instances().Ensure(ctx, "k", o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := c.Instances().Ensure(ctx, "no/slash", tonbo.EnsureOptions{}); !errors.Is(err, tonbo.ErrName) {
		t.Error(err)
	}
}
