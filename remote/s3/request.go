package s3

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go/encoding/httpbinding"

	"github.com/tonbo-go/tonbo/internal/httpbody"
	"github.com/tonbo-go/tonbo/remote"
)

// request is one HTTP request to the store.
type request struct {
	op     remote.Op
	method string
	key    string // relative; "" for the bucket itself
	prefix string // what a listing asks for, for messages
	query  string // canonical: sorted and escaped
	body   []byte

	ifNoneMatch, ifMatch string // conditions, as sent; signed
	rng                  string // Range; not signed
	checksum             Checksum
}

// answer is what came back: the status, the headers, and as much of the body as could be read.
type answer struct {
	status  int
	header  http.Header
	length  int64 // announced length of the body, or -1
	chunked bool  // then the end of the body is marked
	body    []byte
	bodyErr error // why the body may be incomplete
	creds   aws.Credentials
}

// sendError is a request without an answer.
type sendError struct {
	sent bool // bytes may have reached the store
	auth bool // there are no credentials
	err  error
}

func (e *sendError) Error() string { return e.err.Error() }
func (e *sendError) Unwrap() error { return e.err }

var errStalled = errors.New("no byte moved")

// maxListing bounds a listing, in bytes.
const maxListing = 64 << 20

var emptyHash = hashOf(nil)

func hashOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

func escapePath(p string) string { return httpbinding.EscapePath(p, false) }

// send does exactly one HTTP request, reads its answer, and records it if it was sent.
func (s *Store) send(ctx context.Context, r request) (a answer, fail *sendError) {
	x, fail := s.begin(ctx, r)
	if fail != nil {
		return a, fail
	}
	defer x.end()
	resp := x.resp
	a.creds, a.status, a.header, a.length, a.chunked = x.creds, resp.StatusCode, resp.Header, resp.ContentLength, len(resp.TransferEncoding) > 0
	if r.method == http.MethodHead {
		return a, nil
	}
	limit := int64(httpbody.ErrorLimit)
	object := r.op == remote.OpGet && a.status < 300
	switch {
	case object:
		limit = httpbody.Unlimited
	case r.op == remote.OpList:
		limit = maxListing
	}
	if a.body, a.bodyErr = httpbody.Read(resp, limit, x.moved); a.bodyErr != nil {
		a.bodyErr = x.why(a.bodyErr)
	}
	if object {
		x.down = int64(len(a.body))
	}
	return a, nil
}

// exchange is one HTTP request whose answer has begun. Its end is called once.
type exchange struct {
	s      *Store
	r      request
	resp   *http.Response
	creds  aws.Credentials
	up     *httpbody.Upload
	down   int64 // bytes of an object that came
	caller context.Context
	ctx    context.Context // ends with stall
	cancel context.CancelCauseFunc
	stall  *time.Timer
}

// begin does exactly one HTTP request, up to the body of its answer.
func (s *Store) begin(ctx context.Context, r request) (begun *exchange, fail *sendError) {
	if err := ctx.Err(); err != nil {
		return nil, &sendError{err: context.Cause(ctx)}
	}
	creds, err := s.creds.get(ctx)
	if err != nil {
		return nil, &sendError{auth: ctx.Err() == nil, err: err}
	}
	x := &exchange{s: s, r: r, creds: creds, caller: ctx}
	x.ctx, x.cancel = context.WithCancelCause(ctx)
	x.stall = time.AfterFunc(s.o.StallTimeout, func() { x.cancel(errStalled) })
	defer func() {
		if fail != nil {
			x.close()
		}
	}()

	var sent atomic.Bool
	traced := x.ctx
	if s.trace {
		traced = httptrace.WithClientTrace(traced, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
			sent.Store(true)
			x.moved()
		}})
	}
	req, err := s.build(traced, r, creds)
	if err != nil {
		return nil, &sendError{err: err}
	}
	if n := len(r.body); s.trace && n > 0 && n <= httpbody.MaxCopy {
		x.up = httpbody.AttachCopy(req, r.body)
	} else {
		x.up = httpbody.Attach(req, r.body, x.moved)
	}
	if !s.trace {
		sent.Store(true)
	}
	if x.resp, err = s.client.Do(req); err != nil {
		if sent.Load() {
			remote.Record(x.caller, r.op, x.up.Sent(), 0)
		}
		return nil, &sendError{sent: sent.Load(), err: x.why(err)}
	}
	x.moved()
	return x, nil
}

// moved puts off the end of an exchange that stalls.
func (x *exchange) moved() { x.stall.Reset(x.s.o.StallTimeout) }

// why puts the caller's own reason, and ours, before what net/http makes of it.
func (x *exchange) why(err error) error {
	switch {
	case x.caller.Err() != nil:
		return context.Cause(x.caller)
	case errors.Is(context.Cause(x.ctx), errStalled):
		return stalled(x.s.o.StallTimeout)
	}
	return err
}

// end records the exchange and lets go of its connection.
func (x *exchange) end() {
	remote.Record(x.caller, x.r.op, x.up.Sent(), x.down)
	x.resp.Body.Close()
	x.close()
}

func (x *exchange) close() {
	if x.up != nil {
		x.up.Detach()
	}
	x.stall.Stop()
	x.cancel(nil)
}

func stalled(d time.Duration) error {
	return &timeoutError{"the store hangs: " + errStalled.Error() + " for " + d.String()}
}

type timeoutError struct{ msg string }

func (e *timeoutError) Error() string { return e.msg }
func (e *timeoutError) Timeout() bool { return true }

// build makes the HTTP request. What is set before signing is signed, what is set after it is not.
func (s *Store) build(ctx context.Context, r request, creds aws.Credentials) (*http.Request, error) {
	u := *s.endpoint
	u.Path, u.RawPath = s.path(r.key)
	u.RawQuery = r.query
	h := make(http.Header, 12)
	req := (&http.Request{Method: r.method, URL: &u, Host: u.Host, Header: h, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(ctx)
	hash := emptyHash
	if len(r.body) > 0 {
		hash = hashOf(r.body)
	}
	h["X-Amz-Content-Sha256"] = []string{hash}
	if r.ifNoneMatch != "" {
		h["If-None-Match"] = []string{r.ifNoneMatch}
	}
	if r.ifMatch != "" {
		h["If-Match"] = []string{r.ifMatch}
	}
	if r.checksum != ChecksumNone {
		if r.method == http.MethodPut {
			h.Set(r.checksum.header(), r.checksum.of(r.body))
		} else {
			h.Set("X-Amz-Checksum-Mode", "ENABLED")
		}
	}
	if err := s.signer.SignHTTP(ctx, creds, req, hash, s.service, s.region, time.Now()); err != nil {
		return nil, err
	}
	// Some stores and proxies rewrite these, and refuse or break a signature over them.
	h["Accept-Encoding"] = []string{"identity"}
	h["User-Agent"] = []string{"tonbo"}
	if r.rng != "" {
		h["Range"] = []string{r.rng}
	}
	return req, nil
}
