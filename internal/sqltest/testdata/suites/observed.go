// Package observed puts databases of the driver's test suites under tonbo's VFS, and ships what they commit while they run. scripts/sqlite-suites copies it into a copy of the driver's module.
package observed

import (
	"bytes"
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/ncruces/go-sqlite3/vfs"

	tonbo "github.com/tonbo-go/tonbo/vfs"
)

// Name of the VFS: tonbo's, but a file that is not there, or empty, becomes an empty database in WAL mode that is observed, and so does one that has been removed.
const Name = "observed"

const pageSize = 4096

// DB is one observed database file.
type DB struct {
	t    testing.TB
	path string

	mu        sync.Mutex
	d         *tonbo.Database
	image     []byte // what was shipped
	shipments int
	stop      context.CancelFunc
	done      chan struct{}
}

type fileSystem struct {
	vfs.VFS
	db *DB
}

// New observes the database at path, of which there is one at a time.
func New(t testing.TB, path string) *DB {
	db := &DB{t: t, path: path, done: make(chan struct{})}
	db.begin()
	vfs.Register(Name, fileSystem{vfs.Find(tonbo.Name), db})
	ctx, stop := context.WithCancel(context.Background())
	db.stop = stop
	go func() {
		defer close(db.done)
		for ctx.Err() == nil {
			db.ship()
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return db
}

// OpenFilename implements [vfs.VFSFilename].
func (s fileSystem) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	if flags&vfs.OPEN_MAIN_DB != 0 && name.String() == s.db.path {
		if fi, err := os.Stat(s.db.path); err != nil || fi.Size() == 0 {
			s.db.begin()
		}
	}
	return s.VFS.(vfs.VFSFilename).OpenFilename(name, flags)
}

func (db *DB) begin() {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.d != nil {
		db.d.Detach()
		os.Remove(db.path + "-wal")
	}
	db.image = tonbo.EmptyDatabase(pageSize)
	err := os.WriteFile(db.path, db.image, 0o600)
	if err == nil {
		db.d, err = tonbo.Attach(db.path, tonbo.Options{PageSize: pageSize, PageCount: 1, Sum: func(p uint32, page []byte) uint64 {
			h := xxhash.NewWithSeed(uint64(p))
			h.Write(page)
			return h.Sum64()
		}})
	}
	if err != nil {
		db.t.Fatal(err)
	}
}

// ship takes what has been committed.
func (db *DB) ship() {
	db.mu.Lock()
	defer db.mu.Unlock()
	c, err := db.d.Take(context.Background())
	if err != nil {
		db.t.Error(err)
	}
	if c == nil {
		return
	}
	db.shipments++
	if n := int(c.PageCount) * pageSize; n > len(db.image) {
		db.image = append(db.image, make([]byte, n-len(db.image))...)
	} else {
		db.image = db.image[:n]
	}
	if err := c.Each(func(p uint32, page []byte, _ uint64) error {
		copy(db.image[int(p-1)*pageSize:], page)
		return nil
	}); err != nil {
		db.t.Error(err)
	}
	c.Release()
	c.Shipped()
}

// Check compares what was shipped with the database, byte for byte, and ends the observation.
func (db *DB) Check() {
	db.stop()
	<-db.done
	db.ship()
	defer db.d.Detach()
	var b bytes.Buffer
	if err := db.d.CopyTo(context.Background(), &b); err != nil {
		db.t.Fatal(err)
	}
	copy(db.image[18:20], []byte{1, 1}) // a copy is in rollback mode
	if !bytes.Equal(db.image, b.Bytes()) {
		db.t.Errorf("shipped %d bytes, the database has %d, and they differ", len(db.image), b.Len())
	}
	db.t.Logf("%d shipments, %d bytes at the end", db.shipments, b.Len())
}
