// Package sim runs the fence package's callers on a simulated object store, under a scheduler that decides everything from one seed.
//
// Every request of every actor is a point where any other actor may run, for as long as it likes. Requests are lost before they are applied, held and
// applied at any later time, applied with the answer lost, or applied and answered "exists" (a proxy's retry). Actors crash and pause between any two
// requests. One goroutine runs at a time and no clock is read, so a seed always gives the same run.
//
// Databases have three small pages, in real entries, segments and bases (content.go), and package gc collects what nothing needs.
//
// Beside the store stands the truth (truth.go): what the log and the pages would be if nothing were ever collected. No actor sees it; every answer that the
// packages give is held against it.
package sim

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/tonbo-go/tonbo/fence"
)

// Config is one run.
type Config struct {
	Seed  int64
	Mix   Mix
	Trace func(line string) // every step, when not nil

	Prepare func(*fence.Log) // is called with every log: must make it send one request after the other, may break a rule
	GC      string           // rule that package gc breaks
	Owners  string           // rule that the owners here break: see owners.go
	Readers string           // rule that the readers here break: see readers.go
	Keyed   string           // rule that callers with an idempotency key break: see package catalog
}

// Mix is who takes part.
type Mix struct {
	Names, Writers, Controllers, Rewinders, Collectors, Janitors int
	Steps                                                        int
	Busy                                                         bool // writers mostly publish bases and raise the horizon, and controllers mostly wait: holes for ghosts
	Churn                                                        bool // controllers create and delete in turn
	Wide                                                         bool // long pauses between a LIST and its GET, and between a look and what is put on it
	Forks                                                        bool // controllers mostly fork
	Readers                                                      int
	Torn                                                         bool // a LIST is no snapshot: it sees some keys as of one moment and the others as of a later one. Log slots have a grace that is longer
	Keyed                                                        int  // callers with idempotency keys: see keyed.go
	Ghosts                                                       bool // claims, rewinds and deletions die with their request on its way, and what is on its way waits for its slot to be collected; long pauses
	Home                                                         bool // forks come home: controllers fork the one name from the other, delete what has been forked, and fork it back; collectors sleep over an end
}

// Mixes are tried in turn, one a seed: many names; one contended log; create-delete-create; wide windows; forks; lazy readers; torn LISTs; ghosts; forks of forks
// back into the first one's name.
var Mixes = []Mix{
	{Names: 3, Writers: 3, Controllers: 2, Rewinders: 1, Collectors: 1, Janitors: 1, Steps: 600},
	{Names: 1, Writers: 3, Controllers: 1, Rewinders: 1, Collectors: 2, Steps: 600, Busy: true},
	{Names: 2, Writers: 1, Controllers: 3, Collectors: 1, Janitors: 2, Steps: 600, Churn: true},
	{Names: 1, Writers: 3, Controllers: 4, Rewinders: 1, Collectors: 4, Janitors: 1, Steps: 1600, Busy: true, Wide: true},
	{Names: 4, Writers: 3, Controllers: 4, Collectors: 3, Janitors: 2, Steps: 1200, Forks: true},
	{Names: 2, Writers: 3, Controllers: 1, Rewinders: 1, Collectors: 2, Janitors: 1, Readers: 4, Steps: 1200, Busy: true},
	{Names: 1, Writers: 3, Controllers: 2, Collectors: 4, Steps: 1600, Busy: true, Torn: true},
	{Names: 1, Writers: 2, Controllers: 6, Rewinders: 1, Collectors: 3, Readers: 8, Steps: 2000, Busy: true, Wide: true, Ghosts: true},
	{Names: 2, Writers: 2, Controllers: 4, Collectors: 8, Janitors: 4, Steps: 4000, Forks: true, Home: true},
}

// KeyedMix is for idempotency keys.
var KeyedMix = Mix{Names: 3, Writers: 1, Controllers: 2, Collectors: 1, Janitors: 2, Keyed: 4, Steps: 900, Churn: true}

// Indexes into Mixes.
const (
	WideWindows = 3
	Forks       = 4
	LazyReaders = 5
	TornLists   = 6
	Ghosts      = 7
	ForksHome   = 8
)

// Result is what a run found.
type Result struct {
	Violation string // "" none; else which promise was broken
	Detail    string
	Steps     int
	Stats     Stats
}

// Stats count what happened.
type Stats struct {
	Acks         int // Append, Check and Settle that said yes
	Incarnations int
	Claims       int
	Rewinds      int
	Deletes      int
	Voids        int
	Fenced       int // owners that were told
	Stored       int // of those, with their last append in the history (R4)
	Ghosts       int // entries that landed in a collected slot
	Collected    int // log slots
	Objects      int // segments and bases collected
	Forks        int
	LetGo        int // pins removed by a janitor or an owner
	Points       int // points whose pages were held against the truth
	Requests     int
	Crashes      int
	Keyed        int // calls with an idempotency key that said yes
	Replayed     int // of those, with a database that another call had made
	Gone         int // calls with one whose database had ended
	Reads        int // pages that lazy readers held against the truth
	Moves        int // of their snapshots, since an object was gone
	GhostReads   int // objects that they found in the place of the one meant
	Torn         int // LISTs that were no snapshot
	Late         int // told that the last append is not in the history, though it is: stored, collected, and a ghost in its place
}

