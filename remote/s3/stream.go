package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/tonbo-go/tonbo/internal/httpbody"
	"github.com/tonbo-go/tonbo/remote"
)

var _ remote.Streamer = (*Store)(nil)

// Stream implements [remote.Streamer].
func (s *Store) Stream(ctx context.Context, key string, o remote.GetOptions) (remote.Info, io.ReadCloser, error) {
	r := request{op: remote.OpGet, method: http.MethodGet, key: key, rng: httpbody.Range(o.Offset, o.Length), ifMatch: quote(o.IfMatch)}
	if err := remote.CheckKey(key); err != nil {
		return remote.Info{}, nil, s.error(r, remote.ErrUnfit, err)
	}
	if o.Length < 0 || o.Offset < 0 {
		return remote.Info{}, nil, s.error(r, remote.ErrUnfit, fmt.Errorf("stream of %d bytes from %d", o.Length, o.Offset))
	}
	x, fail := s.begin(ctx, r)
	if fail != nil {
		return remote.Info{}, nil, s.failed(r, fail).Error
	}
	info, n, err := x.part(o)
	if err != nil {
		x.end()
		return remote.Info{}, nil, s.error(r, remote.ErrUnknown, err)
	}
	return info, &stream{x, n}, nil
}

// part checks that the answer is the part that was asked for, and tells how long it is.
func (x *exchange) part(o remote.GetOptions) (info remote.Info, n int64, err error) {
	h := x.resp.Header
	info = remote.Info{Key: x.r.key, ETag: unquote(h.Get("Etag"))}
	info.Time, _ = http.ParseTime(h.Get("Last-Modified"))
	var start int64
	switch x.resp.StatusCode {
	case http.StatusOK:
		n = x.resp.ContentLength
		info.Size = n
	case http.StatusPartialContent:
		if start, n, info.Size, err = httpbody.ContentRange(h.Get("Content-Range")); err != nil {
			return info, 0, err
		}
	default:
		return info, 0, fmt.Errorf("HTTP %d", x.resp.StatusCode)
	}
	from, want := o.Span(info.Size)
	if info.ETag == "" || o.IfMatch != "" && info.ETag != o.IfMatch || n < 0 || x.resp.ContentLength != n || start != from || n != want {
		return info, 0, errors.New("another part than the one that was asked for")
	}
	return info, n, nil
}

// stream is the body of an answer.
type stream struct {
	x    *exchange
	left int64
}

func (b *stream) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n, err := b.x.resp.Body.Read(p)
	if n > 0 {
		b.x.moved()
	}
	b.x.down += int64(n)
	b.left -= int64(n)
	switch {
	case err == io.EOF && b.left > 0:
		err = io.ErrUnexpectedEOF
	case err != nil && err != io.EOF:
		err = b.x.why(err)
	}
	return n, err
}

func (b *stream) Close() error {
	b.x.end()
	return nil
}
