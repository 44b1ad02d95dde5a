package tonbo_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// hour is a world with a clock, and a database that expires in an hour.
type hour struct {
	*account
	s     *tonbotest.Store
	clock *tonbotest.Clock
	c     *tonbo.Client
}

func newHour(t *testing.T) *hour {
	s := tonbotest.NewStore(mem.New("test"))
	h := &hour{account: &account{t: t, store: s}, s: s, clock: tonbotest.NewClock(time.Now())}
	h.c = newClient(t, h.machine())
	must[*tonbo.Database](t)(h.c.Create(t.Context(), "run", tonbo.CreateOptions{TTL: time.Hour}))
	return h
}

func (h *hour) machine() tonbo.Options { return h.account.machine().Clocked(h.clock.Now) }

// table makes one, so that there is something to lose.
func (h *hour) table() *tonbo.DB {
	db := open(h.t, "run", h.machine())
	exec(h.t, db, "CREATE TABLE t(v); INSERT INTO t VALUES('shipped')")
	synced(h.t, db)
	return db
}

func TestExpiredDatabaseIsRefused(t *testing.T) {
	ctx := t.Context()
	h := newHour(t)
	closeDB(t, h.table())
	h.clock.Advance(time.Hour)
	before := bodies(t, h.s)
	_, err := tonbo.Open(ctx, "run", h.machine())
	wantIs(t, "open", err, tonbo.ErrExpired)
	contains(t, err, "run", "expired", "Client.Update")
	if len(bodies(t, h.s)) != len(before) {
		t.Error("something was claimed")
	}
	if d := must[*tonbo.Database](t)(h.c.Get(ctx, "run")); d.State != tonbo.StateExpired {
		t.Errorf("state %s", d.State)
	}
	// It can be read, and given a later expiry, until a janitor comes.
	ro := must[*tonbo.DB](t)(tonbo.OpenReadOnly(ctx, "run", h.machine()))
	if got := rows(t, ro, "SELECT v FROM t"); got != "shipped" {
		t.Errorf("read %q", got)
	}
	closeDB(t, ro)
	must[*tonbo.Database](t)(h.c.Update(ctx, "run", tonbo.UpdateOptions{TTL: new(time.Hour)}))
	closeDB(t, open(t, "run", h.machine()))
	if err := h.c.Expire(ctx, "run"); !tonbo.IsNotExpired(err) {
		t.Errorf("expire: %v", err)
	}
	h.clock.Advance(time.Hour)
	if err := h.c.Expire(ctx, "run"); err != nil {
		t.Fatal(err)
	}
	_, err = tonbo.Open(ctx, "run", h.machine())
	wantIs(t, "open", err, tonbo.ErrNotFound)
	must[*tonbo.Database](t)(h.c.Create(ctx, "run", tonbo.CreateOptions{})) // the name is free
}

func TestOwnerOfAnExpiredDatabaseIsRefused(t *testing.T) {
	ctx := t.Context()
	for name, janitor := range map[string]bool{"by its clock": false, "by a janitor": true} {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s strict=%v", name, strict), func(t *testing.T) {
				h := newHour(t)
				o := h.machine()
				if o.Strict = strict; janitor { // the owner's own clock is behind
					o = o.Clocked(time.Now)
				}
				db := open(t, "run", o)
				exec(t, db, "CREATE TABLE t(v); INSERT INTO t VALUES('shipped')")
				synced(t, db)
				h.clock.Advance(time.Hour)
				if !strict {
					exec(t, db, "INSERT INTO t VALUES('late')")
				}
				if janitor {
					if err := h.c.Expire(ctx, "run"); err != nil {
						t.Fatal(err)
					}
				}
				err := db.Synced(ctx)
				if strict {
					_, err = db.Exec("INSERT INTO t VALUES('late')")
				}
				var fe *tonbo.FencedError
				if !errors.Is(err, tonbo.ErrExpired) || errors.Is(err, tonbo.ErrFenced) || errors.Is(err, tonbo.ErrDeleted) != janitor || !errors.As(err, &fe) {
					t.Fatalf("Synced: %v", err)
				}
				contains(t, err, "run", "expired")
				if !strict {
					contains(t, err, fe.Lost)
					if _, err := os.Stat(fe.Lost); err != nil {
						t.Errorf("set aside: %v", err)
					}
				}
				_, err = db.Exec("INSERT INTO t VALUES('later')")
				wantIs(t, "COMMIT", err, tonbo.ErrExpired)
				wantIs(t, "Err", db.Err(), tonbo.ErrExpired)
				<-db.Done()
				wantIs(t, "Reopen", db.Reopen(ctx), map[bool]error{false: tonbo.ErrExpired, true: tonbo.ErrNotFound}[janitor])
				if janitor {
					return
				}
				must[*tonbo.Database](t)(h.c.Update(ctx, "run", tonbo.UpdateOptions{TTL: new(time.Hour)}))
				if err := db.Reopen(ctx); err != nil {
					t.Fatal(err)
				}
				exec(t, db, "INSERT INTO t VALUES('again')")
				synced(t, db)
				if got := rows(t, db, "SELECT v FROM t"); got != "shipped again" {
					t.Errorf("got %q", got)
				}
				closeDB(t, db)
			})
		}
	}
}

