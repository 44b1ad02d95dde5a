package main

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/benbjohnson/litestream"

	"github.com/tonbo-go/tonbo"
)

// idle holds many databases open in one process and does nothing with them.
func idle(ctx context.Context, e *env) error {
	if err := e.idleOurs(ctx, pick(e, 1000, 20)); err != nil {
		return err
	}
	if e.peers {
		return e.idleLitestream(ctx, pick(e, 200, 10))
	}
	return nil
}

// held is what a process holds.
type held struct {
	memory             int64
	files, goroutines  int
	processor, elapsed time.Duration
	traffic            traffic
}

func holds() held {
	return held{memory: resetPeak(), files: descriptors(), goroutines: runtime.NumGoroutine()}
}

// reportIdle adds what n databases hold beyond what was held before, each, and what they do while nothing is asked of them.
func (e *env) reportIdle(ctx context.Context, system string, n int, before held, p *apart) error {
	after := holds()
	p.reset()
	watch := pick(e, 20*time.Second, time.Second)
	busy := processor()
	t := time.NewTimer(watch)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	busy = processor() - busy
	tr := p.traffic()
	each := float64(n)
	cpu := 100 * busy.Seconds() / watch.Seconds()
	e.add(fmt.Sprintf("%d databases", n), system, 1, value{"kB each", float64(after.memory-before.memory) / each / 1e3}, value{"files each", float64(after.files-before.files) / each},
		value{"goroutines each", float64(after.goroutines-before.goroutines) / each}, value{"requests/s", float64(tr.requests) / watch.Seconds()}, value{"CPU %", cpu},
		value{"MB in all", float64(after.memory) / 1e6})
	if system == "tonbo" {
		e.atMost("kB each", float64(after.memory-before.memory)/each/1e3, 33)
		e.atMost("files each", float64(after.files-before.files)/each, 1)
		e.atMost("goroutines each, without that of a sql.DB", float64(after.goroutines-before.goroutines)/each-1, 0.01)
		e.atMost("requests", float64(tr.requests), 0)
		e.atMost("CPU %", cpu, .1)
	}
	return nil
}

func (e *env) idleOurs(ctx context.Context, n int) error {
	p, err := e.through(line{})
	if err != nil {
		return err
	}
	defer p.close()
	o, done, err := e.options(ctx, p.endpoint(), e.fresh("idle"))
	if err != nil {
		return err
	}
	defer done()
	c, err := tonbo.NewClient(o)
	if err != nil {
		return err
	}
	first := pick(e, 100, 8) // with them come what there is once for all, and the spans of the heap that small objects share
	dbs := make([]*tonbo.DB, first+n)
	defer func() {
		for _, db := range dbs {
			if db != nil {
				_ = db.Close() // it is removed with the rest
			}
		}
	}()
	if err := e.openIdle(ctx, c, dbs, 0, first); err != nil {
		return err
	}
	before := holds()
	if err := e.openIdle(ctx, c, dbs, first, first+n); err != nil {
		return err
	}
	return e.reportIdle(ctx, "tonbo", n, before, p)
}

// openIdle opens some databases, makes a few steps in each, and waits until all that are open do nothing: their connections are closed a minute after the last use, the goroutine that database/sql
// has for that ends a minute later, and what is done some seconds after the last commit is done.
func (e *env) openIdle(ctx context.Context, c *tonbo.Client, dbs []*tonbo.DB, from, to int) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i := from; i < to; i++ {
		g.Go(func() error {
			name := fmt.Sprintf("agent-%d", i)
			if _, err := c.Create(gctx, name, tonbo.CreateOptions{}); err != nil {
				return err
			}
			db, err := c.Open(gctx, name)
			if err != nil {
				return err
			}
			dbs[i] = db
			if e.small {
				db.SetMaxIdleConns(-1)
				db.SetConnMaxIdleTime(time.Second)
			}
			if _, err := db.ExecContext(gctx, schema); err != nil {
				return err
			}
			w := newWriter(uint64(i))
			for range 5 {
				if _, err := db.ExecContext(gctx, insertStep, w.nextStep(800)...); err != nil {
					return err
				}
			}
			return db.Synced(gctx)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	e.logf("%d databases are open; waiting until they are idle", to)
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for quiet := 0; quiet < pick(e, 70, 2); {
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		open := 0
		for _, db := range dbs[:to] {
			open += db.Stats().OpenConnections
		}
		if open == 0 {
			quiet++
		}
	}
	return nil
}

func (e *env) idleLitestream(ctx context.Context, n int) error {
	p, err := e.through(line{})
	if err != nil {
		return err
	}
	defer p.close()
	dir, err := e.dir("idle")
	if err != nil {
		return err
	}
	defer e.discard(dir)
	before := holds()
	prefix := e.fresh("idle")
	var dbs []*litestream.DB
	for i := range n {
		file := filepath.Join(dir, fmt.Sprint(i), "db")
		if err := makeSmall(ctx, file, uint64(i)); err != nil {
			return err
		}
		c := e.litestreamClient(p.endpoint(), fmt.Sprintf("%s/%d", prefix, i))
		if err := c.Init(ctx); err != nil {
			return err
		}
		db := litestream.NewDB(file)
		db.Replica = litestream.NewReplicaWithClient(db, c)
		dbs = append(dbs, db)
	}
	store := litestream.NewStore(dbs, litestream.CompactionLevels{{Level: 0}, {Level: 1, Interval: 30 * time.Second}, {Level: 2, Interval: 5 * time.Minute}})
	if err := store.Open(ctx); err != nil {
		return err
	}
	t := time.NewTimer(pick(e, 45*time.Second, 2*time.Second)) // its first snapshots and compactions
	defer t.Stop()
	select {
	case <-t.C:
		err = e.reportIdle(ctx, "litestream", n, before, p)
	case <-ctx.Done():
		err = ctx.Err()
	}
	_ = store.Close(ctx) // it is removed with the rest
	return err
}
