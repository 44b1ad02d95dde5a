package tonbo_test

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

func TestSameKeySameDatabase(t *testing.T) {
	ctx := t.Context()
	a := newAccount(t)
	c, other := a.client(), a.client()
	o := tonbo.CreateOptions{IdempotencyKey: "job 1", TTL: time.Hour, Metadata: map[string]string{"a": "1", "b": "2"}}
	d := must[*tonbo.Database](t)(c.Create(ctx, "run", o))
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(v)")
	closeDB(t, db)
	must[*tonbo.Database](t)(c.Update(ctx, "run", tonbo.UpdateOptions{Metadata: map[string]*string{"a": new("changed")}}))
	again := must[*tonbo.Database](t)(other.Create(ctx, "run", o))
	if again.ID != d.ID || d.Replayed || !again.Replayed || !again.ExpiresAt.Equal(d.ExpiresAt) || again.Metadata["a"] != "changed" || again.Head.Slot < 3 {
		t.Errorf("first %+v, again %+v", d, again)
	}
	// Anything else is another request.
	for what, change := range map[string]func(o *tonbo.CreateOptions) string{
		"name":        func(*tonbo.CreateOptions) string { return "run-2" },
		"TTL":         func(o *tonbo.CreateOptions) string { o.TTL++; return "run" },
		"ExpiresAt":   func(o *tonbo.CreateOptions) string { o.TTL, o.ExpiresAt = 0, time.Now().Add(time.Hour); return "run" },
		"metadata":    func(o *tonbo.CreateOptions) string { o.Metadata = map[string]string{"a": "1"}; return "run" },
		"protected":   func(o *tonbo.CreateOptions) string { o.Protected = true; return "run" },
		"frozen":      func(o *tonbo.CreateOptions) string { o.Frozen = true; return "run" },
		"page size":   func(o *tonbo.CreateOptions) string { o.PageSize = 8192; return "run" },
		"page size 2": func(o *tonbo.CreateOptions) string { o.PageSize = 512; return "run" },
	} {
		o := o
		name := change(&o)
		_, err := c.Create(ctx, name, o)
		wantIs(t, what, err, tonbo.ErrIdempotency)
		contains(t, err, name, "another request", "run")
	}
	_, err := c.Fork(ctx, "run", "run-2", tonbo.ForkOptions{CreateOptions: o})
	wantIs(t, "fork", err, tonbo.ErrIdempotency)
	_, err = c.Import(ctx, "run", plainFile(t), o)
	wantIs(t, "import", err, tonbo.ErrIdempotency)
	// Another key: the name is taken; or that is no matter.
	o.IdempotencyKey = "job 2"
	_, err = c.Create(ctx, "run", o)
	wantIs(t, "another key", err, tonbo.ErrExists)
	o.IfNotExists = true
	if there := must[*tonbo.Database](t)(c.Create(ctx, "run", o)); there.ID != d.ID || there.Replayed {
		t.Errorf("IfNotExists: %+v", there)
	}
}

func TestKeyOfADeletedDatabaseMakesNoSecondOne(t *testing.T) {
	ctx := t.Context()
	a := newAccount(t)
	clock := tonbotest.NewClock(time.Now())
	c := newClient(t, a.machine().Clocked(clock.Now))
	o := tonbo.CreateOptions{IdempotencyKey: "job 1"}
	d := must[*tonbo.Database](t)(c.Create(ctx, "run", o))
	drop := func() bool { return must[bool](t)(c.DropKey(ctx, catalog.KeyHash("job 1"))) }
	clock.Advance(48 * time.Hour)
	if drop() {
		t.Error("the key of a live database was forgotten")
	}
	if err := c.Delete(ctx, "run"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := c.Create(ctx, "run", o)
		wantIs(t, "create", err, tonbo.ErrIdempotency)
		contains(t, err, "run", d.ID, "has ended")
	}
	must[*tonbo.Database](t)(c.Create(ctx, "run", tonbo.CreateOptions{})) // without the key
	_, err := c.Create(ctx, "run", o)
	wantIs(t, "create", err, tonbo.ErrIdempotency)
	// After its time the key is as new.
	o2 := tonbo.CreateOptions{IdempotencyKey: "job 2"}
	must[*tonbo.Database](t)(c.Create(ctx, "young", o2))
	if err := c.Delete(ctx, "young"); err != nil {
		t.Fatal(err)
	}
	if must[bool](t)(c.DropKey(ctx, catalog.KeyHash("job 2"))) {
		t.Error("a key of today was forgotten")
	}
	if !drop() || drop() {
		t.Error("an old key was not forgotten, or twice")
	}
	if err := c.Delete(ctx, "run"); err != nil {
		t.Fatal(err)
	}
	if n := must[*tonbo.Database](t)(c.Create(ctx, "run", o)); n.ID == d.ID || n.Replayed {
		t.Errorf("%+v", n)
	}
}

