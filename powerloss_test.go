package tonbo_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// outage is a life of one database on one machine whose power fails, and what is known of it.
type outage struct {
	dir     string
	disk    *tonbotest.Disk
	inner   *mem.Store
	durable bool // synchronous=FULL or EXTRA: a COMMIT that returned is on the disk
	o       tonbo.Options
	events  bytes.Buffer

	db      *tonbo.DB
	store   *tonbotest.Store
	history []commit          // COMMITs that were tried, in the order of the database
	commits int               // of these, how many returned nil
	acked   int               // of these, how many are acknowledged
	aside   map[string][]byte // files with commits that were set aside
	did     []string
	n       struct{ losses, kills, aside, acks int }
}

// newOutage is a database with the schema, acknowledged.
func newOutage(ctx context.Context, base string, seed uint64, spoil func(*tonbotest.Disk)) (*outage, error) {
	w := &outage{dir: filepath.Join(base, fmt.Sprint(seed)), inner: mem.New("test"), aside: map[string][]byte{}}
	rng := rand.New(rand.NewPCG(seed, 1))
	mode := []string{"full", "full", "normal", "extra", "off"}[rng.IntN(5)]
	w.durable = mode == "full" || mode == "extra"
	w.o = tonbo.Options{
		SyncTimeout: time.Minute, Logger: slog.New(slog.NewTextHandler(&w.events, &slog.HandlerOptions{Level: slog.LevelDebug})), SharedCache: -1,
		Pragmas: map[string]string{"wal_autocheckpoint": fmt.Sprint(8 + rng.IntN(40)), "cache_size": "12", "synchronous": mode},
	}
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return nil, err
	}
	var err error
	if w.disk, err = tonbotest.NewDisk(w.dir); err != nil {
		return nil, err
	}
	if spoil != nil {
		spoil(w.disk)
	}
	w.did = append(w.did, mode)
	err = func() error {
		if _, err := tonbo.Create(ctx, "run", w.options()); err != nil {
			return err
		}
		if err := w.open(ctx); err != nil {
			return err
		}
		if _, err := w.db.Exec(schema); err != nil {
			return err
		}
		if rng.IntN(6) == 0 { // too large to be fetched at once
			w.did = append(w.did, "large")
			if _, err := w.db.Exec("CREATE TABLE ballast(v); WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<350) INSERT INTO ballast SELECT zeroblob(3500) FROM s"); err != nil {
				return err
			}
		}
		return w.db.Synced(ctx)
	}()
	return w, err
}

func (w *outage) options() tonbo.Options {
	w.store = tonbotest.NewStore(w.inner)
	o := w.o
	o.Remote, o.Dir = w.store, w.disk.Dir()
	return o
}

func (w *outage) open(ctx context.Context) (err error) {
	w.db, err = tonbo.Open(ctx, "run", w.options())
	return err
}

// off lets go of everything, as a machine does that stops.
func (w *outage) off() {
	w.disk.Cut(0)
	w.store.Fail(tonbotest.Match{}, -1, remote.ErrDenied)
	if w.db != nil {
		w.db.Close()
	}
}

// work does one thing at random. false: the power has gone.
func (w *outage) work(ctx context.Context, rng *rand.Rand) bool {
	var err error
	switch op := rng.IntN(16); {
	case op < 9:
		c := commit{len(w.history) + 1, w.db.Status().Generation}
		w.did = append(w.did, fmt.Sprint(c.Seq))
		w.history = append(w.history, c)
		if err = step(w.db.DB, c, false); err == nil {
			w.commits = len(w.history)
		}
	case op == 9:
		w.did = append(w.did, "rollback")
		err = rollback(w.db.DB)
	case op <= 11:
		k := []int{2, 5, 8, 11}[rng.IntN(4)]
		w.did = append(w.did, []string{"", "", "passive", "", "", "restart", "", "", "truncate", "", "", "vacuum"}[k])
		err = housekeeping(w.db.DB, k)
	case op == 12 && rng.IntN(3) == 0:
		w.did = append(w.did, "close")
		n := w.commits
		err = w.db.Close()
		if err == nil {
			w.acked = n
			if err = w.open(ctx); err != nil {
				w.db = nil
			}
		}
	default:
		w.did = append(w.did, "synced")
		n := w.commits
		if err = w.db.Synced(ctx); err == nil {
			w.acked = n
			w.n.acks++
		}
	}
	if err != nil {
		w.did = append(w.did, "! "+err.Error())
	}
	return err == nil
}

