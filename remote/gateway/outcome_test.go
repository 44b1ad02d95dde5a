package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/internal/objects"
	"github.com/tonbo-go/tonbo/internal/objects/objectstest"
	"github.com/tonbo-go/tonbo/internal/objectwire"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/gateway"
	"github.com/tonbo-go/tonbo/remote/mem"
)

// fake is a server that answers as the test says, and counts what it is asked.
func fake(t *testing.T, f http.HandlerFunc) (url string, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		io.Copy(io.Discard, r.Body)
		f(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, asked
}

func problem(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"code": %q, "detail": "as the test says"}`, code)
}

// says answers with a problem of the server's own, status with nothing but a status, as what is in between does.
func says(code int, problemCode string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { problem(w, code, problemCode) }
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func cut(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
}

// TestOutcomeOfACreate: it is one request whatever comes back, and definite only when the server says so in its own words.
func TestOutcomeOfACreate(t *testing.T) {
	digest := objectwire.Digest([]byte("body"))
	stored := func(digest string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Etag", `"1"`)
			if digest != "" {
				w.Header().Set(objectwire.StoredHeader, digest)
			}
			w.WriteHeader(201)
		}
	}
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		want   error // nil: stored
	}{
		{"stored", stored(digest), nil},
		{"something else stored", stored(objectwire.Digest([]byte("another body"))), remote.ErrUnknown},
		{"a page with an entity tag", stored(""), remote.ErrUnknown},
		{"a tag that is empty", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(objectwire.StoredHeader, digest)
			w.Header().Set("Etag", `""`)
			w.WriteHeader(201)
		}, remote.ErrUnknown},
		{"created by something else", status(201), remote.ErrUnknown},
		{"200 of a login page", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }, remote.ErrUnknown},
		{"taken", says(412, "object_exists"), remote.ErrExists},
		{"412 of a proxy", status(412), remote.ErrUnknown},
		{"304", status(304), remote.ErrUnknown},
		{"another condition", says(412, "object_changed"), remote.ErrUnknown},
		{"unknown to the store", says(503, "store_unavailable"), remote.ErrUnknown},
		{"conflict", says(409, "store_unavailable"), remote.ErrUnknown},
		{"too many", says(429, "too_many_requests"), remote.ErrUnknown},
		{"busy", says(503, "server_busy"), remote.ErrUnknown},
		{"damaged on its way", says(400, "body_damaged"), remote.ErrUnknown},
		{"500", says(500, "internal"), remote.ErrUnknown},
		{"bad gateway of a proxy", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "upstream", http.StatusBadGateway) }, remote.ErrUnknown},
		{"403 of a proxy", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }, remote.ErrUnknown},
		{"401 of a proxy", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusUnauthorized) }, remote.ErrUnknown},
		{"404 of a proxy", func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) }, remote.ErrUnknown},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, remote.ErrUnknown},
		{"a code that is not a problem's", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(412)
			io.WriteString(w, `{"code": "object_exists"}`)
		}, remote.ErrUnknown},
		{"cut", func(w http.ResponseWriter, _ *http.Request) { cut(w) }, remote.ErrUnknown},
		{"key refused", says(401, "unauthorized"), remote.ErrUnauthorized},
		{"narrowed", says(403, "key_narrowed"), remote.ErrDenied},
		{"not such an entry", says(403, "entry_refused"), remote.ErrDenied},
		{"out of reach", says(404, "not_found"), remote.ErrDenied},
		{"the server's credentials", says(502, "store_refused"), remote.ErrDenied},
		{"unfit", says(502, "store_unfit"), remote.ErrUnfit},
		{"too large", says(413, "object_too_large"), remote.ErrUnfit},
		{"full", says(507, "quota"), remote.ErrQuota},
	} {
		url, asked := fake(t, c.answer)
		s := open(t, url, gateway.Options{})
		etag, err := s.Create(t.Context(), "db/run/log/x", []byte("body"))
		if c.want == nil && (err != nil || etag != "1") || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: got %q, %v, want %v", c.name, etag, err, c.want)
		}
		for _, other := range []error{remote.ErrUnknown, remote.ErrExists, remote.ErrDenied, remote.ErrUnauthorized, remote.ErrQuota, remote.ErrUnfit, remote.ErrNotFound} {
			if other != c.want && errors.Is(err, other) {
				t.Errorf("%s: %v is %v as well", c.name, err, other)
			}
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("%s: %d requests", c.name, n)
		}
		if err != nil && strings.Contains(err.Error(), objectstest.Full) {
			t.Errorf("%s: the key is in the message: %v", c.name, err)
		}
	}
}

// TestAbsenceIsTheServersWord: R6 rests on it.
func TestAbsenceIsTheServersWord(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		want   error
	}{
		{"absent", says(404, "object_not_found"), remote.ErrNotFound},
		{"no such database", says(404, "not_found"), remote.ErrNotFound},
		{"404 of a proxy", func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) }, remote.ErrUnknown},
		{"out of credentials", says(502, "store_refused"), remote.ErrDenied},
	} {
		url, _ := fake(t, c.answer)
		s := open(t, url, gateway.Options{Tries: 2})
		if _, err := s.Get(t.Context(), "db/run/log/x", remote.GetOptions{}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// TestKeyThatNoLongerReachesIsNoAbsence: once the server has answered for a database, "no such database" is about the key, and no proof that a log slot is empty.
func TestKeyThatNoLongerReachesIsNoAbsence(t *testing.T) {
	inner := mem.New("account")
	if _, err := inner.Create(t.Context(), "db/run/log/x", []byte("x")); err != nil {
		t.Fatal(err)
	}
	token := "tbo_a"
	srv := objectstest.New(t, inner, objects.Options{}, objectstest.Keys{
		"tbo_a": {ID: "a", Narrowed: true, Names: []string{"run"}}, "tbo_b": {ID: "b", Narrowed: true, Names: []string{"other"}},
	})
	s := open(t, srv.URL, gateway.Options{Token: func(context.Context) (string, error) { return token, nil }})
	db := remote.OnBehalf(s, "run")
	if _, err := db.Get(t.Context(), "db/run/log/y", remote.GetOptions{}); !errors.Is(err, remote.ErrNotFound) {
		t.Fatalf("before: %v", err)
	}
	if _, err := db.Get(t.Context(), "db/run/log/x", remote.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	gone := open(t, srv.URL, gateway.Options{APIKey: "tbo_b"})
	if _, err := remote.OnBehalf(gone, "run").Get(t.Context(), "db/run/log/y", remote.GetOptions{}); !errors.Is(err, remote.ErrNotFound) {
		t.Fatalf("a key that never reached it: %v", err)
	}
	s.Forget("tbo_a")
	token = "tbo_b"
	if _, err := db.Get(t.Context(), "db/run/log/y", remote.GetOptions{}); !errors.Is(err, remote.ErrDenied) || errors.Is(err, remote.ErrNotFound) {
		t.Errorf("after: %v", err)
	}
	if _, _, err := db.List(t.Context(), "db/run/log/", remote.ListOptions{}); !errors.Is(err, remote.ErrDenied) {
		t.Errorf("a listing after: %v", err)
	}
}

func TestTokenIsAskedForAgain(t *testing.T) {
	inner := mem.New("account")
	keys := objectstest.Keys{"tbo_new": {ID: "new"}}
	srv := objectstest.New(t, inner, objects.Options{}, keys)
	var asked atomic.Int64
	s := open(t, srv.URL, gateway.Options{Token: func(context.Context) (string, error) {
		if asked.Add(1) == 1 {
			return "tbo_old", nil
		}
		return "tbo_new", nil
	}})
	// A create is one request: the refusal leaves it to the caller to try again, as after any unknown outcome.
	if _, err := s.Create(t.Context(), "db/run/log/x", []byte("x")); !errors.Is(err, remote.ErrUnknown) {
		t.Fatalf("a create with the old token: %v", err)
	}
	if _, err := s.Create(t.Context(), "db/run/log/x", []byte("x")); err != nil {
		t.Fatal(err)
	}
	s.Forget("tbo_new")
	asked.Store(0)
	if _, err := s.Get(t.Context(), "db/run/log/x", remote.GetOptions{}); err != nil { // a read is sent again
		t.Fatal(err)
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("asked %d times", n)
	}
	// One that is never taken is an error, and no loop.
	url, requests := fake(t, says(401, "unauthorized"))
	s = open(t, url, gateway.Options{Token: func(context.Context) (string, error) { return "tbo_bad", nil }})
	if _, err := s.Get(t.Context(), "db/run/log/x", remote.GetOptions{}); !errors.Is(err, remote.ErrUnauthorized) {
		t.Errorf("a token that is never taken: %v", err)
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests", n)
	}
	for range 2 {
		if _, err := s.Create(t.Context(), "db/run/log/x", nil); !errors.Is(err, remote.ErrUnauthorized) {
			t.Errorf("a create with a token that is never taken: %v", err)
		}
	}
}

func TestCutBodyIsContinued(t *testing.T) {
	body := strings.Repeat("0123456789abcdef", 64<<10) // 1 MiB
	var ranges []string
	url, _ := fake(t, func(w http.ResponseWriter, r *http.Request) {
		ranges = append(ranges, r.Header.Get("Range"))
		var from, to int64 = 0, int64(len(body)) - 1
		if v := r.Header.Get("Range"); v != "" {
			fmt.Sscanf(v, "bytes=%d-%d", &from, &to)
		}
		if r.Header.Get("If-Match") != "" && r.Header.Get("If-Match") != `"e"` {
			t.Errorf("If-Match %s", r.Header.Get("If-Match"))
		}
		w.Header().Set("Etag", `"e"`)
		w.Header().Set("Content-Length", fmt.Sprint(to-from+1))
		if r.Header.Get("Range") != "" {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, len(body)))
			w.WriteHeader(206)
		}
		io.WriteString(w, body[from:min(from+300<<10, to+1)])
	})
	s := open(t, url, gateway.Options{})
	o, err := s.Get(t.Context(), "db/run/seg/x", remote.GetOptions{})
	if err != nil || string(o.Body) != body {
		t.Fatalf("%d bytes, %v", len(o.Body), err)
	}
	if len(ranges) != 4 {
		t.Errorf("ranges: %q", ranges)
	}
}

func TestServerThatHangsEndsWithTheStall(t *testing.T) {
	release := make(chan struct{})
	url, _ := fake(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) })
	s := open(t, url, gateway.Options{StallTimeout: 20 * time.Millisecond, Tries: 1})
	if _, err := s.Create(t.Context(), "db/run/log/x", nil); !errors.Is(err, remote.ErrUnknown) {
		t.Errorf("create: %v", err)
	}
	if _, err := s.Get(t.Context(), "db/run/log/x", remote.GetOptions{}); !errors.Is(err, remote.ErrUnknown) {
		t.Errorf("get: %v", err)
	}
}

func TestURLs(t *testing.T) {
	for _, c := range []struct{ url, name, says string }{
		{"https://tonbo.example.com", "https://tonbo.example.com", ""},
		{"https://tonbo.example.com/behind/a/prefix/", "https://tonbo.example.com/behind/a/prefix", ""},
		{"http://127.0.0.1:8080", "http://127.0.0.1:8080", ""},
		{"http://[::1]:8080", "http://[::1]:8080", ""},
		{"http://localhost:8080", "http://localhost:8080", ""},
		{"http://tonbo:8080?insecure=true", "http://tonbo:8080", ""},
		{"unix:///run/tonbo.sock", "unix:///run/tonbo.sock", ""},
		{"http://tonbo:8080", "", "in the clear"},
		{"http://127.0.0.1.example.com", "", "in the clear"},
		{"http://localhost.example.com", "", "in the clear"},
		{"https://user:secret@host", "", "credentials"},
		{"https://host?x=1", "", "unknown parameter"},
		{"https://host#x", "", "want"},
		{"https://", "", "want"},
		{"unix://run/tonbo.sock", "", "want"},
		{"ftp://host", "", "want"},
	} {
		s, err := gateway.Open(c.url, gateway.Options{APIKey: "tbo_x"})
		switch {
		case c.says == "" && (err != nil || s.String() != c.name):
			t.Errorf("%s: %v, %v", c.url, s, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret")):
			t.Errorf("%s: %v", c.url, err)
		}
	}
	for _, key := range []string{"", "tbo_x\n", "tbo x"} {
		if _, err := gateway.Open("https://host", gateway.Options{APIKey: key}); !errors.Is(err, remote.ErrUnauthorized) || strings.Contains(err.Error(), "tbo_x") {
			t.Errorf("key %q: %v", key, err)
		}
	}
}
