package tonbo_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/cache"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// step does one thing. An error is a broken promise, or that the simulation itself does not work.
func (w *simWorld) step() error {
	if w.breaks.disks {
		w.order.did(fmt.Sprint("step ", w.steps), w.disks())
	}
	w.began = time.Now()
	m := w.machines[w.rng.IntN(len(w.machines))]
	name := simNames[w.rng.IntN(len(simNames))]
	if w.rng.IntN(10) < 7 { // who has something open goes on
		var at []int
		for i := range len(w.machines) * len(simNames) {
			if w.machines[i%len(w.machines)].dbs[simNames[i/len(w.machines)]] != nil {
				at = append(at, i)
			}
		}
		if len(at) > 0 {
			i := at[w.rng.IntN(len(at))]
			m, name = w.machines[i%len(w.machines)], simNames[i/len(w.machines)]
		}
	}
	n := w.names[name]
	h := m.dbs[name]
	compacts := 8
	if w.lazy { // nothing is fetched late but what is in a base
		compacts = 25
	}
	kinds := []struct {
		weight int
		do     func(*simMachine, string) error
		when   bool
	}{
		{40, w.write, h != nil},
		{30, w.sync, h != nil},
		{10, w.checkpoint, h != nil},
		{8, w.housekeep, h != nil},
		{compacts, w.compact, h != nil},
		{5, w.leave, h != nil},
		{8, w.hydrate, h != nil && w.lazy},
		{4, w.examine, h != nil},
		{4, w.reopen, h != nil && h.db.Err() != nil},
		{25, w.open, h == nil && n.live},
		{12, w.read, n.live},
		{8, w.point, n.live},
		{8, w.follow, n.live || m.ros[name] != nil},
		{5, w.fork, true},
		{15, w.create, !n.live},
		{2, w.remove, n.live},
		{4, w.expire, n.live},
		{4, w.rewind, n.live && len(n.labels) > 0},
		{6, w.collect, true},
		{3, w.sweep, true},
		{5, w.pass, true},
		{5, w.release, true},
		{5, func(m *simMachine, _ string) error { return w.crash(m) }, true},
		{3, w.verify, n.live},
	}
	total := 0
	for _, k := range kinds {
		if k.when {
			total += k.weight
		}
	}
	pick := w.rng.IntN(total)
	for _, k := range kinds {
		if !k.when {
			continue
		}
		if pick -= k.weight; pick < 0 {
			err := k.do(m, name)
			w.order.settle()
			m.store.Heal()
			if w.impatient != nil {
				w.impatient()
			}
			if err == nil && m.down() {
				return w.crash(m)
			}
			m.disk.Restart()
			m.cut = 0
			return err
		}
	}
	return nil
}

// outcome is how a step went, in words that do not depend on nonces.
func outcome(err error) string {
	for _, e := range []struct {
		err  error
		name string
	}{
		{nil, "ok"}, {tonbo.ErrFenced, "fenced"}, {tonbo.ErrExpired, "expired"}, {tonbo.ErrDeleted, "deleted"}, {tonbo.ErrNotFound, "not found"}, {tonbo.ErrExists, "exists"}, {tonbo.ErrPointGone, "point gone"},
		{tonbo.ErrCorrupt, "corrupt"}, {tonbo.ErrUnsynced, "unsynced"}, {tonbo.ErrRemoteLost, "remote lost"}, {tonbo.ErrLocked, "locked"},
	} {
		if errors.Is(err, e.err) {
			return e.name
		}
	}
	return "failed"
}

func (w *simWorld) write(m *simMachine, name string) error {
	w.weather(m, true)
	h, n := m.dbs[name], w.names[name]
	if len(h.list) == 0 {
		if tx, err := h.db.Begin(); err == nil {
			tx.Exec(schema) // it may be there already
			if w.lazy {
				tx.Exec(ballastSchema)
			}
			tx.Commit()
		}
	}
	c := commit{len(h.list) + 1, uint64(w.steps)} // which rises along forks, too, as generations do not
	list := append(slices.Clone(h.list), c)
	n.learn(list)
	err := step(h.db.DB, c, false)
	w.log("m%d writes %s %d.%d: %s", m.n, name, c.Seq, c.Gen, outcome(err))
	if err == nil {
		h.list = list
	}
	if h.strict {
		return w.committed(m, name, h, c, err)
	}
	return nil
}

