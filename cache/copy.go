package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"

	"github.com/tonbo-go/tonbo/internal/fsys"
	"github.com/tonbo-go/tonbo/internal/segment"
)

// Fill reads an absent page into buf.
type Fill func(ctx context.Context, page uint32, buf []byte) error

// CopyTo writes the database as SQLite's own recovery would make it from file and WAL, and changes neither: for KeepAside, before a rebuild. Nothing
// may have the database open. It does not ask whether the pages are sound. Absent pages come from fill; without it they are ErrAbsent. So do the pages that Recover found damaged and that no
// commit in the WAL has written, if fill has them: what was shipped belongs there, and did not reach the disk.
func (d *Dir) CopyTo(ctx context.Context, w io.Writer, fill Fill, damaged ...uint32) error {
	d.mu.Lock()
	c := copier{files: d.files, db: d.Path(), wal: d.WALPath(), fill: fill, damaged: map[uint32]bool{}}
	if j := d.j; j.state != nil {
		c.state = j.state.clone()
		c.spilled = maps.Clone(j.spilled)
		c.shrink = j.shrink
	}
	d.mu.Unlock()
	if fill == nil {
		c.fill = func(_ context.Context, page uint32, _ []byte) error {
			return fmt.Errorf("%w: page %d", ErrAbsent, page)
		}
	} else {
		for _, p := range damaged {
			c.damaged[p] = true
		}
	}
	if err := c.copy(ctx, w); err != nil {
		return fmt.Errorf("copy %s: %w", d.path, err)
	}
	return nil
}

// copier makes the copy.
type copier struct {
	files   fsys.FS
	db, wal string // paths
	state   *State // nil: none is known, and every page is in the file
	spilled map[uint32]spill
	shrink  *shrink
	damaged map[uint32]bool
	fill    Fill
}

// absent tells whether a page is not in the database file, as far as is known from elsewhere than the WAL.
func (c *copier) absent(p uint32) bool {
	if c.state == nil || int(p) > c.state.Sums.Len() || c.state.Knows(p) {
		return false
	}
	_, spilled := c.spilled[p]
	return !spilled && (c.shrink == nil || p <= c.shrink.pageCount)
}

// missing tells whether a page was shipped, and did not reach the disk as it was.
func (c *copier) missing(p uint32) bool {
	if !c.damaged[p] || c.state == nil || int(p) > c.state.Sums.Len() {
		return false
	}
	_, spilled := c.spilled[p]
	return !spilled && (c.shrink == nil || p <= c.shrink.pageCount)
}

func (c *copier) copy(ctx context.Context, w io.Writer) error {
	db, err := c.files.Open(c.db)
	if err != nil {
		return err
	}
	defer db.Close()
	fi, err := db.Stat()
	if err != nil {
		return err
	}
	scan := &walScan{}
	wal, err := c.files.Open(c.wal)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		defer wal.Close()
		if fi.Size() > 0 {
			if scan, err = scanWAL(ctx, wal, func(uint32) versions { return versions{} }); err != nil {
				return err
			}
		}
	}
	if scan.end == 0 && (c.state == nil || c.state.Known == nil && len(c.damaged) == 0) {
		_, err := io.Copy(w, contextReader{ctx, db})
		return err
	}
	pageSize, pageCount := int(scan.pageSize), scan.pageCount
	if scan.end == 0 {
		pageSize, pageCount = int(c.state.PageSize), uint32(fi.Size()/int64(c.state.PageSize))
	}
	buf := make([]byte, pageSize)
	for page := uint32(1); page <= pageCount && page != 0; page++ {
		if page%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		filled := false
		if p := scan.pages[page]; p != nil {
			if _, err := wal.ReadAt(buf, p.at); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			if segment.PageSum(page, buf) != p.sum {
				return errWALChanged
			}
			filled = true
		} else if scan.end == 0 || page <= scan.smallest {
			switch {
			case c.absent(page):
				if err := c.fill(ctx, page, buf); err != nil {
					return err
				}
				filled = true
			case c.missing(page):
				filled = c.fill(ctx, page, buf) == nil // else it is what the file holds
			}
		}
		if !filled {
			if n, err := db.ReadAt(buf, int64(page-1)*int64(pageSize)); err != nil {
				if !errors.Is(err, io.EOF) {
					return err
				}
				clear(buf[n:]) // the commits made the database longer than the file is yet
			}
		}
		if _, err := w.Write(buf); err != nil {
			return err
		}
	}
	return nil
}

// contextReader ends a copy when ctx does.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
