package tonbo_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo"
	dataplane "github.com/tonbo-go/tonbo/internal/objects"
	"github.com/tonbo-go/tonbo/internal/objects/objectstest"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/gateway"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// through returns a store that reaches inner through a data plane, with a key that reaches only these names, or with none the whole account. A name that ends in * is a prefix.
func through(t testing.TB, inner remote.Store, names ...string) *gateway.Store {
	t.Helper()
	c := dataplane.Caller{ID: "key", Narrowed: len(names) > 0}
	for _, n := range names {
		if p, ok := strings.CutSuffix(n, "*"); ok {
			c.Prefixes = append(c.Prefixes, p)
		} else {
			c.Names = append(c.Names, n)
		}
	}
	srv := objectstest.New(t, inner, dataplane.Options{Rate: -1}, objectstest.Keys{"tbo_key": c})
	s, err := gateway.Open(srv.URL, gateway.Options{APIKey: "tbo_key"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestNarrowedKeyIsEnoughForARun(t *testing.T) {
	inner := tonbotest.NewStore(mem.New("account"))
	full := &account{t: t, store: inner}
	full.create("run-42")
	sandbox := &account{t: t, store: through(t, inner, "run-42")}

	// A first sandbox works, compacts, and is lost.
	db := open(t, "run-42", sandbox.machine())
	exec(t, db, "CREATE TABLE steps(id INTEGER PRIMARY KEY, body TEXT)")
	for i := range 12 {
		exec(t, db, "INSERT INTO steps(body) VALUES(?)", strings.Repeat(fmt.Sprint(i), 3000))
		synced(t, db)
	}
	exec(t, db, "CREATE TABLE large(v)")
	exec(t, db, "INSERT INTO large VALUES(randomblob(4500000))") // its pages go in segments of their own
	synced(t, db)
	if err := db.Compact(t.Context(), false); err != nil {
		t.Fatal(err)
	}

	// A second one takes over from nothing.
	db2 := open(t, "run-42", sandbox.machine())
	if got := rows(t, db2, "SELECT count(*) FROM steps"); got != "12" {
		t.Errorf("the second sandbox has %s steps", got)
	}
	integrity(t, db2)
	exec(t, db2, "INSERT INTO steps(body) VALUES('second')")
	synced(t, db2)
	if err := db.Synced(t.Context()); !errors.Is(err, tonbo.ErrFenced) {
		t.Errorf("the first sandbox's Synced: %v", err)
	}
	closeDB(t, db2)
	for _, c := range inner.Calls() {
		if c.Op == tonbotest.Delete || c.Op == tonbotest.Swap && strings.HasPrefix(c.Key, "db/") {
			t.Errorf("a %s of %s came through", c.Op, c.Key)
		}
	}

	// What it may not.
	c, err := tonbo.NewClient(sandbox.machine())
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for what, err := range map[string]error{
		"create": second(c.Create(ctx, "run-42", tonbo.CreateOptions{})),
		"delete": c.Delete(ctx, "run-42"),
		"update": second(c.Update(ctx, "run-42", tonbo.UpdateOptions{Metadata: map[string]*string{"a": nil}})),
		"rewind": second(c.Rewind(ctx, "run-42", tonbo.Slot(2))),
		"fork":   second(c.Fork(ctx, "run-42", "run-43", tonbo.ForkOptions{})),
		"freeze": c.Freeze(ctx, "run-42"),
	} {
		if !errors.Is(err, tonbo.ErrForbidden) && !(what == "create" && errors.Is(err, tonbo.ErrExists)) {
			t.Errorf("%s with a narrowed key: %v", what, err)
		}
	}
	if d, err := c.Get(ctx, "run-42"); err != nil || d.Name != "run-42" {
		t.Errorf("get: %+v, %v", d, err)
	}
	for _, name := range []string{"run-4", "other"} {
		if _, err := tonbo.Open(ctx, name, sandbox.machine()); !errors.Is(err, tonbo.ErrNotFound) {
			t.Errorf("open %s: %v", name, err)
		}
	}
	integrity(t, open(t, "run-42", full.machine()))
}

func second[T any](_ T, err error) error { return err }

// TestForkIsReadThroughItsOwnKey: a key that reaches the fork alone reads what the fork stands on, and nothing else of its source.
func TestForkIsReadThroughItsOwnKey(t *testing.T) {
	inner := mem.New("account")
	full := &account{t: t, store: inner}
	full.create("golden")
	db := open(t, "golden", full.machine())
	exec(t, db, "CREATE TABLE t(n INTEGER PRIMARY KEY, v BLOB)")
	for range 3 {
		exec(t, db, "INSERT INTO t(v) SELECT randomblob(1000) FROM (WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<500) SELECT n FROM s)")
		synced(t, db)
	}
	if err := db.Compact(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	exec(t, db, "CREATE TABLE large(v)")
	exec(t, db, "INSERT INTO large VALUES(randomblob(4500000))")
	synced(t, db)
	c, err := tonbo.NewClient(full.machine())
	if err != nil {
		t.Fatal(err)
	}
	for of, name := range map[string]string{"golden": "mid"} {
		if _, err := c.Fork(t.Context(), of, name, tonbo.ForkOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// What comes after the fork is none of its business.
	exec(t, db, "CREATE TABLE secret AS SELECT 'later' AS v")
	synced(t, db)
	later := fmt.Sprintf("%016x", ^db.Status().Slot)

	mid := open(t, "mid", full.machine())
	exec(t, mid, "INSERT INTO t(v) VALUES('mid')")
	synced(t, mid)
	closeDB(t, mid)
	if _, err := c.Fork(t.Context(), "mid", "run-1", tonbo.ForkOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), "mid"); err != nil {
		t.Fatal(err)
	}

	s := through(t, inner, "run-1")
	sandbox := &account{t: t, store: s}
	for _, hydration := range []tonbo.Hydration{tonbo.HydrateFull, tonbo.HydrateNone} {
		o := sandbox.machine()
		o.Hydration = hydration
		run := open(t, "run-1", o)
		if got := rows(t, run, "SELECT count(*) FROM t"); got != "1501" && got != "1502" {
			t.Errorf("the fork has %s rows", got)
		}
		integrity(t, run)
		exec(t, run, "INSERT INTO t(v) VALUES('run')")
		synced(t, run)
		if err := run.Compact(t.Context(), false); err != nil { // its base names its ancestors' segments
			t.Fatal(err)
		}
		closeDB(t, run)
	}
	ro, err := tonbo.OpenReadOnly(t.Context(), "run-1", sandbox.machine())
	if err != nil {
		t.Fatal(err)
	}
	if got := rows(t, ro, "SELECT count(*) FROM t"); got != "1503" {
		t.Errorf("a reader of the fork has %s rows", got)
	}
	closeDB(t, ro)

	// Nothing else of the source.
	own := remote.OnBehalf(s, "run-1")
	for _, st := range []remote.Store{s, own} {
		for _, key := range []string{"db/golden/log/" + later, "db/golden/seg/0000000000000001-00000000000000000000000000000000"} {
			if _, err := st.Get(t.Context(), key, remote.GetOptions{}); !errors.Is(err, remote.ErrNotFound) {
				t.Errorf("%s: %v", key, err)
			}
		}
		if page, _, err := st.List(t.Context(), "db/golden/", remote.ListOptions{}); len(page) > 0 || err != nil && !errors.Is(err, remote.ErrDenied) {
			t.Errorf("the source's objects are listed: %v %v", page, err)
		}
	}
	if _, err := tonbo.Open(t.Context(), "golden", sandbox.machine()); !errors.Is(err, tonbo.ErrNotFound) {
		t.Errorf("open the source: %v", err)
	}
	var names []string
	cl, err := tonbo.NewClient(sandbox.machine())
	if err != nil {
		t.Fatal(err)
	}
	for d, err := range cl.List(t.Context(), tonbo.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, d.Name)
	}
	if fmt.Sprint(names) != "[run-1]" {
		t.Errorf("listed: %v", names)
	}
}

// TestAnswersLostOnEitherHop: a life of a database through a data plane, with each of its requests in turn losing its answer, or being lost, before the server or behind it.
func TestAnswersLostOnEitherHop(t *testing.T) {
	for n, c := range []struct {
		name string
		set  func(s *tonbotest.Store, skip int)
	}{
		{"applied", func(s *tonbotest.Store, skip int) { s.DropAnswer(tonbotest.Match{Skip: skip}, 1) }},
		{"applied, three in a row", func(s *tonbotest.Store, skip int) { s.DropAnswer(tonbotest.Match{Skip: skip}, 3) }},
		{"not applied", func(s *tonbotest.Store, skip int) { s.Lose(tonbotest.Match{Skip: skip}, 1) }},
		{"held", func(s *tonbotest.Store, skip int) { s.Hold(tonbotest.Match{Skip: skip}, 1) }},
	} {
		for h, hop := range []string{"to the server", "to the store"} {
			t.Run(c.name+", "+hop, func(t *testing.T) {
				t.Parallel()
				step := 3
				if raceEnabled {
					step = 9
				}
				for i := (2*n + h) % step; i < int(requests(t, false)); i += step {
					inner := mem.New("test")
					var faults *tonbotest.Store
					var a *account
					if hop == "to the store" {
						faults = tonbotest.NewStore(inner)
						a = &account{t: t, store: through(t, faults)}
					} else {
						faults = tonbotest.NewStore(through(t, inner))
						a = &account{t: t, store: faults}
					}
					c.set(faults, i)
					var r run
					r.live(t.Context(), a.machine(), false)
					for _, err := range r.errs {
						if !errors.Is(err, remote.ErrUnknown) {
							t.Errorf("request %d: %v", i, err)
						}
						contains(t, err, "run")
					}
					faults.Heal()
					held, _ := faults.Held(context.Background(), 0)
					for _, h := range held {
						h.Release(t.Context())
					}
					r.check(t, fmt.Sprint("lost answer of request ", i), inner)
				}
			})
		}
	}
}
