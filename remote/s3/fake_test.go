package s3_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/s3"
)

// fake is a server that answers as a test says, and remembers what it was asked.
type fake struct {
	*httptest.Server
	mu   sync.Mutex
	seen []*http.Request
}

// serve starts a fake. answer gets the request's number, from 1, and its body.
func serve(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, n int, body []byte)) *fake {
	t.Helper()
	f := &fake{}
	f.Server = httptest.NewServer(f.handler(answer))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) handler(answer func(w http.ResponseWriter, r *http.Request, n int, body []byte)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // cut
		}
		f.mu.Lock()
		f.seen = append(f.seen, r)
		n := len(f.seen)
		f.mu.Unlock()
		answer(w, r, n, body)
	})
}

func (f *fake) requests() []*http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen[:len(f.seen):len(f.seen)]
}

// open opens a store on an endpoint, with credentials unless o has some.
func open(t *testing.T, endpoint string, o s3.Options) *s3.Store {
	t.Helper()
	if o.Credentials == nil {
		o.Credentials = credentials.NewStaticCredentialsProvider("KEY", "SECRET", "")
	}
	s, err := s3.Open(t.Context(), "s3://bucket/prefix?endpoint="+endpoint, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// refuse answers with an S3 error.
func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>words of the store</Message></Error>`, code)
}

func stored(w http.ResponseWriter) { w.Header().Set("ETag", `"e1"`) }

// wantError checks kind and status, and returns the error.
func wantError(t *testing.T, err, kind error) *remote.Error {
	t.Helper()
	var e *remote.Error
	if !errors.As(err, &e) || !errors.Is(err, kind) {
		t.Fatalf("got error %v, want %v", err, kind)
	}
	for _, other := range []error{remote.ErrNotFound, remote.ErrExists, remote.ErrChanged, remote.ErrUnknown, remote.ErrUnauthorized,
		remote.ErrDenied, remote.ErrQuota, remote.ErrUnfit, remote.ErrNoBucket} {
		if other != kind && errors.Is(err, other) {
			t.Fatalf("error %v is %v as well as %v", err, other, kind)
		}
	}
	if e.Store != "s3://bucket/prefix" || e.Op == "" {
		t.Errorf("error does not name operation and store: %#v", e)
	}
	return e
}

func wantWords(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

func counted(s remote.Store) (remote.Store, func() remote.Counts) {
	c := &remote.Counter{}
	return remote.Counted(s, c), c.Counts
}

var bg = context.Background()
