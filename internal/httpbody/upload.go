package httpbody

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
)

// Upload is the body of one request. net/http may read on after the request has ended; once detached it gets nothing more, so that the bytes are the caller's again.
type Upload struct {
	copied int64 // bytes of a body that is a copy

	mu  sync.Mutex
	now *reader // what net/http reads: another one, when the connection that it picked turns out dead before a byte was written to it; nil for a copy
}

// MaxCopy is how large a body AttachCopy may be given, in bytes.
const MaxCopy = 16 << 10

// AttachCopy makes a copy of b the body of req, and its length the announced one. net/http sends a body of which it knows that it is in memory with the header in one write (if there is room for both in the transport's WriteBufferSize), any other
// one in a second. Nobody is told when it is taken: that is as soon as the request has a connection.
func AttachCopy(req *http.Request, b []byte) *Upload {
	b = bytes.Clone(b)
	req.ContentLength = int64(len(b))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
	req.Body, _ = req.GetBody()
	return &Upload{copied: req.ContentLength}
}

// Attach makes b the body of req, and its length the announced one, of nothing too. moved is called whenever some of it is taken.
func Attach(req *http.Request, b []byte, moved func()) *Upload {
	u := &Upload{now: &reader{body: b, moved: moved}}
	req.ContentLength = int64(len(b)) // net/http says 0 for PUT
	if len(b) > 0 {
		req.Body = u.now
		req.GetBody = func() (io.ReadCloser, error) {
			u.mu.Lock()
			defer u.mu.Unlock()
			u.now.detach()
			u.now = &reader{body: b, moved: moved}
			return u.now, nil
		}
	}
	return u
}

// Detach ends it.
func (u *Upload) Detach() {
	if u.copied > 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.now.detach()
}

// Sent returns how many bytes net/http has taken, of a request that had a connection.
func (u *Upload) Sent() int64 {
	if u.copied > 0 {
		return u.copied
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.now.sum()
}

type reader struct {
	mu    sync.Mutex
	body  []byte
	off   int
	gone  bool
	moved func()
}

func (r *reader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone {
		return 0, errors.New("request has ended")
	}
	if r.off == len(r.body) {
		return 0, io.EOF
	}
	n := copy(p, r.body[r.off:])
	r.off += n
	r.moved()
	return n, nil
}

func (r *reader) Close() error { return nil }

func (r *reader) detach() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone, r.body = true, nil
}

func (r *reader) sum() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return int64(r.off)
}
