package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote/s3"
)

// options are those of a machine that has nothing: an empty directory, and a store whose connections, credentials and first probe are its own. done lets go of them.
func (e *env) options(ctx context.Context, endpoint, prefix string) (o tonbo.Options, done func(), err error) {
	dir, err := e.dir("machine")
	if err != nil {
		return o, nil, err
	}
	store, err := s3.Open(ctx, "s3://"+e.server.Bucket+"/"+prefix+"?region="+e.server.Region+"&endpoint="+endpoint, s3.Options{})
	if err != nil {
		e.discard(dir)
		return o, nil, err
	}
	return tonbo.Options{Remote: store, Dir: dir}, func() { store.Close(); e.discard(dir) }, nil
}

// imported is a database in the remote.
type imported struct {
	prefix, name string
	source       string // the plain file that it was made of
	bytes        int64  // of that file
	steps        int
}

// bring makes a database of about so many bytes in the remote, as it is after some use: imported, opened, worked on, settled, closed.
func (e *env) bring(ctx context.Context, bytes int64) (*imported, error) {
	e.prepared.Lock()
	defer e.prepared.Unlock()
	if d := e.brought[bytes]; d != nil {
		return d, nil
	}
	source, steps, err := e.generate(ctx, bytes)
	if err != nil {
		return nil, err
	}
	fi, err := os.Stat(source)
	if err != nil {
		return nil, err
	}
	d := &imported{prefix: e.fresh("ours"), name: "agent", source: source, bytes: fi.Size(), steps: steps}
	o, done, err := e.options(ctx, e.server.Endpoint, d.prefix)
	if err != nil {
		return nil, err
	}
	defer done()
	o.Hydration = tonbo.HydrateNone
	start := time.Now()
	c, err := tonbo.NewClient(o)
	if err != nil {
		return nil, err
	}
	if _, err := c.Import(ctx, d.name, source, tonbo.CreateOptions{}); err != nil {
		return nil, err
	}
	db, err := c.Open(ctx, d.name)
	if err != nil {
		return nil, err
	}
	err = work(ctx, db, steps, 10)
	if cerr := db.Close(); err == nil {
		err = cerr
	}
	e.logf("%s imported, worked on and settled in %.1f s", size(d.bytes), time.Since(start).Seconds())
	e.brought[bytes] = d
	return d, err
}

// work does steps, each acknowledged.
func work(ctx context.Context, db *tonbo.DB, have, steps int) error {
	w := newWriter(uint64(have))
	w.step = have
	for range steps {
		if _, err := db.ExecContext(ctx, insertStep, w.nextStep(1000)...); err != nil {
			return err
		}
		if err := db.Synced(ctx); err != nil {
			return err
		}
	}
	return nil
}

// readStep reads one row by its key.
func readStep(ctx context.Context, db queryer, id int) error {
	var content string
	if err := db.QueryRowContext(ctx, "SELECT content FROM step WHERE id=?", id).Scan(&content); err != nil {
		return fmt.Errorf("read step %d: %w", id, err)
	}
	if len(content) == 0 {
		return fmt.Errorf("step %d is empty", id)
	}
	return nil
}
