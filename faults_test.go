package tonbo_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// numbered calls a function around each request, counted from 1.
type numbered struct {
	remote.Store
	n             atomic.Int64
	before, after func(n int64)
}

func (s *numbered) around() func() {
	n := s.n.Add(1)
	if s.before != nil {
		s.before(n)
	}
	return func() {
		if s.after != nil {
			s.after(n)
		}
	}
}

func (s *numbered) Create(ctx context.Context, key string, body []byte) (string, error) {
	defer s.around()()
	return s.Store.Create(ctx, key, body)
}

func (s *numbered) Get(ctx context.Context, key string, o remote.GetOptions) (remote.Object, error) {
	defer s.around()()
	return s.Store.Get(ctx, key, o)
}

func (s *numbered) List(ctx context.Context, prefix string, o remote.ListOptions) ([]remote.Info, bool, error) {
	defer s.around()()
	return s.Store.List(ctx, prefix, o)
}

func (s *numbered) Delete(ctx context.Context, key string) error {
	defer s.around()()
	return s.Store.Delete(ctx, key)
}

func (s *numbered) Swap(ctx context.Context, key, etag string, body []byte) (string, error) {
	defer s.around()()
	return s.Store.Swap(ctx, key, etag, body)
}

// run is a short life of a database: created, opened, written, synced, closed. It goes on after errors, as far as that makes sense.
type run struct {
	acked     int // rows that were acknowledged
	committed int // rows whose COMMIT returned nil
	errs      []error
}

func (r *run) err(err error) bool {
	if err != nil {
		r.errs = append(r.errs, err)
	}
	return err != nil
}

func (r *run) live(ctx context.Context, o tonbo.Options, large bool) {
	if _, err := tonbo.Create(ctx, "run", o); err != nil && !errors.Is(err, tonbo.ErrExists) && r.err(err) {
		return
	}
	db, err := tonbo.Open(ctx, "run", o)
	if r.err(err) {
		return
	}
	add := func(size int) {
		if _, err := db.Exec("INSERT INTO t VALUES(?, randomblob(?))", r.committed, size); !r.err(err) {
			r.committed++
		}
	}
	if _, err := db.Exec("CREATE TABLE t(n INTEGER PRIMARY KEY, v BLOB)"); r.err(err) {
		db.Close()
		return
	}
	for i := range 3 {
		add(3000)
		if large && i == 1 {
			add(5 << 20)
		}
		n := r.committed
		if !r.err(db.Synced(ctx)) {
			r.acked = n
		}
	}
	r.err(db.Synced(ctx))
	add(3000)
	n := r.committed
	if !r.err(db.Close()) {
		r.acked = n
	}
}

// check opens the database elsewhere: it must hold what was acknowledged, and nothing but a prefix of what was committed.
func (r *run) check(t *testing.T, what string, s remote.Store) {
	t.Helper()
	a := &account{t: t, store: s}
	db, err := tonbo.Open(t.Context(), "run", a.machine())
	if errors.Is(err, tonbo.ErrNotFound) && r.committed == 0 {
		return
	}
	if err != nil {
		t.Errorf("%s: open elsewhere: %v", what, err)
		return
	}
	defer closeDB(t, db)
	var tables, n, last int
	if err := db.QueryRow("SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
		t.Fatal(err)
	}
	if tables > 0 {
		if err := db.QueryRow("SELECT count(*), coalesce(max(n)+1, 0) FROM t").Scan(&n, &last); err != nil {
			t.Fatal(err)
		}
	}
	if n < r.acked || n > r.committed || n != last {
		t.Errorf("%s: %d rows up to %d, %d were committed, %d acknowledged; errors: %v", what, n, last, r.committed, r.acked, r.errs)
	}
	integrity(t, db)
}

// requests counts those of an undisturbed run.
func requests(t *testing.T, large bool) int64 {
	t.Helper()
	s := &numbered{Store: mem.New("test")}
	a := &account{t: t, store: s}
	var r run
	r.live(t.Context(), a.machine(), large)
	if len(r.errs) > 0 {
		t.Fatal(r.errs)
	}
	r.check(t, "undisturbed", s.Store)
	return s.n.Load()
}

