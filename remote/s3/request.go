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
	if err := ctx.Err(); err != nil {
		return a, &sendError{err: context.Cause(ctx)}
	}
	creds, err := s.creds.get(ctx)
	if err != nil {
		return a, &sendError{auth: ctx.Err() == nil, err: err}
	}
	a.creds = creds

	caller := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(s.o.StallTimeout, func() { cancel(errStalled) })
	defer stall.Stop()
	moved := func() { stall.Reset(s.o.StallTimeout) }

	var sent atomic.Bool
	if s.trace {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }})
	}
	req, err := s.build(ctx, r, creds)
	if err != nil {
		return a, &sendError{err: err}
	}
	up := httpbody.Attach(req, r.body, moved)
	defer up.Detach()
	if !s.trace {
		sent.Store(true)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		if sent.Load() {
			remote.Record(caller, r.op, up.Sent(), 0)
		}
		// The caller's own reason goes before what net/http makes of it.
		if caller.Err() != nil {
			err = context.Cause(caller)
		} else if errors.Is(context.Cause(ctx), errStalled) {
			err = stalled(s.o.StallTimeout)
		}
		return a, &sendError{sent: sent.Load(), err: err}
	}
	defer resp.Body.Close()
	moved()
	a.status, a.header, a.length, a.chunked = resp.StatusCode, resp.Header, resp.ContentLength, len(resp.TransferEncoding) > 0
	object := r.op == remote.OpGet && a.status < 300
	if r.method != http.MethodHead {
		limit := int64(httpbody.ErrorLimit)
		switch {
		case object:
			limit = httpbody.Unlimited
		case r.op == remote.OpList:
			limit = maxListing
		}
		a.body, a.bodyErr = httpbody.Read(resp, limit, moved)
	}
	if a.bodyErr != nil {
		if caller.Err() != nil {
			a.bodyErr = context.Cause(caller)
		} else if errors.Is(context.Cause(ctx), errStalled) {
			a.bodyErr = stalled(s.o.StallTimeout)
		}
	}
	down := 0
	if object {
		down = len(a.body)
	}
	remote.Record(caller, r.op, up.Sent(), int64(down))
	return a, nil
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
