package tonbo_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// The simulation of the whole library: machines with disks and SQLite on them, an object store, and whoever uses databases: writers, readers, forkers, collectors, janitors, deleters. One goroutine does one
// step after the other, as a seed says; requests are lost, answered late or applied later, machines die in the middle of a step, with their processes or with their power. What
// others would do in the background is a step of its own. Time is the bubble's (testing/synctest): it goes on when all are waiting.

var (
	simSeed = flag.Uint64("sim.seed", 0, "run this seed alone, and show its steps")
	simFrom = flag.Uint64("sim.from", 1, "first of the seeds of TestLibrarySimulation, up to TONBO_SIM_SEEDS")
	simOnly = flag.String("sim.only", "", "of the broken variants those with this in their names")
	simShow = flag.Bool("sim.show", false, "show the steps of each seed")
)

// simWorld is one run.
type simWorld struct {
	ctx       context.Context
	op        context.Context // of what m does in this step: it loses its patience after half a minute
	impatient context.CancelFunc
	seed      uint64
	rng       *rand.Rand
	inner     *mem.Store
	order     *simOrder
	base      string
	machines  []*simMachine
	names     map[string]*simName
	breaks    simBreak
	lazy      bool // databases are fetched lazily, whatever their size
	packing   int64
	upper     bool      // bases have an upper object
	began     time.Time // when this step did
	calm      bool      // m's requests meet no faults in this step
	labels    int
	steps     int
	trace     []string
	n         simCounts
}

// simCounts is what came about.
type simCounts struct {
	acks, takeovers, forks, deletes, rewinds, crashes, losses, reads, points, compactions, fenced, held int
	strict, failed, partial, whole, moved, packs                                                        int // strict COMMITs that returned nil, and that did not; databases opened and left with pages missing, and made whole; reads of a reader that stayed; packs at compactions
	expired, revived, upper                                                                             int // databases that a janitor deleted since they had expired, and that were given a later expiry after it had passed; compactions whose base has an upper object
}

func (c *simCounts) add(d simCounts) {
	c.acks += d.acks
	c.takeovers += d.takeovers
	c.forks += d.forks
	c.deletes += d.deletes
	c.rewinds += d.rewinds
	c.crashes += d.crashes
	c.losses += d.losses
	c.reads += d.reads
	c.points += d.points
	c.compactions += d.compactions
	c.fenced += d.fenced
	c.held += d.held
	c.strict += d.strict
	c.failed += d.failed
	c.partial += d.partial
	c.whole += d.whole
	c.moved += d.moved
	c.packs += d.packs
	c.expired += d.expired
	c.revived += d.revived
	c.upper += d.upper
}

// simBreak is how a run is broken on purpose. The zero value is not at all.
type simBreak struct {
	options func(tonbo.Options) tonbo.Options
	owner   func(tonbo.Options) tonbo.Options // of Opens alone
	store   func(*tonbotest.Store)            // what the machines' store does besides
	inner   func(remote.Store) remote.Store   // what the machines have instead of the store
	step    func(w *simWorld) error           // done between the steps
	disks   bool                              // not broken: what is on the disks after each step is noted, too
	jostle  bool                              // not broken: goroutines stand aside at random before they ask the store for something, and no run may change by that
	from    uint64                            // the seed that found it when this was written: no need to look at those before
}

// simMachine has a disk and its own way to the store.
type simMachine struct {
	n     int
	disk  *tonbotest.Disk
	store *tonbotest.Store
	dbs   map[string]*simHandle
	ros   map[string]*simReader
	dead  bool // in the middle of a step
	cut   int  // the change of a file at which it loses its power; 0: none
}

// down tells whether m has died in the middle of a step.
func (m *simMachine) down() bool { return m.dead || m.cut > 0 && m.disk.Changes() >= m.cut }

// simHandle is an open database.
type simHandle struct {
	db      *tonbo.DB
	list    []commit // what it holds
	shipped int      // how many of these the remote has had
	strict  bool     // COMMIT waits for the remote
	knows   int      // the changes of its expiry that there had been when it was opened
	damaged bool     // what was fetched for it was damaged on its way
}

// simReader is a reader that stays open. It may move to a newer state when objects of its own are gone.
type simReader struct {
	db   *tonbo.DB
	life int      // of the name, when it was opened
	seen []commit // what it held last
}

// simName is what is known of a name.
type simName struct {
	live   bool
	life   int                 // rises when it is created, forked and rewound
	dying  bool                // its deletion has begun, and was interrupted: nobody opens it any more, and the next Delete ends it
	acked  []commit            // acknowledged: what every later state begins with, until a rewind
	known  map[string]bool     // states that ever were, anywhere
	labels map[string][]commit // states that have a label
	never  map[commit]bool     // transactions whose COMMIT failed for good
	expiry simExpiry
}

