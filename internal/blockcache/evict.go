package blockcache

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// evictSoon looks at the whole in the background, unless that goes on.
func (c *Cache) evictSoon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.evicting.Swap(true) {
		return
	}
	c.workers.Go(func() {
		defer c.evicting.Store(false)
		if err := c.evict(); err != nil {
			c.o.Logger.Warn("shared block cache not made smaller", "event", "shared_cache_failed", "dir", c.o.Dir, "error", err)
		}
	})
}

// file is one of the cache's.
type file struct {
	path string
	size int64
	used time.Time
}

// evict removes what was used least recently when all files together exceed the bound, until an eighth of it is free, and what killed processes left. One process at a
// time does it.
func (c *Cache) evict() error {
	unlock, got := c.tryLock(evictLock, 1)
	if !got {
		return nil
	}
	defer unlock()
	files, total, err := c.files()
	if err != nil || total <= c.o.Max {
		return err
	}
	slices.SortFunc(files, func(a, b file) int { return a.used.Compare(b.used) })
	for _, f := range files {
		if total <= c.o.Max-c.o.Max/8 {
			break
		}
		if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		total -= f.size
	}
	return nil
}

// files lists the files, and adds up their sizes. Old temporary ones are removed.
func (c *Cache) files() (r []file, total int64, err error) {
	shards, err := os.ReadDir(c.o.Dir)
	if err != nil {
		return nil, 0, err
	}
	now := time.Now()
	for _, s := range shards {
		if !s.IsDir() {
			continue
		}
		entries, err := os.ReadDir(filepath.Join(c.o.Dir, s.Name()))
		if err != nil {
			return nil, 0, err
		}
		for _, e := range entries {
			fi, err := e.Info()
			if err != nil { // removed meanwhile
				continue
			}
			path := filepath.Join(c.o.Dir, s.Name(), e.Name())
			if strings.HasSuffix(e.Name(), tempSuffix) && now.Sub(fi.ModTime()) > tempAge {
				os.Remove(path)
				continue
			}
			r = append(r, file{path, fi.Size(), fi.ModTime()})
			total += fi.Size()
		}
	}
	return r, total, nil
}
