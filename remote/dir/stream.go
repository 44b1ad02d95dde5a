package dir

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"github.com/tonbo-go/tonbo/remote"
)

var _ remote.Streamer = (*Store)(nil)

// Stream implements [remote.Streamer]. Where the writer of WriteTo is a connection, the bytes go there without passing through this process (sendfile).
func (s *Store) Stream(ctx context.Context, key string, o remote.GetOptions) (remote.Info, io.ReadCloser, error) {
	const op = "get"
	if err := s.begin(ctx, op, key, remote.CheckKey); err != nil {
		return remote.Info{}, nil, err
	}
	file := filepath.Join(s.root, path(key))
	if err := s.settle(filepath.Dir(file)); err != nil {
		return remote.Info{}, nil, s.fail(op, key, remote.ErrUnknown, err)
	}
	f, info, err := open(file)
	if err != nil {
		return remote.Info{}, nil, s.error(op, key, err)
	}
	info.Key = key
	if o.IfMatch != "" && o.IfMatch != info.ETag {
		f.Close()
		return remote.Info{}, nil, s.fail(op, key, remote.ErrChanged, nil)
	}
	offset, n := o.Span(info.Size)
	if _, err := f.Seek(headerSize+offset, io.SeekStart); err != nil {
		f.Close()
		return remote.Info{}, nil, s.error(op, key, err)
	}
	remote.Record(ctx, remote.OpGet, 0, n)
	return info, &body{ctx: ctx, f: f, left: io.LimitedReader{R: f, N: n}}, nil
}

// body is a part of an object's file.
type body struct {
	ctx  context.Context
	f    *os.File
	left io.LimitedReader
}

func (b *body) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, context.Cause(b.ctx)
	}
	n, err := b.left.Read(p)
	if err == io.EOF && b.left.N > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// WriteTo implements [io.WriterTo].
func (b *body) WriteTo(w io.Writer) (int64, error) {
	n, err := io.Copy(w, &b.left)
	if err == nil && b.left.N > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (b *body) Close() error { return b.f.Close() }
