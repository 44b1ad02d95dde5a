package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/remote"
)

// settled does a thousand steps, each acknowledged, on a database of 12 MB, closes it, and counts what is in the bucket.
func settled(ctx context.Context, e *env) error {
	source, have, err := e.generate(ctx, pick[int64](e, 12e6, 1e6))
	if err != nil {
		return err
	}
	steps := pick(e, 1000, 40)
	p, err := e.through(line{})
	if err != nil {
		return err
	}
	defer p.close()
	prefix := e.fresh("settled")
	o, done, err := e.options(ctx, p.endpoint(), prefix)
	if err != nil {
		return err
	}
	defer done()
	c, err := tonbo.NewClient(o)
	if err != nil {
		return err
	}
	if _, err := c.Import(ctx, "agent", source, tonbo.CreateOptions{}); err != nil {
		return err
	}
	db, err := c.Open(ctx, "agent")
	if err != nil {
		return err
	}
	err = work(ctx, db, have, steps)
	if cerr := db.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	tr := p.traffic()
	list, err := e.stored(prefix)
	if err != nil {
		return err
	}
	plain := filepath.Join(o.Dir, "exported.db")
	if err := exportTo(ctx, c, "agent", plain); err != nil {
		return err
	}
	snapshot, err := zstdSize(plain)
	if err != nil {
		return err
	}
	need, err := headNeeds(ctx, o.Remote, "agent")
	if err != nil {
		return err
	}
	segments, head, headBytes := 0, 0, int64(0) // beside the log; of these and of the log's, what the head needs
	for _, ob := range list {
		inLog := filepath.Base(filepath.Dir(filepath.FromSlash(ob.key))) == "log"
		if !inLog {
			segments++
		}
		if need(strings.TrimPrefix(ob.key, prefix+"/")) {
			headBytes += ob.size
			if !inLog {
				head++
			}
		}
	}
	c1 := fmt.Sprintf("%d steps", steps)
	figures := func(n int, bytes int64, tr traffic) []value {
		return []value{{"MB stored", float64(bytes) / 1e6}, {"objects", float64(n)}, {"MB up in all", float64(tr.bytesUp) / 1e6}, {"PUTs", float64(tr.kinds["PUT"])}, {"requests", float64(tr.requests)}}
	}
	e.add(c1, "tonbo, with a day's history", 1, append(figures(len(list), bytesIn(list), tr), value{"not in the log", float64(segments)}, value{"of these for the head", float64(head)}, value{"MB for the head", float64(headBytes) / 1e6})...)
	e.add(c1, "zstd of the file", 1, value{"MB stored", float64(snapshot) / 1e6}, value{"objects", 1})
	e.atMost("objects beside the log that the head needs", float64(head), 10)
	e.atMost("bytes that the head needs against zstd of the file", float64(headBytes)/float64(snapshot), 1.5)
	if e.peers {
		theirs, err := e.settledLitestream(ctx, source, have, steps, figures, c1)
		if err != nil {
			return err
		}
		e.atMost("MB up in all against litestream", float64(tr.bytesUp)/float64(theirs.bytesUp), .3)
	}
	return nil
}

// headNeeds tells of an object whether the newest state of a database stands on it: the others are what the history window holds. The account's own are needed.
func headNeeds(ctx context.Context, s remote.Store, name string) (need func(key string) bool, err error) {
	head, err := fence.New(s, name, fence.Options{}).Head(ctx)
	if err != nil {
		return nil, err
	}
	if head == nil || head.Base == "" || head.Tail == nil {
		return nil, fmt.Errorf("%s is not settled: %+v", name, head)
	}
	of := map[string]bool{fence.SlotKey(name, head.Slot): true, head.Base: true}
	for _, slot := range head.Tail {
		of[fence.SlotKey(name, slot)] = true
	}
	o, err := s.Get(ctx, head.Base, remote.GetOptions{})
	if err != nil {
		return nil, err
	}
	m, err := base.Decode(o.Body)
	if err != nil {
		return nil, err
	}
	for key := range m.Named() {
		of[key] = true
	}
	return func(key string) bool { return of[key] || !strings.HasPrefix(key, "db/"+name+"/") }, nil
}

func (e *env) settledLitestream(ctx context.Context, source string, have, steps int, figures func(int, int64, traffic) []value, c string) (traffic, error) {
	p, err := e.through(line{})
	if err != nil {
		return traffic{}, err
	}
	defer p.close()
	dir, err := e.dir("litestream")
	if err != nil {
		return traffic{}, err
	}
	defer e.discard(dir)
	file, path := filepath.Join(dir, "db"), e.fresh("litestream")
	if err := copyFile(source, file); err != nil {
		return traffic{}, err
	}
	r, err := e.replicateFile(ctx, file, p.endpoint(), path)
	if err != nil {
		return traffic{}, err
	}
	defer r.close(ctx)
	w := newWriter(uint64(have))
	w.step = have
	for i := range steps {
		if _, err := r.app.ExecContext(ctx, insertStep, w.nextStep(1000)...); err != nil {
			return traffic{}, err
		}
		if err := litestreamSync(ctx, r.db); err != nil {
			return traffic{}, err
		}
		if i%30 == 29 { // its first level is merged every 30 seconds: here one step is one second
			if _, err := r.db.Compact(ctx, 1); err != nil {
				return traffic{}, err
			}
		}
	}
	if _, err := r.db.Snapshot(ctx); err != nil {
		return traffic{}, err
	}
	tr := p.traffic()
	list, err := e.stored(path)
	if err != nil {
		return traffic{}, err
	}
	e.add(c, "litestream, with its history", 1, figures(len(list), bytesIn(list), tr)...)
	return tr, nil
}

func exportTo(ctx context.Context, c *tonbo.Client, name, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	err = c.Export(ctx, name, nil, f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// zstdSize is what a file has as one zstd frame of the fastest level.
func zstdSize(file string) (int64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return 0, err
	}
	return int64(len(w.EncodeAll(b, nil))), nil
}
