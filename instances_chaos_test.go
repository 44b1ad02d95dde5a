package tonbo_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// TestKeysComeThroughCutRequests: processes ensure, replace, release, bind, delete and sweep the same keys at once, while requests of theirs are refused, lost, or their answers are. Afterwards each key works, no two have one database, and no
// acknowledged step is missing from a database that lives. (A hundred and twenty seeds with TONBO_TEST_LARGE=1.)
func TestKeysComeThroughCutRequests(t *testing.T) {
	seeds := 2
	if os.Getenv("TONBO_TEST_LARGE") != "" {
		seeds = 120
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			cutRequests(t, uint64(seed))
		})
	}
}

// expected tells what cut requests and others at work on the same keys may lead to.
func expected(err error) bool {
	for _, e := range []error{
		tonbo.ErrUnsynced, tonbo.ErrFenced, tonbo.ErrForbidden, tonbo.ErrKeyBound, tonbo.ErrNotFound, tonbo.ErrTargetChanged, tonbo.ErrFrozen, tonbo.ErrDeleted, tonbo.ErrBusy, context.DeadlineExceeded, remote.ErrUnknown,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func cutRequests(t *testing.T, seed uint64) {
	ctx := t.Context()
	a := newAccount(t)
	base := a.client()
	for i := range 3 {
		a.create(fmt.Sprint("d", i))
	}
	keys := []string{"k0", "k1", "k2"}
	type ack struct{ db, id string }
	var mu sync.Mutex
	var acks []ack
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(w)))
			st := tonbotest.NewStore(a.store)
			o := a.machine()
			o.Remote = st
			o.SyncTimeout = 3 * time.Second
			c := newClient(t, o)
			in := c.Instances()
			var held []*tonbo.Instance
			for op := range 25 {
				if r.IntN(10) < 4 {
					m := tonbotest.Match{Skip: r.IntN(12)}
					switch r.IntN(3) {
					case 0:
						st.DropAnswer(m, 1)
					case 1:
						st.Lose(m, 1)
					case 2:
						st.Fail(m, 1, remote.ErrDenied)
					}
				}
				key := keys[r.IntN(len(keys))]
				octx, cancel := context.WithTimeout(ctx, 8*time.Second)
				var kind string
				var err error
				switch k := r.IntN(12); {
				case k < 6:
					kind = "ensure"
					var i *tonbo.Instance
					i, err = in.Ensure(octx, key, tonbo.EnsureOptions{Version: []string{"", "v1", "v2"}[r.IntN(3)]})
					if err == nil {
						held = append(held, i)
						id := fmt.Sprint(w, "-", op)
						_, serr := i.DB.Step(octx, "t", id, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
							_, err := tx.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS t(id TEXT)")
							if err == nil {
								_, err = tx.ExecContext(ctx, "INSERT INTO t VALUES(?)", id)
							}
							return nil, err
						})
						if serr == nil {
							mu.Lock()
							acks = append(acks, ack{i.DatabaseID, id})
							mu.Unlock()
						}
					}
				case k == 6:
					kind = "replace"
					ro := tonbo.ReplaceOptions{DeleteOld: r.IntN(2) == 0}
					if r.IntN(2) == 0 {
						ro.Template = "d1"
					}
					_, err = in.Replace(octx, key, ro)
				case k == 7:
					kind = "release"
					err = in.Release(octx, key)
				case k == 8:
					kind = "bind"
					_, err = in.Bind(octx, key, []string{"d0", "d1", "d2", "k0", "k1", "k1.g2"}[r.IntN(6)])
				case k == 9:
					kind = "delete"
					if i, gerr := in.Get(octx, key); gerr == nil {
						err = c.Delete(octx, i.Name)
					}
				case k == 10:
					kind = "sweep"
					_, err = c.Sweep(octx, tonbo.Janitor{})
				default:
					kind = "close"
					if len(held) > 0 {
						j := r.IntN(len(held))
						err = held[j].DB.Close()
						held = append(held[:j], held[j+1:]...)
					}
				}
				cancel()
				if err != nil && !expected(err) {
					t.Errorf("%s: %v", kind, err)
				}
			}
			st.Heal()
			for _, h := range held {
				if err := h.DB.Close(); err != nil && !expected(err) {
					t.Error("close:", err)
				}
			}
		})
	}
	wg.Wait()
	ids := map[string]string{}
	for _, k := range keys {
		i, err := base.Instances().Ensure(ctx, k, tonbo.EnsureOptions{})
		if errors.Is(err, tonbo.ErrFrozen) { // by a Replace whose template was deleted meanwhile
			i, err = base.Instances().Get(ctx, k)
		}
		if err != nil {
			t.Errorf("at the end %s: %v", k, err)
			continue
		}
		if other, has := ids[i.DatabaseID]; has {
			t.Errorf("keys %s and %s have %s", k, other, i.DatabaseID)
		}
		ids[i.DatabaseID] = k
		if i.DB != nil {
			closeDB(t, i.DB)
		}
	}
	live := map[string]string{}
	for d, err := range base.List(ctx, tonbo.Filter{State: tonbo.StateActive}) {
		if err != nil {
			t.Fatal(err)
		}
		live[d.ID] = d.Name
	}
	for id, name := range live {
		db, err := tonbo.OpenReadOnly(ctx, name, a.machine())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		have := map[string]int{}
		if rows, err := db.Query("SELECT id FROM t"); err == nil { // else it has no steps
			for rows.Next() {
				var step string
				if err := rows.Scan(&step); err != nil {
					t.Error(err)
				}
				if have[step]++; have[step] > 1 {
					t.Errorf("step %s of %s was taken twice", step, name)
				}
			}
			if err := rows.Err(); err != nil {
				t.Error(err)
			}
		}
		for _, k := range acks {
			if k.db == id && have[k.id] != 1 {
				t.Errorf("step %s of %s is lost", k.id, name)
			}
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}
