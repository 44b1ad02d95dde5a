package cache

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	lostInfix = ".lost-"
	lostTemp  = ".tmp"
)

// KeepAside writes what src writes into <root>/<escaped name>.lost-<generation>.db, durably, and returns its path. The file appears whole or not at
// all. A file of that name is never overwritten: one with the same content is taken as it is (the process died after writing it), else the name gets
// -2, -3 and so on. Steps: aside:written, aside:synced, aside:linked, aside:done.
func (d *Dir) KeepAside(generation uint64, src func(w io.Writer) error) (string, error) {
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock() // src may ask for State
	if closed {
		return "", errClosed
	}
	path, err := d.keepAside(generation, src)
	if err != nil {
		return "", fmt.Errorf("keep aside unshipped commits of generation %d in %s: %w", generation, d.root, err)
	}
	return path, nil
}

func (d *Dir) keepAside(generation uint64, src func(w io.Writer) error) (path string, err error) {
	f, err := d.files.CreateTemp(d.root, d.escaped+lostInfix+"*"+lostTemp)
	if err != nil {
		return "", err
	}
	defer func() {
		if e := d.files.Remove(f.Name()); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}()
	if err := func() error {
		if err := src(f); err != nil {
			return err
		}
		if err := d.fault("aside:written"); err != nil {
			return err
		}
		return f.Sync()
	}(); err != nil {
		return "", errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return "", err
	}
	if err := d.fault("aside:synced"); err != nil {
		return "", err
	}
	for n := 1; ; n++ {
		name := fmt.Sprintf("%s%s%d.db", d.escaped, lostInfix, generation)
		if n > 1 {
			name = fmt.Sprintf("%s%s%d-%d.db", d.escaped, lostInfix, generation, n)
		}
		path = filepath.Join(d.root, name)
		err := d.place(f.Name(), path)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		same, err := sameContent(f.Name(), path)
		if err != nil {
			return "", err
		}
		if same {
			break
		}
	}
	if err := d.fault("aside:linked"); err != nil {
		return "", err
	}
	if err := d.files.SyncDir(d.root); err != nil {
		return "", err
	}
	return path, d.fault("aside:done")
}

// Kept returns the newest file that KeepAside has made for this database and that is still there, "" if none is.
func (d *Dir) Kept() (string, error) {
	entries, err := os.ReadDir(d.root)
	if err != nil {
		return "", err
	}
	var newest fs.FileInfo
	for _, e := range entries {
		n, ok := strings.CutPrefix(e.Name(), d.escaped+lostInfix)
		n, isDB := strings.CutSuffix(n, ".db")
		if !ok || !isDB || !e.Type().IsRegular() || strings.Trim(n, "-0123456789") != "" {
			continue
		}
		fi, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		if newest == nil || fi.ModTime().After(newest.ModTime()) {
			newest = fi
		}
	}
	if newest == nil {
		return "", nil
	}
	return filepath.Join(d.root, newest.Name()), nil
}

// place gives the file temp the name path, unless that exists (fs.ErrExist). Where there are no hard links it is renamed: the lock keeps every
// other process of ours away from this name.
func (d *Dir) place(temp, path string) error {
	err := d.files.Link(temp, path)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return fs.ErrExist
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.files.Rename(temp, path)
}

func sameContent(a, b string) (bool, error) {
	fa, err := os.Open(a)
	if err != nil {
		return false, err
	}
	defer fa.Close()
	fb, err := os.Open(b)
	if err != nil {
		return false, err
	}
	defer fb.Close()
	sa, err := fa.Stat()
	if err != nil {
		return false, err
	}
	sb, err := fb.Stat()
	if err != nil {
		return false, err
	}
	if !sb.Mode().IsRegular() || sa.Size() != sb.Size() {
		return false, nil
	}
	ba, bb := make([]byte, 256<<10), make([]byte, 256<<10)
	for {
		n, err := io.ReadFull(fa, ba)
		if n > 0 {
			if _, err := io.ReadFull(fb, bb[:n]); err != nil {
				return false, err
			}
			if !bytes.Equal(ba[:n], bb[:n]) {
				return false, nil
			}
		}
		switch {
		case isEOF(err):
			return true, nil
		case err != nil:
			return false, err
		}
	}
}
