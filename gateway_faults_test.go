package tonbo_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/tonbo-go/tonbo"
	dataplane "github.com/tonbo-go/tonbo/internal/objects"
	"github.com/tonbo-go/tonbo/internal/objects/objectstest"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/dir"
	"github.com/tonbo-go/tonbo/remote/gateway"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// servers is a load balancer in front of two servers of one store, which take requests in turns. At request number at, counted from 1, the server that has it is killed: before it has done anything, or when it has done
// it and not answered yet. The other one goes on, beside a new one that knows nothing.
type servers struct {
	store remote.Store
	at    int64
	after bool
	n     atomic.Int64
	both  [2]atomic.Pointer[http.Handler]
}

func newServers(s remote.Store, at int64, after bool) *servers {
	b := &servers{store: s, at: at, after: after}
	for i := range b.both {
		b.begin(i)
	}
	return b
}

func (b *servers) begin(i int) {
	h := objectstest.Handler(dataplane.New(b.store, dataplane.Options{Rate: -1}), objectstest.Keys{"tbo_run": {ID: "run", Narrowed: true, Names: []string{"run"}}})
	b.both[i].Store(&h)
}

func (b *servers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := b.n.Add(1)
	i := int(n % 2)
	h := *b.both[i].Load()
	if n != b.at {
		h.ServeHTTP(w, r)
		return
	}
	b.begin(i)
	if b.after {
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	panic(http.ErrAbortHandler) // the connection is cut without an answer
}

// TestServerKilledAtAnyRequest: a life of a database with a narrowed key, through two servers one of which is killed at each request in turn. Nothing that was acknowledged is lost, and nobody is told an error but of what is unknown.
func TestServerKilledAtAnyRequest(t *testing.T) {
	for k, after := range []bool{false, true} {
		t.Run(fmt.Sprint("after ", after), func(t *testing.T) {
			t.Parallel()
			step := 2
			if raceEnabled {
				step = 7
			}
			for at := 1 + k; ; at += step {
				inner := mem.New("test")
				full := &account{t: t, store: inner}
				full.create("run")
				b := newServers(inner, int64(at), after)
				srv := httptest.NewUnstartedServer(b)
				srv.Config.ErrorLog = nil
				srv.Start()
				s, err := gateway.Open(srv.URL, gateway.Options{APIKey: "tbo_run"})
				if err != nil {
					t.Fatal(err)
				}
				sandbox := &account{t: t, store: s}
				var r run
				r.live(t.Context(), sandbox.machine(), false)
				for _, err := range r.errs {
					if !errors.Is(err, remote.ErrUnknown) {
						t.Errorf("request %d: %v", at, err)
					}
				}
				r.check(t, fmt.Sprint("killed at request ", at), inner)
				_ = s.Close()
				srv.Close()
				if b.n.Load() < int64(at) { // the life has fewer requests
					return
				}
			}
		})
	}
}

// TestStaleWriterThroughAnotherServer: a writer's append is held up behind its server while another one takes the database over through a second server.
func TestStaleWriterThroughAnotherServer(t *testing.T) {
	inner := mem.New("test")
	full := &account{t: t, store: inner}
	full.create("run")
	held := tonbotest.NewStore(inner)
	first := &account{t: t, store: through(t, held, "run")}
	second := &account{t: t, store: through(t, inner, "run")}

	db := open(t, "run", first.machine())
	exec(t, db, "CREATE TABLE t(v)")
	synced(t, db)
	exec(t, db, "INSERT INTO t VALUES('held')")
	gate := held.Block(tonbotest.Match{Op: tonbotest.Create, Key: "db/run/log/"})
	done := make(chan error, 1)
	go func() { done <- db.Synced(context.Background()) }()
	if err := gate.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	db2 := open(t, "run", second.machine())
	exec(t, db2, "INSERT INTO t VALUES('second')")
	synced(t, db2)
	gate.Open()
	if err := <-done; !errors.Is(err, tonbo.ErrFenced) {
		t.Errorf("the stale writer's Synced: %v", err)
	}
	if got := rows(t, db2, "SELECT v FROM t"); got != "second" {
		t.Errorf("rows: %s", got)
	}
	// And at once, each through its own server: one of them owns it.
	for i := range 5 {
		a, b := open(t, "run", first.machine()), open(t, "run", second.machine())
		exec(t, b, fmt.Sprintf("INSERT INTO t VALUES('b%d')", i))
		synced(t, b)
		if err := a.Synced(t.Context()); !errors.Is(err, tonbo.ErrFenced) {
			t.Errorf("round %d: the first one's Synced: %v", i, err)
		}
		closeDB(t, b)
	}
}

// TestKeyThatIsRevokedLosesNothing: an owner whose key is refused keeps what it has committed, and ships it with the next one.
func TestKeyThatIsRevokedLosesNothing(t *testing.T) {
	inner := mem.New("test")
	full := &account{t: t, store: inner}
	full.create("run")
	keys := objectstest.Keys{"tbo_a": {ID: "a", Narrowed: true, Names: []string{"run"}}}
	var now atomic.Pointer[http.Handler]
	serve := func(k objectstest.Keys) {
		h := objectstest.Handler(dataplane.New(inner, dataplane.Options{}), k)
		now.Store(&h)
	}
	serve(keys)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*now.Load()).ServeHTTP(w, r) }))
	t.Cleanup(srv.Close)
	var token atomic.Value
	token.Store("tbo_a")
	s, err := gateway.Open(srv.URL, gateway.Options{Token: func(context.Context) (string, error) { return token.Load().(string), nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	db := open(t, "run", (&account{t: t, store: s}).machine())
	exec(t, db, "CREATE TABLE t(v)")
	synced(t, db)
	exec(t, db, "INSERT INTO t VALUES(1)")
	serve(objectstest.Keys{"tbo_b": keys["tbo_a"]}) // tbo_a is revoked
	if err := db.Synced(t.Context()); !errors.Is(err, tonbo.ErrUnauthorized) {
		t.Errorf("with a revoked key: %v", err)
	}
	token.Store("tbo_b")
	synced(t, db)
	serve(objectstest.Keys{"tbo_c": keys["tbo_a"]}) // rotated: nothing fails
	token.Store("tbo_c")
	exec(t, db, "INSERT INTO t VALUES(2)")
	synced(t, db)
	if got := rows(t, open(t, "run", full.machine()), "SELECT v FROM t"); got != "1 2" {
		t.Errorf("rows: %s", got)
	}
}

// newWorldThroughAServer is newWorld with a server between the processes and the directory: the processes hold a key that reaches their database alone.
func newWorldThroughAServer(t *testing.T) *world {
	t.Helper()
	w := emptyWorld(t)
	inner, err := dir.Open(filepath.Join(w.base, "remote"))
	if err != nil {
		t.Fatal(err)
	}
	srv := objectstest.New(t, inner, dataplane.Options{Rate: -1}, objectstest.Keys{"tbo_child": {ID: "child", Narrowed: true, Names: []string{worldName}}})
	s, err := gateway.Open(srv.URL, gateway.Options{APIKey: objectstest.Full})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	w.url, w.env, w.store = srv.URL, []string{"TONBO_API_KEY=tbo_child"}, s
	w.begin()
	return w
}

// TestKilledAtFailpointsThroughAServer kills processes that hold a narrowed key at steps of open, commit and shipping: some in each run, all of them with TONBO_TEST_LARGE=1.
func TestKilledAtFailpointsThroughAServer(t *testing.T) {
	for _, s := range scenarios {
		step := 13
		if raceEnabled {
			step = 40
		}
		switch s.name {
		case "fresh", "recover", "strict", "behind":
		default:
			continue
		}
		if os.Getenv("TONBO_TEST_LARGE") != "" {
			step = 1
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			w := newWorldThroughAServer(t)
			d := w.dir()
			p, _ := s.play(w, d, "?")
			w.final(d)
			names, _ := p.failpoints("")
			if len(names) == 0 {
				t.Fatal("no failpoints")
			}
			for i := step / 2; i < len(names); i += step {
				t.Run(names[i], func(t *testing.T) {
					w := newWorldThroughAServer(t)
					d := w.dir()
					if _, events := s.play(w, d, names[i]); len(said(events, "done")) > 0 {
						t.Fatal("the process came to its end")
					}
					if !s.foreign {
						w.kept(d)
					}
					w.final(d)
				})
			}
		})
	}
}
