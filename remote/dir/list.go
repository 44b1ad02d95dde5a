package dir

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tonbo-go/tonbo/remote"
)

const maxPage = 1000 // keys

// List implements [remote.Store]. It reads only folders that can hold keys with the prefix, and reads until two readings agree:
// what changes while it is read can show a mixture that never was. A page has at most 1000 keys. A damaged object is listed, with an entity tag that none has.
func (s *Store) List(ctx context.Context, prefix string, o remote.ListOptions) (page []remote.Info, more bool, err error) {
	const op = "list"
	if err := s.begin(ctx, op, prefix, remote.CheckPrefix); err != nil {
		return nil, false, err
	}
	remote.Record(ctx, remote.OpList, 0, 0)
	if err := s.checkRoot(op, prefix); err != nil {
		return nil, false, err
	}
	limit := maxPage
	if o.Max > 0 {
		limit = min(limit, o.Max)
	}
	folder, _ := remote.SplitPrefix(prefix)
	read := func() (r reading, err error) {
		r = reading{ctx: ctx, prefix: prefix, after: o.After, limit: limit}
		base := ""
		if folder != "" {
			base = folder + "/"
		}
		err = r.folder(filepath.Join(s.root, path(folder)), base)
		return r, err
	}
	var last reading
	for n := 0; ; n++ {
		r, err := read()
		if err != nil {
			return nil, false, s.error(op, prefix, err)
		}
		if n > 0 && r.agrees(last) {
			return r.page, r.more, s.checkRootAgain(op, prefix, r.page)
		}
		last = r
		if n > 1 { // somebody writes faster than we read: give way
			if err := wait(ctx, min(time.Duration(n)*100*time.Microsecond, 10*time.Millisecond)); err != nil {
				return nil, false, s.error(op, prefix, err)
			}
		}
	}
}

// checkRootAgain keeps a directory that vanished meanwhile from looking empty.
func (s *Store) checkRootAgain(op, prefix string, page []remote.Info) error {
	if len(page) > 0 {
		return nil
	}
	return s.checkRoot(op, prefix)
}

// reading is one walk over the folders, in the order of the keys, until the page is full.
type reading struct {
	ctx    context.Context
	prefix string
	after  string
	limit  int
	page   []remote.Info
	more   bool
	torn   bool // a name was gone before its file was opened
}

// agrees tells whether two readings, one after the other, show the same and neither is known to be a mixture.
func (r *reading) agrees(last reading) bool {
	return !r.torn && !last.torn && r.more == last.more && slices.Equal(r.page, last.page)
}

type name struct {
	seg    string // with a slash behind it when it is a folder: the order of keys, not of names
	path   string
	folder bool
}

// folder reads what is under one folder, whose keys all begin with base.
func (r *reading) folder(path, base string) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	names, err := r.names(nil, path, "", base)
	if err != nil {
		return err
	}
	slices.SortFunc(names, func(a, b name) int { return cmp.Compare(a.seg, b.seg) })
	for _, n := range names {
		switch {
		case n.folder:
			err = r.folder(n.path, base+n.seg)
		case len(r.page) == r.limit:
			r.more = true
		default:
			err = r.file(n.path, base+n.seg)
		}
		if err != nil || r.more {
			return err
		}
	}
	return nil
}

// names appends what is in a folder and can belong to the page. Folders in which a long segment goes on are read as a part of
// this one, since their keys may sort between others'.
func (r *reading) names(names []name, path, spelled, base string) ([]name, error) {
	entries, err := readFolder(path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if rest, ok := strings.CutSuffix(e.Name(), goesOn); ok && e.IsDir() && len(rest) == maxName {
			if names, err = r.names(names, filepath.Join(path, e.Name()), spelled+rest, base); err != nil {
				return nil, err
			}
			continue
		}
		tail := e.Name()
		if spelled != "" {
			if !strings.HasPrefix(tail, goesOn) {
				continue
			}
			tail = tail[len(goesOn):]
		}
		seg, ok := unspell(spelled + tail)
		if !ok || !e.IsDir() && !e.Type().IsRegular() || len(tail) > maxName {
			continue
		}
		if e.IsDir() {
			seg += "/"
		}
		if r.wanted(base+seg, e.IsDir()) {
			names = append(names, name{seg, filepath.Join(path, e.Name()), e.IsDir()})
		}
	}
	return names, nil
}

// wanted tells whether a key, or any key that begins with this, has the prefix and sorts behind after.
func (r *reading) wanted(key string, folder bool) bool {
	if !folder {
		return strings.HasPrefix(key, r.prefix) && key > r.after
	}
	return (strings.HasPrefix(key, r.prefix) || strings.HasPrefix(r.prefix, key)) &&
		(key > r.after || strings.HasPrefix(r.after, key))
}

func (r *reading) file(path, key string) error {
	f, info, err := open(path)
	if errors.Is(err, fs.ErrNotExist) { // deleted since the folder was read: what came meanwhile is missing as well
		r.torn = true
		return nil
	}
	switch {
	case err == nil:
		f.Close()
	case !errors.Is(err, errDamaged): // that is for who reads it: the key is taken
		return err
	}
	info.Key = key
	r.page = append(r.page, info)
	return nil
}

func readFolder(path string) ([]fs.DirEntry, error) {
	f, err := os.Open(path)
	if err != nil && isAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
}
