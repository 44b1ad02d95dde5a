// Package fsys is how the library changes files: the operating system's calls, unless a test has mounted something between (package tonbotest's Disk). What only looks at
// files (Stat, ReadDir) is the operating system's in any case.
package fsys

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Kind is what is done to a file or a directory.
type Kind string

// The kinds.
const (
	Create   Kind = "create"   // a file that was not there
	Mkdir    Kind = "mkdir"    // a directory that was not there
	Read     Kind = "read"     // of an open file
	Write    Kind = "write"    // Data at Off
	Truncate Kind = "truncate" // to the size Off, which may be larger than it was
	Times    Kind = "times"    // a change of the modification time
	Sync     Kind = "sync"     // fsync of a file
	SyncDir  Kind = "sync dir" // fsync of a directory
	Rename   Kind = "rename"   // to To
	Link     Kind = "link"     // To is one more name of it
	Remove   Kind = "remove"
)

// Op is one operation.
type Op struct {
	Kind Kind
	Path string // absolute
	To   string
	Off  int64  // bytes
	Data []byte // valid during the call
}

// A Hook stands between the library and the files below a directory. It is safe for concurrent use.
type Hook interface {
	// Do does op, by calling apply once, or does not. Of a Write apply writes data at op.Off; else it takes nil.
	Do(op Op, apply func(data []byte) error) error
	// Boot names the boot of the machine that the files are on; "": of this one.
	Boot() string
}

// FS changes files. The zero value is the operating system's.
type FS struct{ hook Hook }

// Hook is what stands between; nil: nothing.
func (s FS) Hook() Hook { return s.hook }

// do does op through the hook.
func (s FS) do(op Op, apply func() error) error {
	if s.hook == nil {
		return apply()
	}
	return s.hook.Do(op, func([]byte) error { return apply() })
}

// OpenFile is [os.OpenFile].
func (s FS) OpenFile(path string, flag int, perm fs.FileMode) (*File, error) {
	if s.hook == nil || flag&(os.O_CREATE|os.O_TRUNC) == 0 {
		f, err := os.OpenFile(path, flag, perm)
		return s.file(f, err)
	}
	_, err := os.Lstat(path)
	var f *os.File
	open := func() error {
		f, err = os.OpenFile(path, flag, perm)
		return err
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = s.do(Op{Kind: Create, Path: path}, open)
	case flag&os.O_TRUNC != 0:
		err = s.do(Op{Kind: Truncate, Path: path}, open)
	default:
		err = open()
	}
	return s.file(f, err)
}

// Open is [os.Open].
func (s FS) Open(path string) (*File, error) {
	f, err := os.Open(path)
	return s.file(f, err)
}

// CreateTemp is [os.CreateTemp]. On a mounted directory the name comes from crypto/rand, so that it repeats with that ([testing/cryptotest]).
func (s FS) CreateTemp(dir, pattern string) (*File, error) {
	if s.hook == nil {
		return s.file(os.CreateTemp(dir, pattern))
	}
	f, err := createTemp(dir, pattern)
	if err != nil {
		return nil, err
	}
	// It is known by then under which name.
	if err := s.do(Op{Kind: Create, Path: f.Name()}, func() error { return nil }); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return s.file(f, nil)
}

func createTemp(dir, pattern string) (*os.File, error) {
	at := strings.LastIndexByte(pattern, '*')
	if at < 0 {
		pattern, at = pattern+"*", len(pattern)
	}
	for {
		f, err := os.OpenFile(filepath.Join(dir, pattern[:at]+rand.Text()[:10]+pattern[at+1:]), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}

func (s FS) file(f *os.File, err error) (*File, error) {
	if err != nil {
		return nil, err
	}
	return &File{f, s.hook}, nil
}

// WriteFile is [os.WriteFile].
func (s FS) WriteFile(path string, data []byte, perm fs.FileMode) error {
	f, err := s.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	if len(data) > 0 {
		_, err = f.Write(data)
	}
	return errors.Join(err, f.Close())
}

// MkdirAll is [os.MkdirAll], and tells the directory that got a new entry, "" if none did: sync it where the new one must outlive a power cut.
func (s FS) MkdirAll(path string, perm fs.FileMode) (parent string, err error) {
	if _, err := os.Stat(path); err == nil {
		return "", os.MkdirAll(path, perm) // which says what is wrong when it is no directory
	}
	for at := path; ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); err == nil || filepath.Dir(at) == at {
			break
		}
		parent = filepath.Dir(at)
	}
	return parent, s.do(Op{Kind: Mkdir, Path: path}, func() error { return os.MkdirAll(path, perm) })
}