// Add adds up.
func (s *Stats) Add(t Stats) {
	s.Acks += t.Acks
	s.Incarnations += t.Incarnations
	s.Claims += t.Claims
	s.Rewinds += t.Rewinds
	s.Deletes += t.Deletes
	s.Voids += t.Voids
	s.Fenced += t.Fenced
	s.Stored += t.Stored
	s.Ghosts += t.Ghosts
	s.Collected += t.Collected
	s.Objects += t.Objects
	s.Forks += t.Forks
	s.LetGo += t.LetGo
	s.Points += t.Points
	s.Requests += t.Requests
	s.Crashes += t.Crashes
	s.Keyed += t.Keyed
	s.Replayed += t.Replayed
	s.Gone += t.Gone
	s.Late += t.Late
	s.Reads += t.Reads
	s.Moves += t.Moves
	s.GhostReads += t.GhostReads
	s.Torn += t.Torn
}

// world is one run.
type world struct {
	c     Config
	rnd   *rand.Rand
	tick  int // counts applied requests
	store objects
	held  []request
	truth map[string]*history
	names []string
	calm  bool              // no faults and no switching: the end of the run
	asked map[fence.ID]bool // somebody asked for the end of this incarnation
	never map[fence.ID]bool // Abandon said that it will not come to be
	gone  map[nonce]bool    // entries that were refused for certain

	version uint32            // of the page written last
	changes map[uint64]change // by the payload's checksum: what it changes
	decoded map[string]*parts // by entity tag
	removed int               // objects deleted
	checked int               // removed, when the pages were last checked
	grace   time.Duration     // of collectors, in ticks
	floor   time.Duration     // of log slots
	keys    keys              // of the callers with idempotency keys
	stats   Stats
	what    string
	why     string
}

func (w *world) chance(n int) bool { return w.rnd.IntN(n) == 0 }

func (w *world) tracef(who, format string, args ...any) {
	if w.c.Trace != nil {
		w.c.Trace(fmt.Sprintf("%-4s ", who) + fmt.Sprintf(format, args...))
	}
}

// violated records the first broken promise; the run ends.
func (w *world) violated(what, format string, args ...any) {
	if w.what == "" {
		w.what, w.why = what, fmt.Sprintf(format, args...)
	}
	w.tracef("", "!!! %s: %s", what, fmt.Sprintf(format, args...))
}

// Run is one run from start to end.
func Run(c Config) Result {
	if c.Mix.Names == 0 {
		c.Mix = Mixes[int(uint64(c.Seed)%uint64(len(Mixes)))]
	}
	w := &world{
		c: c, rnd: rand.New(rand.NewPCG(uint64(c.Seed), 0x9e3779b97f4a7c15)),
		truth: map[string]*history{}, asked: map[fence.ID]bool{}, never: map[fence.ID]bool{}, gone: map[nonce]bool{},
		changes: map[uint64]change{}, decoded: map[string]*parts{}, grace: -1,
		keys: keys{of: map[fence.ID]int{}, made: map[int]fence.ID{}},
	}
	if w.chance(4) {
		w.grace = time.Duration(w.rnd.IntN(200)) * time.Second
	}
	if c.Mix.Torn {
		w.floor = longestList
	}
	for i := range c.Mix.Names {
		n := string(rune('a' + i))
		w.names = append(w.names, n)
		w.truth[n] = &history{}
	}
	var actors []*actor
	add := func(n int, role string, run func(*actor)) {
		for i := range n {
			a := newActor(w, fmt.Sprintf("%s%d", role, i), run)
			a.start()
			actors = append(actors, a)
		}
	}
	add(c.Mix.Writers, "W", (*actor).writer)
	add(c.Mix.Controllers, "C", (*actor).controller)
	add(c.Mix.Rewinders, "R", (*actor).rewinder)
	add(c.Mix.Collectors, "G", (*actor).collector)
	add(c.Mix.Janitors, "J", (*actor).janitor)
	add(c.Mix.Readers, "L", (*actor).reader)
	add(c.Mix.Keyed, "K", (*actor).keyed)

	steps := w.schedule(actors)
	for _, a := range actors {
		a.stop()
	}
	if w.what == "" {
		w.end()
	}
	return Result{Violation: w.what, Detail: w.why, Steps: steps, Stats: w.stats}
}

