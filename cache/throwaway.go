package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// throwawayName is a file in the directory of a database whose local copy is worth nothing once its process has gone, what was not shipped included.
const throwawayName = "throwaway"

// SetThrowaway says that the directory may be removed by whoever finds it unlocked, see RemoveThrowaways; or that it may not.
func (d *Dir) SetThrowaway(on bool) error {
	path := filepath.Join(d.path, throwawayName)
	var err error
	if on {
		err = os.WriteFile(path, nil, 0o600)
	} else if err = os.Remove(path); err == nil {
		err = syncDir(d.path) // after a power cut it must not be there again: what is committed from here on is worth something
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
	// (1) Nobody has it, and nobody takes it: an Open that comes now gets ErrLocked. Marked still: somebody may have opened it as an ordinary one meanwhile.
	d := &Dir{path: path}
	if err := d.takeLock(); errors.Is(err, ErrLocked) || errors.Is(err, fs.ErrNotExist) { // or somebody else has removed it
		return false, nil
	} else if err != nil {
		return false, err
	}
	empty := false // nothing is left but the directory
	held := false  // the lock is there still: where a file that is open cannot be removed, and so neither the one of who takes it next
	defer func() {
		err = errors.Join(err, unlockFile(d.lock), d.lock.Close())
		if held {
			os.Remove(filepath.Join(path, lockName))
		}
		if empty {
			os.Remove(path) // not empty: somebody has just begun another one there
		}
	}()
	still := marked()
	if still && dry {
		return true, nil
	}
	// (2) What is in it, and the mark at last: should this process die, the next one goes on.
	entries, err := os.ReadDir(path)
	if err != nil {
		return false, err
	}
	if !still {
		if len(entries) == 1 && entries[0].Name() == lockName { // somebody else has removed it meanwhile, and our lock came in the way of the last step
			empty = true
			held = os.Remove(filepath.Join(path, lockName)) != nil
		}
		return false, nil
	}
	var names []string
	for _, e := range entries {
		if e.Name() != lockName && e.Name() != throwawayName {
			names = append(names, e.Name())
		}
	}
	for _, name := range slices.Concat(names, []string{lockName, throwawayName}) {
		err := os.Remove(filepath.Join(path, name))
		switch {
		case err == nil || errors.Is(err, fs.ErrNotExist):
		case name == lockName:
			held = true
		default:
			return false, fmt.Errorf("remove %s: %w", path, err)
		}
	}
	empty = true
	return true, nil
}