// committed holds what a strict COMMIT said: nil, and the remote has it; an error, and it is not here, and nowhere unless its outcome was not known.
func (w *simWorld) committed(m *simMachine, name string, h *simHandle, c commit, err error) error {
	if err == nil {
		w.n.strict++
		got, gone, terr := w.truth(name)
		if terr != nil {
			return terr
		}
		if gone || !slices.Equal(got, h.list) {
			return broke("m%d's COMMIT of %v in %s said yes, and the remote has %v (gone %v)", m.n, c, name, got, gone)
		}
		return w.acknowledged(name, h, h.list)
	}
	w.n.failed++
	if !errors.Is(err, tonbo.ErrUnsynced) && !errors.Is(err, tonbo.ErrFenced) && !errors.Is(err, tonbo.ErrDeleted) && !m.down() {
		w.names[name].never[c] = true
	}
	list, lerr := w.listed(h.db)
	if lerr == nil && !m.down() && !slices.Equal(list, h.list) {
		return broke("m%d's COMMIT of %v in %s failed (%v), and it holds %v, not %v", m.n, c, name, err, list, h.list)
	}
	return nil
}

// acknowledged: h was told that the remote holds its list.
func (w *simWorld) acknowledged(name string, h *simHandle, list []commit) error {
	n := w.names[name]
	if err := errors.Join(w.owns(name, h), w.inTime(name, h)); err != nil {
		return err
	}
	if !begins(list, n.acked) {
		return broke("%s: %v is acknowledged, and so was %v", name, list, n.acked)
	}
	w.n.acks++
	n.acked, h.shipped = slices.Clone(list), len(list)
	return nil
}

func (w *simWorld) sync(m *simMachine, name string) error {
	w.weather(m, true)
	h := m.dbs[name]
	err := h.db.Synced(w.op)
	w.log("m%d syncs %s %d: %s", m.n, name, len(h.list), outcome(err))
	switch {
	case err == nil:
		return w.acknowledged(name, h, h.list)
	case errors.Is(err, tonbo.ErrFenced):
		w.n.fenced++
	}
	return w.trouble(err)
}

// trouble tells the errors that nobody may get: nothing was damaged but what was on its way.
func (w *simWorld) trouble(err error) error {
	if errors.Is(err, tonbo.ErrRemoteLost) {
		return broke("%v", err)
	}
	return nil
}

func (w *simWorld) checkpoint(m *simMachine, name string) error {
	w.weather(m, true)
	h := m.dbs[name]
	w.labels++
	label := fmt.Sprint("L", w.labels)
	_, err := h.db.Checkpoint(w.op, label)
	w.log("m%d labels %s %s: %s", m.n, name, label, outcome(err))
	if err == nil {
		w.names[name].labels[label] = slices.Clone(h.list)
		return w.acknowledged(name, h, h.list)
	}
	return w.trouble(err)
}

func (w *simWorld) housekeep(m *simMachine, name string) error {
	k := []int{2, 5, 8, 11}[w.rng.IntN(4)]
	err := housekeeping(m.dbs[name].db.DB, k)
	w.log("m%d checkpoint %d of %s: %v", m.n, k, name, err == nil)
	return nil
}

func (w *simWorld) compact(m *simMachine, name string) error {
	w.weather(m, false)
	err := m.dbs[name].db.Compact(w.op, false)
	if err == nil {
		w.n.compactions++
		if b := m.dbs[name].db.Base(); b != nil {
			w.n.packs += len(b.Packs())
			if b.UpperObject != nil {
				w.n.upper++
			}
		}
	}
	w.log("m%d compacts %s: %s", m.n, name, outcome(err))
	if w.rng.IntN(2) == 0 {
		m.dbs[name].db.CollectOwn(w.op)
	}
	return nil
}

func (w *simWorld) leave(m *simMachine, name string) error {
	w.weather(m, true)
	h := m.dbs[name]
	list, unshipped := h.list, len(h.list) > h.shipped
	gen := h.db.Status().Generation
	delete(m.dbs, name)
	err := h.db.Close()
	w.log("m%d closes %s %d: %s", m.n, name, gen, outcome(err))
	if n := w.names[name]; err == nil && unshipped { // without, it may have been fenced long ago, and lost nothing
		if got, gone, terr := w.truth(name); terr != nil || gone || !begins(got, list) {
			return broke("m%d closed %s with %v, the remote has %v (gone %v, %v)", m.n, name, list, got, gone, terr)
		}
		n.acked = slices.Clone(list)
	}
	return nil
}