func (n *simName) learn(list []commit) { n.known[fmt.Sprint(list)] = true }

// simErr is a promise that was broken.
type simErr struct{ what string }

func (e *simErr) Error() string { return e.what }

func broke(format string, args ...any) error { return &simErr{fmt.Sprintf(format, args...)} }

func begins(list, with []commit) bool {
	return len(list) >= len(with) && slices.Equal(list[:len(with)], with)
}

var simNames = []string{"a", "b", "c"}

func newSim(ctx context.Context, seed uint64, base string, breaks simBreak) (*simWorld, error) {
	w := &simWorld{ctx: ctx, seed: seed, rng: rand.New(rand.NewPCG(seed, 3)), inner: mem.New("sim"), base: base, names: map[string]*simName{}, breaks: breaks}
	w.lazy = w.rng.IntN(3) > 0
	w.packing = []int64{-1, -1, 16 << 10, 1 << 20}[w.rng.IntN(4)]
	w.upper = w.rng.IntN(2) == 0
	for i := range 3 {
		dir := filepath.Join(base, fmt.Sprint("m", i))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		disk, err := tonbotest.NewDisk(dir)
		if err != nil {
			return nil, err
		}
		store := remote.Store(w.inner)
		if breaks.inner != nil {
			store = breaks.inner(store)
		}
		w.machines = append(w.machines, &simMachine{n: i, disk: disk, store: tonbotest.NewStore(store), dbs: map[string]*simHandle{}, ros: map[string]*simReader{}})
	}
	for _, n := range simNames {
		w.names[n] = &simName{known: map[string]bool{}, labels: map[string][]commit{}, never: map[commit]bool{}}
	}
	w.order = newSimOrder(seed, breaks.jostle)
	return w, nil
}

func (w *simWorld) close() {
	for _, m := range w.machines {
		w.off(m)
		m.disk.Close()
	}
	w.order.close()
}

// options are those of a machine; nil: of one that nothing happens to.
func (w *simWorld) options(m *simMachine) tonbo.Options {
	o := tonbo.Options{SyncTimeout: 20 * time.Second, History: time.Minute, SharedCache: -1, Owner: "clean", MaxDatabases: -1, Hydration: tonbo.HydrateNone,
		Pragmas: map[string]string{"wal_autocheckpoint": "20", "cache_size": "12"}}
	o = o.Tuned(1<<30, 1000*time.Hour)
	if w.lazy {
		o = o.Small(4 << 10)
	}
	if w.packing >= 0 {
		o = o.Packing(w.packing)
	}
	if w.upper {
		o = o.UpperObjects()
	}
	if m == nil {
		o.Remote, o.Dir = orderedStore{inner: w.inner, order: w.order, who: "clean"}, filepath.Join(w.base, "clean")
		return o
	}
	o.Dir, o.Owner = m.disk.Dir(), fmt.Sprint("m", m.n)
	o.Remote = orderedStore{inner: m.store, order: w.order, who: o.Owner}
	if w.breaks.options != nil {
		o = w.breaks.options(o)
	}
	return o
}

func (w *simWorld) client(m *simMachine) (*tonbo.Client, error) { return tonbo.NewClient(w.options(m)) }

func (w *simWorld) log(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%d: ", w.steps)+fmt.Sprintf(format, args...))
}

var simNonce = regexp.MustCompile(`[0-9a-f]{17,}`) // slots are not among them

// weather makes requests of m fail, as the seed and the request say: the same step meets the same faults, whoever of its goroutines comes first. It may die of them. holds: some are applied later.
func (w *simWorld) weather(m *simMachine, holds bool) {
	m.store.Heal()
	w.op, w.impatient = context.WithTimeout(w.ctx, 30*time.Second)
	if w.breaks.store != nil {
		w.breaks.store(m.store)
	}
	if w.rng.IntN(8) == 0 {
		n := w.rng.IntN(1 << w.rng.IntN(7))
		m.disk.Cut(n)
		m.cut = m.disk.Changes() + n
	}
	if w.calm = w.rng.IntN(5) < 3; w.calm {
		return
	}
	salt, chance := w.rng.Uint64(), []int{4, 12, 30}[w.rng.IntN(3)]
	dies := w.rng.IntN(4) == 0
	seen := map[string]int{}
	m.store.Script(func(op tonbotest.Op, key string) tonbotest.Fault {
		if m.dead {
			return tonbotest.Lose
		}
		k := string(op) + simNonce.ReplaceAllString(key, "*")
		seen[k]++
		h := fnv.New64a()
		fmt.Fprint(h, salt, k, seen[k])
		r := rand.New(rand.NewPCG(h.Sum64(), 0))
		log := op == tonbotest.Create && strings.Contains(key, "/log/") // one after the other, whatever else is on its way
		if r.IntN(100) >= chance && !(dies && log && r.IntN(3) == 0) {
			return tonbotest.Pass
		}
		if dies && log {
			m.dead = true
			m.disk.Cut(0)
			return []tonbotest.Fault{tonbotest.Lose, tonbotest.DropAnswer}[r.IntN(2)]
		}
		if holds && op == tonbotest.Create && r.IntN(3) == 0 {
			w.n.held++
			return tonbotest.Hold
		}
		return []tonbotest.Fault{tonbotest.Lose, tonbotest.DropAnswer, tonbotest.DropAnswer, tonbotest.Fail, tonbotest.Truncate, tonbotest.FlipBit}[r.IntN(6)]
	})
}

