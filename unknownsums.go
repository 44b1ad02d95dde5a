package tonbo

import (
	"context"
	"errors"
	"fmt"

	"github.com/tonbo-go/tonbo/cache"
	"github.com/tonbo-go/tonbo/internal/layout"
	"github.com/tonbo-go/tonbo/internal/pageset"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/vfs"
)

// learn makes the sums of pages known, as of the last shipped slot, whatever has been written over them here since.
func (s *lazy) learn(ctx context.Context, pages []uint32) error {
	var b remote.Backoff
	for try := 1; ; try++ {
		l := s.loc.Load() // before: see finish
		need := pages[:0:0]
		for _, p := range pages {
			if _, known := s.h.dir.Sum(p); !known {
				need = append(need, p)
			}
		}
		if len(need) == 0 {
			return nil
		}
		err := s.fetchPages(ctx, l, need)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return err
		case errors.Is(err, layout.ErrMissing):
			if again, _ := s.relocate(ctx, l); !again {
				return s.h.told(fmt.Errorf("pages of database %s: %w", s.h.name, err))
			}
		case errors.Is(err, remote.ErrUnknown) && try < foregroundTries:
			if err := b.Wait(ctx, err); err != nil {
				return err
			}
		default:
			return s.h.told(fmt.Errorf("pages of database %s: %w", s.h.name, err))
		}
		if err == nil && try > foregroundTries {
			return fmt.Errorf("%w: pages of database %s are not where they should be", ErrCorrupt, s.h.name)
		}
	}
}

// prepare makes known, before an entry is made, the sums that its database checksum will need: no commit waits meanwhile.
func (h *handle) prepare(ctx context.Context, vdb *vfs.Database) error {
	s := h.source()
	if s == nil || h.dir.Unknown() == 0 {
		return nil
	}
	pages, count := vdb.Unshipped()
	if len(pages) == 0 {
		return nil
	}
	_, err := h.sumWithout(ctx, pages, count)
	return err
}

// sumWithout returns the database checksum as it is when changed pages have no content, at the size count: of the last shipped state without these
// pages and without those that a shrink gives up. Sums that are not known are fetched, for whichever way takes fewer.
func (h *handle) sumWithout(ctx context.Context, changed []uint32, count uint32) (uint64, error) {
	_, old, sum := h.dir.Position()
	s := h.source()
	if s == nil || h.dir.Unknown() == 0 {
		for _, p := range changed {
			sum ^= h.dir.PageSum(p)
		}
		for p := count + 1; p <= old; p++ {
			sum ^= h.dir.PageSum(p)
		}
		return sum, nil
	}
	var gone []uint32
	for _, p := range changed {
		if p <= old {
			gone = append(gone, p)
		}
	}
	for p := count + 1; p <= old; p++ {
		gone = append(gone, p)
	}
	lost := unknownOf(h.dir, gone)
	// All others that are not known stay. Only when they are fewer, as after a VACUUM, which writes every page, are they looked for: of a large database that is hardly here that takes long.
	if len(lost) > 0 && h.dir.Unknown()-len(lost) < len(lost) {
		set := pageset.NewBits(int(count))
		for _, p := range changed {
			set.Set(p)
		}
		var stay []uint32
		for p := uint32(1); p <= min(count, old); p++ {
			if !set.Has(p) {
				stay = append(stay, p)
			}
		}
		if err := s.learn(ctx, unknownOf(h.dir, stay)); err != nil {
			return 0, err
		}
		sum = 0
		for _, p := range stay {
			sum ^= h.dir.PageSum(p)
		}
		return sum, nil
	}
	if err := s.learn(ctx, lost); err != nil {
		return 0, err
	}
	for _, p := range gone {
		sum ^= h.dir.PageSum(p)
	}
	return sum, nil
}

func unknownOf(d *cache.Dir, pages []uint32) []uint32 {
	var r []uint32
	for _, p := range pages {
		if _, known := d.Sum(p); !known {
			r = append(r, p)
		}
	}
	return r
}
