package tonbo_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// TestCrashImagesLoseNothing takes copies of the local disk, as a crash would leave it, at random moments of random work, many of them while a shipment is on its
// way that is stored or is not, and opens these: everything that was committed is there, and nothing is set aside.
func TestCrashImagesLoseNothing(t *testing.T) {
	end := time.Now().Add(soak(4 * time.Second))
	n, least := 0, uint64(25)
	if testing.Short() {
		least = 8
	}
	for seed := uint64(1); (seed <= least || time.Now().Before(end)) && !t.Failed(); seed++ {
		n += crashImages(t, seed)
	}
	t.Logf("%d images", n)
}

func crashImages(t *testing.T, seed uint64) (images int) {
	rng := rand.New(rand.NewPCG(seed, 0))
	ctx := t.Context()
	inner, base := mem.New("test"), t.TempDir()
	var events bytes.Buffer
	var did []string
	options := func(s *tonbotest.Store, dir string) tonbo.Options {
		o := tonbo.Options{Remote: s, Dir: dir, SyncTimeout: time.Minute, Logger: slog.New(slog.NewTextHandler(&events, nil)),
			Pragmas: map[string]string{"wal_autocheckpoint": "30", "cache_size": "12"}}
		if seed%2 == 0 {
			o = o.Tuned(5, time.Hour).Packing(1 << 20).UpperObjects()
		}
		return o
	}
	fatal := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("seed %d: %v\n%v\n%s", seed, err, did, events.String())
		}
	}
	s, dir := tonbotest.NewStore(inner), filepath.Join(base, "0")
	_, err := tonbo.Create(ctx, "run", options(s, dir))
	fatal(err)
	db, err := tonbo.Open(ctx, "run", options(s, dir))
	fatal(err)
	_, err = db.Exec(schema)
	fatal(err)
	fatal(db.Synced(ctx))

	hung := func() {}     // ends the shipment under way, without an answer
	answered := func() {} // lets it come to its end
	busy := false
	seq := 0
	for range 150 {
		op := rng.IntN(21)
		switch {
		case op == 20:
			fatal(db.Foretell())
			did = append(did, "foretell")
		case op < 10:
			seq++
			fatal(step(db.DB, commit{seq, db.Status().Generation}, false))
			did = append(did, fmt.Sprint(seq))
		case op == 10:
			fatal(rollback(db.DB))
			did = append(did, "rollback")
		case op <= 13:
			k := []int{2, 5, 8, 11}[rng.IntN(4)]
			fatal(housekeeping(db.DB, k))
			did = append(did, []string{"", "", "passive", "", "", "restart", "", "", "truncate", "", "", "vacuum"}[k])
		case op == 14 && !busy:
			fatal(db.Synced(ctx))
			did = append(did, "synced")
		case op <= 17 && !busy:
			busy = true
			log := tonbotest.Match{Op: tonbotest.Create, Key: "/log/"}
			if rng.IntN(3) > 0 {
				s.DropAnswer(log, 1)
				did = append(did, "stored")
			} else {
				s.Lose(log, 1)
				did = append(did, "unstored")
			}
			gate := s.Block(tonbotest.Match{})
			sctx, cancel := context.WithCancel(ctx)
			done := make(chan struct{})
			go func(db *tonbo.DB) {
				defer close(done)
				db.Synced(sctx)
			}(db)
			fatal(gate.Wait(ctx, 1))
			hung = func() { cancel(); <-done }
			answered = func() { s.Heal(); <-done; cancel() }
		case op == 14 && busy:
			answered()
			busy, hung = false, func() {}
			did = append(did, "answered")
		case op == 15 && !busy && rng.IntN(4) == 0: // on another machine
			fatal(db.Close())
			fatal(os.RemoveAll(dir))
			db, err = tonbo.Open(ctx, "run", options(s, dir))
			fatal(err)
			did = append(did, "moved")
		case op >= 18 && (busy || rng.IntN(4) == 0):
			images++
			image := filepath.Join(base, fmt.Sprint(images))
			fatal(os.CopyFS(image, os.DirFS(dir)))
			hung()
			did = append(did, "crash")
			next := tonbotest.NewStore(inner)
			db2, err := tonbo.Open(ctx, "run", options(next, image))
			fatal(err)
			s.Heal()
			db.Close()
			fatal(os.RemoveAll(dir))
			db, s, dir, busy, hung = db2, next, image, false, func() {}
			found, err := inspect(ctx, db.DB)
			fatal(err)
			if st := db.Status(); len(found) != seq || st.Lost != "" {
				fatal(fmt.Errorf("%d transactions of %d, cold start %t, set aside %q", len(found), seq, st.ColdStart, st.Lost))
			}
		}
	}
	hung()
	s.Heal()
	fatal(db.Close())
	cold, err := tonbo.Open(ctx, "run", options(tonbotest.NewStore(inner), filepath.Join(base, "cold")))
	fatal(err)
	defer cold.Close()
	if found, err := inspect(ctx, cold.DB); err != nil || len(found) != seq {
		fatal(fmt.Errorf("cold start: %d transactions of %d: %w", len(found), seq, err))
	}
	return images
}
