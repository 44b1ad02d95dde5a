package vfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/ncruces/go-sqlite3"
	sqlitevfs "github.com/ncruces/go-sqlite3/vfs"

	"github.com/tonbo-go/tonbo/internal/fsys"
)

// Name is the name that SQLite knows the VFS by: open a database as "file:<path>?vfs=tonbo" after [Attach].
const Name = "tonbo"

// Result codes that SQLite hands back from a refused operation. They are private extended codes
// (https://sqlite.org/rescode.html#extrc) and survive a rollback, which an error value does not: translate them with
// [Database.Reason].
const (
	// CodeRefused ends a COMMIT that was refused.
	CodeRefused sqlite3.ExtendedErrorCode = sqlite3.ExtendedErrorCode(sqlite3.READONLY) | 0x7b<<8
	// CodeUnsupported ends a change that cannot be replicated.
	CodeUnsupported sqlite3.ExtendedErrorCode = sqlite3.ExtendedErrorCode(sqlite3.READONLY) | 0x7c<<8
	// CodeFetch ends what reads a page that the source could not bring.
	CodeFetch sqlite3.ExtendedErrorCode = sqlite3.ExtendedErrorCode(sqlite3.IOERR) | 0x7d<<8
)

// Errors, for errors.Is.
var (
	ErrUnsupported = errors.New("not supported on a replicated database")
	ErrCorrupt     = errors.New("local file changed underneath")
	ErrWAL         = errors.New("write-ahead log not recovered")
	ErrBehind      = errors.New("a transaction was shipped and then failed in the local file")
	ErrDetached    = errors.New("database is no longer attached")
)

// PageSum is the checksum of one page, as [Options.Sum] computes it.
type PageSum struct {
	Page uint32
	Sum  uint64
}

// A PageSource brings pages of the main file that are not there yet.
type PageSource interface {
	// Ensure returns when the bytes [off, off+n) of the main file may be read from it. It ends when ctx does.
	Ensure(ctx context.Context, off, n int64) error
	// Write calls write, which writes the bytes [off, off+n) of the main file. The source writes nothing there meanwhile, and never again if write succeeds.
	Write(off, n int64, write func() error) error
	// Truncate calls truncate, which makes the main file end at size: nothing beyond that comes from the source again.
	Truncate(size int64, truncate func() error) error
}

// Options of a Database. PageSize, PageCount and Sum are needed.
type Options struct {
	PageSize  int                                   // bytes, as in the file
	PageCount uint32                                // pages in the file
	Sum       func(pgno uint32, page []byte) uint64 // page checksum; must not keep page

	// Source brings absent pages. nil: every page is in the file.
	Source PageSource

	// BeforeCommit, when set, is called with each transaction while its commit is held back: nil lets it pass, an error refuses it.
	// ctx is the connection's (sqlite3.Conn.GetInterrupt).
	BeforeCommit func(ctx context.Context, h *Held) error

	// Behind is called when a transaction that BeforeCommit shipped and let pass was rolled back all the same (a full disk, a failed fsync): what is shipped is ahead
	// of the file. From then on COMMITs are refused, with the error that it returns, and Take fails ([ErrBehind]): the file must be rebuilt. It must return at
	// once, and call nothing here.
	Behind func(error) error

	// AfterCommit is called when a commit has become certain. It must return at once.
	AfterCommit func()

	// BeforeCheckpoint is called when a connection compiles a PRAGMA wal_checkpoint. It may wait.
	BeforeCheckpoint func()

	// BeforeReset is called before SQLite gives up the write-ahead log's content, with what is in the main file now and not shipped: a
	// later process could not tell it from damage otherwise. An error holds the reset back. [Database.Foretell] calls it earlier, with what will be in the main file.
	BeforeReset func(Spill) error

	// Fault, for tests, is called at each named step that a process can die at. The steps are listed beside the calls.
	Fault func(step string)
}

// Spill is unshipped content of the main file.
type Spill struct {
	PageCount uint32    // size of the database, in pages
	MinCount  uint32    // the smallest size since the last shipped state, or the one that is being shipped, if it was smaller than that; else MaxCount
	MaxCount  uint32    // the size of the last shipped state, or of the one that is being shipped, whichever is larger
	Pages     []PageSum // changed pages that no earlier Spill told of in this content; with a MinCount below MaxCount, all behind MinCount
}

// registry finds the Database of a path. SQLite's interface leaves no other way to pass one.
var registry struct {
	once sync.Once
	mu   sync.RWMutex
	m    map[string]*Database
	n    int64 // Databases so far
}

func lookup(path string) *Database {
	registry.mu.RLock()
	defer registry.mu.RUnlock()
	return registry.m[path]
}

// Attach begins to observe the database file at path, which must exist, be in WAL mode and have no write-ahead log with content
// ([ErrWAL]): recover it first. No connection may be open.
func Attach(path string, o Options) (*Database, error) {
	path, err := canonical(path)
	if err != nil {
		return nil, err
	}
	if fi, err := os.Stat(path + "-wal"); err == nil && fi.Size() > 0 {
		return nil, fmt.Errorf("attach %s: %w: %s-wal has %d bytes", path, ErrWAL, path, fi.Size())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	f.Close() // opened again when it is first read
	d := newDatabase(path, o)
	d.files = fsys.At(path)
	registry.once.Do(func() { sqlitevfs.Register(Name, fileSystem{sqlitevfs.Find("os")}) })
	registry.mu.Lock()
	defer registry.mu.Unlock()
	if registry.m[path] != nil {
		return nil, fmt.Errorf("attach %s: already attached", path)
	}
	if registry.m == nil {
		registry.m = map[string]*Database{}
	}
	registry.m[path] = d
	registry.n++
	d.serial = registry.n
	return d, nil
}

// Detach ends the observation. Connections should be closed: those that are not can neither read nor write the file from here on, since another
// Database may observe it, or another process own it. A second Detach does nothing.
func (d *Database) Detach() error {
	if d.detached.Swap(true) {
		return nil
	}
	registry.mu.Lock()
	if registry.m[d.path] == d {
		delete(registry.m, d.path)
	}
	registry.mu.Unlock()
	d.ckpt.Lock()
	defer d.ckpt.Unlock()
	return d.closeFiles()
}

// Rest gives up the files that are open to read pages back; they are opened again when that is next done. It does nothing while pages are being read.
func (d *Database) Rest() {
	if d.ckpt.TryLock() {
		defer d.ckpt.Unlock()
		_ = d.closeFiles() // they were only read
	}
}

// Token is to be given as the URI parameter "tonbo" by whoever connects to this Database: a connection that comes too late, when it is
// detached, is refused then. Without it such a connection would be to a plain file that nobody observes.
func (d *Database) Token() string { return strconv.FormatInt(d.serial, 10) }

// Path is the canonical path of the main file.
func (d *Database) Path() string { return d.path }

// canonical resolves what SQLite resolves before it opens a file, so that both use one key.
func canonical(path string) (string, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	return filepath.Abs(filepath.Join(dir, filepath.Base(path)))
}
