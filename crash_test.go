package tonbo_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
)

// A scenario is a state of the world in which a process is run that passes many failpoints.
type scenario struct {
	name    string
	prepare func(w *world, dir string) // makes dir what the process finds
	job     job
	only    string         // failpoints whose names begin with this: the others have their place in another scenario
	after   func(w *world) // puts right what the process left, before the database is opened again
	foreign bool           // others take the database over meanwhile: what is committed in dir may end up set aside
}

var scenarios = []scenario{
	{name: "fresh", job: job{Steps: 26, Sync: 3, Large: true, Close: true}},
	{name: "warm", job: job{Steps: 8, Sync: 4, Close: true}, prepare: func(w *world, dir string) {
		w.start(job{Dir: dir, Steps: 4, Sync: 2, Close: true}, "").wait()
	}},
	{name: "compact", only: "compact:", job: job{Steps: 25, Sync: 3, Large: true, Compact: true, Close: true}},
	{name: "packing", only: "compact:", job: job{Steps: 25, Sync: 3, Packing: 100, Compact: true, Close: true}, prepare: func(w *world, dir string) {
		w.ballastOf(2000) // a VACUUM fits into an entry
		w.start(job{Dir: dir, Steps: 12, Sync: 3, Packing: 100, Compact: true, Close: true}, "").wait()
	}},
	{name: "step", only: "step:", job: job{Steps: 4, Exactly: true, Close: true}},
	{name: "promote", only: "promote:", prepare: (*world).changes, job: job{Promote: changesFile, Steps: 2, Close: true}},
	{name: "ensure", only: "ensure:", job: job{Keys: 1, Callers: 1}},
	{name: "replace", only: "replace:", job: job{Keys: 1, Callers: 1, Replace: true}},
	{name: "lazy", job: job{Steps: 12, Sync: 3, Lazy: true, Close: true}, prepare: (*world).ballast},
	{name: "resumed", only: "hydrate:", job: job{Steps: 4, Sync: 3, Lazy: true, Close: true}, prepare: func(w *world, dir string) {
		w.ballast(dir)
		w.start(job{Dir: dir, Steps: 4, Sync: 3, Lazy: true}, "hydrate:recorded#4").wait()
	}},
	{name: "strict", job: job{Steps: 4, Strict: true, Close: true}},
	{name: "recover", job: job{Steps: 3, Sync: 2, Close: true}, prepare: func(w *world, dir string) {
		w.start(job{Dir: dir, Steps: 10, Sync: 7}, "").wait() // killed, with commits that were not shipped
	}},
	{name: "unrecorded", job: job{Steps: 3, Sync: 2, Close: true}, prepare: func(w *world, dir string) {
		w.start(job{Dir: dir, Steps: 9, Sync: 4}, "cache:shipped:append#2").wait() // killed, with an entry whose answer it did not note down
	}},
	{name: "behind", foreign: true, job: job{Steps: 3, Sync: 2, Close: true}, prepare: func(w *world, dir string) {
		w.start(job{Dir: dir, Steps: 4, Sync: 2, Close: true}, "").wait()
		w.elsewhere(3)
	}},
	{name: "loser", foreign: true, job: job{Steps: 3, Sync: 2, Close: true}, prepare: func(w *world, dir string) {
		w.start(job{Dir: dir, Steps: 7, Sync: 3}, "").wait()
		w.elsewhere(3)
	}},
	{name: "janitor", job: job{Janitor: true}, prepare: func(w *world, dir string) {
		w.ballast(dir)
		w.start(job{Dir: dir, Steps: 2, Sync: 2, Close: true}, "").wait()
	}},
	{name: "freeze", job: job{Freeze: true}, after: (*world).thaw, prepare: func(w *world, dir string) {
		w.start(job{Dir: dir, Steps: 4, Sync: 2, Close: true}, "").wait()
	}},
	{name: "fenced", foreign: true, job: job{Steps: 8, Sync: 4, Wait: 6, Close: true}},
}

