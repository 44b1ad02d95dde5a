package tonbo

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tonbo-go/tonbo/cache"
	"github.com/tonbo-go/tonbo/internal/layout"
	"github.com/tonbo-go/tonbo/internal/segment"
)

// fetchPage fetches the block of a page, and the following ones of a scan. Of concurrent callers for one block one fetches.
func (s *lazy) fetchPage(ctx context.Context, l *locator, p uint32) error {
	o, i, w, err := l.find(ctx, p)
	if err != nil {
		return err
	}
	unlock, err := s.gates.lock(ctx, gateKey{o, i})
	if err != nil {
		return err
	}
	defer unlock()
	if !s.isAbsent(p) {
		return nil
	}
	ix, j := o.Known(), i+1
	window := s.ahead.begin(p)
	for j < len(ix.Blocks) && j < i+window && s.anyAbsent(&ix.Blocks[j]) {
		unlock := s.gates.try(gateKey{o, j})
		if unlock == nil {
			break
		}
		defer unlock()
		j++
	}
	next, err := s.fetch(ctx, l, o, i, j, w)
	if err != nil {
		return err
	}
	if s.isAbsent(p) {
		return fmt.Errorf("%w: page %d of a snapshot older than slot %d", layout.ErrMissing, p, l.slot)
	}
	s.ahead.end(next, window)
	return nil
}

func (s *lazy) anyAbsent(b *segment.Block) bool {
	for _, r := range b.Runs {
		for n := range r.Count {
			if s.isAbsent(r.First + n) {
				return true
			}
		}
	}
	return false
}

// writeBatch is how many bytes are written into the file at once.
const writeBatch = 256 << 10

var batches = sync.Pool{New: func() any { b := make([]byte, 0, writeBatch+segment.MaxPageSize); return &b }}

// fetch brings the blocks i to j-1 of an object: it writes the absent ones of its pages and records the sums of those that are not known. It returns the page
// behind the last one.
func (s *lazy) fetch(ctx context.Context, l *locator, o *layout.Object, i, j int, w *layout.Window) (next uint32, err error) {
	blocks := o.Known().Blocks[i:j]
	first := blocks[0].Runs[0].First
	runs := blocks[len(blocks)-1].Runs
	last := runs[len(runs)-1].First + runs[len(runs)-1].Count - 1
	places := l.places(first, last)
	objects := *l.ready.Load()
	ours := func(p uint32) bool { // no newer object has it
		k := places[p-first].object
		return p <= l.pageCount && k >= 0 && objects[k] == o
	}
	buf := batches.Get().(*[]byte)
	defer batches.Put(buf)
	var start uint32
	b := (*buf)[:0]
	var sums []cache.PageSum
	flush := func() error {
		err := s.put(l, start, b)
		b = b[:0]
		return err
	}
	err = o.Blocks(ctx, i, j, w, func(p uint32, page []byte) error {
		if !ours(p) {
			return nil
		}
		if len(b) > 0 && (p != start+uint32(len(b)/s.size) || len(b) >= writeBatch) {
			if err := flush(); err != nil {
				return err
			}
		}
		if len(b) == 0 {
			start = p
		}
		b = append(b, page...)
		sums = append(sums, cache.PageSum{Page: p, Sum: segment.PageSum(p, page)})
		return nil
	})
	if err == nil && len(b) > 0 {
		err = flush()
	}
	if err != nil {
		return 0, err
	}
	fault("hydrate:written")
	return last + 1, s.record(sums)
}

// record takes the sums of pages that are in the file.
func (s *lazy) record(sums []cache.PageSum) error {
	_, err := s.h.dir.Hydrated(sums)
	switch {
	case errors.Is(err, cache.ErrSums):
		err = fmt.Errorf("%w: database %s: %w", ErrCorrupt, s.h.name, err)
		s.fail(err)
		s.h.broken(err)
		return err
	case err != nil: // known in memory; a later process fetches these pages again
		s.h.o.Logger.Debug("hydrated pages not recorded", "database", s.h.name, "error", err)
	}
	fault("hydrate:recorded")
	return nil
}

// put writes neighbouring pages, those that are still absent, into the file.
func (s *lazy) put(l *locator, first uint32, b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := s.size
	for at := 0; at < len(b); {
		n := 0
		for at+n < len(b) && s.mine(l, first+uint32((at+n)/size)) {
			n += size
		}
		if n == 0 {
			at += size
			continue
		}
		p := first + uint32(at/size)
		if _, err := s.f.WriteAt(b[at:at+n], int64(p-1)*int64(size)); err != nil {
			return fmt.Errorf("write pages %d to %d: %w", p, p+uint32(n/size)-1, err)
		}
		for k := range n / size {
			s.mark(p + uint32(k))
		}
		at += n
	}
	return nil
}

// mine tells whether a page is to be written into the file. s.mu is held.
func (s *lazy) mine(l *locator, p uint32) bool {
	if !s.isAbsent(p) {
		return false
	}
	if l.newest { // a newer state than the one that the file began with: what was shipped since is newer than what belongs into the file
		_, shipped := s.h.dir.Sum(p)
		return !shipped
	}
	return true
}
