package tonbo_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

func listed(t testing.TB, c *tonbo.Client, f tonbo.Filter) (names []string) {
	t.Helper()
	for d, err := range c.List(t.Context(), f) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, d.Name)
	}
	return names
}

// keyOrder is the order of List.
func keyOrder(a, b string) int { return strings.Compare(a+"/", b+"/") }

func TestListIsWhatAFilterPicks(t *testing.T) {
	ctx := t.Context()
	s := tonbotest.NewStore(mem.New("test"))
	a := &account{t: t, store: s}
	clock := tonbotest.NewClock(time.Now())
	rnd := rand.New(rand.NewPCG(1, 2))
	all := map[string]*tonbo.Database{}
	var clients []*tonbo.Client
	for _, owner := range []string{"alice", "bob"} {
		o := a.machine().Clocked(clock.Now)
		o.Owner = owner
		clients = append(clients, newClient(t, o))
	}
	for i := range 60 {
		name := fmt.Sprintf("%s-%d", []string{"run", "run-1", "task", "golden"}[rnd.IntN(4)], i)
		o := tonbo.CreateOptions{Metadata: map[string]string{"kind": fmt.Sprint(i % 3), "even": fmt.Sprint(i%2 == 0)}}
		if i%4 == 0 {
			o.TTL = 30 * time.Minute
		}
		all[name] = must[*tonbo.Database](t)(clients[i%2].Create(ctx, name, o))
		clock.Advance(time.Minute)
	}
	c := clients[0]
	// Half made, half deleted, deleted.
	log := fence.New(s, "half-made", fence.Options{})
	if err := catalog.Put(ctx, s, &catalog.Record{Name: "half-made", ID: fence.ID{1}.String(), Slot: 1, State: catalog.Making, CreatedAt: clock.Now()}); err != nil {
		t.Fatal(err)
	}
	if head, err := log.Head(ctx); head != nil || err != nil {
		t.Fatal(head, err)
	}
	for name := range all {
		switch rnd.IntN(6) {
		case 0:
			s.Fail(tonbotest.Match{Op: tonbotest.Delete}, 1, remote.ErrDenied)
			if err := c.Delete(ctx, name); err != nil {
				t.Fatal(err)
			}
			all[name].State = tonbo.StateDeleting
		case 1:
			if err := c.Delete(ctx, name); err != nil {
				t.Fatal(err)
			}
			if delete(all, name); rnd.IntN(2) == 0 { // and made again
				all[name] = must[*tonbo.Database](t)(c.Create(ctx, name, tonbo.CreateOptions{}))
			}
		case 2:
			closeDB(t, open(t, name, a.machine().Clocked(func() time.Time { return clock.Now().Add(-time.Hour) }))) // its record is marked
		}
	}
	all["half-made"] = &tonbo.Database{Name: "half-made", State: tonbo.StateCreating, CreatedAt: clock.Now()}
	now := clock.Now()
	state := func(d *tonbo.Database) string {
		if d.State == tonbo.StateActive && !d.ExpiresAt.IsZero() && !now.Before(d.ExpiresAt) {
			return tonbo.StateExpired
		}
		return d.State
	}
	for _, f := range []tonbo.Filter{
		{}, {Prefix: "run"}, {Prefix: "run-1"}, {Prefix: "none"}, {Metadata: map[string]string{"kind": "1"}}, {Metadata: map[string]string{"kind": "1", "even": "true"}}, {Metadata: map[string]string{"kind": ""}},
		{State: tonbo.StateActive}, {State: tonbo.StateExpired}, {State: tonbo.StateDeleting}, {State: tonbo.StateCreating}, {State: tonbo.StateDeleted},
		{OlderThan: 20 * time.Minute}, {NewerThan: 20 * time.Minute}, {OlderThan: 10 * time.Minute, NewerThan: 40 * time.Minute}, {Owner: "bob"}, {Owner: "bob", State: tonbo.StateActive, Prefix: "task"},
	} {
		var want []string
		for name, d := range all {
			age := now.Sub(d.CreatedAt)
			ok := strings.HasPrefix(name, f.Prefix) && (f.State == "" || f.State == state(d)) && (f.OlderThan == 0 || age > f.OlderThan) && (f.NewerThan == 0 || age < f.NewerThan) && (f.Owner == "" || f.Owner == d.CreatedBy)
			for k, v := range f.Metadata {
				ok = ok && d.Metadata[k] == v && d.Metadata != nil
			}
			if ok {
				want = append(want, name)
			}
		}
		slices.SortFunc(want, keyOrder)
		if got := listed(t, c, f); !slices.Equal(got, want) {
			t.Errorf("%+v:\ngot  %v\nwant %v", f, got, want)
		}
		if n := must[int](t)(c.Count(ctx, f)); n != len(want) {
			t.Errorf("%+v: counted %d, want %d", f, n, len(want))
		}
		// In pages.
		var got []string
		for page := f; ; {
			page.Limit = 7
			if len(got) > 0 {
				page.After = got[len(got)-1]
			}
			names := listed(t, c, page)
			if got = append(got, names...); len(names) < 7 {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v in pages: %v", f, got)
		}
	}
	for d, err := range c.List(ctx, tonbo.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if w := all[d.Name]; w.ID != "" && w.ID != d.ID || d.State != state(w) || !d.CreatedAt.Equal(w.CreatedAt) {
			t.Errorf("got %+v, want %+v", d, w)
		}
	}
}

func TestListOfTenThousandNamesAsksForNoneOfThem(t *testing.T) {
	ctx := t.Context()
	s := tonbotest.NewStore(mem.New("test"))
	n := 10_000
	var want []string
	for i := range n {
		name := fmt.Sprintf("run-%05d", i)
		want = append(want, name)
		if err := catalog.Put(ctx, s, &catalog.Record{Name: name, ID: fence.ID{byte(i), byte(i >> 8), 1}.String(), Slot: 1, State: catalog.Ready}); err != nil {
			t.Fatal(err)
		}
	}
	c := (&account{t: t, store: s}).client()
	for what, f := range map[string]func() int{
		"List": func() int {
			if got := listed(t, c, tonbo.Filter{NamesOnly: true}); !slices.Equal(got, want) {
				t.Errorf("%d names, want %d", len(got), n)
			}
			return n
		},
		"Count": func() int { return must[int](t)(c.Count(ctx, tonbo.Filter{Prefix: "run-"})) },
	} {
		s.ResetCalls()
		if got := f(); got != n {
			t.Errorf("%s: %d", what, got)
		}
		lists := 0
		for _, call := range s.Calls() {
			if call.Op != tonbotest.List {
				t.Fatalf("%s: %+v", what, call)
			}
			lists++
		}
		if lists > 12 {
			t.Errorf("%s: %d LISTs", what, lists)
		}
	}
	// With rows: a GET each, and none of a log.
	s.ResetCalls()
	if got := len(listed(t, c, tonbo.Filter{})); got != n || len(s.Calls()) > n+12 {
		t.Errorf("%d rows for %d requests", got, len(s.Calls()))
	}
	// The one who leaves early pays for a few rows ahead alone.
	s.ResetCalls()
	if got := listed(t, c, tonbo.Filter{Limit: 10, After: "run-00099"}); len(got) != 10 || got[0] != "run-00100" || len(s.Calls()) > 50 {
		t.Errorf("%v for %d requests", got, len(s.Calls()))
	}
}

func TestListEndsWithItsContextAndItsErrors(t *testing.T) {
	s := tonbotest.NewStore(mem.New("test"))
	a := &account{t: t, store: s}
	c := a.client()
	for i := range 40 {
		a.create(fmt.Sprint("run-", i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	gate := s.Block(tonbotest.Match{Op: tonbotest.Get, Key: "names/run-2"})
	go func() {
		if err := gate.Wait(ctx, 1); err == nil {
			cancel()
		}
	}()
	var err error
	for _, e := range c.List(ctx, tonbo.Filter{}) {
		err = e
	}
	wantIs(t, "cancelled", err, context.Canceled)
	s.Heal()
	for _, m := range []tonbotest.Match{{Op: tonbotest.Get, Key: "names/", Skip: 5}, {Op: tonbotest.List}} {
		s.Fail(m, 1, remote.ErrDenied)
		n := 0
		for _, e := range c.List(t.Context(), tonbo.Filter{}) {
			if err = e; err == nil {
				n++
			}
		}
		wantIs(t, "refused", err, tonbo.ErrForbidden)
		s.Heal()
	}
	if _, err := c.Count(ctx, tonbo.Filter{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Count: %v", err)
	}
}