func (w *simWorld) reopen(m *simMachine, name string) error {
	w.weather(m, false)
	h := m.dbs[name]
	err := h.db.Reopen(w.op)
	w.log("m%d reopens %s: %s", m.n, name, outcome(err))
	if err != nil {
		delete(m.dbs, name)
		h.db.Close()
		return errors.Join(w.trouble(err), w.rightlyExpired(name, "a Reopen", err))
	}
	h.knows = w.names[name].expiry.changes
	return w.opened(m, name, h)
}

func (w *simWorld) open(m *simMachine, name string) error {
	w.weather(m, false)
	o := w.options(m)
	if w.breaks.owner != nil {
		o = w.breaks.owner(o)
	}
	o.Strict = w.rng.IntN(3) == 0
	db, err := tonbo.Open(w.op, name, o)
	w.log("m%d opens %s (strict %v): %s", m.n, name, o.Strict, outcome(err))
	if err != nil {
		if errors.Is(err, tonbo.ErrNotFound) && w.names[name].live {
			return broke("%s is there, and not found: %v", name, err)
		}
		return errors.Join(w.trouble(err), w.rightlyExpired(name, "an Open", err))
	}
	w.n.takeovers++
	db.SetMaxOpenConns(1)
	h := &simHandle{db: db, strict: o.Strict, knows: w.names[name].expiry.changes}
	if x := &w.names[name].expiry; x.past(w.began) {
		db.Close()
		return broke("m%d has opened %s, which has expired: %v", m.n, name, x.may)
	}
	m.dbs[name] = h
	return w.opened(m, name, h)
}

// opened looks at what a handle has got.
func (w *simWorld) opened(m *simMachine, name string, h *simHandle) error {
	list, err := w.look(h.db)
	if err != nil {
		delete(m.dbs, name) // what it holds is not known
		defer h.db.Close()
		if m.down() || h.db.Err() != nil || !w.calm { // what is fetched late may be damaged on its way
			return nil
		}
		return w.unreadable("m%d opened %s", m.n, name, err)
	}
	if s := h.db.Status(); s.PagesLocal < s.Pages {
		w.n.partial++
	}
	h.list, h.shipped = list, len(list)
	if len(list) > len(w.names[name].acked) { // local commits that were kept are among them, perhaps
		got, _, err := w.truth(name)
		if err != nil {
			return err
		}
		h.shipped = min(len(list), len(got))
	}
	return w.check(name, fmt.Sprintf("m%d opens", m.n), list)
}

// hydrate makes a copy whole. It may fail as long as requests do.
func (w *simWorld) hydrate(m *simMachine, name string) error {
	w.weather(m, false)
	h := m.dbs[name]
	err := h.db.Hydrated(w.op)
	w.log("m%d hydrates %s: %s", m.n, name, outcome(err))
	switch {
	case errors.Is(err, cache.ErrSums):
		return broke("m%d has another %s than was shipped: %v", m.n, name, err)
	case err == nil:
		w.n.whole++
	case !w.calm || m.down():
		h.damaged = true
	case errors.Is(err, tonbo.ErrCorrupt) && !h.damaged:
		return broke("m%d cannot make %s whole: %v", m.n, name, err)
	}
	return nil
}

// examine reads all that an owner has.
func (w *simWorld) examine(m *simMachine, name string) error {
	w.weather(m, false)
	h := m.dbs[name]
	list, err := w.found(h.db)
	w.log("m%d examines %s: %d, %s", m.n, name, len(list), outcome(err))
	switch {
	case err == nil && !slices.Equal(list, h.list):
		return broke("m%d holds %v of %s, not %v", m.n, list, name, h.list)
	case err == nil || m.down() || h.db.Err() != nil:
		return nil
	case !w.calm:
		h.damaged = true
	case h.damaged:
		return nil
	}
	return w.unreadable("m%d examines %s", m.n, name, err)
}

