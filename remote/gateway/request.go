package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tonbo-go/tonbo/internal/objectwire"
	"github.com/tonbo-go/tonbo/remote"
)

// request is one HTTP request to the server.
type request struct {
	op       remote.Op
	name     string // as remote.Error calls it
	method   string
	database string
	key      string // "" for a listing
	prefix   string // of a listing, for messages
	query    string
	body     []byte

	ifNoneMatch, ifMatch, rng string
}

// answer is what came back: the status, the headers, and as much of the body as could be read.
type answer struct {
	status  int
	header  http.Header
	length  int64 // announced length of the body, or -1
	chunked bool  // then the end of the body is marked
	body    []byte
	bodyErr error // why the body may be incomplete
	token   string
}

// sendError is a request without an answer.
type sendError struct {
	sent bool // bytes may have reached the server
	auth bool // there is no token
	err  error
}

var errStalled = errors.New("no byte moved")

const (
	maxErrorBody = 64 << 10 // how much of an answer that is no object is read
	maxPrealloc  = 64 << 20 // bounds what an announced length alone makes us allocate
	maxListing   = 16 << 20
)

// userAgent is sent with each request.
const userAgent = "tonbo-go"

// send does exactly one HTTP request, reads its answer, and records it if it was sent.
func (s *Store) send(ctx context.Context, r *request) (a answer, fail *sendError) {
	if ctx.Err() != nil {
		return a, &sendError{err: context.Cause(ctx)}
	}
	token, err := s.tokens.get(ctx)
	if err != nil {
		return a, &sendError{auth: ctx.Err() == nil, err: err}
	}
	a.token = token

	caller := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(s.o.StallTimeout, func() { cancel(errStalled) })
	defer stall.Stop()
	moved := func() { stall.Reset(s.o.StallTimeout) }

	var sent atomic.Bool
	if s.own != nil { // it tells when a request gets a connection
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }})
	} else {
		sent.Store(true)
	}
	req, up := s.build(ctx, r, token, moved)
	defer func() { (*up).detach() }()
	resp, err := s.client.RoundTrip(req)
	why := func(err error) error { // the caller's own reason goes before what net/http makes of it
		if caller.Err() != nil {
			return context.Cause(caller)
		}
		if errors.Is(context.Cause(ctx), errStalled) {
			return &timeoutError{"the server hangs: " + errStalled.Error() + " for " + s.o.StallTimeout.String()}
		}
		return err
	}
	if err != nil {
		if sent.Load() {
			remote.Record(caller, r.op, (*up).sum(), 0)
		}
		return a, &sendError{sent: sent.Load(), err: why(err)}
	}
	defer resp.Body.Close()
	moved()
	a.status, a.header, a.length, a.chunked = resp.StatusCode, resp.Header, resp.ContentLength, len(resp.TransferEncoding) > 0
	object := r.op == remote.OpGet && a.status < 300
	a.body, a.bodyErr = readBody(resp, object, r.op == remote.OpList, moved)
	if a.bodyErr != nil {
		a.bodyErr = why(a.bodyErr)
	}
	down := 0
	if object {
		down = len(a.body)
	}
	remote.Record(caller, r.op, (*up).sum(), int64(down))
	return a, nil
}

type timeoutError struct{ msg string }

func (e *timeoutError) Error() string { return e.msg }
func (e *timeoutError) Timeout() bool { return true }

// build makes the HTTP request. The upload is behind a pointer, since net/http may take another one: when the connection that it picked turns out dead before a byte was written to it.
func (s *Store) build(ctx context.Context, r *request, token string, moved func()) (*http.Request, **upload) {
	at := s.url(r)
	u := url.URL{Scheme: s.loc.base.Scheme, Host: s.loc.base.Host, Path: at.path, RawPath: at.raw, RawQuery: r.query}
	h := http.Header{"Authorization": {"Bearer " + token}, "User-Agent": {userAgent}, "Accept-Encoding": {"identity"}}
	for name, v := range map[string]string{"If-None-Match": r.ifNoneMatch, "If-Match": r.ifMatch, "Range": r.rng} {
		if v != "" {
			h[name] = []string{v}
		}
	}
	req := (&http.Request{Method: r.method, URL: &u, Host: u.Host, Header: h, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(ctx)
	up := &upload{body: r.body, moved: moved}
	if r.method == http.MethodPut {
		h["Content-Type"] = []string{"application/octet-stream"}
		h[objectwire.DigestHeader] = []string{objectwire.Digest(r.body)}
		req.ContentLength = int64(len(r.body)) // of nothing too: net/http says 0 for PUT
		if len(r.body) > 0 {
			req.Body = up
			req.GetBody = func() (io.ReadCloser, error) {
				up.detach()
				up = &upload{body: r.body, moved: moved}
				return up, nil
			}
		}
	}
	return req, &up
}

// readBody reads an object or a listing whole, and of anything else the first 64 KiB; the rest is left to net/http, which keeps the connection if there is little of it.
func readBody(resp *http.Response, object, listing bool, moved func()) ([]byte, error) {
	limit := int64(maxErrorBody)
	switch {
	case object:
		limit = 1 << 62
	case listing:
		limit = maxListing
	}
	if resp.ContentLength == 0 {
		return nil, nil
	}
	var buf []byte
	if n := resp.ContentLength; n > 0 {
		buf = make([]byte, 0, min(n, limit, maxPrealloc)+1) // one more, to see the end without growing
	}
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, make([]byte, max(4096, min(len(buf), 16<<20)))...)[:len(buf)]
		}
		n, err := resp.Body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if n > 0 {
			moved()
		}
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
		if int64(len(buf)) > limit {
			return buf[:limit], errors.New("answer is longer than " + strconv.FormatInt(limit, 10) + " bytes")
		}
	}
}

// upload is the body of a request. net/http may read on after RoundTrip has returned; once detached it gets nothing more, so that the bytes are the caller's again.
type upload struct {
	mu    sync.Mutex
	body  []byte
	off   int
	gone  bool
	moved func()
}

func (u *upload) Read(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.gone {
		return 0, errors.New("request has ended")
	}
	if u.off == len(u.body) {
		return 0, io.EOF
	}
	n := copy(p, u.body[u.off:])
	u.off += n
	u.moved()
	return n, nil
}

func (u *upload) Close() error { return nil }

func (u *upload) detach() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.gone, u.body = true, nil
}

// sum returns how much of the body net/http has taken.
func (u *upload) sum() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return int64(u.off)
}
