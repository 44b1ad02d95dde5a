package vfs

import (
	"context"
	"fmt"
	"sync"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/util/vfsutil"
	sqlitevfs "github.com/ncruces/go-sqlite3/vfs"
)

// SnapshotName is the name that SQLite knows the VFS of snapshots by: open one as "file:<Snapshot.Path>?vfs=tonbo-snapshot&immutable=1&mode=ro" after [AttachSnapshot].
const SnapshotName = "tonbo-snapshot"

// A SnapshotSource has the bytes of a database that never changes.
type SnapshotSource interface {
	// ReadPages reads the bytes [off, off+len(p)), all of them or an error, which SQLite gets as [CodeFetch]. It ends when ctx does.
	ReadPages(ctx context.Context, p []byte, off int64) error
	// Size is how many bytes there are.
	Size() int64
}

// Snapshot is a database that never changes, as SQLite may open it: without locks, journal or write-ahead log (https://sqlite.org/uri.html#uriimmutable).
// Safe for concurrent use.
type Snapshot struct {
	path   string
	source SnapshotSource
}

// snapshots finds the Snapshot of a path. SQLite's interface leaves no other way to pass one.
var snapshots struct {
	once sync.Once
	mu   sync.RWMutex
	m    map[string]*Snapshot
	n    int64 // Snapshots so far
}

func lookupSnapshot(path string) *Snapshot {
	snapshots.mu.RLock()
	defer snapshots.mu.RUnlock()
	return snapshots.m[path]
}

// AttachSnapshot makes a snapshot known to SQLite, until Detach.
func AttachSnapshot(source SnapshotSource) *Snapshot {
	snapshots.once.Do(func() { sqlitevfs.Register(SnapshotName, snapshotFS{sqlitevfs.Find("os")}) })
	snapshots.mu.Lock()
	defer snapshots.mu.Unlock()
	if snapshots.m == nil {
		snapshots.m = map[string]*Snapshot{}
	}
	snapshots.n++
	s := &Snapshot{path: fmt.Sprintf("/tonbo-snapshot/%d", snapshots.n), source: source}
	snapshots.m[s.path] = s
	return s
}

// Path is the name to open it by. There is no such file.
func (s *Snapshot) Path() string { return s.path }

// Detach ends it: it can no longer be opened. A second Detach does nothing.
func (s *Snapshot) Detach() {
	snapshots.mu.Lock()
	defer snapshots.mu.Unlock()
	delete(snapshots.m, s.path)
}

// snapshotFS is the VFS of snapshots. All other files, such as temporary ones and attached databases, are the operating system's.
type snapshotFS struct{ sqlitevfs.VFS }

var _ sqlitevfs.VFSFilename = snapshotFS{}

// FullPathname implements [sqlitevfs.VFS].
func (v snapshotFS) FullPathname(name string) (string, error) {
	if lookupSnapshot(name) != nil {
		return name, nil
	}
	return v.VFS.FullPathname(name)
}

// OpenFilename implements [sqlitevfs.VFSFilename].
func (v snapshotFS) OpenFilename(name *sqlitevfs.Filename, flags sqlitevfs.OpenFlag) (sqlitevfs.File, sqlitevfs.OpenFlag, error) {
	if name != nil && flags&sqlitevfs.OPEN_MAIN_DB != 0 {
		if s := lookupSnapshot(name.String()); s != nil {
			return &snapshotFile{s: s}, flags&^sqlitevfs.OPEN_READWRITE | sqlitevfs.OPEN_READONLY, nil
		}
	}
	return vfsutil.WrapOpenFilename(v.VFS, name, flags)
}

// Open implements [sqlitevfs.VFS].
func (v snapshotFS) Open(name string, flags sqlitevfs.OpenFlag) (sqlitevfs.File, sqlitevfs.OpenFlag, error) {
	return vfsutil.WrapOpen(v.VFS, name, flags)
}

// snapshotFile is one connection's file. Of an immutable one SQLite calls ReadAt, Size and Close.
type snapshotFile struct {
	s    *Snapshot
	conn *sqlite3.Conn // nil until SetDB
}

// SetDB receives the connection (SQLITE_FCNTL_PDB), whose interrupt context ends blocked reads.
func (f *snapshotFile) SetDB(db any) { f.conn, _ = db.(*sqlite3.Conn) }

func (f *snapshotFile) ReadAt(p []byte, off int64) (int, error) {
	ctx := context.Background()
	if f.conn != nil {
		ctx = f.conn.GetInterrupt()
	}
	if stopped(f.conn) {
		return 0, sqlite3.IOERR_READ
	}
	if err := f.s.source.ReadPages(ctx, p, off); err != nil {
		if ctx.Err() != nil {
			return 0, sqlite3.INTERRUPT
		}
		return 0, sqlitevfs.SystemError(err, CodeFetch)
	}
	return len(p), nil
}

func (f *snapshotFile) Size() (int64, error)               { return f.s.source.Size(), nil }
func (f *snapshotFile) Close() error                       { return nil }
func (f *snapshotFile) WriteAt([]byte, int64) (int, error) { return 0, sqlite3.READONLY }
func (f *snapshotFile) Truncate(int64) error               { return sqlite3.READONLY }
func (f *snapshotFile) Sync(sqlitevfs.SyncFlag) error      { return nil }
func (f *snapshotFile) Lock(sqlitevfs.LockLevel) error     { return nil }
func (f *snapshotFile) Unlock(sqlitevfs.LockLevel) error   { return nil }
func (f *snapshotFile) CheckReservedLock() (bool, error)   { return false, nil }
func (f *snapshotFile) SectorSize() int                    { return 0 }
func (f *snapshotFile) DeviceCharacteristics() sqlitevfs.DeviceCharacteristic {
	return sqlitevfs.IOCAP_IMMUTABLE | sqlitevfs.IOCAP_SUBPAGE_READ
}
