package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tonbo-go/tonbo/internal/fsys"
)

// throwawayName is a file in the directory of a database whose local copy is worth nothing once its process has gone, what was not shipped included.
const throwawayName = "throwaway"

// SetThrowaway says that the directory may be removed by whoever finds it unlocked, see RemoveThrowaways; or that it may not.
func (d *Dir) SetThrowaway(on bool) error {
	path := filepath.Join(d.path, throwawayName)
	var err error
	if on {
		err = d.files.WriteFile(path, nil, 0o600)
	} else if err = d.files.Remove(path); err == nil {
		err = d.files.SyncDir(d.path) // after a power cut it must not be there again: what is committed from here on is worth something
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return unusable(d.path, err)
	}
	return nil
}

// RemoveThrowaways removes the directories under root that their processes have marked by SetThrowaway, and have died without removing; dry: it counts them. What a living process has locked is not touched. A root that does not
// exist has none.
func RemoveThrowaways(root string, dry bool) (n int, err error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var failed []error
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		gone, err := removeThrowaway(filepath.Join(root, e.Name()), dry)
		if gone {
			n++
		}
		failed = append(failed, err)
	}
	return n, errors.Join(failed...)
}

func removeThrowaway(path string, dry bool) (gone bool, err error) {
	marked := func() bool {
		_, err := os.Lstat(filepath.Join(path, throwawayName))
		return err == nil
	}
	if !marked() {
		return false, nil
	}
	// (1) Nobody has it, and nobody takes it: an Open that comes now gets ErrLocked.
	d := &Dir{path: path, files: fsys.At(path)}
	if err := d.takeLock(); errors.Is(err, ErrLocked) || errors.Is(err, fs.ErrNotExist) { // or somebody else has removed it
		return false, nil
	} else if err != nil {
		return false, err
	}
	// (2) Marked still: somebody may have opened it as an ordinary one meanwhile. Or have removed it, and our lock came in the way of the last step.
	switch gone = marked(); {
	case gone && dry:
		return true, d.unlock()
	case gone, d.bare():
		if err := d.vanish(); err != nil {
			return false, err
		}
		return gone, nil
	}
	return false, d.unlock()
}

// bare tells whether nothing is in the directory but its lock.
func (d *Dir) bare() bool {
	entries, err := os.ReadDir(d.path)
	return err == nil && len(entries) == 1 && entries[0].Name() == lockName
}

// vanish removes all that is in the directory, and the directory, and lets go of the lock. Whoever finds the mark beside the removal gets ErrLocked, until the lock is the last thing there; one that takes the lock's place then finds the
// directory bare, and removes it.
func (d *Dir) vanish() (err error) {
	held := false // the lock is there still: where a file that is open cannot be removed, and so neither the one of who takes it next
	defer func() {
		failed := err != nil
		err = errors.Join(err, d.unlock())
		if held {
			os.Remove(filepath.Join(d.path, lockName))
		}
		if failed {
			return
		}
		if rerr := d.files.Remove(d.path); !errors.Is(rerr, fs.ErrExist) && !errors.Is(rerr, fs.ErrNotExist) { // not empty: somebody has just begun another one there, or removes it, too
			err = errors.Join(err, rerr)
		}
	}()
	entries, err := os.ReadDir(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var names []string
	for _, e := range entries {
		if e.Name() != lockName && e.Name() != throwawayName {
			names = append(names, e.Name())
		}
	}
	// In the order of names, so the database goes before what is known of it. The mark at last: should this process die, the next one goes on.
	for _, name := range slices.Concat(names, []string{lockName, throwawayName}) {
		err := d.files.Remove(filepath.Join(d.path, name))
		switch {
		case err == nil || errors.Is(err, fs.ErrNotExist):
		case name == lockName:
			held = true
		default:
			return fmt.Errorf("remove %s: %w", d.path, err)
		}
	}
	return nil
}