// follow reads with a reader that stays, and that has read some pages long ago.
func (w *simWorld) follow(m *simMachine, name string) error {
	w.weather(m, false)
	n, r := w.names[name], m.ros[name]
	if r != nil && (r.life != n.life || w.rng.IntN(5) == 0) {
		r.db.Close()
		delete(m.ros, name)
		return nil
	}
	if r == nil {
		db, err := tonbo.OpenReadOnly(w.op, name, w.options(m))
		w.log("m%d begins to read %s: %s", m.n, name, outcome(err))
		if err != nil {
			return nil
		}
		db.SetMaxOpenConns(1)
		r = &simReader{db: db, life: n.life, seen: slices.Clone(n.acked)}
		m.ros[name] = r
	}
	list, err := w.look(r.db)
	w.log("m%d goes on reading %s: %d, %s", m.n, name, len(list), outcome(err))
	if err != nil {
		return nil
	}
	w.n.moved++
	switch {
	case !n.known[fmt.Sprint(list)]:
		return broke("a reader of m%d has %v of %s, which never was", m.n, list, name)
	case !begins(list, r.seen):
		return broke("a reader of m%d has %v of %s, and had %v", m.n, list, name, r.seen)
	}
	r.seen = list
	return nil
}

// unreadable: a read failed, which it may when a request did.
func (w *simWorld) unreadable(how string, args ...any) error {
	err, _ := args[len(args)-1].(error)
	if errors.Is(err, tonbotest.ErrInjected) || outcome(err) == "point gone" {
		return nil
	}
	return broke(how+": %v", args...)
}

// mustRead: with a handle of its own and no request that fails, a machine reads what is there.
func (w *simWorld) mustRead(m *simMachine, name string, err error) error {
	if !w.calm || m.down() || w.names[name].dying {
		return nil
	}
	return broke("m%d cannot read %s: %v", m.n, name, err)
}

func (w *simWorld) read(m *simMachine, name string) error {
	w.weather(m, false)
	db, err := tonbo.OpenReadOnly(w.op, name, w.options(m))
	if err != nil {
		w.log("m%d reads %s: %s", m.n, name, outcome(err))
		if errors.Is(err, tonbo.ErrNotFound) {
			return broke("%s is there, and not found: %v", name, err)
		}
		return w.mustRead(m, name, err)
	}
	defer db.Close()
	list, err := w.found(db)
	w.log("m%d reads %s: %d, %s", m.n, name, len(list), outcome(err))
	if err != nil {
		return w.mustRead(m, name, err)
	}
	w.n.reads++
	return w.check(name, fmt.Sprintf("m%d reads", m.n), list)
}

// point reads a labelled point.
func (w *simWorld) point(m *simMachine, name string) error {
	n := w.names[name]
	if len(n.labels) == 0 {
		return nil
	}
	w.weather(m, false)
	label := w.label(n)
	o := w.options(m)
	o.At = tonbo.Label(label)
	db, err := tonbo.OpenReadOnly(w.op, name, o)
	if err != nil {
		w.log("m%d reads %s@%s: %s", m.n, name, label, outcome(err))
		if errors.Is(err, tonbo.ErrPointGone) {
			return broke("%s@%s is gone: %v", name, label, err)
		}
		return w.mustRead(m, name, err)
	}
	defer db.Close()
	list, err := w.found(db)
	w.log("m%d reads %s@%s: %d, %s", m.n, name, label, len(list), outcome(err))
	if err != nil {
		return w.mustRead(m, name, err)
	}
	if !slices.Equal(list, n.labels[label]) {
		return broke("%s@%s is %v, was %v", name, label, list, n.labels[label])
	}
	w.n.points++
	return nil
}

func (w *simWorld) label(n *simName) string {
	return slices.Sorted(maps.Keys(n.labels))[w.rng.IntN(len(n.labels))]
}

// begun makes a name's life begin.
func (n *simName) begun(acked []commit, known map[string]bool, expires time.Time) {
	*n = simName{live: true, expiry: simExpiry{may: []time.Time{expires}}, life: n.life + 1, never: map[commit]bool{}, acked: slices.Clone(acked), known: map[string]bool{fmt.Sprint([]commit(nil)): true}, labels: map[string][]commit{}}
	maps.Copy(n.known, known)
	n.learn(acked)
}

