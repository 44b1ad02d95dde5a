package tonbo_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

func newClient(t testing.TB, o tonbo.Options) *tonbo.Client {
	t.Helper()
	c, err := tonbo.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (a *account) client() *tonbo.Client { return newClient(a.t, a.machine()) }

func wantIs(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

// must is for calls that are to succeed.
func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// count runs f and tells how many requests it sent.
func countCalls(s *tonbotest.Store, f func()) int {
	s.ResetCalls()
	f()
	return len(s.Calls())
}

func TestRequestsOfTheControlPlane(t *testing.T) {
	ctx := t.Context()
	s := tonbotest.NewStore(mem.New("test"))
	a := &account{t: t, store: s}
	c := a.client()
	a.create("warm-up") // the probe
	want := func(what string, most int, f func()) {
		t.Helper()
		if n := countCalls(s, f); n > most {
			t.Errorf("%s: %d requests, want at most %d: %+v", what, n, most, s.Calls())
		} else {
			t.Logf("%s: %d requests", what, n)
		}
	}
	want("create", 3, func() { must[*tonbo.Database](t)(c.Create(ctx, "run", tonbo.CreateOptions{TTL: time.Hour})) })
	want("create with a key", 6, func() { must[*tonbo.Database](t)(c.Create(ctx, "keyed", tonbo.CreateOptions{IdempotencyKey: "k"})) })
	want("the same again", 6, func() { must[*tonbo.Database](t)(c.Create(ctx, "keyed", tonbo.CreateOptions{IdempotencyKey: "k"})) })
	want("get", 3, func() { must[*tonbo.Database](t)(c.Get(ctx, "run")) })
	want("update", 4, func() { must[*tonbo.Database](t)(c.Update(ctx, "run", tonbo.UpdateOptions{TTL: new(2 * time.Hour)})) })
	var db *tonbo.DB
	want("first open", 8, func() { db = open(t, "keyed", a.machine()) })
	exec(t, db, "CREATE TABLE t(v); INSERT INTO t VALUES(1)")
	synced(t, db)
	closeDB(t, db)
	want("cold open", 8, func() { db = open(t, "keyed", a.machine()) })
	closeDB(t, db)
	want("fork", 8, func() { must[*tonbo.Database](t)(c.Fork(ctx, "keyed", "fork", tonbo.ForkOptions{})) })
	want("delete", 10, func() {
		if err := c.Delete(ctx, "keyed"); err != nil {
			t.Fatal(err)
		}
	})
	want("create again", 4, func() { must[*tonbo.Database](t)(c.Create(ctx, "keyed", tonbo.CreateOptions{})) })
}

func TestDatabaseIsDescribed(t *testing.T) {
	ctx := t.Context()
	a := newAccount(t)
	c := a.client()
	at := time.Now().Add(time.Hour).Round(0)
	d := must[*tonbo.Database](t)(c.Create(ctx, "golden", tonbo.CreateOptions{ExpiresAt: at, Metadata: map[string]string{"kind": "golden"}, Protected: true}))
	f := must[*tonbo.Database](t)(c.Fork(ctx, "golden", "fork", tonbo.ForkOptions{CreateOptions: tonbo.CreateOptions{TTL: time.Minute}}))
	for what, d := range map[string]*tonbo.Database{"created": d, "got": must[*tonbo.Database](t)(c.Get(ctx, "golden"))} {
		if d.Name != "golden" || d.State != tonbo.StateActive || !d.ExpiresAt.Equal(at) || d.Metadata["kind"] != "golden" || !d.Protected || d.Bytes == 0 || d.Head.Slot != 1 || d.Parent != nil || d.CreatedBy == "" {
			t.Errorf("%s: %+v", what, d)
		}
	}
	for what, d := range map[string]*tonbo.Database{"forked": f, "got": must[*tonbo.Database](t)(c.Get(ctx, "fork"))} {
		if d.Parent == nil || d.Parent.ID != must[*tonbo.Database](t)(c.Get(ctx, "golden")).ID || d.Parent.Slot != 1 || d.ParentName != "golden" || d.Protected || time.Until(d.ExpiresAt) > time.Minute {
			t.Errorf("%s: %+v", what, d)
		}
	}
	// Update merges.
	u := must[*tonbo.Database](t)(c.Update(ctx, "fork", tonbo.UpdateOptions{ExpiresAt: new(time.Time), Metadata: map[string]*string{"a": new("1"), "b": new("")}, Protected: new(true)}))
	if !u.ExpiresAt.IsZero() || !u.Protected || len(u.Metadata) != 2 {
		t.Errorf("updated: %+v", u)
	}
	u = must[*tonbo.Database](t)(c.Update(ctx, "fork", tonbo.UpdateOptions{Metadata: map[string]*string{"a": nil, "none": nil}}))
	if v, ok := u.Metadata["b"]; len(u.Metadata) != 1 || !ok || v != "" || !u.Protected || u.Parent == nil {
		t.Errorf("updated: %+v", u)
	}
	for _, frozen := range []bool{true, false} {
		u = must[*tonbo.Database](t)(c.Update(ctx, "fork", tonbo.UpdateOptions{Frozen: &frozen}))
		if l := listedState(t, c, "fork"); u.Frozen != frozen || l.Frozen != frozen {
			t.Errorf("updated: %+v, listed: %+v", u, l)
		}
	}
	_, err := c.Update(ctx, "none", tonbo.UpdateOptions{})
	wantIs(t, "update of none", err, tonbo.ErrNotFound)
}

// listedState is a database as List has it.
func listedState(t testing.TB, c *tonbo.Client, name string) *tonbo.Database {
	t.Helper()
	for d, err := range c.List(t.Context(), tonbo.Filter{Prefix: name}) {
		if err != nil {
			t.Fatal(err)
		}
		if d.Name == name {
			return d
		}
	}
	t.Fatalf("%s is not listed", name)
	return nil
}

func TestOptionsThatCannotBeAreRefused(t *testing.T) {
	ctx := t.Context()
	a := newAccount(t)
	c := a.client()
	past := time.Now().Add(-time.Second)
	for _, x := range []struct {
		option string
		o      tonbo.CreateOptions
	}{
		{"ExpiresAt", tonbo.CreateOptions{ExpiresAt: past}},
		{"TTL", tonbo.CreateOptions{TTL: -1}},
		{"TTL", tonbo.CreateOptions{TTL: 1, ExpiresAt: time.Now().Add(time.Hour)}},
		{"IdempotencyKey", tonbo.CreateOptions{IdempotencyKey: strings.Repeat("k", 256)}},
		{"IdempotencyKey", tonbo.CreateOptions{IdempotencyKey: "kéy"}},
		{"IdempotencyKey", tonbo.CreateOptions{IdempotencyKey: "k\n"}},
		{"Metadata", tonbo.CreateOptions{Metadata: map[string]string{"": "x"}}},
		{"PageSize", tonbo.CreateOptions{PageSize: 1000}},
	} {
		_, err := c.Create(ctx, "run", x.o)
		wantIs(t, x.option, err, tonbo.ErrInvalid)
		var oe *tonbo.OptionError
		if !errors.As(err, &oe) || oe.Option != x.option {
			t.Errorf("%s: %v", x.option, err)
		}
		contains(t, err, "run", x.option)
	}
	must[*tonbo.Database](t)(c.Create(ctx, "run", tonbo.CreateOptions{IdempotencyKey: strings.Repeat("~", 255)}))
	for option, o := range map[string]tonbo.UpdateOptions{
		"ExpiresAt": {ExpiresAt: &past}, "TTL": {TTL: new(time.Duration)}, "Metadata": {Metadata: map[string]*string{"k": new(strings.Repeat("v", 257))}},
	} {
		_, err := c.Update(ctx, "run", o)
		var oe *tonbo.OptionError
		if !errors.As(err, &oe) || oe.Option != option || !errors.Is(err, tonbo.ErrInvalid) {
			t.Errorf("Update, %s: %v", option, err)
		}
	}
	for option, f := range map[string]tonbo.Filter{"State": {State: "asleep"}, "NamesOnly": {NamesOnly: true, Owner: "x"}, "Prefix": {Prefix: "a/b"}, "After": {After: "/"}} {
		_, err := c.Count(ctx, f)
		var oe *tonbo.OptionError
		if !errors.As(err, &oe) || oe.Option != option {
			t.Errorf("Count, %s: %v", option, err)
		}
	}
}

func TestUpdatesAtOnceAllTakeEffect(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	var wg sync.WaitGroup
	for i := range 16 {
		c := a.client()
		wg.Go(func() {
			if _, err := c.Update(t.Context(), "run", tonbo.UpdateOptions{Metadata: map[string]*string{fmt.Sprint("k", i): new("v")}}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if d := must[*tonbo.Database](t)(a.client().Get(t.Context(), "run")); len(d.Metadata) != 16 {
		t.Errorf("%d pairs: %v", len(d.Metadata), d.Metadata)
	}
}

func TestProtectedDatabaseIsNotDeleted(t *testing.T) {
	ctx := t.Context()
	a := newAccount(t)
	clock := tonbotest.NewClock(time.Now())
	c := newClient(t, a.machine().Clocked(clock.Now))
	must[*tonbo.Database](t)(c.Create(ctx, "run", tonbo.CreateOptions{Protected: true, TTL: time.Minute}))
	wantIs(t, "delete", c.Delete(ctx, "run"), tonbo.ErrProtected)
	clock.Advance(time.Hour)
	if d := must[*tonbo.Database](t)(c.Get(ctx, "run")); d.State != tonbo.StateActive {
		t.Errorf("state %s: a protected database does not expire", d.State)
	}
	wantIs(t, "expire", c.Expire(ctx, "run"), tonbo.ErrProtected)
	closeDB(t, open(t, "run", a.machine().Clocked(clock.Now)))
	must[*tonbo.Database](t)(c.Update(ctx, "run", tonbo.UpdateOptions{Protected: new(false)}))
	if err := c.Delete(ctx, "run"); err != nil {
		t.Error(err)
	}
	_, err := c.Get(ctx, "run")
	wantIs(t, "get", err, tonbo.ErrNotFound)
}

// Protection and deletion at once: one of them wins, and who was told that it did is right.
func TestProtectionAndDeletionDoNotBothWin(t *testing.T) {
	ctx := t.Context()
	a := newAccount(t)
	for i := range 50 {
		name := fmt.Sprint("run-", i)
		a.create(name)
		var wg sync.WaitGroup
		var uerr, derr error
		c1, c2 := a.client(), a.client()
		wg.Go(func() { _, uerr = c1.Update(ctx, name, tonbo.UpdateOptions{Protected: new(true)}) })
		wg.Go(func() { derr = c2.Delete(ctx, name) })
		wg.Wait()
		_, gerr := c1.Get(ctx, name)
		switch {
		case uerr == nil && errors.Is(derr, tonbo.ErrProtected) && gerr == nil:
		case derr == nil && errors.Is(gerr, tonbo.ErrNotFound) && (errors.Is(uerr, tonbo.ErrDeleted) || errors.Is(uerr, tonbo.ErrNotFound)):
		default:
			t.Fatalf("%s: update %v, delete %v, get %v", name, uerr, derr, gerr)
		}
	}
}

func TestLimitOfDatabasesIsKept(t *testing.T) {
	ctx := t.Context()
	a := newAccount(t)
	o := a.machine()
	o.MaxDatabases = 3
	c := newClient(t, o)
	for i := range 3 {
		must[*tonbo.Database](t)(c.Create(ctx, fmt.Sprint("run-", i), tonbo.CreateOptions{}))
	}
	for what, create := range map[string]func() error{
		"create":            func() error { _, err := c.Create(ctx, "more", tonbo.CreateOptions{}); return err },
		"create with a key": func() error { _, err := c.Create(ctx, "more", tonbo.CreateOptions{IdempotencyKey: "k"}); return err },
		"fork":              func() error { _, err := c.Fork(ctx, "run-0", "more", tonbo.ForkOptions{}); return err },
		"fork with a key": func() error {
			_, err := c.Fork(ctx, "run-0", "more", tonbo.ForkOptions{CreateOptions: tonbo.CreateOptions{IdempotencyKey: "f"}})
			return err
		},
		"import": func() error { _, err := c.Import(ctx, "more", plainFile(t), tonbo.CreateOptions{}); return err },
	} {
		err := create()
		wantIs(t, what, err, tonbo.ErrLimit)
		contains(t, err, "more", "3", "MaxDatabases")
	}
	for k := range bodies(t, a.store) {
		if strings.HasPrefix(k, "names/more/") || strings.Contains(k, "/pin/more/") {
			t.Errorf("left behind: %s", k)
		}
	}
	// One that is being deleted counts until that is done.
	s := tonbotest.NewStore(a.store)
	s.Fail(tonbotest.Match{Op: tonbotest.Delete}, 1, remote.ErrDenied)
	d := a.machine()
	d.Remote = s
	if err := tonbo.Delete(ctx, "run-0", d); err != nil {
		t.Fatal(err)
	}
	_, err := c.Create(ctx, "more", tonbo.CreateOptions{})
	wantIs(t, "create", err, tonbo.ErrLimit)
	if err := c.Delete(ctx, "run-0"); err != nil {
		t.Fatal(err)
	}
	must[*tonbo.Database](t)(c.Create(ctx, "more", tonbo.CreateOptions{IdempotencyKey: "k"})) // the key was of no attempt that came to something
	// Many at once at the edge: some may be refused for nothing, none passes.
	if err := c.Delete(ctx, "run-1"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			if _, err := c.Create(ctx, fmt.Sprint("edge-", i), tonbo.CreateOptions{}); err != nil && !errors.Is(err, tonbo.ErrLimit) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := must[int](t)(c.Count(ctx, tonbo.Filter{})); n > 3 {
		t.Errorf("%d databases, the limit is 3", n)
	}
	unlimited := a.machine()
	unlimited.MaxDatabases = -1
	must[*tonbo.Database](t)(newClient(t, unlimited).Create(ctx, "beyond", tonbo.CreateOptions{}))
}

// plainFile is a SQLite file with one row.
func plainFile(t testing.TB) string {
	t.Helper()
	a := newAccount(t)
	a.create("file")
	db := open(t, "file", a.machine())
	exec(t, db, "CREATE TABLE t(v); INSERT INTO t VALUES(1)")
	path := filepath.Join(t.TempDir(), "plain.db")
	exec(t, db, "VACUUM INTO ?", path)
	closeDB(t, db)
	return path
}

// Names that are one another's beginnings, with every character that a name may have, share nothing: what one does is not to be seen in the other.
func TestNamesShareNothing(t *testing.T) {
	ctx := t.Context()
	a := newAccount(t)
	c := a.client()
	names := []string{"run-1", "run-1:a", "run-1.a", "run-1-a", "run-1_a", "run-1@a", "run-10", "run", "r", "RUN-1", "run-1.", "run-1-", "a.b_c:d@e-f", strings.Repeat("x", 200)}
	for _, n := range names {
		d := must[*tonbo.Database](t)(c.Create(ctx, n, tonbo.CreateOptions{Metadata: map[string]string{"name": n}, IdempotencyKey: n}))
		db := open(t, n, a.machine())
		exec(t, db, "CREATE TABLE t(v)")
		exec(t, db, "INSERT INTO t VALUES(?)", n)
		synced(t, db)
		if id := db.Status().ID; id != d.ID {
			t.Errorf("%s: opened %s, created %s", n, id, d.ID)
		}
		closeDB(t, db)
	}
	for i, n := range names {
		if i%2 == 0 {
			if err := c.Delete(ctx, n); err != nil {
				t.Error(err)
			}
		}
	}
	for i, n := range names {
		d, err := c.Get(ctx, n)
		if i%2 == 0 {
			wantIs(t, n, err, tonbo.ErrNotFound)
			continue
		}
		if err != nil || d.Metadata["name"] != n {
			t.Errorf("%s: %+v, %v", n, d, err)
		}
		db := open(t, n, a.machine())
		if got := rows(t, db, "SELECT v FROM t"); got != n {
			t.Errorf("%s holds %q", n, got)
		}
		closeDB(t, db)
	}
}

// Records that a later version has written keep their fields; one of another format is not touched.
func TestRecordsOfLaterVersions(t *testing.T) {
	ctx := t.Context()
	a := newAccount(t)
	c := a.client()
	must[*tonbo.Database](t)(c.Create(ctx, "run", tonbo.CreateOptions{}))
	swap := func(old, now string) {
		t.Helper()
		for k, b := range bodies(t, a.store) {
			if !strings.HasPrefix(k, "names/run/") {
				continue
			}
			if !strings.Contains(string(b), old) {
				t.Fatalf("%s has no %s", b, old)
			}
			o, err := a.store.Get(ctx, k, remote.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.store.Swap(ctx, k, o.ETag, []byte(strings.Replace(string(b), old, now, 1))); err != nil {
				t.Fatal(err)
			}
		}
	}
	swap(`"format":1,`, `"format":1,"colour":{"of":"later"},`)
	must[*tonbo.Database](t)(c.Update(ctx, "run", tonbo.UpdateOptions{Metadata: map[string]*string{"a": new("b")}}))
	must[*tonbo.Database](t)(c.Update(ctx, "run", tonbo.UpdateOptions{Protected: new(true)}))
	swap(`"colour":{"of":"later"}`, `"colour":{"of":"later"}`) // it is still there
	swap(`"format":1`, `"format":2`)
	_, err := c.Update(ctx, "run", tonbo.UpdateOptions{Protected: new(false)})
	wantIs(t, "update", err, tonbo.ErrUnsupported)
	wantIs(t, "delete", c.Delete(ctx, "run"), tonbo.ErrUnsupported)
	_, err = tonbo.Open(ctx, "run", a.machine())
	wantIs(t, "open", err, tonbo.ErrUnsupported)
	contains(t, err, "run", "names/run/", "update tonbo")
	for _, err := range c.List(ctx, tonbo.Filter{}) {
		wantIs(t, "list", err, tonbo.ErrUnsupported)
	}
}

// The default limit is looked at now and then. A client that has found the account full lets nothing pass until there is room, and one database by each of many clients is refused now and then.
func TestDefaultLimitOfDatabasesStopsARunaway(t *testing.T) {
	ctx := t.Context()
	a := newAccount(t)
	var planted []string
	for i := range 10_000 {
		k := catalog.RecordKey(fmt.Sprintf("old-%05d", i), 1, fence.ID{byte(i >> 8), byte(i)})
		if _, err := a.store.Create(ctx, k, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		planted = append(planted, k)
	}
	c := a.client()
	created := 0
	for ; created < 64; created++ {
		if _, err := c.Create(ctx, fmt.Sprint("run-", created), tonbo.CreateOptions{}); errors.Is(err, tonbo.ErrLimit) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if created == 64 {
		t.Fatal("64 creations, none refused")
	}
	for i := range 8 {
		_, err := c.Create(ctx, fmt.Sprint("more-", i), tonbo.CreateOptions{})
		wantIs(t, "create in a full account", err, tonbo.ErrLimit)
	}
	for _, k := range planted[:created] {
		if err := a.store.Delete(ctx, k); err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.Create(ctx, "one-too-many", tonbo.CreateOptions{})
	wantIs(t, "create", err, tonbo.ErrLimit)
	if err := a.store.Delete(ctx, planted[created]); err != nil {
		t.Fatal(err)
	}
	must[*tonbo.Database](t)(c.Create(ctx, "the-last", tonbo.CreateOptions{}))
	refused := 0
	for i := range 192 {
		if _, err := a.client().Create(ctx, fmt.Sprint("single-", i), tonbo.CreateOptions{}); errors.Is(err, tonbo.ErrLimit) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if refused == 0 || refused > 15 {
		t.Errorf("%d of 192 refused, want about one in 64", refused)
	}
}
