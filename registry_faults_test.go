package tonbo_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// logEntries are requests for a database's log.
var logEntries = tonbotest.Match{Key: "/log/"}

func faultyAccount(t *testing.T) (*account, *tonbotest.Store) {
	store := tonbotest.NewStore(mem.New("test"))
	return &account{t: t, store: store}, store
}

// onError notes what a registry says.
type onError struct {
	mu   sync.Mutex
	said []string
}

func (o *onError) note(name string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.said = append(o.said, fmt.Sprint(name, ": ", err))
}

func (o *onError) all() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.said
}

// TestDatabaseThatCannotBeShippedIsKept: it is not closed, it is tried again less and less often, used in between, and closed when the store answers.
func TestDatabaseThatCannotBeShippedIsKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, suspend := range []bool{false, true} {
			a, store := faultyAccount(t)
			o := a.machine()
			o.SyncTimeout = time.Second
			c := newClient(t, o)
			var said onError
			r := tonbo.NewRegistry(c, creating(c, tonbo.RegistryOptions{MaxOpen: 1, MaxIdle: time.Minute, Suspend: suspend, OnError: said.note}))
			var generation uint64
			use(t, r, "run", func(ctx context.Context, db *tonbo.DB) error {
				generation = db.Status().Generation
				return put(1)(ctx, db)
			})
			store.Partition(true)
			time.Sleep(30 * time.Minute)
			synctest.Wait()
			s := r.Stats()
			if s.Open != 1 || s.Kept != 1 || s.Expired != 0 || s.FailedCloses < 20 || s.FailedCloses > 40 {
				t.Errorf("the store is away: %+v", s)
			}
			if got := said.all(); len(got) != int(s.FailedCloses) || !strings.Contains(got[0], "run") || !strings.Contains(got[0], "call Synced again") {
				t.Errorf("OnError: %v", got)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			err := r.Use(ctx, "another", nothing)
			cancel()
			wantIs(t, "there is no place", err, tonbo.ErrLimit)
			if err == nil || !strings.Contains(err.Error(), "could not be closed") {
				t.Errorf("got %v", err)
			}
			use(t, r, "run", func(ctx context.Context, db *tonbo.DB) error { // goes on
				if got := db.Status().Generation; got != generation {
					t.Errorf("generation %d, was %d", got, generation)
				}
				return put(2)(ctx, db)
			})
			store.Partition(false)
			ctx, cancel = context.WithTimeout(t.Context(), 5*time.Minute)
			err = r.Use(ctx, "another", nothing)
			cancel()
			if err != nil {
				t.Error(err)
			}
			if err := exportRows(t, c, "run", 2); err != nil {
				t.Error(err)
			}
			if s := r.Stats(); s.Kept != 0 || s.Evicted+s.Expired != 1 {
				t.Errorf("the store is back: %+v", s)
			}
			use(t, r, "run", nothing)
			if err := r.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestShippedByItsUserItIsIdleAgain: what could not be closed is an idle database like others once its user has had it acknowledged.
func TestShippedByItsUserItIsIdleAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, store := faultyAccount(t)
		c := newClient(t, a.machine())
		r := tonbo.NewRegistry(c, creating(c, tonbo.RegistryOptions{MaxIdle: time.Minute}))
		use(t, r, "run", put(1))
		store.Partition(true)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		store.Partition(false)
		if s := r.Stats(); s.Kept != 1 {
			t.Errorf("%+v", s)
		}
		use(t, r, "run", func(ctx context.Context, db *tonbo.DB) error { return db.Synced(ctx) })
		if s := r.Stats(); s.Kept != 0 || s.Open != 1 {
			t.Errorf("%+v", s)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if s := r.Stats(); s.Open != 0 || s.Expired != 1 {
			t.Errorf("%+v", s)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestDatabaseThatWasTakenOverIsOpenedAnew at its next use, and not while others use it; what it had not shipped is set aside, and OnError is told.
func TestDatabaseThatWasTakenOverIsOpenedAnew(t *testing.T) {
	a := newAccount(t)
	var said onError
	r, c := newRegistry(t, a.machine(), tonbo.RegistryOptions{OnError: said.note})
	use(t, r, "run", func(ctx context.Context, db *tonbo.DB) error {
		return errors.Join(put("shipped")(ctx, db), db.Synced(ctx))
	})
	use(t, r, "run", put("set aside"))
	other := open(t, "run", a.machine())
	exec(t, other, "INSERT INTO t VALUES('of the other')")
	synced(t, other)
	closeDB(t, other)
	use(t, r, "run", func(ctx context.Context, db *tonbo.DB) error {
		wantIs(t, "fenced", db.Synced(ctx), tonbo.ErrFenced)
		wantIs(t, "while another one uses it", r.Use(t.Context(), "run", nothing), tonbo.ErrFenced)
		return r.Use(ctx, "run", func(_ context.Context, same *tonbo.DB) error {
			if same.DB != db.DB {
				t.Error("another handle within")
			}
			return nil
		})
	})
	use(t, r, "run", func(ctx context.Context, db *tonbo.DB) error {
		if got := rows(t, db, "SELECT x FROM t ORDER BY rowid"); got != "shipped of the other" {
			t.Errorf("got %s", got)
		}
		return db.Synced(ctx)
	})
	for end := time.Now().Add(10 * time.Second); len(said.all()) == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) { // in a goroutine of its own
	}
	if got := said.all(); len(got) != 1 || !strings.Contains(got[0], ".lost") && !strings.Contains(got[0], "not shipped") {
		t.Errorf("OnError: %v", got)
	}
	if s := r.Stats(); s.Replaced != 1 || s.Open != 1 {
		t.Errorf("%+v", s)
	}
	// Closed or deleted by its user, it is opened anew, too.
	use(t, r, "run", func(_ context.Context, db *tonbo.DB) error { return db.Close() })
	use(t, r, "run", func(ctx context.Context, db *tonbo.DB) error { return db.Suspend(ctx) })
	use(t, r, "run", func(_ context.Context, db *tonbo.DB) error {
		if !db.Status().ColdStart {
			t.Error("suspended, and not cold")
		}
		return c.Delete(t.Context(), "run")
	})
	use(t, r, "run", func(ctx context.Context, db *tonbo.DB) error {
		wantIs(t, "deleted", db.Synced(ctx), tonbo.ErrDeleted)
		return nil
	})
	use(t, r, "run", func(_ context.Context, db *tonbo.DB) error { // Create has made another one
		if got := rows(t, db, "SELECT count(*) FROM t"); got != "0" {
			t.Errorf("got %s", got)
		}
		return nil
	})
}

// TestCloseOfARegistryWaitsForItsUses, refuses new ones, and names what it could not ship.
func TestCloseOfARegistryWaitsForItsUses(t *testing.T) {
	a := newAccount(t)
	c := newClient(t, a.machine())
	r := tonbo.NewRegistry(c, creating(c, tonbo.RegistryOptions{}))
	closed := make(chan error)
	use(t, r, "run", func(ctx context.Context, db *tonbo.DB) error {
		if err := r.Close(ctx); err == nil {
			t.Error("closed from within a Use")
		}
		go func() { closed <- r.Close(context.WithoutCancel(t.Context())) }()
		for !errors.Is(r.Use(t.Context(), "run", nothing), tonbo.ErrClosed) {
			time.Sleep(time.Millisecond)
		}
		select {
		case err := <-closed:
			t.Errorf("closed under a use: %v", err)
		default:
		}
		return put(1)(ctx, db)
	})
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := r.Close(t.Context()); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if err := exportRows(t, c, "run", 1); err != nil {
		t.Error(err)
	}
}

func TestCloseOfARegistryWhoseTimeIsOverClosesAll(t *testing.T) {
	a, store := faultyAccount(t)
	o := a.machine()
	c := newClient(t, o)
	r := tonbo.NewRegistry(c, creating(c, tonbo.RegistryOptions{}))
	for _, name := range []string{"idle", "shipped", "used"} {
		use(t, r, name, func(ctx context.Context, db *tonbo.DB) error { return errors.Join(put(1)(ctx, db), db.Synced(ctx)) })
	}
	use(t, r, "idle", put(2))
	leave := make(chan struct{})
	var g errgroup.Group
	begun := make(chan struct{})
	g.Go(func() error {
		return r.Use(t.Context(), "used", func(ctx context.Context, db *tonbo.DB) error {
			if err := put(2)(ctx, db); err != nil {
				return err
			}
			close(begun)
			<-leave
			return put(3)(ctx, db)
		})
	})
	<-begun
	store.Partition(true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := r.Close(ctx)
	wantIs(t, "Close", err, tonbo.ErrUnsynced)
	wantIs(t, "Close", err, context.DeadlineExceeded)
	for _, want := range []string{"database idle: ", "database used: it was still in use", "database used: close"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "shipped:") {
		t.Errorf("all of it was shipped: %v", err)
	}
	close(leave)
	if err := g.Wait(); !isClosed(err) {
		t.Errorf("a COMMIT after Close: %v", err)
	}
	store.Partition(false)
	for _, name := range []string{"idle", "used"} { // nothing is lost
		db := open(t, name, o)
		if got := rows(t, db, "SELECT x FROM t"); got != "1 2" {
			t.Errorf("%s has %s", name, got)
		}
	}
}