// off ends what runs on m without a trace in its files or in the store.
func (w *simWorld) off(m *simMachine) {
	m.disk.Cut(0)
	m.store.Heal()
	m.store.Script(func(tonbotest.Op, string) tonbotest.Fault { return tonbotest.Lose })
	for _, n := range simNames {
		if h := m.dbs[n]; h != nil {
			h.db.Close()
		}
		if r := m.ros[n]; r != nil {
			r.db.Close()
		}
	}
	clear(m.dbs)
	clear(m.ros)
	m.store.Heal()
	m.dead, m.cut = false, 0
}

// crash is a death of m and its return.
func (w *simWorld) crash(m *simMachine) error {
	w.off(m)
	switch w.rng.IntN(4) {
	case 0, 1:
		w.n.crashes++
		w.log("m%d is killed", m.n)
		m.disk.Restart()
		return nil
	case 2:
		w.n.losses++
		w.log("m%d loses its power", m.n)
		return m.disk.PowerLoss(w.rng.Uint64())
	default:
		w.n.losses++
		w.log("m%d loses what was not synced", m.n)
		return m.disk.Lose(w.rng.Uint64())
	}
}

// found is what a database holds: all of it is read. A reader may move to a newer state between two of these queries.
func (w *simWorld) found(db *tonbo.DB) ([]commit, error) {
	var tables int
	if err := db.QueryRow("SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil || tables == 0 {
		return nil, err
	}
	for {
		list, err := inspect(w.ctx, db.DB)
		if err != nil {
			return nil, err
		}
		rows, err := w.ballast(db)
		if err != nil {
			return nil, err
		}
		again, err := w.listed(db)
		if err != nil {
			return nil, err
		}
		if slices.Equal(list, again) {
			return list, ballastOf(list, rows)
		}
	}
}

// Ballast is what databases hold from their first commit on and nobody reads but who reads everything: pages that are fetched late. Each transaction changes one row of it, some bytes of a page that nobody has looked at for long.
const ballastRows = 30

var ballastSchema = fmt.Sprintf(`CREATE TABLE ballast(n INTEGER PRIMARY KEY, v BLOB);
WITH RECURSIVE s(n) AS (SELECT 0 UNION ALL SELECT n+1 FROM s WHERE n<%[1]d-1) INSERT INTO ballast SELECT n, printf('%%06d %%06d %%.*c', 0, 0, 3486, char(64+n)) FROM s;
CREATE TRIGGER touched AFTER INSERT ON a BEGIN
	UPDATE ballast SET v = printf('%%06d %%06d %%.*c', new.seq, new.gen, 3486, char(64+n)) WHERE n = (new.seq*7 + new.gen)%%%[1]d;
END`, ballastRows)

// ballast reads it.
func (w *simWorld) ballast(db *tonbo.DB) (rows []string, err error) {
	var tables int
	if err := db.QueryRow("SELECT count(*) FROM sqlite_schema WHERE name = 'ballast'").Scan(&tables); err != nil || tables == 0 {
		return nil, err
	}
	r, err := db.Query("SELECT v FROM ballast ORDER BY n")
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for r.Next() {
		var v string
		if err := r.Scan(&v); err != nil {
			return nil, err
		}
		rows = append(rows, v)
	}
	return rows, r.Err()
}

// ballastOf holds the ballast against the transactions.
func ballastOf(list []commit, rows []string) error {
	if len(rows) == 0 { // it has none
		return nil
	}
	if len(rows) != ballastRows {
		return fmt.Errorf("%d rows of ballast, want %d", len(rows), ballastRows)
	}
	last := map[int]commit{}
	for _, c := range list {
		last[(c.Seq*7+int(c.Gen))%ballastRows] = c
	}
	for n, v := range rows {
		if want := fmt.Sprintf("%06d %06d %s", last[n].Seq, last[n].Gen, strings.Repeat(string(rune(64+n)), 3486)); v != want {
			return fmt.Errorf("row %d of the ballast begins with %.20q, want %.20q", n, v, want)
		}
	}
	return nil
}

