package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/layout"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
)

const (
	rawParallel = 8
	rawPart     = 4 << 20
)

// hydrate brings every page of a database to a machine that has nothing, until Hydrated returns: unpacked, compared, in a file. Beside it, for the same objects:
// raw parallel GETs whose bytes are thrown away, the same written into a file as they are, the same unpacked and written at their places (what any reader of
// this format has to do, with nothing checked), and litestream's restore.
func hydrate(ctx context.Context, e *env) error {
	d, err := e.bring(ctx, pick[int64](e, 1e9, 8e6))
	if err != nil {
		return err
	}
	for _, l := range e.lines(line{}, line{delay: 20 * time.Millisecond}, line{delay: 20 * time.Millisecond, rate: 100e6}) {
		if err := e.hydrateOver(ctx, d, l); err != nil {
			return err
		}
	}
	return nil
}

func (e *env) hydrateOver(ctx context.Context, d *imported, l line) error {
	p, err := e.through(l)
	if err != nil {
		return err
	}
	defer p.close()
	list, err := e.hydrated(ctx, d, p, nil, nil, nil) // warms up, and tells which objects it takes
	if err != nil {
		return err
	}
	var t, discard, file, unpack, restore, cpu, unpackCPU, restoreCPU times
	var peaks []float64
	var tr traffic
	var litestream string
	if e.peers {
		if litestream, err = e.litestreamed(ctx, d); err != nil {
			return err
		}
	}
	var raw, rawFile, rawUnpack, lsTraffic traffic
	for i := range e.rounds { // in turns
		e.logf("%s: round %d", l, i+1)
		var err error
		pprof.Do(ctx, pprof.Labels("system", "tonbo"), func(ctx context.Context) { _, err = e.hydrated(ctx, d, p, &t, &cpu, &peaks) })
		if err != nil {
			return err
		}
		tr = p.traffic()
		for _, side := range []struct {
			t    *times
			tr   *traffic
			file bool
		}{{&discard, &raw, false}, {&file, &rawFile, true}} {
			p.reset()
			took, err := e.rawGets(ctx, p, list, side.file)
			if err != nil {
				return err
			}
			*side.t, *side.tr = append(*side.t, took), p.traffic()
		}
		p.reset()
		busy := processor()
		took, err := e.unpacked(ctx, d, p, list)
		if err != nil {
			return err
		}
		unpack, rawUnpack, unpackCPU = append(unpack, took), p.traffic(), append(unpackCPU, processor()-busy)
		if e.peers && i < 3 {
			dir, err := e.dir("restore")
			if err != nil {
				return err
			}
			p.reset()
			start, busy := time.Now(), processor()
			err = e.restore(ctx, p.endpoint(), litestream, filepath.Join(dir, "db"))
			restore, lsTraffic = append(restore, time.Since(start)), p.traffic()
			restoreCPU = append(restoreCPU, processor()-busy)
			e.discard(dir)
			if err != nil {
				return fmt.Errorf("litestream restore: %w", err)
			}
		}
	}
	c := size(d.bytes) + ", " + l.String()
	rate := func(t times) value { return value{"MB/s of pages", float64(d.bytes) / 1e6 / t.p50().Seconds()} }
	e.add(c, "tonbo", len(t), append(spent(t, tr), rate(t), value{"CPU s", cpu.p50().Seconds()}, value{"CPU s least", cpu.at(0).Seconds()}, value{"peak MiB", median(peaks)})...)
	e.add(c, "raw GETs, discarded", len(discard), append(spent(discard, raw), rate(discard))...)
	e.add(c, "raw GETs, into a file", len(file), append(spent(file, rawFile), rate(file))...)
	e.add(c, "raw GETs, unpacked into a file", len(unpack), append(spent(unpack, rawUnpack), rate(unpack), value{"CPU s", unpackCPU.p50().Seconds()}, value{"CPU s least", unpackCPU.at(0).Seconds()})...)
	e.atLeast(l.String()+": of raw GETs, discarded", float64(discard.p50())/float64(t.p50()), .8)
	e.atLeast(l.String()+": of raw GETs, unpacked into a file", float64(unpack.p50())/float64(t.p50()), .8)
	e.atMost(l.String()+": peak memory over start, MiB", median(peaks), 128)
	if e.peers {
		e.add(c, "litestream restore", len(restore), append(spent(restore, lsTraffic), rate(restore), value{"CPU s", restoreCPU.p50().Seconds()}, value{"CPU s least", restoreCPU.at(0).Seconds()})...)
		e.atLeast(l.String()+": times faster than litestream restore", float64(restore.p50())/float64(t.p50()), 3)
	}
	return nil
}

