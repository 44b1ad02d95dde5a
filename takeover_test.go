//go:build unix

package tonbo_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
)

// afterRoundTrip are the steps at which a Synced (or a strict COMMIT) has had its round trip: stopped there, it may still return nil.
var afterRoundTrip = []string{"ship:appended", "cache:shipped:", "ship:recorded", "strict:appended", "strict:recorded", "vfs:commit-frame", "vfs:committed", "close:", "cache:clean:", "cache:rewrite:"}

// stopAt runs a scenario's process until it stops at a failpoint, takes the database over meanwhile, and lets it go on.
func (s *scenario) stopAt(t *testing.T, point string) {
	w := newWorld(t)
	dir := w.dir()
	if s.prepare != nil {
		s.prepare(w, dir)
	}
	j := s.job
	j.Dir = dir
	p := w.start(j, point+"@stop")
	select {
	case <-p.stopped:
	case <-time.After(time.Minute):
		t.Fatal("the process does not come there")
	}

	// (1) The takeover, with commits.
	other := w.dir()
	db, _ := w.open(other)
	gen := db.Status().Generation
	w.work(db, other, 3)

	// (2) The stopped process goes on, and has to find out.
	var before []event
	for len(p.events) > 0 {
		before = append(before, <-p.events)
	}
	p.continued = true
	resume(p.cmd.Process)
	after := p.wait()
	if len(said(after, "done")) != 1 {
		t.Errorf("the resumed process did not come to its end: %v", after)
	}
	owner := uint64(0) // the generation of the resumed process
	for _, e := range said(append(before, after...), "open") {
		owner = e.Gen
	}
	err := db.Synced(context.Background())
	if owner > gen { // it had not claimed yet, and took the database over in its turn
		if !errors.Is(err, tonbo.ErrFenced) {
			t.Errorf("Synced of the first to take over: %v", err)
		}
	} else {
		if err != nil {
			t.Errorf("Synced of the owner: %v", err)
		}
		may := 0
		for _, step := range afterRoundTrip {
			if strings.HasPrefix(point, step) {
				may = 1
			}
		}
		if acks := said(after, "ack"); len(acks) > may {
			t.Errorf("stopped at %s, and acknowledged after the takeover: %v", point, acks)
		}
		if late := !strings.HasPrefix(point, "close:") && !strings.HasPrefix(point, "cache:clean"); late && len(said(after, "fenced")) == 0 && len(said(after, "commit")) > 0 {
			t.Errorf("it was never told: %v", after)
		}
		w.work(db, other, 1)
	}

	// (3) Nothing of it stays.
	closeDB(t, db)
	w.final(dir, other)
}

// TestStoppedAcrossATakeover stops a process at each failpoint, lets another take over, and then lets the first go on.
func TestStoppedAcrossATakeover(t *testing.T) {
	for _, s := range scenarios {
		if s.foreign && s.name != "loser" { // the others have a takeover of their own, or nothing more to show
			continue
		}
		if s.job.Freeze || s.job.Promote != "" || s.job.Keys > 0 { // a frozen database is not taken over; what a promotion and an Ensure do then has tests of its own
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			names, _ := s.failpoints(t)
			for _, name := range names {
				t.Run(name, func(t *testing.T) { s.stopAt(t, name) })
			}
		})
	}
}

// TestOnlyTheLastOfManyOwnersCommits lets eight processes open one database in a loop: every acknowledged transaction is in the log, once.
func TestOnlyTheLastOfManyOwnersCommits(t *testing.T) {
	w := newWorld(t)
	var dirs []string
	var wg sync.WaitGroup
	for i := range 8 {
		dir := w.dir()
		dirs = append(dirs, dir)
		p := w.start(job{Dir: dir, Steps: 1 + i%3, Sync: 1 + i%2, Loop: soak(3 * time.Second), Pause: 200 * time.Millisecond, Close: true}, "")
		wg.Go(func() { p.wait() })
	}
	wg.Wait()
	found := w.final(dirs...)
	t.Logf("%d generations, %d transactions in the log, %d tried, %d acknowledgements, %d processes fenced", len(w.gens), len(found), len(w.tried), len(w.acked), w.fences)
	if len(w.acked) == 0 || w.fences == 0 {
		t.Error("nothing was acknowledged, or nobody fenced")
	}
}

// A background Synced may be the first to be told: Close says it again, since nil would mean that the remote has everything.
func TestCloseNamesWhatWasSetAsideBefore(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine())
	exec(t, db, "CREATE TABLE t(v)")
	other := open(t, "run", a.machine())
	exec(t, other, "CREATE TABLE u(v)")
	synced(t, other)
	if err := db.Synced(context.Background()); !errors.Is(err, tonbo.ErrFenced) {
		t.Fatalf("Synced: %v", err)
	}
	var fe *tonbo.FencedError
	if err := db.Close(); !errors.As(err, &fe) || fe.Lost == "" {
		t.Errorf("Close: %v", err)
	}
}
