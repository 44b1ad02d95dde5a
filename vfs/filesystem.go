package vfs

import (
	"context"
	"fmt"
	"strings"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/tonbo-go/tonbo/internal/disk"
)

// fileSystem is the VFS: the operating system's, with the files of attached databases wrapped. Other files, such as the target
// of VACUUM INTO or an attached second database, are the operating system's own and are not replicated.
type fileSystem struct{ vfs.VFS }

var _ vfs.VFSFilename = fileSystem{}

// OpenFilename implements [vfs.VFSFilename].
func (s fileSystem) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	if name == nil { // a temporary file
		return vfsutil.WrapOpenFilename(s.VFS, name, flags)
	}
	switch {
	case flags&vfs.OPEN_MAIN_DB != 0:
		d := lookup(name.String())
		if token := name.URIParameter("tonbo"); token != "" && (d == nil || d.Token() != token) {
			return nil, flags, vfs.SystemError(ErrDetached, sqlite3.CANTOPEN)
		}
		if d != nil {
			f, flags, err := vfsutil.WrapOpenFilename(d.under(s.VFS), name, flags)
			if err != nil {
				return nil, flags, err
			}
			return &mainFile{File: f, db: d}, flags, nil
		}
	case flags&vfs.OPEN_WAL != 0:
		d := lookup(name.Database())
		m, ok := vfsutil.UnwrapFile[*mainFile](name.DatabaseFile())
		if ok && m.db != d { // a connection from before a re-open, or that was on its way here when the observation ended: nobody would see what it writes
			return nil, flags, sqlite3.CANTOPEN
		}
		if d != nil {
			if !ok {
				return nil, flags, sqlite3.CANTOPEN
			}
			f, flags, err := vfsutil.WrapOpenFilename(d.under(s.VFS), name, flags)
			if err != nil {
				return nil, flags, err
			}
			return &walFile{File: f, db: d, main: m}, flags, nil
		}
	case flags&vfs.OPEN_MAIN_JOURNAL != 0:
		if d := lookup(name.Database()); d != nil {
			return nil, flags, d.unsupported("a rollback journal: the database must stay in WAL mode")
		}
	}
	return vfsutil.WrapOpenFilename(s.VFS, name, flags)
}

// Open implements [vfs.VFS].
func (s fileSystem) Open(name string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	return vfsutil.WrapOpen(s.VFS, name, flags)
}

// Delete implements [vfs.VFS]. The last connection to close checkpoints and deletes the write-ahead log.
func (s fileSystem) Delete(name string, syncDir bool) error {
	if base, ok := strings.CutSuffix(name, "-wal"); ok {
		if d := lookup(base); d != nil {
			return d.resetWAL(func() error { return d.under(s.VFS).Delete(name, syncDir) })
		}
	}
	return s.VFS.Delete(name, syncDir)
}

// mainFile is one connection's main file.
type mainFile struct {
	vfs.File
	db            *Database
	conn          *sqlite3.Conn // nil until SetDB
	checkpointing bool
}

var (
	_ vfs.FileUnwrap         = (*mainFile)(nil)
	_ vfs.FileLockState      = (*mainFile)(nil)
	_ vfs.FilePersistWAL     = (*mainFile)(nil)
	_ vfs.FileSizeHint       = (*mainFile)(nil)
	_ vfs.FileHasMoved       = (*mainFile)(nil)
	_ vfs.FileSharedMemory   = (*mainFile)(nil)
	_ vfs.FileCommitPhaseTwo = (*mainFile)(nil)
	_ vfs.FileCheckpoint     = (*mainFile)(nil)
	_ vfs.FilePragma         = (*mainFile)(nil)
)

// SetDB receives the connection (SQLITE_FCNTL_PDB), whose interrupt context ends blocked reads.
func (f *mainFile) SetDB(db any) { f.conn, _ = db.(*sqlite3.Conn) }

func (f *mainFile) context() context.Context {
	if f.conn != nil {
		return f.conn.GetInterrupt()
	}
	return context.Background()
}

func (f *mainFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.db.gone(); err != nil {
		return 0, err
	}
	if !f.checkpointing && stopped(f.conn) {
		return 0, sqlite3.IOERR_READ
	}
	if s := f.db.o.Source; s != nil {
		ctx := f.context()
		if err := s.Ensure(ctx, off, int64(len(p))); err != nil {
			if ctx.Err() != nil {
				return 0, sqlite3.INTERRUPT
			}
			f.db.lastFetch.Store(&err)
			return 0, vfs.SystemError(err, CodeFetch)
		}
	}
	return f.File.ReadAt(p, off)
}

