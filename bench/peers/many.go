package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo"
)

// many runs 16 databases in one process, each of which commits and waits for the remote as fast as it goes, and 16 loops of raw PUTs of as many bytes.
func many(ctx context.Context, e *env) error {
	for _, l := range e.lines(line{}, line{delay: 20 * time.Millisecond}) {
		if err := e.manyOver(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

func (e *env) manyOver(ctx context.Context, l line) (err error) {
	const n = 16
	d, err := e.bring(ctx, pick[int64](e, 10e6, 2e6))
	if err != nil {
		return err
	}
	p, err := e.through(l)
	if err != nil {
		return err
	}
	defer p.close()
	var dbs []*tonbo.DB
	for range n {
		db, done, err := e.forked(ctx, d, p.endpoint(), nil)
		if err != nil {
			return err
		}
		defer func() { _ = done() }() // it is removed with the rest
		dbs = append(dbs, db)
	}
	raw := e.raw(p.endpoint())
	defer raw.close()
	stretch := pick(e, 3*time.Second, 200*time.Millisecond)
	var ours, puts, ratios []float64
	var up, count int64
	for range e.rounds {
		var rows [n]func() []any
		for k := range rows {
			w := newWriter(uint64(k))
			w.step = d.steps
			rows[k] = ahead(func() []any { return w.nextStep(800) }, pick(e, 1000, 10))
		}
		p.reset()
		a, err := inParallel(ctx, n, stretch, func(ctx context.Context, k int) func() error {
			return func() error {
				if _, err := dbs[k].ExecContext(ctx, insertStep, rows[k]()...); err != nil {
					return err
				}
				return dbs[k].Synced(ctx)
			}
		})
		if err != nil {
			return err
		}
		tr := p.traffic()
		up += tr.bytesUp
		count += int64(a)
		body := make([]byte, max(200, tr.bytesUp/int64(max(1, tr.kinds["PUT"]))))
		prefix := e.fresh("raw")
		b, err := inParallel(ctx, n, stretch, func(ctx context.Context, k int) func() error {
			i := 0
			return func() error { i++; return raw.put(ctx, fmt.Sprintf("%s/%d/%d", prefix, k, i), body) }
		})
		if err != nil {
			return err
		}
		s := stretch.Seconds()
		ours, puts, ratios = append(ours, float64(a)/s), append(puts, float64(b)/s), append(ratios, float64(a)/float64(b))
	}
	e.add(l.String(), "tonbo, 16 databases", e.rounds, value{"steps/s", median(ours)}, value{"kB up a step", float64(up) / float64(count) / 1e3})
	e.add(l.String(), "16 loops of raw PUTs", e.rounds, value{"steps/s", median(puts)})
	e.atLeast(l.String()+": of 16 raw PUT loops", median(ratios), .8)
	return nil
}

// ahead makes n things up before they are asked for: that is no part of what is measured.
func ahead[T any](next func() T, n int) func() T {
	made := make([]T, n)
	for i := range made {
		made[i] = next()
	}
	return func() T {
		if len(made) == 0 {
			return next()
		}
		first := made[0]
		made = made[1:]
		return first
	}
}

// inParallel calls what n makers return, again and again for a while, and returns how often.
func inParallel(ctx context.Context, n int, stretch time.Duration, begin func(ctx context.Context, k int) func() error) (int, error) {
	g, ctx := errgroup.WithContext(ctx)
	counts := make([]int, n)
	end := time.Now().Add(stretch)
	for k := range n {
		f := begin(ctx, k)
		g.Go(func() error {
			for time.Now().Before(end) {
				if err := f(); err != nil {
					return err
				}
				counts[k]++
			}
			return nil
		})
	}
	err := g.Wait()
	sum := 0
	for _, c := range counts {
		sum += c
	}
	return sum, err
}
