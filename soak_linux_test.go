package tonbo_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/s3test"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/dir"
)

// soaking is an account in which agents live and die, the supervisor that lives all the time, and what is counted.
type soaking struct {
	t     *testing.T
	url   string
	env   []string // of the agents' processes
	store remote.Store
	base  string        // machines' directories
	o     tonbo.Options // the supervisor's
	c     *tonbo.Client
	end   time.Time

	agents, killed, cold, warm, takeovers, forks, rewinds, deletes, expiries, labels, vanished   atomic.Int64
	commits, acks, reads, points, verified, exports, aside, sweeps, collected, steps, divergence atomic.Int64
}

const (
	soakHistory = 15 * time.Second // how long old points stay restorable
	soakGrace   = 5 * time.Second  // how long garbage stays (log slots: their floor)
	soakTTL     = 2 * time.Second  // of what expires
	soakShared  = 16 << 20         // bytes of shared blocks on each machine
)

// broken says that a promise is, or that something happened that should not.
func (s *soaking) broken(format string, args ...any) {
	s.divergence.Add(1)
	s.t.Errorf(format, args...)
}

// TestSoakOfAgents: for $TONBO_SOAK, agents in processes of their own open databases, make steps, get them acknowledged and labelled, and about a third of them are killed at any moment; machines vanish, others take over from agents at work, databases are
// forked, rewound and deleted under them, expire and are swept. What was acknowledged stays, each state is one that was, forks and labelled points are what they were, whoever was passed is told; and the process that
// watches it all, with a database open and another one followed all the time, holds no more at the end than in the middle: memory, goroutines, files, disk, and the bucket.
func TestSoakOfAgents(t *testing.T) {
	long := soak(8 * time.Second)
	s := &soaking{t: t, base: t.TempDir(), end: time.Now().Add(long)}
	if os.Getenv("TONBO_TEST_S3") != "" {
		p := s3test.At(t)
		s.url, s.env, s.store = p.URL, p.Env, p.Open(t)
	} else {
		root := filepath.Join(s.base, "remote")
		d, err := dir.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		s.url, s.store = dirURL(root), d
	}
	s.o = tonbo.Options{URL: s.url, Remote: s.store, Dir: filepath.Join(s.base, "supervisor"), SharedCache: soakShared, History: soakHistory, SyncTimeout: time.Minute, MaxDatabases: -1}
	s.c = newClient(t, s.o)
	w := newSoakWatch(s, long)
	ctx, stop := context.WithCancel(t.Context())
	var beside sync.WaitGroup
	beside.Go(func() { s.resident(ctx) })
	beside.Go(func() { s.sweep(ctx) })
	beside.Go(func() { w.run(ctx) })
	var lives sync.WaitGroup
	for n := range 3 {
		lives.Go(func() { s.live(n) })
	}
	lives.Wait()
	stop()
	beside.Wait()
	w.judge()
	t.Logf("%d agents, %d of them killed, %d cold starts, %d warm, %d takeovers from agents at work, %d machines vanished; %d commits, %d acknowledgements, %d labels; %d forks, %d rewinds, %d deletions, %d expired; %d states and %d labelled points read, %d databases verified, %d exported, %d files set aside; "+
		"%d sweeps, %d objects collected; %d steps of the supervisor's own database; %d divergences", s.agents.Load(), s.killed.Load(), s.cold.Load(), s.warm.Load(), s.takeovers.Load(), s.vanished.Load(), s.commits.Load(), s.acks.Load(), s.labels.Load(), s.forks.Load(), s.rewinds.Load(), s.deletes.Load(), s.expiries.Load(),
		s.reads.Load(), s.points.Load(), s.verified.Load(), s.exports.Load(), s.aside.Load(), s.sweeps.Load(), s.collected.Load(), s.steps.Load(), s.divergence.Load())
}

