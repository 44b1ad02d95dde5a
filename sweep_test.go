package tonbo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// mess is an account with one of every leak, and databases that are none.
type mess struct {
	*account
	t     *testing.T
	store *tonbotest.Store
	live  []string // to be left alone
	swept map[string]string
	junk  []string // keys that nothing needs
}

var errDenied = &remote.Error{Op: "test", Kind: remote.ErrDenied}

// makeMess leaves in an account what crashes and forgetful programs leave.
func makeMess(t *testing.T) *mess {
	ctx := context.Background()
	a := newAccount(t)
	m := &mess{account: a, t: t, store: tonbotest.NewStore(a.store), swept: map[string]string{}}
	a.store = m.store
	c := a.client()
	scratch := map[string]string{"kind": "scratch"}
	make1 := func(name string, o tonbo.CreateOptions) {
		t.Helper()
		if _, err := c.Create(ctx, name, o); err != nil {
			t.Fatal(err)
		}
		db := open(t, name, a.machine())
		exec(t, db, "CREATE TABLE t(x)")
		exec(t, db, "INSERT INTO t VALUES(?)", name)
		closeDB(t, db)
	}
	// Live ones.
	make1("live", tonbo.CreateOptions{IdempotencyKey: "live"})
	make1("live-later", tonbo.CreateOptions{TTL: 100 * time.Hour})
	make1("live-protected", tonbo.CreateOptions{Metadata: scratch, Protected: true})
	make1("live-golden", tonbo.CreateOptions{})
	if _, err := c.Fork(ctx, "live-golden", "live-fork", tonbo.ForkOptions{}); err != nil {
		t.Fatal(err)
	}
	m.live = []string{"live", "live-later", "live-protected", "live-golden", "live-fork"}
	// Expired, and forgotten.
	make1("expired", tonbo.CreateOptions{TTL: time.Hour})
	make1("old", tonbo.CreateOptions{Metadata: scratch})
	m.swept["expired"], m.swept["old"] = tonbo.SweptExpired, tonbo.SweptOld
	// Half made: the record, and a fork's pin, without the create.
	m.store.Fail(tonbotest.Match{Op: tonbotest.Create, Key: "/log/"}, 2, errDenied)
	m.store.Fail(tonbotest.Match{Op: tonbotest.Delete}, -1, errDenied)
	if _, err := c.Create(ctx, "half-made", tonbo.CreateOptions{}); err == nil {
		t.Fatal("half-made was made")
	}
	if _, err := c.Fork(ctx, "live-golden", "half-forked", tonbo.ForkOptions{}); err == nil {
		t.Fatal("half-forked was made")
	}
	m.store.Heal()
	m.swept["half-made"], m.swept["half-forked"] = tonbo.SweptHalfMade, tonbo.SweptHalfMade
	// Half deleted: before the log says so, and after it.
	make1("half-deleted-1", tonbo.CreateOptions{})
	make1("half-deleted-2", tonbo.CreateOptions{IdempotencyKey: "gone"})
	m.store.Fail(tonbotest.Match{Op: tonbotest.Create, Key: "/log/"}, 1, errDenied)
	if err := c.Delete(ctx, "half-deleted-1"); err == nil {
		t.Fatal("half-deleted-1 was deleted")
	}
	m.store.Heal()
	m.store.Fail(tonbotest.Match{Op: tonbotest.Create, Key: "ended/"}, 1, errDenied)
	if err := c.Delete(ctx, "half-deleted-2"); err != nil {
		t.Fatal(err)
	}
	m.store.Heal()
	m.swept["half-deleted-1"], m.swept["half-deleted-2"] = tonbo.SweptHalfDeleted, tonbo.SweptHalfDeleted
	// A fork that was deleted has left a pin; an owner that died has left uploads.
	if _, err := c.Fork(ctx, "live-golden", "dead-fork", tonbo.ForkOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(ctx, "dead-fork"); err != nil {
		t.Fatal(err)
	}
	m.junk = []string{fmt.Sprintf("db/live/seg/%016x-%032x", 1, 7), fmt.Sprintf("db/live/base/%016x-%016x-%032x", 1, 1, 8)}
	for _, k := range m.junk {
		if _, err := m.store.Create(ctx, k, []byte("never named")); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// janitor is a client whose clock is so far ahead.
func (m *mess) janitor(ahead time.Duration) *tonbo.Client {
	return newClient(m.t, m.machine().Clocked(func() time.Time { return time.Now().Add(ahead) }))
}

func (m *mess) keys(prefix string) (keys []string) {
	m.t.Helper()
	for after := ""; ; {
		page, more, err := m.store.List(context.Background(), prefix, remote.ListOptions{After: after})
		if err != nil {
			m.t.Fatal(err)
		}
		for _, i := range page {
			keys, after = append(keys, i.Key), i.Key
		}
		if !more {
			return keys
		}
	}
}

var theJanitor = tonbo.Janitor{Metadata: map[string]string{}, OlderThan: 24 * time.Hour, Keep: func(d *tonbo.Database) bool { return d.Metadata["kind"] != "scratch" && d.ExpiresAt.IsZero() }}

func TestSweepFindsEveryLeakAndNothingElse(t *testing.T) {
	ctx := context.Background()
	m := makeMess(t)
	before := m.keys("")
	dry := theJanitor
	dry.DryRun = true
	const ahead = 50 * time.Hour
	report, err := m.janitor(ahead).Sweep(ctx, dry)
	if err != nil || len(report.Failed) > 0 {
		t.Fatal(report.Failed, err)
	}
	if !slices.Equal(m.keys(""), before) {
		t.Error("a dry run has changed something")
	}
	m.check("dry run", report)
	report, err = m.janitor(ahead).Sweep(ctx, theJanitor)
	if err != nil || len(report.Failed) > 0 {
		t.Fatal(report.Failed, err)
	}
	m.check("sweep", report)
	if report.Databases != len(m.live) || report.Keys != 1 {
		t.Errorf("%d databases remain, want %d; %d keys forgotten, want 1", report.Databases, len(m.live), report.Keys)
	}
	m.tidy(ahead)
}

// check compares what was done with what was to be done.
func (m *mess) check(what string, r *tonbo.SweepReport) {
	m.t.Helper()
	got := map[string]string{}
	for _, s := range r.Done {
		if s.Why != tonbo.SweptCompacted {
			got[s.Name] = s.Why
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(m.swept) {
		m.t.Errorf("%s: got %v, want %v", what, got, m.swept)
	}
	for _, name := range m.live {
		if got[name] != "" {
			m.t.Errorf("%s: %s is live, and was %s", what, name, got[name])
		}
	}
}

// tidy checks that after some more sweeps nothing is left but what live databases need, and that those are whole.
func (m *mess) tidy(ahead time.Duration) {
	m.t.Helper()
	ctx := context.Background()
	for range 3 { // chains let go one link a sweep, and marks go when nothing was left to do
		r, err := m.janitor(ahead+3*time.Hour).Sweep(ctx, theJanitor)
		if err != nil || len(r.Failed) > 0 {
			m.t.Fatal(r.Failed, err)
		}
	}
	isLive := func(key string) bool {
		for _, name := range m.live {
			if strings.Contains(key, "/"+name+"/") {
				return true
			}
		}
		return false
	}
	for _, k := range m.keys("") {
		dir, _, _ := strings.Cut(k, "/")
		switch {
		case dir == "probe" || dir == "usage" || isLive(k) && !slices.Contains(m.junk, k) && !strings.Contains(k, "dead-fork") && !strings.Contains(k, "half-forked"):
		case dir == "db" && strings.Contains(k, "/log/"): // what begins a generation stays (R5)
		case dir == "idem":
		default:
			m.t.Errorf("left: %s", k)
		}
	}
	c := m.client()
	for _, name := range m.live {
		if rep, err := c.Verify(ctx, name); err != nil || len(rep.Problems) > 0 {
			m.t.Errorf("%s: %+v, %v", name, rep, err)
		}
		db, err := tonbo.OpenReadOnly(ctx, name, m.machine())
		if err != nil {
			m.t.Fatal(err)
		}
		if n := count(m.t, db.DB, "t"); n != 1 {
			m.t.Errorf("%s has %d rows", name, n)
		}
		db.Close()
	}
}

func TestSweepsAtOnceAreSafeBesideOwners(t *testing.T) {
	ctx := context.Background()
	m := makeMess(t)
	const ahead = 50 * time.Hour
	var wg sync.WaitGroup
	for range 4 {
		c := m.janitor(ahead)
		wg.Go(func() {
			if r, err := c.Sweep(ctx, theJanitor); err != nil {
				t.Error(r, err)
			}
		})
	}
	var synced int
	wg.Go(func() { // an owner at work meanwhile
		db, err := tonbo.Open(ctx, "live", m.machine())
		if err != nil {
			t.Error(err)
			return
		}
		defer db.Close()
		for range 50 {
			if _, err := db.Exec("UPDATE t SET x = x || '.'"); err != nil {
				t.Error(err)
				return
			}
			if err := db.Synced(ctx); err != nil {
				t.Error(err)
				return
			}
			synced++
		}
	})
	wg.Wait()
	if synced != 50 {
		t.Errorf("the owner has synced %d times", synced)
	}
	m.tidy(ahead)
}

func TestKeepAndProtectionAreRespected(t *testing.T) {
	ctx := context.Background()
	m := makeMess(t)
	r, err := m.janitor(50*time.Hour).Sweep(ctx, tonbo.Janitor{Keep: func(*tonbo.Database) bool { return true }, Max: 3})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(r.Kept, "expired") || r.Count(tonbo.SweptExpired) != 0 || !r.TooMany {
		t.Errorf("%+v", r)
	}
	r, err = m.janitor(50*time.Hour).Sweep(ctx, tonbo.Janitor{Prefix: "live", OlderThan: time.Hour, Max: 5})
	if err != nil || !slices.Contains(r.Kept, "live-protected") || r.TooMany && r.Databases <= 5 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := m.client().Get(ctx, "expired"); err != nil {
		t.Errorf("outside the prefix: %v", err)
	}
}

func TestJanitorsThatWouldEmptyAnAccountAreRefused(t *testing.T) {
	c := newAccount(t).client()
	for _, j := range []tonbo.Janitor{{OlderThan: time.Hour}, {OlderThan: -1, Prefix: "x"}, {Grace: -1}, {Prefix: "a/b"}} {
		if _, err := c.Sweep(context.Background(), j); !errors.Is(err, tonbo.ErrInvalid) {
			t.Errorf("%+v: %v", j, err)
		}
	}
}

func TestSweepOfOneDatabaseThatFailsGoesOn(t *testing.T) {
	ctx := context.Background()
	m := makeMess(t)
	m.store.Fail(tonbotest.Match{Op: tonbotest.Get, Key: "names/half-deleted-1/"}, -1, errDenied)
	r, err := m.janitor(50*time.Hour).Sweep(ctx, theJanitor)
	if err != nil || len(r.Failed) != 1 || !strings.Contains(r.Failed[0].Error(), "half-deleted-1") || r.Count(tonbo.SweptExpired) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	m.store.Heal()
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := m.janitor(50*time.Hour).Sweep(cancelled, theJanitor); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