// thaw makes sure that the database can be opened.
func (w *world) thaw() {
	w.t.Helper()
	c, err := tonbo.NewClient(w.options(w.dir()))
	if err == nil {
		err = c.Thaw(context.Background(), worldName)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// ballast makes the database too large to be fetched at once.
func (w *world) ballast(string) { w.ballastOf(6000) }

func (w *world) ballastOf(kilobytes int) {
	w.t.Helper()
	dir := w.dir()
	db, _ := w.open(dir)
	exec1(w.t, db, "CREATE TABLE ballast(id INTEGER PRIMARY KEY, v BLOB)")
	exec1(w.t, db, fmt.Sprintf("WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<%d) INSERT INTO ballast(v) SELECT randomblob(1000) FROM s", kilobytes))
	synced(w.t, db)
	w.work(db, dir, 2)
	closeDB(w.t, db)
}

// elsewhere takes the database over on a new machine, works, and leaves.
func (w *world) elsewhere(n int) {
	w.t.Helper()
	dir := w.dir()
	db, _ := w.open(dir)
	w.work(db, dir, n)
	closeDB(w.t, db)
}

// play runs a scenario's process in dir, with a fault.
func (s *scenario) play(w *world, dir, fault string) (*process, []event) {
	w.t.Helper()
	if s.prepare != nil {
		s.prepare(w, dir)
	}
	j := s.job
	j.Dir = dir
	p := w.start(j, fault)
	var events []event
	if j.Wait > 0 {
		e, ok := p.until("wait")
		if events = e; ok {
			w.elsewhere(2)
			p.in.Write([]byte("\n"))
		}
	}
	return p, append(events, p.wait()...)
}

// failpoints lists the failpoints that a scenario passes, each once, and with how often.
func (s *scenario) failpoints(t *testing.T) ([]string, map[string]int) {
	w := newWorld(t)
	dir := w.dir()
	p, events := s.play(w, dir, "?")
	if len(said(events, "done")) != 1 {
		t.Fatalf("%s: the process did not come to its end: %v\n%s", s.name, events[max(0, len(events)-5):], p.trace.String())
	}
	if !s.foreign {
		w.kept(dir)
	}
	w.final(dir)
	return p.failpoints(s.only)
}

// failpoints lists those that a process has passed, each once and with how often, if their names begin with only.
func (p *process) failpoints(only string) (names []string, times map[string]int) {
	times = map[string]int{}
	for line := range strings.Lines(p.trace.String()) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "failpoint "); ok && strings.HasPrefix(name, only) {
			if times[name]++; times[name] == 1 {
				names = append(names, name)
			}
		}
	}
	return names, times
}

// TestKilledAtEveryFailpoint kills a process at each step of open, commit, shipping, writing state and close, with the disk kept and with it lost.
func TestKilledAtEveryFailpoint(t *testing.T) {
	var mu sync.Mutex
	passed := map[string]bool{}
	ran := 0
	t.Cleanup(func() { // the subtests run in parallel, and have ended now
		if ran < len(scenarios) { // some were not asked for
			return
		}
		for name, file := range failpointsInSource(t) {
			if !passed[name] && !t.Failed() && !ofControlPlane(name) {
				t.Errorf("no scenario passes the failpoint %s of %s", name, file)
			}
		}
	})
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			names, times := s.failpoints(t)
			mu.Lock()
			ran++
			for _, name := range names {
				passed[name] = true
			}
			mu.Unlock()
			for i, name := range names {
				at := name
				if n := times[name]; n > 1 && i%2 == 1 {
					at = fmt.Sprintf("%s#%d", name, (n+2)/2)
				}
				t.Run(at, func(t *testing.T) {
					w := newWorld(t)
					dir := w.dir()
					_, events := s.play(w, dir, at)
					if len(said(events, "done")) > 0 {
						t.Fatal("the process came to its end")
					}
					if s.after != nil {
						s.after(w)
					}
					if w.store == nil {
						w.apart(func() { w.final() }) // the disk is lost
					} else if i%2 == 0 {
						w.final()
						return
					}
					if !s.foreign {
						w.kept(dir)
					}
					w.final(dir)
				})
			}
		})
	}
}

// failpointsInSource finds the failpoints, and where they are. (Those of the cache directory's steps that are put together from two words are not among them.)
func failpointsInSource(t *testing.T) map[string]string {
	found := map[string]string{}
	for _, pattern := range []string{"*.go", "vfs/*.go", "cache/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`\bfault\("([a-z:-]+)"\)`).FindAllSubmatch(b, -1) {
				name := string(m[1])
				if strings.HasPrefix(pattern, "cache") {
					name = "cache:" + name
				}
				if !strings.HasSuffix(file, "_test.go") {
					found[name] = file
				}
			}
		}
	}
	return found
}

// soak is how long a loop runs: $TONBO_SOAK (a duration), or a short time.
func soak(short time.Duration) time.Duration {
	if d, err := time.ParseDuration(os.Getenv("TONBO_SOAK")); err == nil {
		return d
	}
	return short
}

// TestKilledAtEveryPageOfACheckpoint kills a process after each page that checkpoints write behind a VACUUM: the file is longer then than what has been
// written of it.
func TestKilledAtEveryPageOfACheckpoint(t *testing.T) {
	s := scenario{name: "checkpoint", job: job{Steps: 19, Sync: 9, Close: true}}
	_, times := s.failpoints(t)
	n := times["vfs:checkpoint"]
	for k := n / 3; k <= n; k++ {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			w := newWorld(t)
			dir := w.dir()
			s.play(w, dir, fmt.Sprintf("vfs:checkpoint#%d", k))
			w.kept(dir)
		})
	}
}