// back looks at what is there after the outage.
func (w *outage) back(ctx context.Context, how string) error {
	if err := w.open(ctx); err != nil {
		w.db = nil
		return fmt.Errorf("open after %s: %w", how, err)
	}
	found, err := inspect(ctx, w.db.DB)
	if err != nil {
		return fmt.Errorf("after %s: %w", how, err)
	}
	if err := w.prefix(found); err != nil {
		return fmt.Errorf("after %s: %w", how, err)
	}
	if len(found) < w.acked {
		return fmt.Errorf("after %s: %d transactions, %d were acknowledged; %+v", how, len(found), w.acked, w.db.Status())
	}
	for path, want := range w.aside {
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			return fmt.Errorf("after %s: the commits set aside in %s are not there any more: %w", how, filepath.Base(path), err)
		}
	}
	have := len(found)
	if lost := w.db.Status().Lost; lost != "" && w.aside[lost] == nil {
		b, err := os.ReadFile(lost)
		if err != nil {
			return err
		}
		w.aside[lost] = b
		w.n.aside++
		also, err := inspectFile(ctx, lost)
		if err == nil {
			err = w.prefix(also)
		}
		switch {
		case err == nil:
			have = max(have, len(also))
		case w.durable:
			return fmt.Errorf("after %s: what was set aside: %w", how, err)
		}
	}
	if w.durable && have < w.commits {
		return fmt.Errorf("after %s: %d transactions, here or set aside (%q), and %d COMMITs had returned with synchronous=FULL", how, have, w.db.Status().Lost, w.commits)
	}
	w.events.Reset()
	w.history, w.commits = found, len(found)
	return nil
}

// prefix tells whether found is the beginning of the history.
func (w *outage) prefix(found []commit) error {
	if len(found) > len(w.history) || !slices.Equal(found, w.history[:len(found)]) {
		return fmt.Errorf("%v is no prefix of what was committed: %v", found, w.history)
	}
	return nil
}

// outages lives a life by a seed. spoil, when set, breaks the disk.
func outages(ctx context.Context, base string, seed uint64, spoil func(*tonbotest.Disk)) (w *outage, err error) {
	w, err = newOutage(ctx, base, seed, spoil)
	if w != nil && w.disk != nil {
		defer func() {
			w.off()
			w.disk.Close()
			os.RemoveAll(w.dir)
		}()
	}
	if err != nil {
		return w, err
	}
	rng := rand.New(rand.NewPCG(seed, 2))
	for range 5 {
		if rng.IntN(4) > 0 {
			w.disk.Cut(rng.IntN(1 << (2 + rng.IntN(7))))
		}
		for n := 1 + rng.IntN(25); n > 0 && w.work(ctx, rng); n-- {
		}
		w.off()
		how := "a kill"
		switch rng.IntN(5) {
		case 0:
			w.n.kills++
			w.disk.Restart()
		case 1:
			how = "a loss of writes without a restart"
			w.n.losses++
			err = w.disk.Lose(rng.Uint64())
		default:
			how = "a power cut"
			w.n.losses++
			err = w.disk.PowerLoss(rng.Uint64())
		}
		w.did = append(w.did, how)
		if err == nil {
			err = w.back(ctx, how)
		}
		if err != nil {
			return w, err
		}
	}
	// The next machine has what was acknowledged, and no more than was shipped.
	if err := w.db.Synced(ctx); err != nil {
		return w, err
	}
	w.acked = w.commits
	w.off()
	if err := errors.Join(os.RemoveAll(w.dir), os.MkdirAll(w.dir, 0o700), w.disk.PowerLoss(seed)); err != nil {
		return w, err
	}
	clear(w.aside)
	w.durable = false
	return w, w.back(ctx, "the loss of the disk")
}

