package objects_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/objects"
	"github.com/tonbo-go/tonbo/internal/objects/objectstest"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// FuzzNarrowedRequest: whatever a narrowed key asks for, the store sees creates below its own database alone, no swap and no delete, and nothing that is out of reach is in an answer.
func FuzzNarrowedRequest(f *testing.F) {
	store := tonbotest.NewStore(mem.New("account"))
	c, err := tonbo.NewClient(tonbo.Options{Remote: store, Dir: f.TempDir()})
	if err != nil {
		f.Fatal(err)
	}
	const secret = "marked-as-secret"
	for _, name := range []string{"run-1", "other"} {
		if _, err := c.Create(f.Context(), name, tonbo.CreateOptions{Metadata: map[string]string{"m": name + secret}}); err != nil {
			f.Fatal(err)
		}
	}
	if _, err := store.Create(f.Context(), "keys/k/1", []byte(secret)); err != nil {
		f.Fatal(err)
	}
	slot := fence.SlotKey("run-1", 1)
	body, err := store.Get(f.Context(), slot, remote.GetOptions{})
	if err != nil {
		f.Fatal(err)
	}
	h := objectstest.Handler(objects.New(store, objects.Options{Rate: -1, MaxObject: 1 << 20}), objectstest.Keys{"k": {ID: "k", Narrowed: true, Names: []string{"run-1"}}})
	for _, key := range []string{slot, fence.SlotKey("run-1", 2), fence.SlotKey("other", 1), "db/run-1/seg/0000000000000001-" + strings.Repeat("0", 32), "names/other/x", "keys/k/1", "probe/ok-v1", "db/run-1/pin/other/x", ""} {
		for method := range uint8(4) {
			f.Add(method, "run-1", key, "prefix=names/&max=1", "bytes=0-9", "*", "", body.Body)
		}
	}
	f.Add(uint8(0), "", "db/other/../run-1/log/x", "prefix=db/other/", "bytes=-1", "", `"1"`, []byte{})
	f.Fuzz(func(t *testing.T, method uint8, database, key, query, rng, ifNone, ifMatch string, body []byte) {
		path := "/v1/objects"
		if database != "" {
			path = "/v1/databases/" + url.PathEscape(database) + "/objects"
		}
		if key != "" {
			path += "/" + key
		}
		u, err := url.Parse(path)
		if err != nil {
			return
		}
		u.RawQuery = query
		r := &http.Request{Method: []string{"GET", "HEAD", "PUT", "DELETE"}[method%4], URL: u, Header: http.Header{}, Body: http.NoBody, ContentLength: int64(len(body)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
		r = r.WithContext(t.Context())
		if len(body) > 0 {
			r.Body = nopCloser{bytes.NewReader(body)}
		}
		for name, v := range map[string]string{"Authorization": "Bearer k", "Range": rng, "If-None-Match": ifNone, "If-Match": ifMatch} {
			if v != "" {
				r.Header.Set(name, v)
			}
		}
		store.ResetCalls()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Errorf("%s %s: %d %s", r.Method, u, w.Code, w.Body)
		}
		if b := w.Body.String(); strings.Contains(b, "other"+secret) || !strings.Contains(b, "run-1") && strings.Contains(b, secret) || r.Method == "GET" && strings.Contains(b, "keys/k") {
			t.Errorf("%s %s: %s", r.Method, u, b)
		}
		for _, call := range store.Calls() {
			switch {
			case call.Op == tonbotest.Swap, call.Op == tonbotest.Delete:
				t.Errorf("%s %s: a %s of %s", r.Method, u, call.Op, call.Key)
			case call.Op == tonbotest.Create && call.Key != remote.ProbeKey && !strings.HasPrefix(call.Key, "db/run-1/"):
				t.Errorf("%s %s: a create of %s", r.Method, u, call.Key)
			case call.Op == tonbotest.Get && !below(call.Key, "db/run-1", "names/run-1", "instances/run-1") && call.Key != remote.ProbeKey:
				t.Errorf("%s %s: a read of %s", r.Method, u, call.Key)
			}
		}
	})
}

// below tells whether a key is one of these, or below it: an object with a database's own name is the database's, though nobody makes one.
func below(key string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return strings.HasPrefix(key+"/", root+"/") })
}

type nopCloser struct{ *bytes.Reader }

func (nopCloser) Close() error { return nil }
