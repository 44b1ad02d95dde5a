package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo"
)

// fork makes a database that begins as another one is. Beside it what takes its place elsewhere: a restore and an upload under another name.
func fork(ctx context.Context, e *env) error {
	var first, last times
	for _, n := range pick(e, []int64{10e6, 1e9}, []int64{2e6, 8e6}) {
		d, err := e.bring(ctx, n)
		if err != nil {
			return err
		}
		p, err := e.through(line{delay: 20 * time.Millisecond})
		if err != nil {
			return err
		}
		t, err := e.forkOver(ctx, d, p)
		if err == nil && e.peers {
			err = e.restoreAndUpload(ctx, d, p)
		}
		p.close()
		if err != nil {
			return err
		}
		if first == nil {
			first = t
		}
		last = t
	}
	e.atMost("largest against smallest", float64(last.p50())/float64(first.p50()), 1.5)
	return nil
}

func (e *env) forkOver(ctx context.Context, d *imported, p *apart) (times, error) {
	var t times
	var tr traffic
	o, done, err := e.options(ctx, p.endpoint(), d.prefix)
	if err != nil {
		return nil, err
	}
	defer done()
	c, err := tonbo.NewClient(o)
	if err != nil {
		return nil, err
	}
	for i := range e.rounds + 1 { // the first one connects, and finds out whether the store is fit
		p.reset()
		start := time.Now()
		if _, err := c.Fork(ctx, d.name, e.fresh("fork"), tonbo.ForkOptions{}); err != nil {
			return nil, err
		}
		if i > 0 {
			t = append(t, time.Since(start))
			tr = p.traffic()
		}
	}
	e.add(size(d.bytes)+", "+p.line.String(), "tonbo", len(t), spent(t, tr)...)
	e.atMost(size(d.bytes)+": requests", float64(tr.requests), 8)
	e.atMost(size(d.bytes)+": serial round trips", float64(tr.serial), 7)
	e.atMost(size(d.bytes)+": KiB up and down", float64(tr.bytesUp+tr.bytesDown)/1024, 16)
	return t, nil
}

func (e *env) restoreAndUpload(ctx context.Context, d *imported, p *apart) error {
	path, err := e.litestreamed(ctx, d)
	if err != nil {
		return err
	}
	rounds := e.rounds
	if d.bytes > 100e6 {
		rounds = 1
	}
	var t times
	var tr traffic
	for range rounds {
		dir, err := e.dir("restore")
		if err != nil {
			return err
		}
		p.reset()
		start := time.Now()
		err = e.restoreTo(ctx, p, path, filepath.Join(dir, "db"))
		t = append(t, time.Since(start))
		tr = p.traffic()
		e.discard(dir)
		if err != nil {
			return err
		}
	}
	e.add(size(d.bytes)+", "+p.line.String(), "litestream restore + upload", rounds, spent(t, tr)...)
	return nil
}

func (e *env) restoreTo(ctx context.Context, p *apart, path, file string) error {
	if err := e.restore(ctx, p.endpoint(), path, file); err != nil {
		return err
	}
	db, err := e.replicate(ctx, file, p.endpoint(), e.fresh("copy"))
	if err != nil {
		return err
	}
	err = litestreamSync(ctx, db)
	if cerr := db.Close(ctx); err == nil {
		err = cerr
	}
	return err
}

// forks opens twenty forks of one golden database on one machine; each reads the same part of it.
func forks(ctx context.Context, e *env) error {
	d, err := e.bring(ctx, pick[int64](e, 1e9, 8e6))
	if err != nil {
		return err
	}
	p, err := e.through(line{delay: 20 * time.Millisecond})
	if err != nil {
		return err
	}
	defer p.close()
	o, done, err := e.options(ctx, p.endpoint(), d.prefix)
	if err != nil {
		return err
	}
	defer done()
	o.Hydration = tonbo.HydrateNone
	c, err := tonbo.NewClient(o)
	if err != nil {
		return err
	}
	const n = 20
	part := min(int64(50e6), d.bytes/2)
	var names []string
	for range n {
		name := e.fresh("fork")
		if _, err := c.Fork(ctx, d.name, name, tonbo.ForkOptions{}); err != nil {
			return err
		}
		names = append(names, name)
	}
	read := func(ctx context.Context, name string) error {
		db, err := c.Open(ctx, name)
		if err != nil {
			return err
		}
		var sum int64
		err = db.QueryRowContext(ctx, "SELECT sum(length(content)) FROM step WHERE id BETWEEN ? AND ?", d.steps/4, int64(d.steps/4)+part/stepBytes).Scan(&sum)
		if err == nil && sum < part/3 {
			err = fmt.Errorf("fork %s: %d bytes of content", name, sum)
		}
		if cerr := db.Close(); err == nil {
			err = cerr
		}
		return err
	}
	p.reset()
	start := time.Now()
	if err := read(ctx, names[0]); err != nil {
		return err
	}
	one := p.traffic()
	c1 := fmt.Sprintf("%s of %s, %s", size(part), size(d.bytes), p.line)
	e.add(c1, "first fork", 1, spent(times{time.Since(start)}, one)...)
	start = time.Now()
	g, gctx := errgroup.WithContext(ctx)
	for _, name := range names[1:] {
		g.Go(func() error { return read(gctx, name) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	all := p.traffic()
	e.add(c1, "all twenty, 19 at once", 1, spent(times{time.Since(start)}, all)...)
	e.atMost("bytes down of twenty against that part of the file", float64(all.bytesDown)/float64(part), 1.1)
	e.atMost("bytes down of twenty against those of one", float64(all.bytesDown)/float64(one.bytesDown), 2)
	return nil
}