// TestPowerLossLosesNothingAcknowledged: lives with every kind of commit, checkpoint and shipment in them, in which the power fails at any change of any file. Whatever part of what was not synced is on the
// disk then: what was acknowledged is there; the database is a prefix of what was committed, and sound; with synchronous=FULL every COMMIT that returned is there or set aside, in
// a file that is sound; what was set aside before stays.
func TestPowerLossLosesNothingAcknowledged(t *testing.T) {
	seeds := simSeeds(15)
	base := t.TempDir()
	var acks, losses, kills, aside int
	for seed := uint64(1); seed <= seeds; seed++ {
		w, err := outages(t.Context(), base, seed, nil)
		if err != nil {
			t.Fatalf("seed %d: %v\n%v\n%s", seed, err, w.did, w.events.String())
		}
		acks, losses, kills, aside = acks+w.n.acks, losses+w.n.losses, kills+w.n.kills, aside+w.n.aside
	}
	t.Logf("%d seeds: %d acknowledgements, %d losses of what was not synced, %d kills, %d files set aside", seeds, acks, losses, kills, aside)
}

// TestFsyncsThatAreLeftOutAreFound: with any one of the fsyncs on which the local copy stands left out, the same lives show it.
func TestFsyncsThatAreLeftOutAreFound(t *testing.T) {
	for name, m := range map[string]tonbotest.DiskMatch{
		"the new state, before it is renamed":      {Op: tonbotest.FileSync, File: "state.tmp"},
		"the directory of the local copy":          {Op: tonbotest.DirSync, File: "run"},
		"the directory of local copies":            {Op: tonbotest.DirSync, File: "[0-9]*"},
		"what is spilled, before the log is reset": {Op: tonbotest.FileSync, File: "state"},
		"the write-ahead log":                      {Op: tonbotest.FileSync, File: "db-wal"},
		"the database":                             {Op: tonbotest.FileSync, File: "db"},
		"what is set aside":                        {Op: tonbotest.FileSync, File: "*.lost-*"},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			for seed := uint64(1); seed <= 1000; seed++ {
				if _, err := outages(t.Context(), base, seed, func(d *tonbotest.Disk) { d.Lie(m, -1) }); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Error("not found in 1000 lives")
		})
	}
}

// TestDiskThatFailsAtAnyChangeLosesNothing: one change of a file fails, or is made in part, or finds no room: what was acknowledged is in the remote, the directory opens again, and
// holds what was committed or a prefix of it.
func TestDiskThatFailsAtAnyChangeLosesNothing(t *testing.T) {
	for name, set := range map[string]func(d *tonbotest.Disk, n int){
		"I/O error":          func(d *tonbotest.Disk, n int) { d.Fail(tonbotest.DiskMatch{Skip: n}, 1, nil) },
		"I/O error for ever": func(d *tonbotest.Disk, n int) { d.Fail(tonbotest.DiskMatch{Skip: n}, -1, nil) },
		"torn write":         func(d *tonbotest.Disk, n int) { d.Tear(tonbotest.DiskMatch{Op: tonbotest.FileWrite, Skip: n}, 1) },
		"full":               func(d *tonbotest.Disk, n int) { d.Room(int64(n) * 1500) },
	} {
		t.Run(name, func(t *testing.T) {
			for n := 1; n < 200; n += 9 {
				if raceEnabled && n%3 != 0 {
					continue
				}
				dir := t.TempDir()
				disk, err := tonbotest.NewDisk(dir)
				if err != nil {
					t.Fatal(err)
				}
				set(disk, n)
				a := newAccount(t)
				o := tonbo.Options{Remote: a.store, Dir: disk.Dir(), SyncTimeout: 5 * time.Second, SharedCache: -1}
				var r run
				r.live(t.Context(), o, false)
				disk.Heal()
				what := fmt.Sprintf("%s at %d", name, n)
				r.check(t, what, a.store)
				db, err := tonbo.Open(t.Context(), "run", o)
				if err == nil {
					integrity(t, db)
					closeDB(t, db)
				} else if !errors.Is(err, tonbo.ErrNotFound) {
					t.Errorf("%s: open in the same directory: %v; errors: %v", what, err, r.errs)
				}
				disk.Close()
			}
		})
	}
}