func (w *simWorld) create(m *simMachine, name string) error {
	w.weather(m, false)
	c, err := w.client(m)
	if err != nil {
		return err
	}
	expires := w.expiry()
	_, err = c.Create(w.op, name, tonbo.CreateOptions{ExpiresAt: expires})
	w.log("m%d creates %s: %s", m.n, name, outcome(err))
	list, gone, terr := w.truth(name)
	switch {
	case terr != nil:
		return terr
	case gone && err == nil:
		return broke("%s was created, and is not there", name)
	case gone:
		return nil
	case len(list) > 0:
		return broke("%s was created, and holds %v", name, list)
	}
	w.names[name].begun(nil, nil, expires)
	return nil
}

func (w *simWorld) fork(m *simMachine, source string) error {
	s := w.names[source]
	to := ""
	for _, n := range simNames {
		if !w.names[n].live && n != source {
			to = n
		}
	}
	if !s.live || to == "" {
		return nil
	}
	w.weather(m, false)
	o := tonbo.ForkOptions{}
	label := ""
	if len(s.labels) > 0 && w.rng.IntN(2) == 0 {
		label = w.label(s)
		o.At = tonbo.Label(label)
	}
	c, err := w.client(m)
	if err != nil {
		return err
	}
	_, err = c.Fork(w.op, source, to, o)
	w.log("m%d forks %s from %s@%s: %s", m.n, to, source, label, outcome(err))
	if label != "" && errors.Is(err, tonbo.ErrPointGone) {
		return broke("%s@%s is gone: %v", source, label, err)
	}
	list, gone, terr := w.truth(to)
	switch {
	case terr != nil:
		return terr
	case gone && err == nil:
		return broke("%s was forked, and is not there", to)
	case gone:
		return nil
	case label != "" && !slices.Equal(list, s.labels[label]):
		return broke("%s is a fork of %s@%s and holds %v, not %v", to, source, label, list, s.labels[label])
	case label == "" && (!begins(list, s.acked) || !s.known[fmt.Sprint(list)]):
		return broke("%s is a fork of %s and holds %v; acknowledged were %v", to, source, list, s.acked)
	}
	w.n.forks++
	w.names[to].begun(list, nil, time.Time{})
	return nil
}

func (w *simWorld) remove(m *simMachine, name string) error {
	w.weather(m, false)
	c, err := w.client(m)
	if err != nil {
		return err
	}
	err = c.Delete(w.op, name)
	w.log("m%d deletes %s: %s", m.n, name, outcome(err))
	_, gone, terr := w.truth(name)
	switch {
	case terr != nil:
		return terr
	case !gone && err == nil:
		return broke("%s was deleted, and is there", name)
	case gone:
		w.n.deletes++
		w.names[name].live = false
	case err != nil:
		w.names[name].dying = true
	}
	return nil
}

func (w *simWorld) rewind(m *simMachine, name string) error {
	w.weather(m, false)
	n := w.names[name]
	label := w.label(n)
	c, err := w.client(m)
	if err != nil {
		return err
	}
	_, err = c.Rewind(w.op, name, tonbo.Label(label))
	w.log("m%d rewinds %s to %s: %s", m.n, name, label, outcome(err))
	if errors.Is(err, tonbo.ErrPointGone) {
		return broke("%s@%s is gone: %v", name, label, err)
	}
	list, gone, terr := w.truth(name)
	switch {
	case terr != nil:
		return terr
	case gone:
		return broke("%s was rewound, and is gone", name)
	case err == nil && !slices.Equal(list, n.labels[label]):
		return broke("%s was rewound to %v, and is %v", name, n.labels[label], list)
	case !begins(list, n.acked) || err == nil: // it was, whatever was said
		if !slices.Equal(list, n.labels[label]) {
			return broke("%s was to be rewound to %v, and is %v; %v was acknowledged", name, n.labels[label], list, n.acked)
		}
		n.acked = slices.Clone(list)
		n.life++
		w.n.rewinds++
	}
	return nil
}

func (w *simWorld) collect(m *simMachine, name string) error {
	w.weather(m, false)
	c, err := w.client(m)
	if err != nil {
		return err
	}
	_, err = c.Collect(w.op, name, tonbo.CollectOptions{Grace: time.Minute})
	w.log("m%d collects %s: %s", m.n, name, outcome(err))
	return nil
}

