package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"time"

	"github.com/tonbo-go/tonbo"
)

// step commits 1 kB to a database of 10 MB and waits until the remote has it. Beside it, in turns: a raw conditional PUT of as many bytes, and litestream.
func step(ctx context.Context, e *env) error {
	for _, l := range e.lines(line{}, line{delay: 20 * time.Millisecond}) {
		if err := e.stepsOver(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// forked makes a fork of a database, as something to write to, and opens it. done closes it and removes the machine.
func (e *env) forked(ctx context.Context, d *imported, endpoint string, set func(*tonbo.Options)) (db *tonbo.DB, done func() error, err error) {
	o, rm, err := e.options(ctx, endpoint, d.prefix)
	if err != nil {
		return nil, nil, err
	}
	o.Hydration = tonbo.HydrateFull
	if set != nil {
		set(&o)
	}
	c, err := tonbo.NewClient(o)
	if err == nil {
		name := e.fresh("fork")
		if _, err = c.Fork(ctx, d.name, name, tonbo.ForkOptions{}); err == nil {
			db, err = c.Open(ctx, name)
		}
	}
	if err != nil {
		rm()
		return nil, nil, err
	}
	return db, func() error {
		err := db.Close()
		rm()
		return err
	}, nil
}

func (e *env) stepsOver(ctx context.Context, l line) (err error) {
	d, err := e.bring(ctx, pick[int64](e, 10e6, 2e6))
	if err != nil {
		return err
	}
	var lines [3]*apart // ours, raw, litestream
	for i := range lines {
		if lines[i], err = e.through(l); err != nil {
			return err
		}
		defer lines[i].close()
	}
	db, done, err := e.forked(ctx, d, lines[0].endpoint(), nil)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := done(); err == nil {
			err = cerr
		}
	}()
	peer, err := e.writable(ctx, d, lines[2].endpoint(), e.fresh("litestream"))
	if err != nil {
		return err
	}
	defer peer.close(ctx)
	raw := e.raw(lines[1].endpoint())
	defer raw.close()
	steps := pick(e, 100*e.rounds, 20)
	var t, commits, puts, syncs, cpu, peerCPU times
	w := newWriter(11)
	w.step = d.steps
	for _, p := range lines {
		p.reset()
	}
	for i := range steps {
		args := w.nextStep(800)
		busy := processor()
		start := time.Now()
		if _, err := db.ExecContext(ctx, insertStep, args...); err != nil {
			return err
		}
		commits = append(commits, time.Since(start))
		before := db.Status().Requests.BytesUp
		start = time.Now()
		if err := db.Synced(ctx); err != nil {
			return err
		}
		t = append(t, time.Since(start))
		cpu = append(cpu, processor()-busy)
		body := make([]byte, max(200, db.Status().Requests.BytesUp-before))
		rand.Read(body)
		start = time.Now()
		if err := raw.put(ctx, fmt.Sprintf("%s/%d", e.fresh("raw"), i), body); err != nil {
			return err
		}
		puts = append(puts, time.Since(start))
		if !e.peers {
			continue
		}
		busy = processor()
		if _, err := peer.app.ExecContext(ctx, insertStep, args...); err != nil {
			return err
		}
		start = time.Now()
		if err := litestreamSync(ctx, peer.db); err != nil {
			return err
		}
		syncs = append(syncs, time.Since(start))
		peerCPU = append(peerCPU, processor()-busy)
	}
	n := float64(steps)
	row := func(system string, t times, tr traffic, more ...value) {
		e.add(l.String(), system, len(t), append([]value{{"p50 ms", ms(t.p50())}, {"p99 ms", ms(t.at(.99))}, {"PUTs", float64(tr.kinds["PUT"]) / n},
			{"other requests", float64(tr.requests-tr.kinds["PUT"]) / n}, {"kB up", float64(tr.bytesUp) / n / 1e3}}, more...)...)
	}
	ours, theirs := lines[0].traffic(), lines[2].traffic()
	row("tonbo", t, ours, value{"CPU ms", ms(cpu.p50())}, value{"commit p50 ms", ms(commits.p50())})
	row("raw PUT", puts, lines[1].traffic())
	if e.peers {
		row("litestream", syncs, theirs, value{"CPU ms", ms(peerCPU.p50())})
		e.atMost(l.String()+": kB up against litestream", float64(ours.bytesUp)/float64(theirs.bytesUp), .25)
		e.atMost(l.String()+": CPU against litestream", float64(cpu.p50())/float64(peerCPU.p50()), .4)
	}
	p50, p99 := 1.03, 1.1
	if l.delay == 0 {
		p50, p99 = 1.3, 1.5
	}
	e.atMost(l.String()+": p50 against raw PUT", float64(t.p50())/float64(puts.p50()), p50)
	e.atMost(l.String()+": p99 against raw PUT", float64(t.at(.99))/float64(puts.at(.99)), p99)
	e.atMost(l.String()+": kB up", float64(ours.bytesUp)/n/1e3, 1.6)
	return nil
}

// resume opens a database on a machine that has nothing, commits, and waits until the remote has it.
func resume(ctx context.Context, e *env) error {
	for _, n := range pick(e, []int64{10e6, 100e6, 1e9}, []int64{2e6, 8e6}) {
		d, err := e.bring(ctx, n)
		if err != nil {
			return err
		}
		if err := e.resumeOver(ctx, d, line{delay: 20 * time.Millisecond}); err != nil {
			return err
		}
	}
	return nil
}

func (e *env) resumeOver(ctx context.Context, d *imported, l line) error {
	p, err := e.through(l)
	if err != nil {
		return err
	}
	defer p.close()
	// A fork of its own: each round adds to it.
	name, err := e.usedFork(ctx, d)
	if err != nil {
		return err
	}
	var t, restores times
	var tr, lsTraffic traffic
	for range e.rounds {
		o, done, err := e.options(ctx, p.endpoint(), d.prefix)
		if err != nil {
			return err
		}
		o.Hydration = tonbo.HydrateNone
		p.reset()
		start := time.Now()
		db, err := tonbo.Open(ctx, name, o)
		if err != nil {
			done()
			return err
		}
		err = work(ctx, db, d.steps, 1)
		t = append(t, time.Since(start))
		tr = p.traffic()
		if cerr := db.Close(); err == nil {
			err = cerr
		}
		done()
		if err != nil {
			return err
		}
	}
	c := size(d.bytes) + ", " + l.String()
	e.add(c, "tonbo", len(t), spent(t, tr)...)
	e.atMost(c+": serial round trips", float64(tr.serial), 6)
	e.atMost(c+": kB up", float64(tr.bytesUp)/1e3, 16)
	if !e.peers || d.bytes > 500e6 {
		return nil
	}
	path, err := e.litestreamedAnew(ctx, d)
	if err != nil {
		return err
	}
	for range min(e.rounds, 3) {
		dir, err := e.dir("restore")
		if err != nil {
			return err
		}
		file := filepath.Join(dir, "db")
		p.reset()
		start := time.Now()
		err = e.restore(ctx, p.endpoint(), path, file)
		var peer *replicated
		if err == nil {
			peer, err = e.replicateFile(ctx, file, p.endpoint(), path)
		}
		if err == nil {
			w := newWriter(3)
			w.step = d.steps
			if _, err = peer.app.ExecContext(ctx, insertStep, w.nextStep(800)...); err == nil {
				err = litestreamSync(ctx, peer.db)
			}
			restores, lsTraffic = append(restores, time.Since(start)), p.traffic()
			peer.close(ctx)
		}
		e.discard(dir)
		if err != nil {
			return fmt.Errorf("litestream: %w", err)
		}
	}
	e.add(c, "litestream restore, commit, sync", len(restores), spent(restores, lsTraffic)...)
	return nil
}

// usedFork makes a fork and works on it a little, and returns its name.
func (e *env) usedFork(ctx context.Context, d *imported) (string, error) {
	db, done, err := e.forked(ctx, d, e.server.Endpoint, func(o *tonbo.Options) { o.Hydration = tonbo.HydrateNone })
	if err != nil {
		return "", err
	}
	err = work(ctx, db, d.steps, 10)
	name := db.Status().Name
	if cerr := done(); err == nil {
		err = cerr
	}
	return name, err
}
