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
	dir, err := e.dir("litestream")
	if err != nil {
		return "", err
	}
	defer e.discard(dir)
	file := filepath.Join(dir, "db")
	if err := copyFile(d.source, file); err != nil {
		return "", err
	}
	app, err := openModernc(file)
	if err != nil {
		return "", err
	}
	defer app.Close()
	path = e.fresh("litestream")
	db, err := e.replicate(ctx, file, e.server.Endpoint, path)
	if err != nil {
		return "", err
	}
	e.logf("%s replicated by litestream", size(d.bytes))
	err = litestreamSync(ctx, db)
	w := newWriter(uint64(d.steps))
	w.step = d.steps
	for i := 0; err == nil && i < 10; i++ {
		if _, err = app.ExecContext(ctx, insertStep, w.nextStep(1000)...); err == nil {
			err = litestreamSync(ctx, db)
		}
	}
	if err == nil { // settled, as ours is: one file to restore from
		_, err = db.Snapshot(ctx)
	}
	if cerr := db.Close(ctx); err == nil {
		err = cerr
	}
	if err == nil {
		e.replicated[d.bytes] = path
	}
	return path, err
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