// Remove is [os.Remove].
func (s FS) Remove(path string) error {
	return s.do(Op{Kind: Remove, Path: path}, func() error { return os.Remove(path) })
}

// Rename is [os.Rename].
func (s FS) Rename(from, to string) error {
	return s.do(Op{Kind: Rename, Path: from, To: to}, func() error { return os.Rename(from, to) })
}

// Link is [os.Link].
func (s FS) Link(from, to string) error {
	return s.do(Op{Kind: Link, Path: from, To: to}, func() error { return os.Link(from, to) })
}

// Chtimes is [os.Chtimes].
func (s FS) Chtimes(path string, accessed, modified time.Time) error {
	return s.do(Op{Kind: Times, Path: path}, func() error { return os.Chtimes(path, accessed, modified) })
}

// SyncDir makes what was made, renamed and removed in a directory durable, where a directory can be synced.
func (s FS) SyncDir(path string) error {
	return s.do(Op{Kind: SyncDir, Path: path}, func() error { return syncDir(path) })
}

// File is an open file.
type File struct {
	f    *os.File
	hook Hook
}

var (
	_ io.ReaderAt = (*File)(nil)
	_ io.WriterAt = (*File)(nil)
)

// Name is the name that it was opened by.
func (f *File) Name() string { return f.f.Name() }

// Stat is [os.File.Stat].
func (f *File) Stat() (fs.FileInfo, error) { return f.f.Stat() }

// Close is [os.File.Close].
func (f *File) Close() error { return f.f.Close() }

// Read is [os.File.Read].
func (f *File) Read(p []byte) (n int, err error) {
	if f.hook == nil {
		return f.f.Read(p)
	}
	err = f.hook.Do(Op{Kind: Read, Path: f.Name()}, func([]byte) error { n, err = f.f.Read(p); return err })
	return n, err
}

// ReadAt is [os.File.ReadAt].
func (f *File) ReadAt(p []byte, off int64) (n int, err error) {
	if f.hook == nil {
		return f.f.ReadAt(p, off)
	}
	err = f.hook.Do(Op{Kind: Read, Path: f.Name(), Off: off}, func([]byte) error { n, err = f.f.ReadAt(p, off); return err })
	return n, err
}

// Write is [os.File.Write].
func (f *File) Write(p []byte) (n int, err error) {
	if f.hook == nil {
		return f.f.Write(p)
	}
	off, err := f.f.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	err = f.hook.Do(Op{Kind: Write, Path: f.Name(), Off: off, Data: p}, func(b []byte) error { n, err = f.f.Write(b); return err })
	return n, err
}

// WriteAt is [os.File.WriteAt].
func (f *File) WriteAt(p []byte, off int64) (n int, err error) {
	if f.hook == nil {
		return f.f.WriteAt(p, off)
	}
	err = f.hook.Do(Op{Kind: Write, Path: f.Name(), Off: off, Data: p}, func(b []byte) error { n, err = f.f.WriteAt(b, off); return err })
	return n, err
}

// Truncate is [os.File.Truncate].
func (f *File) Truncate(size int64) error {
	if f.hook == nil {
		return f.f.Truncate(size)
	}
	return f.hook.Do(Op{Kind: Truncate, Path: f.Name(), Off: size}, func([]byte) error { return f.f.Truncate(size) })
}

// Sync is [os.File.Sync].
func (f *File) Sync() error {
	if f.hook == nil {
		return f.f.Sync()
	}
	return f.hook.Do(Op{Kind: Sync, Path: f.Name()}, func([]byte) error { return f.f.Sync() })
}
