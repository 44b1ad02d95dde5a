package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"

	"github.com/tonbo-go/tonbo/internal/segment"
)

// Fill reads an absent page into buf.
type Fill func(ctx context.Context, page uint32, buf []byte) error

// CopyTo writes the database as SQLite's own recovery would make it from file and WAL, and changes neither: for KeepAside, before a rebuild. Nothing
// may have the database open. It does not ask whether the pages are sound. Absent pages come from fill; without it they are ErrAbsent.
func (d *Dir) CopyTo(ctx context.Context, w io.Writer, fill Fill) error {
	d.mu.Lock()
	var s *State
	var absent func(page uint32) bool
	if d.j.state != nil && d.j.state.Known != nil {
		s = d.j.state.clone()
		spilled := maps.Clone(d.j.spilled)
		shrink := d.j.shrink
		absent = func(p uint32) bool {
			_, spilled := spilled[p]
			return int(p) <= s.Sums.Len() && !s.Knows(p) && !spilled && (shrink == nil || p <= shrink.pageCount)
		}
	}
	d.mu.Unlock()
	if fill == nil {
		fill = func(_ context.Context, page uint32, _ []byte) error {
			return fmt.Errorf("%w: page %d", ErrAbsent, page)
		}
	}
	if err := copyRecovered(ctx, w, d.Path(), d.WALPath(), s, absent, fill); err != nil {
		return fmt.Errorf("copy %s: %w", d.path, err)
	}
	return nil
}

// copyRecovered does so. s and absent are nil when every page is in the file.
func copyRecovered(ctx context.Context, w io.Writer, dbPath, walPath string, s *State, absent func(uint32) bool, fill Fill) error {
	db, err := os.Open(dbPath)
	if err != nil {
		return err
	}
	defer db.Close()
	fi, err := db.Stat()
	if err != nil {
		return err
	}
	scan := &walScan{}
	wal, err := os.Open(walPath)
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
	if scan.end == 0 && absent == nil {
		_, err := io.Copy(w, contextReader{ctx, db})
		return err
	}
	pageSize, pageCount := int(scan.pageSize), scan.pageCount
	if scan.end == 0 {
		pageSize, pageCount = int(s.PageSize), uint32(fi.Size()/int64(s.PageSize))
	}
	buf := make([]byte, pageSize)
	for page := uint32(1); page <= pageCount && page != 0; page++ {
		if page%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if p := scan.pages[page]; p != nil {
			if _, err := wal.ReadAt(buf, p.at); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			if segment.PageSum(page, buf) != p.sum {
				return errWALChanged
			}
		} else if absent != nil && absent(page) && (scan.end == 0 || page <= scan.smallest) {
			if err := fill(ctx, page, buf); err != nil {
				return err
			}
		} else if n, err := db.ReadAt(buf, int64(page-1)*int64(pageSize)); err != nil {
			if !errors.Is(err, io.EOF) {
				return err
			}
			clear(buf[n:]) // the commits made the database longer than the file is yet
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
