package tonbo_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// Goroutines on two machines ensure one key, commit, sync, take steps, reopen and close, while answers are lost.
func TestLeasesOfTwoMachinesAcknowledgeNothingThatIsLost(t *testing.T) {
	for _, mode := range []string{"plain", "strict", "syncevery"} {
		t.Run(mode, func(t *testing.T) {
			ctx := context.Background()
			a := newAccount(t)
			var seq atomic.Int64
			var mu sync.Mutex
			acked := map[string]string{}
			end := time.Now().Add(soak(time.Second))
			var wg sync.WaitGroup
			seed := newClient(t, a.machine())
			in, err := seed.Instances().Ensure(ctx, "k", tonbo.EnsureOptions{})
			if err != nil {
				t.Fatal(err)
			}
			exec(t, in.DB, "CREATE TABLE t(x PRIMARY KEY)")
			closeDB(t, in.DB)
			for m := range 2 {
				o := a.machine()
				st := tonbotest.NewStore(a.store)
				o.Remote = st
				o.SyncTimeout = time.Second
				o.Strict = mode == "strict"
				if mode == "syncevery" {
					o.SyncEvery = time.Millisecond
				}
				o.Pragmas = map[string]string{"busy_timeout": "300"}
				c, err := tonbo.NewClient(o)
				if err != nil {
					t.Fatal(err)
				}
				for w := range 4 {
					wg.Go(func() {
						r := rand.New(rand.NewPCG(uint64(m), uint64(w)))
						for time.Now().Before(end) {
							if r.IntN(8) == 0 {
								st.DropAnswer(tonbotest.Match{Key: "db/k/log/", Skip: r.IntN(4)}, 1)
							}
							octx, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(800)+20)*time.Millisecond)
							in, err := c.Instances().Ensure(octx, "k", tonbo.EnsureOptions{})
							if err != nil {
								cancel()
								continue
							}
							ids := []string{}
							for range r.IntN(3) + 1 {
								id := fmt.Sprint(seq.Add(1))
								if _, err := in.DB.ExecContext(octx, "INSERT INTO t VALUES(?)", id); err == nil {
									ids = append(ids, id)
									if mode == "strict" {
										mu.Lock()
										acked[id] = "strict commit"
										mu.Unlock()
									}
								}
							}
							if r.IntN(4) == 0 {
								time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
							}
							how := ""
							switch r.IntN(5) {
							case 0:
								how, err = "synced", in.DB.Synced(octx)
							case 1:
								how = "step"
								id := fmt.Sprint(seq.Add(1))
								_, err = in.DB.Step(octx, "th", id, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
									_, err := tx.Exec("INSERT INTO t VALUES(?)", id)
									return nil, err
								})
								ids = []string{id}
							case 2:
								if err = in.DB.Reopen(octx); err == nil {
									how, err = "reopen, synced", in.DB.Synced(octx)
								}
							case 3:
								how, err = "close", in.DB.Close()
							default:
								err = context.Canceled
							}
							if err == nil {
								mu.Lock()
								for _, id := range ids {
									acked[id] = how
								}
								mu.Unlock()
							}
							in.DB.Close()
							cancel()
						}
					})
				}
			}
			wg.Wait()
			ro, err := tonbo.OpenReadOnly(ctx, "k", a.machine())
			if err != nil {
				t.Fatal(err)
			}
			defer ro.Close()
			have := map[string]bool{}
			for _, x := range strings.Fields(rows(t, ro.DB, "SELECT x FROM t")) {
				have[x] = true
			}
			lost := map[string]int{}
			for id, how := range acked {
				if !have[id] {
					lost[how]++
				}
			}
			t.Logf("%d tried, %d acked, %d there", seq.Load(), len(acked), len(have))
			if len(lost) > 0 {
				t.Errorf("acknowledged and lost: %v", lost)
			}
		})
	}
}

func TestOptionsThatCannotBeTouchNoKey(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	c := a.client()
	bad := tonbo.CreateOptions{ExpiresAt: time.Now().Add(-time.Hour)}
	_, err := c.Instances().Ensure(ctx, "k", tonbo.EnsureOptions{Create: bad})
	wantIs(t, "Ensure", err, tonbo.ErrInvalid)
	_, err = c.Instances().Replace(ctx, "k", tonbo.ReplaceOptions{Create: bad})
	wantIs(t, "Replace", err, tonbo.ErrInvalid)
	_, err = c.Instances().Ensure(ctx, "k", tonbo.EnsureOptions{Template: "nobody"})
	wantIs(t, "no template", err, tonbo.ErrNotFound)
	if in := ensure(t, c, "k", tonbo.EnsureOptions{}); in.Generation != 1 || in.Name != "k" || in.Started != tonbo.Created {
		t.Errorf("after that: %+v", in)
	}
}

// RestartingError says that Replace is a way out: it is.
func TestDamagedDatabaseCanBeReplaced(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	damaged(t, a, "k")
	c := a.client()
	if _, err := c.Instances().Ensure(ctx, "k", tonbo.EnsureOptions{}); !errors.Is(err, tonbo.ErrRestarting) {
		t.Fatalf("damaged: %v", err)
	}
	next, err := c.Instances().Replace(ctx, "k", tonbo.ReplaceOptions{})
	if err != nil || next.Generation != 2 {
		t.Fatalf("%+v, %v", next, err)
	}
	if got := ensure(t, c, "k", tonbo.EnsureOptions{}); got.DatabaseID != next.DatabaseID {
		t.Errorf("%+v", got)
	}
}

// A Replace that finds another's intent brings that to its end first: what it made is then what is frozen.
func TestReplaceBehindAnIntentFreezesWhatThatMade(t *testing.T) {
	ctx := context.Background()
	a := newAccount(t)
	store := tonbotest.NewStore(a.store)
	o := a.machine()
	o.Remote = store
	first := newClient(t, o)
	gate := store.Block(tonbotest.Match{Op: tonbotest.Create, Key: "/log/"}) // behind its intent
	done := make(chan *tonbo.Instance)
	go func() {
		in, err := first.Instances().Ensure(ctx, "k", tonbo.EnsureOptions{})
		if err != nil {
			t.Error(err)
		}
		done <- in
	}()
	if err := gate.Wait(ctx, 1); err != nil {
		t.Fatal(err)
	}
	next, err := a.client().Instances().Replace(ctx, "k", tonbo.ReplaceOptions{})
	if err != nil || next.Generation != 2 {
		t.Fatalf("%+v, %v", next, err)
	}
	gate.Open()
	if in := <-done; in != nil {
		if in.DatabaseID != next.DatabaseID {
			t.Errorf("the first one has %+v, the key %+v", in, next)
		}
		in.DB.Close()
	}
	writable := 0
	for d, err := range a.client().List(ctx, tonbo.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if !d.Frozen {
			writable++
		}
	}
	if writable != 1 {
		t.Errorf("%d databases can be written", writable)
	}
}