// schedule decides, step by step, who sends its next request, who falls asleep, who crashes, and when a held request lands.
func (w *world) schedule(actors []*actor) int {
	stay, land, die := 3, 8, 60
	if w.c.Mix.Busy {
		stay, land, die = 6, 25, 50
	}
	cur := 0
	asleep := make([]int, len(actors))
	for step := range w.c.Mix.Steps {
		if w.what != "" {
			return step
		}
		if i := w.next(land); i >= 0 {
			w.land(i)
		}
		if w.chance(stay) { // runs of one actor are likelier than a coin each step
			cur = w.rnd.IntN(len(actors))
		}
		a := actors[cur]
		if asleep[cur] > step {
			cur = w.rnd.IntN(len(actors))
			continue
		}
		switch {
		case w.chance(50):
			asleep[cur] = step + 20 + w.rnd.IntN(280)
			continue
		case a.dawdles():
			asleep[cur] = step + a.nap()
			continue
		case w.chance(die):
			a.crash = true
			w.stats.Crashes++
			w.tracef(a.name, "crash")
		}
		if _, more := a.next(); !more {
			a.start()
		}
		if w.chance(10) {
			w.check()
		}
		if w.removed != w.checked && w.chance(30) {
			w.checkPages()
		}
	}
	return w.c.Mix.Steps
}

// end lets every held request land, and then looks, without faults, whether everything is as the truth says and nothing half made or unneeded is left over.
func (w *world) end() {
	for len(w.held) > 0 {
		w.land(w.rnd.IntN(len(w.held)))
	}
	w.check()
	w.checkPages()
	w.calm = true
	if w.what != "" {
		return
	}
	a := newActor(w, "end", nil)
	for _, n := range w.names {
		a.tidy(n)
		a.lastOwner(n)
	}
	w.grace, w.floor = -1, 0
	for size, same := -1, 0; same < 2; { // chains of forks let go one after the other
		if same++; size != len(w.store) {
			size, same = len(w.store), 0
		}
		for _, n := range w.names {
			a.sweep(n)
		}
	}
	w.check()
	w.checkPages()
	w.checkRecords()
	w.checkLeaks()
}

// actor is a coroutine.
type actor struct {
	w       *world
	name    string
	run     func(*actor)
	next    func() (struct{}, bool)
	stop    func()
	yield   func(struct{}) bool
	crash   bool
	want    op // the request that it is about to send
	had     op // the one before
	waited  bool
	end     bool   // the entry that it read last ends an incarnation
	tearing bool   // in the middle of a LIST that is no snapshot
	cancel  func() // ends the context of the call under way

	drawn []nonce // random ids and nonces since somebody began to count

	seen map[string]ownership // who owned each name when this actor's last request there was applied
	logs map[string]*fence.Log
}

func newActor(w *world, name string, run func(*actor)) *actor {
	return &actor{w: w, name: name, run: run, stop: func() {}}
}

type crashed struct{}

func (a *actor) start() {
	a.stop()
	a.crash, a.tearing, a.end, a.want, a.had = false, false, false, none, none
	a.seen, a.logs = map[string]ownership{}, map[string]*fence.Log{}
	a.next, a.stop = iter.Pull(func(yield func(struct{}) bool) {
		a.yield = yield
		defer func() {
			if r := recover(); r != nil {
				if _, ok := r.(crashed); !ok {
					panic(fmt.Sprintf("%v\n%s", r, debug.Stack()))
				}
			}
		}()
		a.pause(none)
		a.run(a)
	})
}

// pause hands over to the scheduler before a request of kind want.
func (a *actor) pause(want op) {
	if a.w.calm {
		return
	}
	a.want, a.waited = want, false
	if !a.yield(struct{}{}) || a.crash {
		panic(crashed{})
	}
	a.had = want
}

// dawdles makes windows wide: this actor sleeps once before it reads what it listed, or puts something on what it read; with Forks, between a fork's
// steps, and between a collector's looks.
func (a *actor) dawdles() bool {
	m := a.w.c.Mix
	if a.tearing && !a.waited {
		a.waited = true
		return true
	}
	if a.waited || a.name[0] == 'W' {
		return false
	}
	switch {
	case m.Ghosts && a.name[0] == 'L' && a.want == get && a.had != list:
	case m.Wide && (a.want == get && a.had == list || a.want == create && a.had == get):
	case m.Forks && a.name[0] == 'C' && (a.want == list && a.had == create || a.want == create && a.had != create):
	case m.Forks && a.name[0] != 'C' && (a.want == list || a.want == remove && a.had != remove):
	default:
		return false
	}
	a.waited = true
	return a.w.c.Mix.Home && a.end || a.w.chance(2)
}

// nap is how many steps a pause of dawdles takes.
func (a *actor) nap() int {
	m := a.w.c.Mix
	switch {
	case m.Ghosts:
		return 80 + a.w.rnd.IntN(300)
	case m.Home && a.name[0] == 'G' && a.want == list && a.had == get && a.end:
		return 200 + a.w.rnd.IntN(600)
	case m.Home && a.name[0] == 'G' && a.want == remove:
		return 5 + a.w.rnd.IntN(200)
	}
	return 5 + a.w.rnd.IntN(60)
}