// WriteAt receives pages from a checkpoint. In WAL mode nothing else writes the main file.
func (f *mainFile) WriteAt(p []byte, off int64) (int, error) {
	if !f.checkpointing {
		return 0, f.db.unsupported("a write to the main file outside a checkpoint: the database must stay in WAL mode")
	}
	f.db.lockPlaces()
	defer f.db.ckpt.Unlock()
	if err := f.db.gone(); err != nil {
		return 0, err
	}
	n := 0
	write := func() (err error) {
		n, err = f.File.WriteAt(p, off)
		return full(err)
	}
	err := error(nil)
	if s := f.db.o.Source; s != nil {
		err = s.Write(off, int64(len(p)), write)
	} else {
		err = write()
	}
	if err == nil {
		f.db.fault("vfs:checkpoint")
		f.db.checkpointed(p, off)
	}
	return n, err
}

// Truncate ends a checkpoint: SQLite sets the file to the size of the last commit.
func (f *mainFile) Truncate(size int64) error {
	f.db.lockPlaces()
	defer f.db.ckpt.Unlock()
	if err := f.db.gone(); err != nil {
		return err
	}
	truncate := func() error { return f.File.Truncate(size) }
	err := error(nil)
	if s := f.db.o.Source; s != nil {
		err = s.Truncate(size, truncate)
	} else {
		err = truncate()
	}
	f.db.fault("vfs:truncate")
	return err
}

func (f *mainFile) Unwrap() vfs.File         { return f.File }
func (f *mainFile) LockState() vfs.LockLevel { return vfsutil.WrapLockState(f.File) }

// SizeHint makes the file longer, at the start of a checkpoint.
func (f *mainFile) SizeHint(size int64) error {
	if err := f.db.gone(); err != nil {
		return err
	}
	return full(vfsutil.WrapSizeHint(f.File, size))
}

// PersistWAL keeps a connection that has outlived the observation from deleting a write-ahead log that is another one's by now.
func (f *mainFile) PersistWAL() bool {
	return f.db.detached.Load() || vfsutil.WrapPersistWAL(f.File)
}

func (f *mainFile) SetPersistWAL(keep bool)        { vfsutil.WrapSetPersistWAL(f.File, keep) }
func (f *mainFile) HasMoved() (bool, error)        { return vfsutil.WrapHasMoved(f.File) }
func (f *mainFile) SharedMemory() vfs.SharedMemory { return vfsutil.WrapSharedMemory(f.File) }
func (f *mainFile) CheckpointStart()               { f.checkpointing = true }
func (f *mainFile) CheckpointDone()                { f.checkpointing = false }
func (f *mainFile) CommitPhaseTwo() error          { f.db.commitPhaseTwo(f); return nil }
func (f *mainFile) DeviceCharacteristics() vfs.DeviceCharacteristic {
	return f.File.DeviceCharacteristics() &^ vfs.IOCAP_BATCH_ATOMIC
}

// Pragma refuses, when it is made, what could not be replicated. https://sqlite.org/pragma.html
func (f *mainFile) Pragma(name, value string) (string, error) {
	v := strings.ToLower(strings.Trim(value, `'"`))
	switch name {
	case "journal_mode":
		if v != "" && v != "wal" {
			return f.db.refusePragma(name, value, "only WAL mode is replicated")
		}
	case "wal_checkpoint":
		if f.db.o.BeforeCheckpoint != nil {
			f.db.o.BeforeCheckpoint()
		}
	case "locking_mode":
		if v == "exclusive" {
			return f.db.refusePragma(name, value, "connections share the write-ahead log's index")
		}
	}
	return vfsutil.WrapPragma(f.File, name, value)
}

// full gives a full disk its own result code. (The driver knows it on Windows alone.)
func full(err error) error {
	if disk.Full(err) {
		return vfs.SystemError(err, sqlite3.FULL)
	}
	return err
}

// refusePragma returns what SQLite is to say, and the code by which [Database.Reason] knows it.
func (d *Database) refusePragma(name, value, why string) (string, error) {
	err := fmt.Errorf("PRAGMA %s=%s is %w: %s", name, value, ErrUnsupported, why)
	d.lastUnsupported.Store(&err)
	return err.Error(), vfs.SystemError(err, CodeUnsupported)
}

// unsupported makes the error that SQLite gets for a change that cannot be observed, and keeps the reason for [Database.Reason].
func (d *Database) unsupported(what string) error {
	err := fmt.Errorf("%w: %s", ErrUnsupported, what)
	d.lastUnsupported.Store(&err)
	return vfs.SystemError(err, CodeUnsupported)
}
