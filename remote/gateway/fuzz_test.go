package gateway_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/gateway"
)

// FuzzAnswers: whatever answers in a server's place, a call ends in a result or in an error of a kind that callers know, and a Create is taken for stored or for refused only by what a server says.
func FuzzAnswers(f *testing.F) {
	type say struct {
		status            int
		kind, etag, where string
		body              []byte
	}
	var next atomic.Pointer[say]
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		a := next.Load()
		for name, v := range map[string]string{"Content-Type": a.kind, "ETag": a.etag, "Content-Range": a.where} {
			if v != "" {
				w.Header().Set(name, v)
			}
		}
		w.WriteHeader(a.status)
		w.Write(a.body)
	}))
	f.Cleanup(srv.Close)
	s, err := gateway.Open(srv.URL, gateway.Options{APIKey: "tbo_key"})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	f.Add(201, "application/json", `"e"`, "", []byte(`{"data":{"key":"db/a/x"}}`))
	f.Add(200, "application/json", "", "", []byte(`{"data":{"objects":[{"key":"db/a/x","size":-1,"etag":"e"},{"key":"db/a/x"}],"more":true}}`))
	f.Add(206, "", `"e"`, "bytes 0-3/9223372036854775807", []byte("abcd"))
	f.Add(412, "application/problem+json", "", "", []byte(`{"code":"object_exists"}`))
	f.Add(416, "application/problem+json", "", "bytes */5", []byte(`{"code":"invalid_range"}`))
	f.Add(404, "text/html", "", "", []byte(`<html>`))
	known := []error{remote.ErrNotFound, remote.ErrExists, remote.ErrChanged, remote.ErrUnknown, remote.ErrUnauthorized, remote.ErrDenied, remote.ErrQuota, remote.ErrUnfit, context.DeadlineExceeded}
	f.Fuzz(func(t *testing.T, status int, kind, etag, where string, body []byte) {
		if status < 200 || status > 599 {
			t.Skip()
		}
		next.Store(&say{status, kind, etag, where, body})
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		check := func(what string, err error) {
			for _, k := range known {
				if err == nil || errors.Is(err, k) {
					return
				}
			}
			t.Errorf("%s: no kind of error: %v", what, err)
		}
		_, err := s.Create(ctx, "db/a/x", []byte("body"))
		check("create", err)
		if err == nil && status/100 != 2 || errors.Is(err, remote.ErrExists) && status != http.StatusPreconditionFailed && status != http.StatusConflict {
			t.Errorf("status %d: %v", status, err)
		}
		if status/100 == 2 || status == http.StatusRequestedRangeNotSatisfiable { // others are asked again
			o, err := s.Get(ctx, "db/a/x", remote.GetOptions{Length: 100})
			check("get", err)
			if err == nil && len(o.Body) > 100 {
				t.Errorf("%d bytes of 100", len(o.Body))
			}
			page, _, err := s.List(ctx, "db/a/", remote.ListOptions{})
			check("list", err)
			for i, o := range page {
				if i > 0 && o.Key <= page[i-1].Key {
					t.Errorf("a listing out of order: %q after %q", o.Key, page[i-1].Key)
				}
			}
		}
	})
}

// FuzzURL: what is taken for a server's URL reads the same from its own name, and no name nor error tells a password.
func FuzzURL(f *testing.F) {
	for _, s := range []string{"https://tonbo.example.com/a/", "http://127.0.0.1:8080", "http://[::1]:1", "unix:///run/tonbo.sock", "https://u:p4ssw0rd@host", "http://tonbo?insecure=true", "https://h?insecure=x", "https://[::1%25eth0]", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, url string) {
		o := gateway.Options{APIKey: "tbo_x", Insecure: true}
		s, err := gateway.Open(url, o)
		if err != nil {
			if strings.Contains(url, ":p4ssw0rd@") && strings.Contains(err.Error(), "p4ssw0rd") {
				t.Errorf("%q: %v", url, err)
			}
			return
		}
		defer s.Close()
		again, err := gateway.Open(s.String(), o)
		if err != nil {
			t.Fatalf("%q is %q: %v", url, s, err)
		}
		defer again.Close()
		if s.String() != again.String() {
			t.Errorf("%q is %q, and that is %q", url, s, again)
		}
	})
}
