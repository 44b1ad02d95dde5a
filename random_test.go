package tonbo_test

import (
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"
)

// tally adds up what a loop has seen.
type tally struct {
	mu                                             sync.Mutex
	killed, takeovers, acks, commits, worlds, lost int
}

// TestKilledAtAnyTime kills processes at random times under a workload of spills, checkpoints, VACUUM, large shipments and transactions that are rolled back,
// with the disk kept or lost; between that others take the database over, some while the process is stopped.
func TestKilledAtAnyTime(t *testing.T) {
	var sum tally
	end := time.Now().Add(soak(6 * time.Second))
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for round := 0; round == 0 || time.Now().Before(end) && !t.Failed(); round++ {
				t.Run("", func(t *testing.T) { randomLife(t, end, &sum) })
			}
		})
	}
	wg.Wait()
	t.Logf("%d databases, %d processes killed, %d takeovers, %d disks lost, %d commits, %d acknowledgements", sum.worlds, sum.killed, sum.takeovers, sum.lost, sum.commits, sum.acks)
}

// randomLife is the life of one database.
func randomLife(t *testing.T, end time.Time, sum *tally) {
	w := newWorld(t)
	large := rand.IntN(3) == 0
	home := w.dir()
	dirs := []string{home}
	alone := true // nobody else has had the database since home was left
	killed, takeovers, lost := 0, 0, 0
	for round := 0; round < 12 && (round < 2 || time.Now().Before(end)) && !t.Failed(); round++ {
		j := job{Dir: home, Steps: 1000, Large: large, Strict: rand.IntN(6) == 0, Checkpoints: rand.IntN(2) == 0}
		if rand.IntN(2) == 0 {
			j.Packing = 4 + rand.IntN(20)
		}
		if rand.IntN(2) == 0 {
			j.Beside = time.Duration(rand.IntN(20)+1) * time.Millisecond
		} else {
			j.Sync = 1 + rand.IntN(9)
		}
		if rand.IntN(5) == 0 {
			j.Steps, j.Close = rand.IntN(30), true
		}
		p := w.start(j, "")
		if rand.IntN(4) > 0 {
			p.until("open") // else it may die while it opens
		}
		time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
		if rand.IntN(4) == 0 && suspend(p.cmd.Process) {
			other := w.dir()
			dirs = append(dirs, other)
			db, _ := w.open(other)
			w.work(db, other, rand.IntN(5))
			if rand.IntN(2) == 0 {
				closeDB(t, db)
			}
			takeovers++
			alone = false
			resume(p.cmd.Process)
			time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
			closeDB(t, db)
		}
		p.kill()
		killed++
		switch rand.IntN(5) {
		case 0: // the disk is lost
			if err := os.RemoveAll(home); err != nil {
				t.Fatal(err)
			}
			dirs[0] = w.dir()
			home, alone = dirs[0], true
			lost++
		case 1, 2: // look at it
			db, found := w.open(home)
			if m := w.missing(home, found); alone && len(m) > 0 {
				t.Errorf("kept disk: lost %v", m)
			}
			if rand.IntN(2) == 0 {
				w.work(db, home, rand.IntN(3))
			}
			closeDB(t, db)
		case 3:
			if rand.IntN(2) == 0 {
				w.elsewhere(rand.IntN(4))
				takeovers++
				alone = false
			}
		} // otherwise the next process finds it as it is
	}
	w.final(dirs...)
	sum.mu.Lock()
	defer sum.mu.Unlock()
	sum.worlds++
	sum.killed += killed
	sum.takeovers += takeovers
	sum.lost += lost
	sum.acks += len(w.acked)
	sum.commits += len(w.committed)
}
