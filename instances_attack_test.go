package tonbo_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/tonbotest"
)

func TestReplaceAimsAtTheKeysDatabaseNotAtItsName(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	c := a.client()
	in, err := c.Instances().Ensure(ctx, "k", tonbo.EnsureOptions{})
	if err != nil {
		t.Fatal(err)
	}
	in.DB.Close()
	if err := c.Delete(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	// somebody else's database of that name
	other, err := c.Create(ctx, "k", tonbo.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	db := open(t, "k", a.machine())
	exec(t, db, "CREATE TABLE money(x)")
	synced(t, db)
	if _, err := c.Instances().Replace(ctx, "k", tonbo.ReplaceOptions{DeleteOld: true}); err != nil { // the key's own has ended
		t.Error(err)
	}
	synced(t, db) // the stranger's owner is not disturbed
	d, err := c.Get(ctx, "k")
	if err != nil || d.ID != other.ID {
		t.Errorf("unrelated database gone: %+v %v", d, err)
	}
	db.Close()
}

func TestUpdateOfAnInstanceAimsAtItsDatabaseNotAtItsName(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	c := a.client()
	in, err := c.Instances().Ensure(ctx, "k", tonbo.EnsureOptions{})
	if err != nil {
		t.Fatal(err)
	}
	in.DB.Close()
	c.Delete(ctx, "k")
	if _, err := c.Create(ctx, "k", tonbo.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ttl := time.Minute
	if _, err := c.Instances().Update(ctx, "k", tonbo.UpdateOptions{TTL: &ttl}); !errors.Is(err, tonbo.ErrNotFound) {
		t.Error(err)
	}
	d, _ := c.Get(ctx, "k")
	if !d.ExpiresAt.IsZero() {
		t.Error("another database got an expiry")
	}
}

func TestMigrationThatWasNotAcknowledgedIsNotTakenForDone(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	st := tonbotest.NewStore(a.store)
	a.store = st
	o := a.machine()
	o.SyncTimeout = 300 * time.Millisecond
	c, err := tonbo.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	mig := func(ctx context.Context, tx *sql.Tx, from string) error {
		_, err := tx.Exec("CREATE TABLE acct(x)")
		return err
	}
	_, err = c.Instances().Ensure(ctx, "k", tonbo.EnsureOptions{Version: "v1", Migrate: func(ctx context.Context, tx *sql.Tx, from string) error {
		st.Fail(tonbotest.Match{Op: tonbotest.Create}, -1, errDenied)
		return mig(ctx, tx, from)
	}})
	if err == nil {
		t.Fatal("acked with store down")
	}
	st.Heal()
	c2, err := tonbo.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	in, err := c2.Instances().Ensure(ctx, "k", tonbo.EnsureOptions{Version: "v1", Migrate: mig})
	if err != nil {
		t.Fatal(err)
	}
	// now the machine is lost
	ro, err := tonbo.OpenReadOnly(ctx, "k", a.machine())
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := ro.QueryRow("SELECT count(*) FROM acct").Scan(&n); err != nil {
		t.Errorf("Ensure acknowledged version %q, the remote has not got it: %v", in.Version, err)
	}
	ro.Close()
	in.DB.Close()
}

func TestSweepLetsADatabaseLiveThatWasOpenedMeanwhile(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	a.create("d")
	db := open(t, "d", a.machine())
	exec(t, db, "CREATE TABLE t(x)")
	closeDB(t, db)
	time.Sleep(20 * time.Millisecond)
	janitor := tonbotest.NewStore(a.store) // the janitor's way to the store
	gate := janitor.Block(tonbotest.Match{Op: tonbotest.Create, Key: "/log/"})
	o := a.machine()
	o.Remote = janitor
	c := newClient(t, o)
	res := make(chan error, 1)
	go func() {
		r, err := c.Sweep(ctx, tonbo.Janitor{Prefix: "d", OlderThan: 10 * time.Millisecond})
		t.Logf("%+v", r)
		res <- err
	}()
	if err := gate.Wait(ctx, 1); err != nil {
		t.Fatal(err)
	}
	db = open(t, "d", a.machine()) // it is live from here on
	exec(t, db, "INSERT INTO t VALUES(1)")
	synced(t, db) // acknowledged
	gate.Open()
	exec2 := func() error { _, err := db.Exec("INSERT INTO t VALUES(2)"); return err }
	e1 := exec2()
	if err := db.Synced(ctx); err != nil {
		t.Errorf("a live database with an acknowledged commit was swept: exec %v synced %v", e1, err)
	}
	db.Close()
}

func TestRefusedOpensOfAHalfDeletedDatabaseDoNotFillItsLog(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	st := tonbotest.NewStore(a.store)
	a.store = st
	a.create("d")
	db := open(t, "d", a.machine())
	exec(t, db, "CREATE TABLE t(x)")
	closeDB(t, db)
	// a Delete that dies after the record was marked
	dctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	st.Hang(tonbotest.Match{Op: tonbotest.Create, Key: "/log/"}, 1)
	if err := a.client().Delete(dctx, "d"); err == nil {
		t.Error("deleted without a log")
	}
	cancel()
	st.Heal()
	n := func() int {
		page, _, err := a.store.List(ctx, "db/d/log/", remote.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(page)
	}
	before := n()
	o := a.machine()
	for range 10 {
		if _, err := tonbo.Open(ctx, "d", o); !errors.Is(err, tonbo.ErrDeleted) {
			t.Fatal(err)
		}
	}
	if after := n(); after-before > 2 {
		t.Errorf("ten refused Opens: %d log entries became %d", before, after)
	}
}

func TestSyncedOfALeaseDoesNotSpeakForCommitsThatWereSetAside(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	c := a.client()
	i1, err := c.Instances().Ensure(ctx, "k", tonbo.EnsureOptions{})
	if err != nil {
		t.Fatal(err)
	}
	exec(t, i1.DB, "CREATE TABLE t(x)")
	synced(t, i1.DB)
	exec(t, i1.DB, "INSERT INTO t VALUES('mine')") // COMMIT returned
	// another process takes it
	o := open(t, "k", a.machine())
	exec(t, o, "INSERT INTO t VALUES('other')")
	closeDB(t, o)
	// another goroutine of this process
	i2, err := c.Instances().Ensure(ctx, "k", tonbo.EnsureOptions{})
	if err != nil {
		t.Fatal(err)
	}
	serr := i1.DB.Synced(ctx)
	got := rows(t, i2.DB, "SELECT x FROM t")
	if serr == nil && !strings.Contains(got, "mine") {
		t.Errorf("Synced returned nil, remote has %q", got)
	}
	i2.DB.Close()
	var fenced *tonbo.FencedError
	if err := i1.DB.Close(); !errors.As(serr, &fenced) || fenced.Lost == "" || !errors.Is(err, tonbo.ErrFenced) {
		t.Errorf("Synced: %v, Close: %v", serr, err)
	}
}

func TestCloseOfALeaseNamesCommitsThatNobodyHas(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	c := a.client()
	i1, err := c.Instances().Ensure(ctx, "k", tonbo.EnsureOptions{})
	if err != nil {
		t.Fatal(err)
	}
	exec(t, i1.DB, "CREATE TABLE t(x)")
	synced(t, i1.DB)
	exec(t, i1.DB, "INSERT INTO t VALUES('mine')")
	if err := c.Delete(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	i2, err := c.Instances().Ensure(ctx, "k", tonbo.EnsureOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := i1.DB.Close(); err == nil {
		t.Error("Close returned nil with a commit that nobody has")
	}
	i2.DB.Close()
}

func TestOwnerOfAReleasedDatabaseIsNotDisturbed(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	st := tonbotest.NewStore(a.store)
	a.store = st
	o := a.machine()
	o.SyncTimeout = 200 * time.Millisecond
	c, _ := tonbo.NewClient(o)
	i1, err := c.Instances().Ensure(ctx, "k", tonbo.EnsureOptions{})
	if err != nil {
		t.Fatal(err)
	}
	exec(t, i1.DB, "CREATE TABLE t(x)")
	synced(t, i1.DB)
	exec(t, i1.DB, "INSERT INTO t VALUES('mine')")
	if err := c.Instances().Release(ctx, "k"); err != nil { // "its owner is not disturbed"
		t.Fatal(err)
	}
	st.Fail(tonbotest.Match{Op: tonbotest.Create, Key: "db/k/log/"}, -1, errDenied)
	i2, err := c.Instances().Ensure(ctx, "k", tonbo.EnsureOptions{})
	if err != nil {
		t.Fatal(err)
	}
	st.Heal()
	exec(t, i1.DB, "INSERT INTO t VALUES('more')") // it goes on
	cerr := i1.DB.Close()
	ro, err := tonbo.OpenReadOnly(ctx, "k", a.machine())
	if err != nil {
		t.Fatal(err)
	}
	got := rows(t, ro.DB, "SELECT x FROM t")
	ro.Close()
	if cerr == nil && got == "" {
		t.Errorf("Close returned nil and the remote has %q", got)
	}
	i2.DB.Close()
}

func TestStepsBesideReopensAreAcknowledgedOnlyIfTheyAreThere(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	a.create("d")
	db := open(t, "d", a.machine())
	exec(t, db, "CREATE TABLE t(x PRIMARY KEY)")
	synced(t, db)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		o := a.machine()
		for {
			select {
			case <-stop:
				return
			default:
			}
			d, err := tonbo.Open(ctx, "d", o)
			if err == nil {
				d.Close()
			}
			db.Reopen(ctx)
		}
	})
	acked := map[string]bool{}
	var mu sync.Mutex
	end := time.Now().Add(soak(time.Second))
	for w := range 4 {
		wg.Go(func() {
			for n := 0; time.Now().Before(end); n++ {
				id := fmt.Sprintf("%d-%d", w, n)
				_, err := db.Step(ctx, "th", id, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
					_, err := tx.Exec("INSERT INTO t VALUES(?)", id)
					return nil, err
				})
				if err == nil {
					mu.Lock()
					acked[id] = true
					mu.Unlock()
				}
			}
		})
	}
	time.Sleep(time.Until(end))
	close(stop)
	wg.Wait()
	db.Close()
	ro, err := tonbo.OpenReadOnly(ctx, "d", a.machine())
	if err != nil {
		t.Fatal(err)
	}
	defer ro.Close()
	have := map[string]bool{}
	for _, x := range strings.Fields(rows(t, ro.DB, "SELECT x FROM t")) {
		have[x] = true
	}
	lost := 0
	for id := range acked {
		if !have[id] {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d acknowledged steps are lost", lost)
	}
}

func TestTwoKeysNeverHaveOneDatabase(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	a.create("d")
	st := tonbotest.NewStore(a.store)
	o := a.machine()
	o.Remote = st
	ca, _ := tonbo.NewClient(o)
	g := st.Block(tonbotest.Match{Op: tonbotest.Create, Key: "instances/a/"})
	r := make(chan error, 1)
	go func() { _, err := ca.Instances().Bind(ctx, "a", "d"); r <- err }()
	if err := g.Wait(ctx, 1); err != nil {
		t.Fatal(err)
	}
	c := a.client()
	_, _ = c.Instances().Bind(ctx, "b", "d")
	g.Open()
	<-r
	ia, _ := c.Instances().Get(ctx, "a")
	ib, _ := c.Instances().Get(ctx, "b")
	if ia != nil && ib != nil && ia.DatabaseID == ib.DatabaseID {
		t.Errorf("keys a and b both have database %s", ia.DatabaseID)
	}
}

func TestDatabaseIsAdoptedByItsIDInAnySpelling(t *testing.T) {
	a := newAccount(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	c := a.client()
	d, err := c.Create(ctx, "d", tonbo.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	st := tonbotest.NewStore(a.store)
	o := a.machine()
	o.Remote = st
	c2, _ := tonbo.NewClient(o)
	in, err := c2.Instances().Ensure(ctx, "k", tonbo.EnsureOptions{Adopt: strings.ToUpper(d.ID)})
	if errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Ensure never ends: %d requests in 2 s", len(st.Calls()))
	}
	if err == nil {
		in.DB.Close()
	}
}

// What a step did and a conflict clause rolled back must not be recorded as done.
func TestStepWhoseTransactionWasRolledBackIsNotRecorded(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	c := a.client()
	a.create("d")
	db := open(t, "d", a.machine())
	exec(t, db, "CREATE TABLE t(x INTEGER PRIMARY KEY)")
	exec(t, db, "INSERT INTO t VALUES(1)")
	for name, then := range map[string]string{"OR ROLLBACK": "INSERT OR ROLLBACK INTO t VALUES(1)", "ROLLBACK": "ROLLBACK", "anew": "ROLLBACK; BEGIN IMMEDIATE"} {
		work := func(tx *sql.Tx) error {
			_, err := tx.Exec("INSERT INTO t VALUES(2)")
			tx.Exec(then) // its error is ignored, as a careless function does
			return err
		}
		for range 2 {
			s, err := db.Step(ctx, "thread", name, func(_ context.Context, tx *sql.Tx) ([]byte, error) { return []byte("paid"), work(tx) })
			if err == nil || s.Replayed || !strings.Contains(err.Error(), "its transaction has ended") {
				t.Errorf("%s: %+v, %v", name, s, err)
			}
		}
		_, err := c.Instances().Ensure(ctx, "k-"+strings.Fields(name)[0], tonbo.EnsureOptions{Version: "v1", Migrate: func(_ context.Context, tx *sql.Tx, _ string) error {
			if _, err := tx.Exec("CREATE TABLE t(x INTEGER PRIMARY KEY); INSERT INTO t VALUES(1)"); err != nil {
				return err
			}
			return work(tx)
		}})
		if err == nil || !strings.Contains(err.Error(), "its transaction has ended") {
			t.Errorf("Migrate, %s: %v", name, err)
		}
	}
	if n := count(t, db.DB, "t"); n != 1 {
		t.Errorf("%d rows", n)
	}
}

// TestBindThatDiedGivesAKeyNobodyElsesDatabase: key a's Bind stands still between its two writes, key b gets the database meanwhile, and then a's process dies right after its second write.
func TestBindThatDiedGivesAKeyNobodyElsesDatabase(t *testing.T) {
	ctx := context.Background()
	type world struct {
		a *account
		c *tonbo.Client
		d *tonbo.Database
	}
	prepared := func(t *testing.T) world {
		a := newAccount(t)
		a.create("d")
		st := tonbotest.NewStore(a.store)
		o := a.machine()
		o.Remote = st
		dying := newClient(t, o)
		g := st.Block(tonbotest.Match{Op: tonbotest.Create, Key: "instances/a/"})
		r := make(chan error, 1)
		go func() { _, err := dying.Instances().Bind(ctx, "a", "d"); r <- err }()
		if err := g.Wait(ctx, 1); err != nil {
			t.Fatal(err)
		}
		c := a.client()
		if _, err := c.Instances().Bind(ctx, "b", "d"); err != nil {
			t.Fatal(err)
		}
		st.Fail(tonbotest.Match{Op: tonbotest.List, Key: "names/"}, -1, remote.ErrDenied)
		g.Open()
		if err := <-r; err == nil {
			t.Fatal("the dying Bind came to its end")
		}
		return world{a, c, must[*tonbo.Database](t)(c.Get(ctx, "d"))}
	}
	for what, call := range map[string]func(t *testing.T, w world){
		"Get": func(t *testing.T, w world) {
			_, err := w.c.Instances().Get(ctx, "a")
			wantIs(t, "get", err, tonbo.ErrNotFound)
		},
		"Update": func(t *testing.T, w world) {
			_, err := w.c.Instances().Update(ctx, "a", tonbo.UpdateOptions{Protected: new(true)})
			wantIs(t, "update", err, tonbo.ErrNotFound)
		},
		"Replace": func(t *testing.T, w world) {
			if in, err := w.c.Instances().Replace(ctx, "a", tonbo.ReplaceOptions{DeleteOld: true}); err != nil || in.DatabaseID == w.d.ID {
				t.Errorf("%+v, %v", in, err)
			}
		},
		"Replace by a fork": func(t *testing.T, w world) {
			_, err := w.c.Instances().Replace(ctx, "a", tonbo.ReplaceOptions{From: tonbo.Slot(1)})
			wantIs(t, "replace", err, tonbo.ErrNotFound)
		},
		"Bind": func(t *testing.T, w world) {
			_, err := w.c.Instances().Bind(ctx, "a", "d")
			wantIs(t, "bind", err, tonbo.ErrKeyBound)
		},
		"Ensure": func(t *testing.T, w world) {
			if in := ensure(t, w.c, "a", tonbo.EnsureOptions{}); in.DatabaseID == w.d.ID || in.Started != tonbo.Created {
				t.Errorf("%+v", in)
			}
		},
		"Ensure beside the other key's": func(t *testing.T, w world) {
			other := ensure(t, w.c, "b", tonbo.EnsureOptions{})
			if in := ensure(t, w.c, "a", tonbo.EnsureOptions{}); in.DatabaseID == w.d.ID || in.Started != tonbo.Created {
				t.Errorf("%+v", in)
			}
			synced(t, other.DB)
		},
		"Ensure of that database": func(t *testing.T, w world) {
			_, err := w.c.Instances().Ensure(ctx, "a", tonbo.EnsureOptions{ExpectID: w.d.ID})
			wantIs(t, "expected", err, tonbo.ErrTargetChanged)
			_, err = w.c.Instances().Ensure(ctx, "a", tonbo.EnsureOptions{Adopt: w.d.ID})
			wantIs(t, "adopted", err, tonbo.ErrKeyBound)
		},
		"Provide": func(t *testing.T, w world) {
			if in, err := w.c.Instances().Provide(ctx, "a", tonbo.EnsureOptions{}); err != nil || in.DatabaseID == w.d.ID {
				t.Errorf("%+v, %v", in, err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := prepared(t)
			call(t, w)
			d := must[*tonbo.Database](t)(w.c.Get(ctx, "d"))
			if d.ID != w.d.ID || d.Frozen || d.Protected {
				t.Errorf("the other key's database is %+v now", d)
			}
			if in, err := w.c.Instances().Get(ctx, "b"); err != nil || in.DatabaseID != w.d.ID {
				t.Errorf("the other key has %+v, %v", in, err)
			}
		})
	}
}

// TestReplaceThatCannotBeLeavesTheKeyAsItWas: what can never be done does not get into the key's log, where each Ensure would try to.
func TestReplaceThatCannotBeLeavesTheKeyAsItWas(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	c := a.client()
	in := ensure(t, c, "k", tonbo.EnsureOptions{Create: tonbo.CreateOptions{Protected: true}})
	for what, call := range map[string]struct {
		o    tonbo.ReplaceOptions
		want error
	}{
		"a template that is no name":      {tonbo.ReplaceOptions{Template: "../x"}, tonbo.ErrName},
		"the protected one to be deleted": {tonbo.ReplaceOptions{DeleteOld: true}, tonbo.ErrProtected},
		"a template that is not there":    {tonbo.ReplaceOptions{Template: "nobody"}, tonbo.ErrNotFound},
	} {
		_, err := c.Instances().Replace(ctx, "k", call.o)
		wantIs(t, what, err, call.want)
		if got, err := c.Instances().Get(ctx, "k"); err != nil || got.DatabaseID != in.DatabaseID {
			t.Errorf("%s: the key has %+v, %v", what, got, err)
		}
		synced(t, in.DB) // not frozen, and its owner not fenced
	}
	if _, err := c.Instances().Ensure(ctx, "k2", tonbo.EnsureOptions{Template: "../x"}); !errors.Is(err, tonbo.ErrName) {
		t.Error(err)
	}
	if in := ensure(t, c, "k2", tonbo.EnsureOptions{}); in.Started != tonbo.Created || in.Generation != 1 {
		t.Errorf("%+v", in)
	}
}

// TestEnsureOfDatabasesThatExpireAtOnceMakesOneOnly: not one after the other until its ctx ends.
func TestEnsureOfDatabasesThatExpireAtOnceMakesOneOnly(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	c := a.client()
	o := tonbo.EnsureOptions{Create: tonbo.CreateOptions{TTL: 1}}
	for n, call := range []func(string, tonbo.EnsureOptions) error{
		func(key string, o tonbo.EnsureOptions) error { _, err := c.Instances().Ensure(ctx, key, o); return err },
		func(key string, o tonbo.EnsureOptions) error {
			_, err := c.Instances().Provide(ctx, key, o)
			return err
		},
	} {
		key := fmt.Sprint("k", n)
		wantIs(t, key, call(key, o), tonbo.ErrExpired)
		if made := must[int](t)(c.Count(ctx, tonbo.Filter{Prefix: key})); made != 1 {
			t.Errorf("%s: %d databases", key, made)
		}
	}
	for what, o := range map[string]tonbo.EnsureOptions{
		"a year beyond all":    {Create: tonbo.CreateOptions{ExpiresAt: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}},
		"a version of no text": {Version: "\xff"},
	} {
		_, err := c.Instances().Ensure(ctx, "odd", o)
		wantIs(t, what, err, tonbo.ErrInvalid)
	}
}

func TestErrorsOfKeysSayWhatTheStoreRefused(t *testing.T) {
	for _, e := range []struct{ from, to error }{{remote.ErrDenied, tonbo.ErrForbidden}, {remote.ErrUnauthorized, tonbo.ErrUnauthorized}} {
		a := newAccount(t)
		st := tonbotest.NewStore(a.store)
		o := a.machine()
		o.Remote = st
		st.Fail(tonbotest.Match{Key: "instances/"}, -1, e.from)
		_, err := newClient(t, o).Instances().Ensure(context.Background(), "k", tonbo.EnsureOptions{})
		wantIs(t, "ensure", err, e.to)
	}
}
