package main

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"

	"github.com/benbjohnson/litestream"
	lss3 "github.com/benbjohnson/litestream/s3"
	_ "modernc.org/sqlite" // the driver that litestream's library uses
)

// openVFS is set where litestream's VFS is built in: vfs.go.
var openVFS func(c litestream.ReplicaClient, name string) (*sql.DB, error)

// queryer is a *sql.DB, or what embeds one.
type queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (e *env) litestreamClient(endpoint, path string) *lss3.ReplicaClient {
	c := lss3.NewReplicaClient()
	c.AccessKeyID, c.SecretAccessKey = e.server.AccessKey, e.server.SecretKey
	c.Region, c.Bucket, c.Path, c.Endpoint, c.ForcePathStyle = e.server.Region, e.server.Bucket, path, endpoint, true
	return c
}

// replicate opens a file for replication by hand: Sync is called when it is due, nothing goes on by itself.
func (e *env) replicate(ctx context.Context, file, endpoint, path string) (*litestream.DB, error) {
	c := e.litestreamClient(endpoint, path)
	if err := c.Init(ctx); err != nil {
		return nil, err
	}
	db := litestream.NewDB(file)
	db.MonitorInterval = 0
	db.Replica = litestream.NewReplicaWithClient(db, c)
	db.Replica.MonitorEnabled = false
	return db, db.Open()
}

// litestreamSync is what a program calls to be sure that a commit is in the remote.
func litestreamSync(ctx context.Context, db *litestream.DB) error {
	if err := db.Sync(ctx); err != nil {
		return err
	}
	return db.Replica.Sync(ctx)
}

// litestreamed puts a copy of a source file into the remote, once, and returns its path there.
func (e *env) litestreamed(ctx context.Context, d *imported) (path string, err error) {
	e.prepared.Lock()
	defer e.prepared.Unlock()
	if p := e.replicated[d.bytes]; p != "" {
		return p, nil
	}
	if path, err = e.litestreamedAnew(ctx, d); err == nil {
		e.replicated[d.bytes] = path
	}
	return path, err
}

// litestreamedAnew is litestreamed for who adds to the replica. As ours, it is worked on and settled: one snapshot to restore from.
func (e *env) litestreamedAnew(ctx context.Context, d *imported) (path string, err error) {
	path = e.fresh("litestream")
	r, err := e.writable(ctx, d, e.server.Endpoint, path)
	if err != nil {
		return "", err
	}
	defer r.close(ctx)
	w := newWriter(uint64(d.steps))
	w.step = d.steps
	for range 10 {
		if _, err := r.app.ExecContext(ctx, insertStep, w.nextStep(1000)...); err != nil {
			return "", err
		}
		if err := litestreamSync(ctx, r.db); err != nil {
			return "", err
		}
	}
	if _, err := r.db.Snapshot(ctx); err != nil {
		return "", err
	}
	e.logf("%s replicated by litestream", size(d.bytes))
	return path, nil
}

// restore brings a replica to a new file.
func (e *env) restore(ctx context.Context, endpoint, path, file string) error {
	c := e.litestreamClient(endpoint, path)
	if err := c.Init(ctx); err != nil {
		return err
	}
	o := litestream.NewRestoreOptions()
	o.OutputPath = file
	return litestream.NewReplicaWithClient(nil, c).Restore(ctx, o)
}

func openModernc(file string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(60000)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)")
	if err != nil {
		return nil, fmt.Errorf("modernc: %w", err)
	}
	return db, nil
}

// replicated is a file that a program works on and litestream ships.
type replicated struct {
	db  *litestream.DB
	app *sql.DB
	dir string
	e   *env
}

// writable makes a replicated copy of a source file, in sync.
func (e *env) writable(ctx context.Context, d *imported, endpoint, path string) (*replicated, error) {
	dir, err := e.dir("litestream")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "db")
	if err := copyFile(d.source, file); err != nil {
		return nil, err
	}
	r, err := e.replicateFile(ctx, file, endpoint, path)
	if err != nil {
		return nil, err
	}
	r.dir = dir
	if err := litestreamSync(ctx, r.db); err != nil {
		r.close(ctx)
		return nil, err
	}
	return r, nil
}

// replicateFile begins to replicate a file.
func (e *env) replicateFile(ctx context.Context, file, endpoint, path string) (*replicated, error) {
	app, err := openModernc(file)
	if err != nil {
		return nil, err
	}
	db, err := e.replicate(ctx, file, endpoint, path)
	if err != nil {
		app.Close()
		return nil, err
	}
	return &replicated{db: db, app: app, e: e}, nil
}

// close ends both. What it leaves is removed with the rest.
func (r *replicated) close(ctx context.Context) {
	_ = r.app.Close()
	_ = r.db.Close(ctx)
	if r.dir != "" {
		r.e.discard(r.dir)
	}
}
