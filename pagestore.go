package tonbo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// pageStore is a file of pages of one or more points, which share those that are the same in them. A page is in a cell; a cell that no point has any more is used
// again. Safe for concurrent use.
type pageStore struct {
	f    *os.File
	size int    // of a page, bytes
	name string // of the file, "" when it has none any more

	mu    sync.Mutex
	cells []cell
	free  []uint32
}

type cell struct {
	sum   uint64 // of the page
	users uint32 // points
}

// readOnlyPrefix begins the name of such a file. No database's folder is called so: names begin with a letter or a digit.
const readOnlyPrefix = ".readonly-"

// newPageStore makes the file in dir. Where the system allows it, it has no name from then on, and is gone with the process; elsewhere the next one removes it.
func newPageStore(dir string, pageSize int) (*pageStore, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%w; set Options.Dir or $TONBO_DIR", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("%w; set Options.Dir or $TONBO_DIR", err)
	}
	for _, e := range left {
		if strings.HasPrefix(e.Name(), readOnlyPrefix) { // of a process that was killed; refused, where a living one has it open, and harmless where that is not so
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	f, err := os.CreateTemp(dir, readOnlyPrefix+"*")
	if err != nil {
		return nil, fmt.Errorf("%w; set Options.Dir or $TONBO_DIR", err)
	}
	s := &pageStore{f: f, size: pageSize}
	if err := os.Remove(f.Name()); err != nil {
		s.name = f.Name()
	}
	return s, nil
}

// put writes neighbouring pages of a point, and returns their cells.
func (s *pageStore) put(pages []byte, sums []uint64) ([]uint32, error) {
	cells := s.take(len(sums))
	for i := 0; i < len(cells); {
		n := 1
		for i+n < len(cells) && cells[i+n] == cells[i]+uint32(n) {
			n++
		}
		if _, err := s.f.WriteAt(pages[i*s.size:(i+n)*s.size], int64(cells[i])*int64(s.size)); err != nil {
			s.release(cells)
			return nil, err
		}
		i += n
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range cells {
		s.cells[c].sum = sums[i]
	}
	return cells, nil
}

// take returns n cells with one user.
func (s *pageStore) take(n int) []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := make([]uint32, n)
	for i := range r {
		if k := len(s.free); k > 0 {
			r[i], s.free = s.free[k-1], s.free[:k-1]
			s.cells[r[i]].users = 1
		} else {
			r[i] = uint32(len(s.cells))
			s.cells = append(s.cells, cell{users: 1})
		}
	}
	return r
}

// share counts one user more of cells.
func (s *pageStore) share(cells []uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range cells {
		s.cells[c].users++
	}
}

// release counts one user less of cells.
func (s *pageStore) release(cells []uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range cells {
		if s.cells[c].users--; s.cells[c].users == 0 {
			s.free = append(s.free, c)
		}
	}
}

// xor is the checksum of the pages in cells.
func (s *pageStore) xor(cells []uint32) (x uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range cells {
		x ^= s.cells[c].sum
	}
	return x
}

// readAt reads from a cell.
func (s *pageStore) readAt(p []byte, cell uint32, in int) error {
	_, err := s.f.ReadAt(p, int64(cell)*int64(s.size)+int64(in))
	return err
}

// close removes the file.
func (s *pageStore) close() error {
	err := s.f.Close()
	if s.name != "" {
		if rerr := os.Remove(s.name); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	return err
}