func TestContextEndsAtAnyRequest(t *testing.T) {
	for _, after := range []bool{false, true} {
		for _, large := range []bool{false, true} {
			if raceEnabled && large {
				continue
			}
			t.Run(fmt.Sprintf("after %v large %v", after, large), func(t *testing.T) {
				t.Parallel()
				total := requests(t, large)
				for i := int64(1); i <= total; i++ {
					ctx, cancel := context.WithCancel(t.Context())
					s := &numbered{Store: mem.New("test")}
					at := func(n int64) {
						if n == i {
							cancel()
						}
					}
					if s.before = at; after {
						s.before, s.after = nil, at
					}
					a := &account{t: t, store: s}
					o := a.machine()
					var r run
					r.live(ctx, o, large)
					for _, err := range r.errs {
						if !errors.Is(err, context.Canceled) {
							t.Errorf("request %d: %v", i, err)
						}
						contains(t, err, "run")
					}
					r.check(t, fmt.Sprint("cancelled at request ", i), s.Store)
					// The directory is of use again.
					db, err := tonbo.Open(t.Context(), "run", o)
					if err == nil {
						integrity(t, db)
						closeDB(t, db)
					} else if !errors.Is(err, tonbo.ErrNotFound) {
						t.Errorf("request %d: open in the same directory: %v", i, err)
					}
					cancel()
				}
			})
		}
	}
}

func TestAnswersLostAtAnyRequest(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(s *tonbotest.Store, skip int)
	}{
		{"applied", func(s *tonbotest.Store, skip int) { s.DropAnswer(tonbotest.Match{Skip: skip}, 1) }},
		{"applied, three in a row", func(s *tonbotest.Store, skip int) { s.DropAnswer(tonbotest.Match{Skip: skip}, 3) }},
		{"not applied", func(s *tonbotest.Store, skip int) { s.Lose(tonbotest.Match{Skip: skip}, 1) }},
		{"held", func(s *tonbotest.Store, skip int) { s.Hold(tonbotest.Match{Skip: skip}, 1) }},
		{"503", func(s *tonbotest.Store, skip int) {
			s.Fail(tonbotest.Match{Skip: skip}, 2, &remote.Error{Op: "any", Store: "mem://test", Kind: remote.ErrUnknown, Status: 503})
		}},
		{"409", func(s *tonbotest.Store, skip int) {
			s.Fail(tonbotest.Match{Skip: skip}, 1, &remote.Error{Op: "any", Store: "mem://test", Kind: remote.ErrUnknown, Status: 409})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for i := range int(requests(t, false)) {
				if raceEnabled && i%3 != 0 {
					continue
				}
				inner := mem.New("test")
				s := tonbotest.NewStore(inner)
				c.set(s, i)
				a := &account{t: t, store: s}
				var r run
				r.live(t.Context(), a.machine(), false)
				for _, err := range r.errs { // reads are the store's own to repeat: here nobody does
					if !errors.Is(err, remote.ErrUnknown) {
						t.Errorf("request %d: %v", i, err)
					}
					contains(t, err, "run", "mem://test")
				}
				s.Heal()
				held, _ := s.Held(t.Context(), 0)
				for _, h := range held {
					h.Release(t.Context())
				}
				r.check(t, fmt.Sprint("lost answer of request ", i), inner)
			}
		})
	}
}

