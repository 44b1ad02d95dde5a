package tonbotest

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/tonbo-go/tonbo/internal/fsys"
)

// files are a directory as it is, and as it may be after a power cut: what is durable, and what was done since. What is done outside of the directory, or to a file that
// has no name any more, is not followed.
type files struct {
	root string
	now  map[string]*node // by path
	top  *node
}

// node is a file or a directory. A file may have several names.
type node struct {
	dir bool

	durable []byte // content as of the last fsync
	live    []byte // as it is; nil when nothing is pending: it is durable then
	pending []change

	entries map[string]*node // of a directory, as of its last fsync
	changed []entry
}

// change is a write, or a truncation to off.
type change struct {
	off  int64
	data []byte // nil: a truncation
}

// entry is a change of a directory, which is made as a whole: a name is gone, or stands for a node.
type entry struct {
	gone, name string
	node       *node
}

func readFiles(root string) (*files, error) {
	f := &files{root: root, now: map[string]*node{}, top: &node{dir: true, entries: map[string]*node{}}}
	f.now[root] = f.top
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == root || !e.IsDir() && !e.Type().IsRegular() {
			return err
		}
		n := &node{dir: e.IsDir()}
		if n.dir {
			n.entries = map[string]*node{}
		} else if n.durable, err = os.ReadFile(path); err != nil {
			return err
		}
		f.now[path] = n
		f.now[filepath.Dir(path)].entries[filepath.Base(path)] = n
		return nil
	})
	return f, err
}

// content is what a file holds. It is not to be changed.
func (f *files) content(path string) []byte {
	n := f.now[path]
	switch {
	case n == nil:
		return nil
	case n.live != nil:
		return n.live
	}
	return n.durable
}

// growth is how many bytes more an operation takes.
func (f *files) growth(op fsys.Op) int64 {
	size := int64(len(f.content(op.Path)))
	switch op.Kind {
	case fsys.Write:
		return max(0, op.Off+int64(len(op.Data))-size)
	case fsys.Truncate:
		return op.Off - size
	case fsys.Remove:
		return -size
	}
	return 0
}

// did notes an operation that was done.
func (f *files) did(op fsys.Op) error {
	n := f.now[op.Path]
	parent := f.now[filepath.Dir(op.Path)]
	name := filepath.Base(op.Path)
	switch op.Kind {
	case fsys.Mkdir:
		if filepath.Dir(op.Path) != op.Path && parent == nil {
			if err := f.did(fsys.Op{Kind: fsys.Mkdir, Path: filepath.Dir(op.Path)}); err != nil {
				return err
			}
			parent = f.now[filepath.Dir(op.Path)]
		}
		if n == nil {
			n = &node{dir: true, entries: map[string]*node{}}
			f.now[op.Path] = n
			parent.changed = append(parent.changed, entry{name: name, node: n})
		}
	case fsys.Create:
		if parent == nil {
			return nil
		}
		n = &node{}
		f.now[op.Path] = n
		parent.changed = append(parent.changed, entry{name: name, node: n})
	case fsys.Write, fsys.Truncate:
		if n == nil {
			return nil
		}
		c := change{off: op.Off}
		if op.Kind == fsys.Write {
			c.data = append(make([]byte, 0, len(op.Data)), op.Data...)
		}
		if n.live == nil {
			n.live = append(make([]byte, 0, len(n.durable)+len(c.data)), n.durable...)
		}
		n.live = c.apply(n.live, func() bool { return true })
		n.pending = append(n.pending, c)
	case fsys.Sync:
		if n != nil && n.live != nil {
			n.durable, n.live, n.pending = n.live, nil, nil
		}
	case fsys.SyncDir:
		if n != nil {
			for _, e := range n.changed {
				e.apply(n.entries)
			}
			n.changed = nil
		}
	case fsys.Remove:
		if parent != nil && n != nil {
			parent.changed = append(parent.changed, entry{gone: name})
			delete(f.now, op.Path)
		}
	case fsys.Rename, fsys.Link:
		if filepath.Dir(op.To) != filepath.Dir(op.Path) {
			return fmt.Errorf("tonbotest: %s from one directory into another is not followed: %s to %s", op.Kind, op.Path, op.To)
		}
		if parent == nil || n == nil {
			return nil
		}
		e := entry{name: filepath.Base(op.To), node: n}
		f.now[op.To] = n
		if op.Kind == fsys.Rename {
			e.gone = name
			delete(f.now, op.Path)
		}
		parent.changed = append(parent.changed, e)
	}
	return nil
}

func (e entry) apply(entries map[string]*node) {
	if e.gone != "" {
		delete(entries, e.gone)
	}
	if e.name != "" {
		entries[e.name] = e.node
	}
}

// apply makes the change in b: of a write the sectors that arrive, of a truncation all or nothing.
func (c change) apply(b []byte, arrives func() bool) []byte {
	if c.data == nil {
		if !arrives() {
			return b
		}
		return resize(b, c.off)
	}
	for from := int64(0); from < int64(len(c.data)); {
		at := c.off + from
		n := min(int64(len(c.data))-from, sector-at%sector)
		if arrives() {
			if int64(len(b)) < at+n {
				b = resize(b, at+n)
			}
			copy(b[at:], c.data[from:from+n])
		}
		from += n
	}
	return b
}

func resize(b []byte, size int64) []byte {
	if size <= int64(len(b)) {
		clear(b[size:])
		return b[:size]
	}
	return append(b, make([]byte, size-int64(len(b)))...)
}

// after is what may be there after a power cut.
func (f *files) after(rng *rand.Rand) *files {
	// How much arrives differs from cut to cut, and from file to file: all, nothing, what came first, or some of it.
	chance := func() func() bool {
		switch rng.IntN(5) {
		case 0:
			return func() bool { return true }
		case 1:
			return func() bool { return false }
		case 2: // in order, up to somewhere
			left := rng.IntN(1 << rng.IntN(8))
			return func() bool { left--; return left >= 0 }
		case 3: // nearly all
			return func() bool { return rng.IntN(8) > 0 }
		}
		return func() bool { return rng.IntN(2) == 0 }
	}
	made := map[*node]*node{}
	g := &files{root: f.root, now: map[string]*node{}}
	var survive func(path string, n *node) *node
	survive = func(path string, n *node) *node {
		s := made[n]
		if s == nil {
			s = &node{dir: n.dir, durable: slices.Clone(n.durable)}
			made[n] = s
			arrives := chance()
			for _, c := range n.pending {
				s.durable = c.apply(s.durable, arrives)
			}
			if n.dir {
				arrives = chance()
				entries := maps.Clone(n.entries)
				for _, e := range n.changed {
					if arrives() {
						e.apply(entries)
					}
				}
				s.entries = map[string]*node{}
				for _, name := range slices.Sorted(maps.Keys(entries)) {
					s.entries[name] = survive(filepath.Join(path, name), entries[name])
				}
			}
		}
		g.now[path] = s
		return s
	}
	g.top = survive(f.root, f.top)
	return g
}

// write makes the directory what f says, and nothing else.
func (f *files) write(root string) error {
	if err := removeAll(root); err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(f.now)) { // a directory before what is in it
		var err error
		if n := f.now[path]; n.dir {
			err = os.MkdirAll(path, 0o700)
		} else {
			err = os.WriteFile(path, n.durable, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