// All calls that fork with a key agree on the point, although the source's head moves.
func TestForksWithAKeyAgreeOnThePoint(t *testing.T) {
	ctx := t.Context()
	s := tonbotest.NewStore(mem.New("test"))
	a := &account{t: t, store: s}
	a.create("golden")
	db := open(t, "golden", a.machine())
	exec(t, db, "CREATE TABLE t(v); INSERT INTO t VALUES(1)")
	synced(t, db)
	o := tonbo.ForkOptions{CreateOptions: tonbo.CreateOptions{IdempotencyKey: "fork"}}
	// The first call dies before its create; its attempt stays.
	s.Lose(tonbotest.Match{Op: tonbotest.Create, Key: "db/fork/log/"}, -1)
	if _, err := a.client().Fork(soon(t), "golden", "fork", o); !errors.Is(err, tonbo.ErrUnsynced) {
		t.Fatal(err)
	}
	s.Heal()
	exec(t, db, "INSERT INTO t VALUES(2)")
	synced(t, db)
	var wg sync.WaitGroup
	var mu sync.Mutex
	ids := map[string]uint64{}
	for range 8 {
		c := a.client()
		wg.Go(func() {
			d, err := c.Fork(ctx, "golden", "fork", o)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ids[d.ID] = d.Parent.Slot
		})
	}
	wg.Wait()
	if len(ids) != 1 {
		t.Errorf("%v", ids)
	}
	fork := open(t, "fork", a.machine())
	if got := rows(t, fork, "SELECT v FROM t"); got != "1" {
		t.Errorf("the fork holds %q: the point of the first call is slot 3", got)
	}
	for k := range bodies(t, s) {
		if strings.Contains(k, "db/golden/pin/fork/") {
			return
		}
	}
	t.Error("the fork has no pin")
}

// The point that an earlier call had picked is gone by the time of the next one: it picks anew.
func TestForkWithAKeyWhoseSourceWasMadeAgain(t *testing.T) {
	ctx := t.Context()
	s := tonbotest.NewStore(mem.New("test"))
	a := &account{t: t, store: s}
	c := a.client()
	a.create("golden")
	o := tonbo.ForkOptions{CreateOptions: tonbo.CreateOptions{IdempotencyKey: "fork"}}
	s.Lose(tonbotest.Match{Op: tonbotest.Create, Key: "db/fork/log/"}, -1)
	if _, err := c.Fork(soon(t), "golden", "fork", o); !errors.Is(err, tonbo.ErrUnsynced) {
		t.Fatal(err)
	}
	s.Heal()
	if err := c.Delete(ctx, "golden"); err != nil {
		t.Fatal(err)
	}
	_, err := c.Fork(ctx, "golden", "fork", o)
	wantIs(t, "no source", err, tonbo.ErrNotFound)
	a.create("golden")
	d := must[*tonbo.Database](t)(c.Fork(ctx, "golden", "fork", o))
	if d.Parent.ID != must[*tonbo.Database](t)(c.Get(ctx, "golden")).ID {
		t.Errorf("%+v", d)
	}
	if again := must[*tonbo.Database](t)(c.Fork(ctx, "golden", "fork", o)); again.ID != d.ID {
		t.Errorf("%+v", again)
	}
}

func TestImportWithAKey(t *testing.T) {
	ctx := t.Context()
	for name, size := range map[string]int{"small": 100, "in segments": 6 << 20} {
		t.Run(name, func(t *testing.T) {
			s := tonbotest.NewStore(mem.New("test"))
			a := &account{t: t, store: s}
			c := a.client()
			src := newAccount(t)
			src.create("file")
			db := open(t, "file", src.machine())
			path := t.TempDir() + "/plain.db"
			exec(t, db, "CREATE TABLE t(v)")
			exec(t, db, "INSERT INTO t VALUES(randomblob(?))", size)
			exec(t, db, "VACUUM INTO ?", path)
			closeDB(t, db)
			o := tonbo.CreateOptions{IdempotencyKey: "import"}
			s.DropAnswer(tonbotest.Match{Op: tonbotest.Create, Key: "db/run/log/"}, 1)
			d := must[*tonbo.Database](t)(c.Import(ctx, "run", path, o))
			again := must[*tonbo.Database](t)(a.client().Import(ctx, "run", path, o))
			if again.ID != d.ID || !again.Replayed {
				t.Errorf("first %+v, again %+v", d, again)
			}
			run := open(t, "run", a.machine())
			if got := rows(t, run, "SELECT length(v) > 99 FROM t"); got != "1" {
				t.Errorf("%q", got)
			}
			integrity(t, run)
			// Another file is another request.
			f, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			f[60]++ // user_version
			other := t.TempDir() + "/other.db"
			if err := os.WriteFile(other, f, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = c.Import(ctx, "run", other, o)
			wantIs(t, "another file", err, tonbo.ErrIdempotency)
		})
	}
}