func TestCommitWhoseAnswerIsLostIsAppliedOnce(t *testing.T) {
	for name, set := range map[string]func(*tonbotest.Store){
		"lost answer": func(s *tonbotest.Store) { s.DropAnswer(logCreates, 1) },
		"lost":        func(s *tonbotest.Store) { s.Lose(logCreates, 1) },
		"held":        func(s *tonbotest.Store) { s.Hold(logCreates, 1) },
		"conflict": func(s *tonbotest.Store) {
			s.Fail(logCreates, 1, &remote.Error{Op: "create", Store: "mem://test", Kind: remote.ErrUnknown, Status: 409})
		},
	} {
		a, s := faulty(t)
		a.create("run")
		db := open(t, "run", a.machine())
		exec(t, db, "CREATE TABLE t(v)")
		set(s)
		slot := db.Status().Slot
		synced(t, db)
		held, _ := s.Held(t.Context(), 0)
		for _, h := range held {
			if err := h.Release(t.Context()); !errors.Is(err, remote.ErrExists) {
				t.Errorf("%s: applied again: %v", name, err)
			}
		}
		if got := db.Status(); got.Slot != slot+1 || got.PendingCommits != 0 {
			t.Errorf("%s: %+v, slot was %d", name, got, slot)
		}
		exec(t, db, "INSERT INTO t VALUES(1)")
		synced(t, db)
		closeDB(t, db)
	}
}

func TestRetryAfterIsKept(t *testing.T) {
	a, s := faulty(t)
	a.create("run")
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(v)")
	s.Fail(logCreates, 1, &remote.Error{Op: "create", Store: "mem://test", Kind: remote.ErrUnknown, Status: 429, RetryAfter: 300 * time.Millisecond})
	start := time.Now()
	synced(t, db)
	if d := time.Since(start); d < 300*time.Millisecond {
		t.Errorf("tried again after %s", d)
	}
}

func TestStoreThatHangsEndsWithTheDeadline(t *testing.T) {
	a, s := faulty(t)
	a.create("run")
	o := a.machine()
	o.SyncTimeout = 100 * time.Millisecond
	db := open(t, "run", o)
	exec(t, db, "CREATE TABLE t(v)")
	s.Hang(tonbotest.Match{}, -1)
	for _, ctx := range []context.Context{soon(t), t.Context()} { // with a deadline, and with Options.SyncTimeout
		err := db.Synced(ctx)
		if !errors.Is(err, tonbo.ErrUnsynced) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Synced: %v", err)
		}
		contains(t, err, "run", "1 commits", "call Synced again")
	}
	exec(t, db, "INSERT INTO t VALUES(1)") // commits do not wait
	if _, err := tonbo.Open(soon(t), "run", a.machine()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Open: %v", err)
	}
	s.Heal()
	synced(t, db)
	if n := db.Status().PendingCommits; n != 0 {
		t.Errorf("%d commits are pending", n)
	}
}

func TestRefusalsAreNamedAndOverWhenTheirCauseIs(t *testing.T) {
	for _, c := range []struct {
		with, want error
		say        string
	}{
		{remote.ErrUnauthorized, tonbo.ErrUnauthorized, "renew the credentials"},
		{remote.ErrDenied, tonbo.ErrForbidden, "right to put"},
		{remote.ErrQuota, tonbo.ErrQuota, "make room"},
	} {
		for _, large := range []bool{false, true} {
			a, s := faulty(t)
			a.create("run")
			db := open(t, "run", a.machine())
			exec(t, db, "CREATE TABLE t(v)")
			synced(t, db)
			if exec(t, db, "INSERT INTO t VALUES('x')"); large {
				exec(t, db, "INSERT INTO t VALUES(randomblob(5000000))")
			}
			s.Fail(tonbotest.Match{Op: tonbotest.Create}, -1, c.with)
			err := db.Synced(t.Context())
			if !errors.Is(err, tonbo.ErrUnsynced) || !errors.Is(err, c.want) {
				t.Errorf("Synced: %v, want %v", err, c.want)
			}
			contains(t, err, "run", "mem://test", c.say)
			exec(t, db, "INSERT INTO t VALUES('y')")
			if db.Err() != nil || db.Status().PendingCommits == 0 {
				t.Errorf("%+v", db.Status())
			}
			s.Heal() // renewed, allowed, bought
			synced(t, db)
			other := open(t, "run", a.machine())
			if got := rows(t, other, "SELECT v FROM t WHERE length(v)=1"); got != "x y" {
				t.Errorf("elsewhere: %q", got)
			}
		}
	}
}

