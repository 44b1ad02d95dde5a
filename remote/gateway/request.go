package gateway

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/tonbo-go/tonbo/internal/httpbody"
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
	digest   string // of the body of an upload

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

// maxListing bounds a listing, in bytes.
const maxListing = 16 << 20

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
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
			sent.Store(true)
			moved()
		}})
	} else {
		sent.Store(true)
	}
	req, up := s.build(ctx, r, token, moved)
	defer up.Detach()
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
			remote.Record(caller, r.op, up.Sent(), 0)
		}
		return a, &sendError{sent: sent.Load(), err: why(err)}
	}
	defer resp.Body.Close()
	moved()
	a.status, a.header, a.length, a.chunked = resp.StatusCode, resp.Header, resp.ContentLength, len(resp.TransferEncoding) > 0
	object := r.op == remote.OpGet && a.status < 300
	limit := int64(httpbody.ErrorLimit)
	switch {
	case object:
		limit = httpbody.Unlimited
	case r.op == remote.OpList:
		limit = maxListing
	}
	a.body, a.bodyErr = httpbody.Read(resp, limit, moved)
	if a.bodyErr != nil {
		a.bodyErr = why(a.bodyErr)
	}
	down := 0
	if object {
		down = len(a.body)
	}
	remote.Record(caller, r.op, up.Sent(), int64(down))
	return a, nil
}

type timeoutError struct{ msg string }

func (e *timeoutError) Error() string { return e.msg }
func (e *timeoutError) Timeout() bool { return true }

// build makes the HTTP request, and the upload of its body.
func (s *Store) build(ctx context.Context, r *request, token string, moved func()) (*http.Request, *httpbody.Upload) {
	at := s.url(r)
	u := url.URL{Scheme: s.loc.base.Scheme, Host: s.loc.base.Host, Path: at.path, RawPath: at.raw, RawQuery: r.query}
	h := http.Header{"Authorization": {"Bearer " + token}, "User-Agent": {userAgent}, "Accept-Encoding": {"identity"}}
	for name, v := range map[string]string{"If-None-Match": r.ifNoneMatch, "If-Match": r.ifMatch, "Range": r.rng} {
		if v != "" {
			h[name] = []string{v}
		}
	}
	req := (&http.Request{Method: r.method, URL: &u, Host: u.Host, Header: h, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(ctx)
	if r.method == http.MethodPut {
		h["Content-Type"] = []string{"application/octet-stream"}
		h[objectwire.DigestHeader] = []string{r.digest}
	}
	if n := len(r.body); s.own != nil && n > 0 && n <= httpbody.MaxCopy {
		return req, httpbody.AttachCopy(req, r.body)
	}
	return req, httpbody.Attach(req, r.body, moved)
}
