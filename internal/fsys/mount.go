package fsys

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// mounts are what tests have put between: a path is all that the library and SQLite have in common, as it is for package vfs.
var mounts struct {
	n  atomic.Int64 // how many there are: almost always none
	mu sync.Mutex
	at []mount
}

type mount struct {
	dir  string
	hook Hook
}

// Mount puts hook between the library and what lies below dir, an absolute path without symbolic links, from the next At on and until unmount.
func Mount(dir string, hook Hook) (unmount func()) {
	m := mount{filepath.Clean(dir), hook}
	mounts.mu.Lock()
	defer mounts.mu.Unlock()
	mounts.at = append(mounts.at, m)
	mounts.n.Add(1)
	return sync.OnceFunc(func() {
		mounts.mu.Lock()
		defer mounts.mu.Unlock()
		if i := slices.Index(mounts.at, m); i >= 0 {
			mounts.at = slices.Delete(mounts.at, i, i+1)
			mounts.n.Add(-1)
		}
	})
}

// At is what changes files at path, which is absolute.
func At(path string) FS {
	if mounts.n.Load() == 0 {
		return FS{}
	}
	mounts.mu.Lock()
	defer mounts.mu.Unlock()
	for _, m := range slices.Backward(mounts.at) {
		if rest, ok := strings.CutPrefix(filepath.Clean(path), m.dir); ok && (rest == "" || rest[0] == filepath.Separator) {
			return FS{m.hook}
		}
	}
	return FS{}
}