// sweep is the janitor.
func (s *soaking) sweep(ctx context.Context) {
	every := time.NewTicker(soakGrace / 2)
	defer every.Stop()
	for {
		r, err := s.c.Sweep(ctx, tonbo.Janitor{Grace: soakGrace, Parallel: 2})
		if ctx.Err() != nil {
			return
		}
		if err != nil || len(r.Failed) > 0 {
			s.broken("sweep: %v %v", err, r.Failed)
			return
		}
		s.sweeps.Add(1)
		s.expiries.Add(int64(r.Count(tonbo.SweptExpired)))
		s.collected.Add(int64(r.Collected.Slots + r.Collected.Segments + r.Collected.Bases + r.Collected.Pins + r.Collected.Records))
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// soakLife is one database with its forks, from its creation to its end, on two machines.
type soakLife struct {
	*soaking
	name     string
	machines []*soakMachine
	tried    map[commit]bool // COMMITs that were called, on any of its databases
	dbs      []*soakDB       // those that live
	expiring []string
	large    bool
}

// soakMachine is a directory. left is what was committed there and has not been seen yet: in the log, or in a file set aside.
type soakMachine struct {
	dir  string
	left map[string][]commit
}

// soakDB is what is known of a database.
type soakDB struct {
	name   string
	must   []commit            // what every later state begins with, until a rewind
	labels map[string][]commit // what is at each label
	home   *soakMachine        // where it was open last, if nobody else has had it since
	kept   []commit            // what was committed there since, and not shipped: the next one there finds it
}

// live is one life after the other, under the same names.
func (s *soaking) live(n int) {
	var l *soakLife
	for k := 0; k == 0 || time.Now().Before(s.end) && !s.t.Failed(); k++ {
		if k%2 == 0 { // other machines; otherwise the ones that have copies of the databases of these names that are no more
			l = &soakLife{soaking: s, name: fmt.Sprint("agent-", n), tried: map[commit]bool{}}
			for i := range 2 {
				m := &soakMachine{dir: filepath.Join(s.base, fmt.Sprintf("machine-%d-%d", n, i))}
				m.vanish(s)
				l.machines = append(l.machines, m)
			}
		}
		for _, m := range l.machines {
			clear(m.left)
		}
		l.dbs, l.expiring, l.large = nil, nil, rand.IntN(8) == 0
		l.run()
	}
}

func (m *soakMachine) vanish(s *soaking) {
	if err := os.RemoveAll(m.dir); err != nil {
		s.broken("%v", err)
	}
	m.left = map[string][]commit{}
}

func (l *soakLife) run() {
	ctx := l.t.Context()
	if _, err := l.c.Create(ctx, l.name, tonbo.CreateOptions{}); err != nil {
		l.broken("%v", err)
		return
	}
	db, err := l.c.Open(ctx, l.name)
	if err == nil {
		_, err = db.ExecContext(ctx, schema)
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		l.broken("%v", err)
		return
	}
	l.dbs = []*soakDB{{name: l.name, labels: map[string][]commit{}}}
	for round := 0; (round < 4 || round < 25 && time.Now().Before(l.end)) && !l.t.Failed(); round++ {
		l.round()
	}
	if !l.t.Failed() {
		l.finish()
	}
}

// round is what happens to one database.
func (l *soakLife) round() {
	db := l.dbs[rand.IntN(len(l.dbs))]
	i := rand.IntN(len(l.machines))
	m, other := l.machines[i], l.machines[1-i]
	switch k := rand.IntN(20); {
	case k < 5:
		p := l.start(db, m, l.job(false))
		p.killAtAnyTime()
		l.ended(db, nil, p)
	case k < 9:
		p := l.start(db, m, l.job(false))
		p.drain()
		l.ended(db, nil, p)
	case k < 12:
		l.takeover(db, m, other)
	case k < 14:
		l.rewind(db, m)
	case k < 18:
		l.fork(db, m, k == 17)
	default:
		if len(l.dbs) > 1 {
			l.delete(db, m)
		}
		return
	}
	if l.t.Failed() {
		return
	}
	if rand.IntN(3) == 0 {
		l.point(db)
	}
	if rand.IntN(8) == 0 {
		for _, d := range l.dbs {
			if d.home == m {
				d.home = nil
			}
		}
		m.vanish(l.soaking)
		l.vanished.Add(1)
	}
}

// job is what an agent is to do. atWork: until it is told that its time is over.
func (l *soakLife) job(atWork bool) job {
	j := job{Steps: 3 + rand.IntN(25), Close: true, Checkpoints: rand.IntN(2) == 0, Strict: rand.IntN(8) == 0, Large: l.large, Pace: 50 * time.Millisecond, History: soakHistory, SharedCache: soakShared}
	if rand.IntN(4) > 0 {
		j.Label = 3 + rand.IntN(20)
	}
	if rand.IntN(2) == 0 {
		j.Packing = 4 + rand.IntN(20)
	}
	if j.Sync = 1 + rand.IntN(4); atWork {
		j.Steps, j.Sync = 1<<20, 1
	} else if rand.IntN(2) == 0 {
		j.Beside, j.Sync = time.Duration(rand.IntN(50)+10)*time.Millisecond, 0
	}
	return j
}

// takeover opens a database on another machine while an agent has it open. The agent is told.
func (l *soakLife) takeover(db *soakDB, m, other *soakMachine) {
	p := l.start(db, m, l.job(true))
	p.until("ack")
	q := l.start(db, other, l.job(false))
	if rand.IntN(3) == 0 {
		q.killAtAnyTime()
	} else {
		q.drain()
	}
	if q.heard("open") == nil && p.heard("fenced") == nil { // it was killed before it had claimed, perhaps
		p.kill()
	} else {
		p.drain()
		if p.heard("fenced") == nil {
			l.broken("%s: nobody told the agent in %s that it was passed: %v", db.name, m.dir, p.last())
		}
		l.takeovers.Add(1)
	}
	db.home = nil
	l.ended(db, nil, p, q)
	db.home = nil
}

// rewind takes a database back to a label while an agent has it open, and sometimes forward again.
func (l *soakLife) rewind(db *soakDB, m *soakMachine) {
	if len(db.labels) == 0 {
		j := l.job(false)
		j.Label = 2
		p := l.start(db, m, j)
		p.drain()
		l.ended(db, nil, p)
		return
	}
	p := l.start(db, m, l.job(true))
	p.until("ack")
	label := db.label()
	before, err := l.c.Rewind(l.t.Context(), db.name, tonbo.Label(label))
	if err != nil {
		l.broken("rewind %s to %s: %v", db.name, label, err)
		p.kill()
		return
	}
	l.rewinds.Add(1)
	p.drain()
	if p.heard("fenced") == nil {
		l.broken("%s was rewound and nobody told the agent: %v", db.name, p.last())
	}
	l.ended(db, before, p)
	was := db.must
	db.home, db.must = nil, db.labels[label]
	l.is(db, nil, db.must, "after the rewind to "+label)
	if rand.IntN(3) == 0 {
		if _, err := l.c.Rewind(l.t.Context(), db.name, before); err != nil {
			l.broken("rewind %s to what it was before: %v", db.name, err)
			return
		}
		db.must = was
		l.is(db, nil, was, "after the rewind to what it was before")
	}
}

// fork forks a database: from a label, or from its head, with an agent at work or without one.
func (l *soakLife) fork(db *soakDB, m *soakMachine, expires bool) {
	if len(l.dbs) >= 4 && !expires {
		return
	}
	var p *soakAgent
	if rand.IntN(2) == 0 {
		p = l.start(db, m, l.job(false))
		p.until("open")
	}
	o := tonbo.ForkOptions{}
	f := &soakDB{labels: map[string][]commit{}}
	for i := 0; f.name == "" || slices.ContainsFunc(l.dbs, func(d *soakDB) bool { return d.name == f.name }); i++ {
		f.name = fmt.Sprintf("%s.fork-%d", l.name, i)
	}
	if expires {
		o.TTL = soakTTL
		f.name = fmt.Sprintf("%s.expires-%d", l.name, len(l.expiring))
	}
	had, label := db.must, ""
	if p != nil {
		p.sofar()
	}
	if len(db.labels) > 0 && rand.IntN(2) == 0 {
		label = db.label()
		o.At = tonbo.Label(label)
	}
	_, err := l.c.Fork(l.t.Context(), db.name, f.name, o)
	if err != nil {
		l.broken("fork %s as %s: %v", db.name, f.name, err)
		if p != nil {
			p.kill()
		}
		return
	}
	l.forks.Add(1)
	if expires {
		l.expiring = append(l.expiring, f.name)
	} else if got, err := l.state(f.name, nil); err != nil {
		l.broken("fork %s: %v", f.name, err)
	} else {
		f.must = got
		l.dbs = append(l.dbs, f)
	}
	if p != nil {
		if rand.IntN(3) == 0 {
			p.killAtAnyTime()
		} else {
			p.drain()
		}
		l.ended(db, nil, p)
	}
	switch {
	case expires:
	case label != "" && !slices.Equal(f.must, db.labels[label]):
		l.broken("fork %s of %s at %s has %d transactions, want %d", f.name, db.name, label, len(f.must), len(db.labels[label]))
	case label == "" && (!begins(db.must, f.must) || !begins(f.must, had) || p != nil && len(f.must) < p.acked):
		l.broken("fork %s of the head of %s has %d transactions, and the source %d that do not begin with them", f.name, db.name, len(f.must), len(db.must))
	}
}

// delete ends a database with an agent at work.
func (l *soakLife) delete(db *soakDB, m *soakMachine) {
	p := l.start(db, m, l.job(true))
	p.until("ack")
	if err := l.c.Delete(l.t.Context(), db.name); err != nil {
		l.broken("delete %s: %v", db.name, err)
		p.kill()
		return
	}
	p.drain()
	l.hear(db, p)
	if p.heard("deleted") == nil && !l.t.Failed() {
		l.broken("%s was deleted and nobody told the agent: %v", db.name, p.last())
	}
	l.forget(db)
	for _, d := range l.dbs { // forks of it go on, and so does what it was a fork of
		l.look(d, "after the deletion of "+db.name)
	}
}

// forget is what remains to be said of a database that was deleted.
func (l *soakLife) forget(db *soakDB) {
	l.deletes.Add(1)
	if _, err := l.state(db.name, nil); !errors.Is(err, tonbo.ErrNotFound) {
		l.broken("%s was deleted, and opened: %v", db.name, err)
	}
	for _, m := range l.machines {
		delete(m.left, db.name)
		for _, f := range m.aside(db.name) {
			if err := os.Remove(f); err != nil {
				l.broken("%v", err)
			}
		}
	}
	l.dbs = slices.DeleteFunc(l.dbs, func(d *soakDB) bool { return d == db })
}

// finish verifies what lives, and deletes it.
func (l *soakLife) finish() {
	ctx := l.t.Context()
	for _, db := range l.dbs {
		l.point(db)
		r, err := l.c.Verify(ctx, db.name)
		if err != nil || !r.OK() {
			l.broken("verify %s: %v %v", db.name, err, r)
			continue
		}
		l.verified.Add(1)
		l.export(db)
	}
	for len(l.dbs) > 0 && !l.t.Failed() {
		db := l.dbs[rand.IntN(len(l.dbs))]
		if rand.IntN(4) == 0 {
			l.delete(db, l.machines[0])
			continue
		}
		if err := l.c.Delete(ctx, db.name); err != nil {
			l.broken("delete %s: %v", db.name, err)
		}
		l.forget(db)
	}
	if len(l.expiring) == 0 || l.t.Failed() {
		return
	}
	time.Sleep(soakTTL)                                                           // since the last of them was made, at least
	for sweeps := l.sweeps.Load(); l.sweeps.Load() < sweeps+2 && !l.t.Failed(); { // one may have begun before that
		time.Sleep(50 * time.Millisecond)
	}
	for _, name := range l.expiring {
		if d, err := l.c.Get(ctx, name); !errors.Is(err, tonbo.ErrNotFound) && !l.t.Failed() {
			l.broken("%s has expired and was swept, and is there: %+v %v", name, d, err)
		}
	}
}

func (db *soakDB) label() string {
	n := rand.IntN(len(db.labels))
	for label := range db.labels {
		if n--; n < 0 {
			return label
		}
	}
	return ""
}

// aside lists the files with commits of a database that were set aside.
func (m *soakMachine) aside(name string) []string {
	files, _ := filepath.Glob(filepath.Join(m.dir, name+".lost-*.db")) // the pattern is well formed
	return slices.DeleteFunc(files, func(f string) bool { return !strings.HasPrefix(filepath.Base(f), name+".lost-") })
}