// A later part of the history is never acknowledged before an earlier one (libsql#686).
func TestSyncedNeverSkips(t *testing.T) {
	a, s := faulty(t)
	a.create("run")
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(v)")
	synced(t, db)
	for i := range 5 {
		exec(t, db, "INSERT INTO t VALUES(?)", i)
		s.Lose(logCreates, -1)
		if err := db.Synced(soon(t)); err == nil {
			t.Fatal("acknowledged without a store")
		}
		s.Heal()
		exec(t, db, "INSERT INTO t VALUES(?)", i+100)
		if i%2 == 0 {
			synced(t, db)
			other := &account{t: t, store: storeOf(t, bodies(t, s))}
			o := open(t, "run", other.machine())
			if got, want := rows(t, o, "SELECT count(*) FROM t"), fmt.Sprint(2*i+2); got != want {
				t.Errorf("%s rows, want %s", got, want)
			}
			closeDB(t, o)
		}
	}
}

func TestFarOffClocksDecideNothing(t *testing.T) {
	for _, at := range []time.Time{time.Date(2190, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(0, 0), time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)} {
		a := newAccount(t)
		a.create("run")
		db := open(t, "run", a.machine())
		exec(t, db, "CREATE TABLE t(v)")
		synced(t, db)
		m := bodies(t, a.store)
		head := ""
		for k := range m {
			if strings.Contains(k, "/log/") && (head == "" || k < head) {
				head = k
			}
		}
		b := m[head] // docs/format.md: time, header size, header checksum
		binary.LittleEndian.PutUint64(b[72:], uint64(at.UnixNano()))
		h := binary.LittleEndian.Uint32(b[12:])
		binary.LittleEndian.PutUint64(b[h-8:], xxhash.Sum64(b[:h-8]))
		other := &account{t: t, store: storeOf(t, m)}
		o := other.machine()
		o.IfIdle = time.Hour
		db = open(t, "run", o) // a clock that is off by more than that says nothing
		exec(t, db, "INSERT INTO t VALUES(1)")
		synced(t, db)
		closeDB(t, db)
		db = open(t, "run", other.machine())
		if got := rows(t, db, "SELECT v FROM t"); got != "1" {
			t.Errorf("%s: %q", at, got)
		}
	}
}

func TestIdleDatabaseCostsNothing(t *testing.T) {
	a, s := faulty(t)
	const n = 20
	var dbs []*tonbo.DB
	for i := range n {
		name := fmt.Sprint("run-", i)
		a.create(name)
		o := a.machine()
		o.SyncEvery = 10 * time.Millisecond
		db := open(t, name, o)
		exec(t, db, "CREATE TABLE t(v); INSERT INTO t VALUES(1)")
		synced(t, db)
		dbs = append(dbs, db)
	}
	time.Sleep(50 * time.Millisecond) // what SyncEvery still has to do
	for _, db := range dbs {
		db.SetConnMaxIdleTime(time.Millisecond) // as a minute does
	}
	s.ResetCalls()
	size := map[int]int64{}
	for i, db := range dbs {
		for _, b := range files(t, dirOf(t, db)) {
			size[i] += b
		}
	}
	time.Sleep(1500 * time.Millisecond)
	if calls := s.Calls(); len(calls) != 0 {
		t.Errorf("%d requests by idle databases, the first %+v", len(calls), calls[0])
	}
	for i, db := range dbs {
		var now int64
		for _, b := range files(t, dirOf(t, db)) {
			now += b
		}
		if now > size[i] {
			t.Errorf("an idle database's directory grew from %d to %d bytes", size[i], now)
		}
	}
	if c := dbs[0].Stats().OpenConnections; c != 0 {
		t.Errorf("%d connections are open", c)
	}
	// database/sql's own opener, and SyncEvery's.
	if g := runtime.NumGoroutine(); g > 4*n+20 {
		t.Errorf("%d goroutines for %d idle databases", g, n)
	}
}

var dirsOf sync.Map

// dirOf is a DB's local directory; asked once, since asking takes a connection.
func dirOf(t *testing.T, db *tonbo.DB) string {
	if d, ok := dirsOf.Load(db); ok {
		return d.(string)
	}
	f := dbFile(t, db)
	d := f[:strings.LastIndexAny(f, `/\`)]
	dirsOf.Store(db, d)
	return d
}
