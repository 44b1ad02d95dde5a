package tonbo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/pageset"
	"github.com/tonbo-go/tonbo/remote"
)

// Export writes a database as a plain SQLite file: without a journal, as of the point at (nil: the head). It takes nothing over; an owner may be at work. It needs
// room for the database in Options.Dir while it runs. Errors, for errors.Is: [ErrNotFound], [ErrPointGone], [ErrCorrupt], and w's.
func (c *Client) Export(ctx context.Context, name string, at At, w io.Writer) error {
	if err := notNil("w", w == nil); err != nil {
		return wrap(name, "export", err)
	}
	h, err := c.handle(name)
	if err != nil {
		return err
	}
	defer h.stop()
	return wrap(name, "export", h.export(ctx, at, w))
}

func (h *handle) export(ctx context.Context, at At, w io.Writer) error {
	_, e, err := h.resolve(ctx, at)
	if err != nil {
		return err
	}
	root, done, err := h.scratch(".export-*")
	if err != nil {
		return err
	}
	defer done()
	path := filepath.Join(root, "db")
	if err := h.restoreTo(ctx, path, e); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(&plainWriter{w: w}, ctxReader{ctx, f})
	return err
}

// restoreTo makes the file at path the state after e.
func (h *handle) restoreTo(ctx context.Context, path string, e *fence.Entry) error {
	if e.Payload == nil && e.PayloadSize > 0 {
		var err error
		if e, err = h.log.Read(ctx, e.Slot); errors.Is(err, remote.ErrNotFound) {
			return ErrPointGone
		} else if err != nil {
			return err
		}
	}
	t := h.newTail(e)
	if err := t.load(ctx, 0); err != nil {
		return err
	}
	rs, err := h.newRestorer(path, e.State, t, pageset.Sums{})
	if err != nil {
		return err
	}
	return rs.run(ctx, 0)
}

// scratch makes a directory for a while. Its pattern begins with a dot: no database's folder does.
func (h *handle) scratch(pattern string) (dir string, done func(), err error) {
	if err := os.MkdirAll(h.o.Dir, 0o700); err != nil {
		return "", nil, fmt.Errorf("%w; set Options.Dir or $TONBO_DIR", err)
	}
	dir, err = os.MkdirTemp(h.o.Dir, pattern)
	if err != nil {
		return "", nil, fmt.Errorf("%w; set Options.Dir or $TONBO_DIR", err)
	}
	return dir, func() { os.RemoveAll(dir) }, nil
}

// ctxReader ends a copy when ctx does.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// plainWriter makes the copy of a database file a plain one, in rollback mode, so that it opens anywhere without a write-ahead log:
// bytes 18 and 19 are 1 (https://sqlite.org/fileformat2.html#file_format_version_numbers).
type plainWriter struct {
	w    io.Writer
	head []byte // the first bytes, until there are enough
}

const plainHead = 20

func (p *plainWriter) Write(b []byte) (int, error) {
	if len(p.head) == plainHead {
		return p.w.Write(b)
	}
	n := min(plainHead-len(p.head), len(b))
	p.head = append(p.head, b[:n]...)
	if len(p.head) < plainHead {
		return len(b), nil
	}
	head := append([]byte(nil), p.head...)
	head[18], head[19] = 1, 1
	if _, err := p.w.Write(head); err != nil {
		return 0, err
	}
	_, err := p.w.Write(b[n:])
	return len(b), err
}