// hydrated opens a database, waits until all of it is here, and returns the objects that this took.
func (e *env) hydrated(ctx context.Context, d *imported, p *apart, t, cpu *times, peaks *[]float64) ([]object, error) {
	o, done, err := e.options(ctx, p.endpoint(), d.prefix)
	if err != nil {
		return nil, err
	}
	defer done()
	p.reset()
	before := resetPeak()
	start, busy := time.Now(), processor()
	db, err := tonbo.Open(ctx, d.name, o)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if err := db.Hydrated(ctx); err != nil {
		return nil, err
	}
	took := time.Since(start)
	_, peak := memory()
	if t != nil {
		*t, *cpu = append(*t, took), append(*cpu, processor()-busy)
		*peaks = append(*peaks, float64(peak-before)/(1<<20))
	}
	if err := readStep(ctx, db, d.steps/2); err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, q := range p.traffic().list {
		if q.Kind == "GET" && strings.Contains(q.Path, "/seg/") {
			used[strings.TrimPrefix(q.Path, "/"+e.server.Bucket+"/")] = true
		}
	}
	all, err := e.stored(d.prefix)
	if err != nil {
		return nil, err
	}
	var list []object
	for _, obj := range all {
		if !used[obj.key] {
			continue
		}
		head, err := o.Remote.Get(ctx, strings.TrimPrefix(obj.key, d.prefix+"/"), remote.GetOptions{Length: kindAt + 1})
		if err != nil {
			return nil, err
		}
		if segment.Kind(head.Body[kindAt]) == segment.KindSegment { // and no pack: what that holds is not written where pages belong before it is merged with them
			list = append(list, obj)
		}
	}
	return list, nil
}

// kindAt is where an object's kind stands: docs/format.md, Header.
const kindAt = 10

// rawGets fetches objects, and throws them away or writes them into one file.
func (e *env) rawGets(ctx context.Context, p *apart, list []object, keep bool) (time.Duration, error) {
	r := e.raw(p.endpoint())
	defer r.close()
	dir, err := e.dir("raw")
	if err != nil {
		return 0, err
	}
	defer e.discard(dir)
	var f *os.File
	start := time.Now()
	if keep {
		if f, err = os.Create(filepath.Join(dir, "objects")); err != nil {
			return 0, err
		}
		defer f.Close()
	}
	err = r.getAll(ctx, split(list, rawPart), rawParallel, f)
	return time.Since(start), err
}

// unpacked fetches whole segments, unpacks their blocks and writes these where the pages belong. It keeps no bitmap, no sums, and compares nothing but what
// unpacking a block does.
func (e *env) unpacked(ctx context.Context, d *imported, p *apart, list []object) (time.Duration, error) {
	o, done, err := e.options(ctx, p.endpoint(), d.prefix)
	if err != nil {
		return 0, err
	}
	defer done()
	start := time.Now()
	f, err := os.Create(filepath.Join(o.Dir, "pages"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(rawParallel)
	for _, obj := range list {
		key := strings.TrimPrefix(obj.key, d.prefix+"/")
		seg := layout.Remote(o.Remote, 4096, segment.Ref{Key: key, First: 1, Last: segment.MaxPage, Size: obj.size})
		ix, err := seg.Index(ctx)
		if err != nil {
			return 0, err
		}
		const blocks = rawPart / segment.BlockSize
		for i := 0; i < len(ix.Blocks); i += blocks {
			g.Go(func() error {
				var first uint32
				buf := make([]byte, 0, 256<<10)
				put := func() error {
					_, err := f.WriteAt(buf, int64(first-1)*4096)
					buf = buf[:0]
					return err
				}
				err := seg.Blocks(ctx, i, min(i+blocks, len(ix.Blocks)), nil, func(pgno uint32, page []byte) error {
					if n := uint32(len(buf) / 4096); n > 0 && (pgno != first+n || len(buf) == cap(buf)) {
						if err := put(); err != nil {
							return err
						}
					}
					if len(buf) == 0 {
						first = pgno
					}
					buf = append(buf, page...)
					return nil
				})
				if err != nil || len(buf) == 0 {
					return err
				}
				return put()
			})
		}
	}
	err = g.Wait()
	return time.Since(start), err
}