func TestExtendedDatabaseGoesOn(t *testing.T) {
	ctx := t.Context()
	h := newHour(t)
	db := h.table()
	records := func() (n int) {
		for _, c := range h.s.Calls() {
			if c.Op == tonbotest.Get && strings.HasPrefix(c.Key, "names/") {
				n++
			}
		}
		return n
	}
	h.s.ResetCalls()
	synced(t, db)
	if n := records(); n != 0 {
		t.Errorf("%d looks at the record before its time", n)
	}
	must[*tonbo.Database](t)(h.c.Update(ctx, "run", tonbo.UpdateOptions{TTL: new(3 * time.Hour)}))
	h.clock.Advance(time.Hour)
	h.s.ResetCalls()
	exec(t, db, "INSERT INTO t VALUES('after')")
	synced(t, db)
	synced(t, db)
	if n := records(); n != 1 {
		t.Errorf("%d looks at the record, want one", n)
	}
	// Whether it was extended cannot be told: no acknowledgement, and no refusal.
	h.clock.Advance(2 * time.Hour)
	exec(t, db, "INSERT INTO t VALUES('unknown')")
	h.s.Fail(tonbotest.Match{Op: tonbotest.Get, Key: "names/"}, 1, remote.ErrUnknown)
	wantIs(t, "Synced", db.Synced(ctx), tonbo.ErrUnsynced)
	if db.Err() != nil {
		t.Errorf("over: %v", db.Err())
	}
	must[*tonbo.Database](t)(h.c.Update(ctx, "run", tonbo.UpdateOptions{ExpiresAt: new(time.Time)}))
	synced(t, db)
	h.clock.Advance(1000 * time.Hour)
	synced(t, db)
	closeDB(t, db)
}

func TestExpiryBroughtForwardReachesTheOwner(t *testing.T) {
	ctx := t.Context()
	for name, first := range map[string]tonbo.CreateOptions{"earlier": {TTL: time.Hour}, "none before": {}} {
		t.Run(name, func(t *testing.T) {
			h := newHour(t)
			must[*tonbo.Database](t)(h.c.Create(ctx, "other", first))
			db := open(t, "other", h.machine())
			exec(t, db, "CREATE TABLE t(v)")
			synced(t, db)
			must[*tonbo.Database](t)(h.c.Update(ctx, "other", tonbo.UpdateOptions{TTL: new(2 * time.Minute)}))
			h.clock.Advance(time.Minute)
			gate := h.s.Block(tonbotest.Match{Op: tonbotest.Get, Key: "names/"})
			synced(t, db) // it does not wait for the record
			if err := gate.Wait(ctx, 1); err != nil {
				t.Fatal(err)
			}
			synced(t, db)
			gate.Open()
			h.s.Heal()
			h.clock.Advance(time.Minute)
			for { // the reading beside has ended when the owner knows
				if err := db.Synced(ctx); err != nil {
					wantIs(t, "Synced", err, tonbo.ErrExpired)
					break
				}
			}
			db.Close()
		})
	}
}

// An extension and a janitor at once: one of them wins, and who was told that it did is right.
func TestExtensionAndJanitorDoNotBothWin(t *testing.T) {
	ctx := t.Context()
	h := newHour(t)
	extended, gone := 0, 0
	for i := range 60 {
		name := fmt.Sprint("run-", i)
		must[*tonbo.Database](t)(h.c.Create(ctx, name, tonbo.CreateOptions{TTL: time.Minute}))
		h.clock.Advance(time.Hour)
		var wg sync.WaitGroup
		var uerr, jerr error
		both := []func(){
			func() { _, uerr = h.c.Update(ctx, name, tonbo.UpdateOptions{TTL: new(time.Hour)}) },
			func() { jerr = h.c.Expire(ctx, name) },
		}
		wg.Go(both[i%2])
		wg.Go(both[1-i%2])
		wg.Wait()
		_, gerr := h.c.Get(ctx, name)
		switch {
		case uerr == nil && tonbo.IsNotExpired(jerr) && gerr == nil:
			extended++
		case jerr == nil && (errors.Is(uerr, tonbo.ErrExpired) || errors.Is(uerr, tonbo.ErrNotFound)) && errors.Is(gerr, tonbo.ErrNotFound):
			gone++
		default:
			t.Fatalf("%s: update %v, expire %v, get %v", name, uerr, jerr, gerr)
		}
	}
	if t.Logf("%d extended, %d gone", extended, gone); extended == 0 || gone == 0 {
		t.Error("one of them always won")
	}
}
