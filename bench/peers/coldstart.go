package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	sqlitedriver "github.com/ncruces/go-sqlite3/driver"

	"github.com/tonbo-go/tonbo"
)

// rowSizes are the sizes of databases whose first row is measured.
func (e *env) rowSizes() []int64 {
	if e.small {
		return []int64{2e6, 8e6}
	}
	if e.large {
		return []int64{10e6, 1e9, 10e9}
	}
	return []int64{10e6, 1e9}
}

// coldStart opens a database on a machine that has nothing, and reads one row by its key. Beside it: litestream's restore and the same query, and one raw GET.
func coldStart(ctx context.Context, e *env) error {
	var first, last time.Duration
	for _, n := range e.rowSizes() {
		d, err := e.bring(ctx, n)
		if err != nil {
			return err
		}
		p, err := e.through(line{delay: 20 * time.Millisecond})
		if err != nil {
			return err
		}
		ours, err := e.coldRows(ctx, d, p)
		if err == nil && e.peers {
			err = e.coldRestores(ctx, d, p, ours)
		}
		if err == nil {
			err = e.coldFloor(ctx, d, p)
		}
		p.close()
		if err != nil {
			return err
		}
		if first == 0 {
			first = ours
		}
		last = ours
	}
	e.atMost("largest against smallest", float64(last)/float64(first), 1.5)
	return nil
}

func (e *env) coldRows(ctx context.Context, d *imported, p *apart) (time.Duration, error) {
	var t, opens times
	var tr traffic
	for i := range e.rounds {
		o, done, err := e.options(ctx, p.endpoint(), d.prefix)
		if err != nil {
			return 0, err
		}
		o.Hydration = tonbo.HydrateNone // what it fetches in the background is not what is measured here
		p.reset()
		start := time.Now()
		db, err := tonbo.Open(ctx, d.name, o)
		if err != nil {
			done()
			return 0, err
		}
		opens = append(opens, time.Since(start))
		err = readStep(ctx, db, 1+(i*7919+d.steps/3)%d.steps)
		t = append(t, time.Since(start))
		tr = p.traffic()
		if cerr := db.Close(); err == nil {
			err = cerr
		}
		done()
		if err != nil {
			return 0, err
		}
	}
	e.add(size(d.bytes)+", "+p.line.String(), "tonbo", e.rounds, append(spent(t, tr), value{"open p50 ms", ms(opens.p50())}, kindsOf(tr, "LIST"), kindsOf(tr, "PUT"))...)
	e.atMost(size(d.bytes)+": serial round trips", float64(tr.serial), 8)
	return t.p50(), nil
}

func kindsOf(tr traffic, kind string) value { return value{kind, float64(tr.kinds[kind])} }

// coldRestores takes fewer rounds of what takes long.
func (e *env) coldRestores(ctx context.Context, d *imported, p *apart, ours time.Duration) error {
	path, err := e.litestreamed(ctx, d)
	if err != nil {
		return err
	}
	rounds := e.rounds
	if d.bytes > 100e6 {
		rounds = min(rounds, 3)
	}
	if d.bytes > 5e9 {
		rounds = 1
	}
	var t times
	var tr traffic
	for i := range rounds {
		dir, err := e.dir("restore")
		if err != nil {
			return err
		}
		file := filepath.Join(dir, "db")
		p.reset()
		start := time.Now()
		err = e.restore(ctx, p.endpoint(), path, file)
		if err == nil {
			err = queryFile(ctx, file, 1+(i*7919+d.steps/3)%d.steps)
		}
		t = append(t, time.Since(start))
		tr = p.traffic()
		e.discard(dir)
		if err != nil {
			return fmt.Errorf("litestream restore: %w", err)
		}
	}
	e.add(size(d.bytes)+", "+p.line.String(), "litestream restore", rounds, spent(t, tr)...)
	if err := e.coldVFS(ctx, d, p, path); err != nil {
		return err
	}
	if d.bytes > 500e6 {
		e.atLeast(size(d.bytes)+": times faster than litestream restore", float64(t.p50())/float64(ours), 20)
	}
	return nil
}

// coldVFS reads one row through litestream's VFS, where that is built in.
func (e *env) coldVFS(ctx context.Context, d *imported, p *apart, path string) error {
	if openVFS == nil {
		return nil
	}
	var t times
	var tr traffic
	for i := range e.rounds {
		p.reset()
		start := time.Now()
		c := e.litestreamClient(p.endpoint(), path)
		if err := c.Init(ctx); err != nil {
			return err
		}
		db, err := openVFS(c, e.fresh("litestream"))
		if err != nil {
			return fmt.Errorf("litestream VFS: %w", err)
		}
		err = readStep(ctx, db, 1+(i*7919+d.steps/3)%d.steps)
		t = append(t, time.Since(start))
		tr = p.traffic()
		if cerr := db.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return fmt.Errorf("litestream VFS: %w", err)
		}
	}
	e.add(size(d.bytes)+", "+p.line.String(), "litestream VFS", e.rounds, spent(t, tr)...)
	return nil
}

// queryFile opens a plain file as a program would, and reads one row.
func queryFile(ctx context.Context, file string, id int) error {
	db, err := sqlitedriver.Open("file:" + file)
	if err != nil {
		return err
	}
	defer db.Close()
	return readStep(ctx, db, id)
}

// coldFloor is one round trip.
func (e *env) coldFloor(ctx context.Context, d *imported, p *apart) error {
	list, err := e.stored(d.prefix)
	if err != nil {
		return err
	}
	r := e.raw(p.endpoint())
	defer r.close()
	buf := make([]byte, 64<<10)
	var t times
	var tr traffic
	for range e.rounds {
		p.reset()
		start := time.Now()
		o := list[len(list)/2]
		if err := r.get(ctx, part{o.key, 0, min(o.size, int64(len(buf)))}, buf, func(int64, []byte) error { return nil }); err != nil {
			return err
		}
		t = append(t, time.Since(start))
		tr = p.traffic()
	}
	e.add(size(d.bytes)+", "+p.line.String(), "one raw GET of 64 KiB", e.rounds, spent(t, tr)...)
	return nil
}
