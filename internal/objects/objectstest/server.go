// Package objectstest serves a store's objects on loopback or a unix socket, for tests of both ends: what a server does around the data plane, with callers that the test makes up.
package objectstest

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo/internal/objects"
	"github.com/tonbo-go/tonbo/internal/objectwire"
	"github.com/tonbo-go/tonbo/remote"
)

// Keys are callers by their secrets.
type Keys map[string]objects.Caller

// Full is the secret of a caller that is not narrowed, in the server's Keys unless the test has put another there.
const Full = "tbo_full"

// New serves s until the test ends.
func New(t testing.TB, s remote.Store, o objects.Options, keys Keys) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(Handler(objects.New(s, o), keys))
	srv.Start()
	t.Cleanup(srv.Close)
	return srv
}

// Handler does what a server does around the data plane: finds the caller, splits the path, and writes what was refused.
func Handler(h *objects.Handler, keys Keys) http.Handler {
	all := Keys{Full: {ID: "full"}}
	for k, c := range keys {
		all[k] = c
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := all[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
		if !ok {
			write(w, &objects.Refusal{Status: http.StatusUnauthorized, Code: objectwire.Unauthorized, Detail: "a key that is in force is needed"})
			return
		}
		database, key, ok := split(r.URL)
		if !ok || database != "" && !c.Reaches(database) {
			write(w, &objects.Refusal{Status: http.StatusNotFound, Code: objectwire.NotFound, Detail: "there is no such thing, or the key does not reach it"})
			return
		}
		if c.ReadOnly && r.Method != http.MethodGet && r.Method != http.MethodHead {
			write(w, &objects.Refusal{Status: http.StatusForbidden, Code: objectwire.ReadOnly, Detail: "the key is read-only"})
			return
		}
		if err := h.Serve(w, r, &c, database, key); err != nil {
			write(w, err)
		}
	})
}

func split(u *url.URL) (database, key string, ok bool) {
	path, ok := strings.CutPrefix(u.EscapedPath(), "/v1/")
	if !ok {
		return "", "", false
	}
	if rest, of := strings.CutPrefix(path, "databases/"); of {
		if database, path, ok = strings.Cut(rest, "/"); !ok {
			return "", "", false
		}
	}
	path, ok = strings.CutPrefix(path, "objects")
	if !ok {
		return "", "", false
	}
	path = strings.TrimPrefix(path, "/")
	database, err := url.PathUnescape(database)
	key, err2 := url.PathUnescape(path)
	return database, key, err == nil && err2 == nil
}

func write(w http.ResponseWriter, err error) {
	var r *objects.Refusal
	if !errors.As(err, &r) {
		r = &objects.Refusal{Status: http.StatusInternalServerError, Code: "internal", Detail: err.Error()}
	}
	for k, v := range r.Header {
		w.Header()[k] = v
	}
	if r.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(r.RetryAfter.Seconds())))
	}
	if r.Close {
		w.Header().Set("Connection", "close")
	}
	w.Header().Del("Content-Length")
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(r.Status)
	json.NewEncoder(w).Encode(map[string]any{"code": r.Code, "detail": r.Detail, "status": r.Status})
}
