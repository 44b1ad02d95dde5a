package vfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ncruces/go-sqlite3/util/vfsutil"
	sqlitevfs "github.com/ncruces/go-sqlite3/vfs"

	"github.com/tonbo-go/tonbo/internal/fsys"
)

// under is what d's files are opened by: inner, unless a test has put something between.
func (d *Database) under(inner sqlitevfs.VFS) sqlitevfs.VFS {
	if d.files.Hook() == nil {
		return inner
	}
	return hookedFS{inner, d.files}
}

// hookedFS is the operating system's VFS with a hook between.
type hookedFS struct {
	sqlitevfs.VFS
	files fsys.FS
}

var _ sqlitevfs.VFSFilename = hookedFS{}

// OpenFilename implements [sqlitevfs.VFSFilename].
func (s hookedFS) OpenFilename(name *sqlitevfs.Filename, flags sqlitevfs.OpenFlag) (sqlitevfs.File, sqlitevfs.OpenFlag, error) {
	f := &hookedFile{hook: s.files.Hook(), path: name.String()}
	open := func([]byte) (err error) {
		f.File, flags, err = vfsutil.WrapOpenFilename(s.VFS, name, flags)
		return err
	}
	const wal = sqlitevfs.OPEN_CREATE | sqlitevfs.OPEN_WAL
	f.syncDir = flags&wal == wal // the driver syncs the directory with the file's first fsync
	_, err := os.Lstat(f.path)
	if flags&sqlitevfs.OPEN_CREATE != 0 && errors.Is(err, fs.ErrNotExist) {
		err = f.hook.Do(fsys.Op{Kind: fsys.Create, Path: f.path}, open)
	} else {
		err = open(nil)
	}
	if err != nil {
		return nil, flags, err
	}
	return f, flags, nil
}

// Delete implements [sqlitevfs.VFS].
func (s hookedFS) Delete(name string, syncDir bool) error {
	err := s.files.Hook().Do(fsys.Op{Kind: fsys.Remove, Path: name}, func([]byte) error { return s.VFS.Delete(name, false) })
	if err == nil && syncDir {
		err = s.files.SyncDir(filepath.Dir(name))
	}
	return err
}

// hookedFile is a file of it.
type hookedFile struct {
	sqlitevfs.File
	hook    fsys.Hook
	path    string
	syncDir bool
}

var (
	_ sqlitevfs.FileUnwrap       = (*hookedFile)(nil)
	_ sqlitevfs.FileLockState    = (*hookedFile)(nil)
	_ sqlitevfs.FilePersistWAL   = (*hookedFile)(nil)
	_ sqlitevfs.FileSizeHint     = (*hookedFile)(nil)
	_ sqlitevfs.FileHasMoved     = (*hookedFile)(nil)
	_ sqlitevfs.FileSharedMemory = (*hookedFile)(nil)
)

func (f *hookedFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.hook.Do(fsys.Op{Kind: fsys.Read, Path: f.path, Off: off}, func([]byte) error { n, err = f.File.ReadAt(p, off); return err })
	return n, err
}

func (f *hookedFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.hook.Do(fsys.Op{Kind: fsys.Write, Path: f.path, Off: off, Data: p}, func(b []byte) error { n, err = f.File.WriteAt(b, off); return err })
	return n, err
}

func (f *hookedFile) Truncate(size int64) error {
	return f.hook.Do(fsys.Op{Kind: fsys.Truncate, Path: f.path, Off: size}, func([]byte) error { return f.File.Truncate(size) })
}

func (f *hookedFile) Sync(flags sqlitevfs.SyncFlag) error {
	err := f.hook.Do(fsys.Op{Kind: fsys.Sync, Path: f.path}, func([]byte) error { return f.File.Sync(flags) })
	if err == nil && f.syncDir {
		f.syncDir = false
		err = f.hook.Do(fsys.Op{Kind: fsys.SyncDir, Path: filepath.Dir(f.path)}, func([]byte) error { return nil }) // done by the driver
	}
	return err
}

func (f *hookedFile) SizeHint(size int64) error {
	if now, err := f.Size(); err != nil || now >= size {
		return err
	}
	return f.hook.Do(fsys.Op{Kind: fsys.Truncate, Path: f.path, Off: size}, func([]byte) error { return vfsutil.WrapSizeHint(f.File, size) })
}

func (f *hookedFile) Unwrap() sqlitevfs.File               { return f.File }
func (f *hookedFile) LockState() sqlitevfs.LockLevel       { return vfsutil.WrapLockState(f.File) }
func (f *hookedFile) PersistWAL() bool                     { return vfsutil.WrapPersistWAL(f.File) }
func (f *hookedFile) SetPersistWAL(keep bool)              { vfsutil.WrapSetPersistWAL(f.File, keep) }
func (f *hookedFile) HasMoved() (bool, error)              { return vfsutil.WrapHasMoved(f.File) }
func (f *hookedFile) SharedMemory() sqlitevfs.SharedMemory { return vfsutil.WrapSharedMemory(f.File) }