func (w *simWorld) sweep(m *simMachine, _ string) error {
	w.weather(m, false)
	c, err := w.client(m)
	if err != nil {
		return err
	}
	r, err := c.Sweep(w.op, tonbo.Janitor{Grace: 15 * time.Minute, Parallel: 1})
	w.log("m%d sweeps: %s", m.n, outcome(err))
	done := err == nil && len(r.Failed) == 0
	for _, name := range simNames { // it ends what has expired, and finishes deletions
		n := w.names[name]
		_, gone, err := w.truth(name)
		switch {
		case err != nil:
			return err
		case gone && n.live && n.expiry.mayBePast(time.Now()):
			w.n.expired++
			n.live = false
		case gone && n.live && !n.dying:
			return broke("%s was swept away", name)
		case gone:
			n.live = false
		case n.live && done && n.expiry.past(w.began):
			return broke("%s has expired (%v), and a janitor left it", name, n.expiry.may)
		}
	}
	return nil
}

// pass lets time go by.
func (w *simWorld) pass(*simMachine, string) error {
	d := []time.Duration{time.Second, 20 * time.Minute, 3 * time.Hour}[w.rng.IntN(3)]
	w.log("%s pass", d)
	time.Sleep(d)
	return nil
}

// release does what was held, in any order.
func (w *simWorld) release(m *simMachine, _ string) error {
	held, err := m.store.Held(w.ctx, 0)
	if err != nil || len(held) == 0 {
		return err
	}
	h := held[w.rng.IntN(len(held))]
	h.Release(w.ctx)
	w.log("m%d: held %s is done", m.n, h.Op)
	return nil
}

func (w *simWorld) verify(*simMachine, string) error {
	c, err := w.client(nil)
	if err != nil {
		return err
	}
	for _, name := range simNames {
		if !w.names[name].live {
			continue
		}
		r, err := c.Verify(w.ctx, name)
		if err != nil || !r.OK() {
			return broke("%s is not sound: %v %+v", name, err, r)
		}
	}
	return nil
}

// finish looks at everything once more, when all is calm.
func (w *simWorld) finish() error {
	for _, m := range w.machines {
		held, _ := m.store.Held(w.ctx, 0)
		for _, h := range held {
			h.Release(w.ctx)
		}
		w.off(m)
		m.disk.Restart()
	}
	if err := w.verify(nil, ""); err != nil {
		return err
	}
	c, err := w.client(nil)
	if err != nil {
		return err
	}
	time.Sleep(3 * time.Hour)
	for _, name := range simNames {
		n := w.names[name]
		if !n.live {
			continue
		}
		m := &simMachine{n: 9, disk: w.machines[0].disk, store: tonbotest.NewStore(w.inner), dbs: map[string]*simHandle{}, ros: map[string]*simReader{}}
		o := w.options(nil)
		if gone, err := w.revive(c, name); err != nil {
			return err
		} else if gone {
			continue
		}
		db, err := tonbo.Open(w.ctx, name, o)
		if n.dying && errors.Is(err, tonbo.ErrDeleted) {
			if err := c.Delete(w.ctx, name); err != nil {
				return broke("%s cannot be deleted any more: %v", name, err)
			}
			n.live = false
			continue
		}
		if err != nil {
			return broke("%s cannot be opened any more: %v", name, err)
		}
		h := &simHandle{db: db}
		if err = w.opened(m, name, h); err == nil {
			if len(h.list) > 0 {
				err = step(db.DB, commit{len(h.list) + 1, uint64(w.steps)}, false)
			}
			if err == nil {
				err = db.Synced(w.ctx)
			}
			if err == nil {
				err = db.Compact(w.ctx, false)
			}
		}
		err = errors.Join(err, db.Close())
		if err != nil {
			return broke("%s cannot be used any more: %v", name, err)
		}
		if _, err := c.Collect(w.ctx, name, tonbo.CollectOptions{Grace: time.Minute}); err != nil {
			return err
		}
		for _, label := range slices.Sorted(maps.Keys(n.labels)) {
			want := n.labels[label]
			o.At = tonbo.Label(label)
			db, err := tonbo.OpenReadOnly(w.ctx, name, o)
			if err != nil {
				return broke("%s@%s cannot be read any more: %v", name, label, err)
			}
			got, err := w.found(db)
			db.Close()
			if err != nil || !slices.Equal(got, want) {
				return broke("%s@%s is %v (%v), was %v", name, label, got, err, want)
			}
			w.n.points++
		}
	}
	return w.verify(nil, "")
}