// listed is what the transactions' own table says that a database holds: it reads little of it.
func (w *simWorld) listed(db *tonbo.DB) (list []commit, err error) {
	var tables int
	if err := db.QueryRow("SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil || tables == 0 {
		return nil, err
	}
	r, err := db.Query("SELECT seq, gen FROM a ORDER BY seq")
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for r.Next() {
		var c commit
		if err := r.Scan(&c.Seq, &c.Gen); err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, r.Err()
}

// look is found or listed.
func (w *simWorld) look(db *tonbo.DB) ([]commit, error) {
	if w.lazy && w.rng.IntN(4) > 0 {
		return w.listed(db)
	}
	return w.found(db)
}

// check holds what was seen of a name against what is known.
func (w *simWorld) check(name, how string, list []commit) error {
	n := w.names[name]
	switch {
	case !n.live:
		return broke("%s: %s is open, and does not exist", how, name)
	case !n.known[fmt.Sprint(list)]:
		return broke("%s: %s is %v, which never was", how, name, list)
	case !begins(list, n.acked):
		return broke("%s: %s is %v, and %v was acknowledged", how, name, list, n.acked)
	}
	for _, c := range list {
		if n.never[c] {
			return broke("%s: %s is %v, and the COMMIT of %v failed", how, name, list, c)
		}
	}
	return nil
}

// truth reads the head of a name, undisturbed. gone: there is no such database.
func (w *simWorld) truth(name string) (list []commit, gone bool, err error) {
	db, err := tonbo.OpenReadOnly(w.ctx, name, w.options(nil))
	if errors.Is(err, tonbo.ErrNotFound) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, broke("%s cannot be read: %v", name, err)
	}
	defer db.Close()
	list, err = w.found(db)
	if err != nil {
		return nil, false, broke("%s cannot be read: %v", name, err)
	}
	return list, false, nil
}

// owns tells whether the handle's generation is the head's.
func (w *simWorld) owns(name string, h *simHandle) error {
	head, err := fence.New(w.inner, name, fence.Options{}).Head(w.ctx)
	if err != nil {
		return err
	}
	if head == nil || head.Ends() || head.Generation != h.db.Status().Generation {
		return broke("generation %d of %s was told that it owns it, and the head is %+v", h.db.Status().Generation, name, head)
	}
	return nil
}

// simulate runs a seed, in a bubble of its own: the clock begins where it always does.
func simulate(t *testing.T, seed uint64, breaks simBreak) (w *simWorld, err error) {
	t.Helper()
	bubble(t, func(t *testing.T) { w, err = runSeed(t, seed, breaks) })
	return w, err
}

func runSeed(t *testing.T, seed uint64, breaks simBreak) (w *simWorld, err error) {
	base, err := os.MkdirTemp("", "sim-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(base)
	cryptotest.SetGlobalRandom(t, seed)
	if w, err = newSim(t.Context(), seed, base, breaks); err != nil {
		return w, err
	}
	defer w.close()
	defer func() { w.log("%s", w.sum()) }()
	for w.steps = 1; w.steps <= 45; w.steps++ {
		if err = w.step(); err == nil && breaks.step != nil {
			err = breaks.step(w)
		}
		if err != nil {
			return w, err
		}
	}
	return w, w.finish()
}

// inBubble runs f in a bubble of its own.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	warmUp(t)
	bubble(t, f)
}

// bubble is inBubble after warmUp.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	defer func() { // encoders rest in pools, and what was made in a bubble cannot be used outside of it: pools are empty after two collections
		runtime.GC()
		runtime.GC()
	}()
	synctest.Test(t, f)
}

// warmUp makes what the process has once before any bubble: what is begun in one cannot be used in another.
func warmUp(t *testing.T) {
	t.Helper()
	a := newAccount(t)
	a.create("warm")
	db := open(t, "warm", a.machine())
	exec(t, db, schema)
	exec(t, db, "INSERT INTO filler VALUES(1, 1, zeroblob(6000000))")
	synced(t, db)
	if err := db.Compact(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	closeDB(t, db)
	closeDB(t, open(t, "warm", a.machine()))
}

func TestLibrarySimulation(t *testing.T) {
	warmUp(t)
	from, seeds := *simFrom, simSeeds(40)
	if *simSeed > 0 {
		from, seeds = *simSeed, *simSeed
	}
	var n simCounts
	for seed := from; seed <= seeds; seed++ {
		w, err := simulate(t, seed, simBreak{})
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, strings.Join(w.trace, "\n"))
		}
		if *simSeed > 0 || *simShow {
			t.Log(strings.Join(w.trace, "\n"))
		}
		n.add(w.n)
		if seed%1000 == 0 {
			t.Logf("up to seed %d: %+v", seed, n)
		}
	}
	t.Logf("%d seeds, %d goroutines at the end: %+v", seeds-from+1, runtime.NumGoroutine(), n)
}
