package server_test

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/server"
)

// FuzzRequests sends what a sandbox may think of: any method, path, headers and body, with a narrowed key, a read-only one, or none. Nothing is beyond its bounds, whatever is sent.
func FuzzRequests(f *testing.F) {
	for _, s := range []string{
		"GET /v1/databases/run-1 HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /v1/databases/other-1 HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /v1/databases/run-1/../other-1 HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /v1/databases/run-1%2f..%2fother-1 HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /v1/databases/run-1/objects/db/other-1/log/ffff HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET //v1/databases/other-1 HTTP/1.1\r\nHost: x\r\nX-Original-URL: /v1/databases/other-1\r\nX-HTTP-Method-Override: DELETE\r\n\r\n",
		"POST /v1/databases/run-1/query HTTP/1.1\r\nHost: x\r\nContent-Length: 18\r\n\r\n{\"sql\":\"SELECT 1\"}",
		"POST /v1/databases/run-1/fork HTTP/1.1\r\nHost: x\r\nContent-Length: 18\r\n\r\n{\"name\":\"other-1\"}",
		"POST /v1/api-keys HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\n{\"name\":\"x\"}",
		"PUT /v1/instances/run-1/binding HTTP/1.1\r\nHost: x\r\nContent-Length: 22\r\n\r\n{\"database\":\"other-1\"}",
		"GET /v1/databases?prefix=other&metadata.secret=treasure HTTP/1.1\r\nHost: x\r\n\r\n",
		"PATCH http://x/v1/databases/other-1 HTTP/1.1\r\nHost: y\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"DELETE /v1/databases/run-1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer tbo_\r\n\r\n",
		"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		for key := range byte(3) {
			f.Add(s, key)
		}
	}
	store := mem.New("fuzz")
	s, err := server.New(server.Options{Options: tonbo.Options{Remote: store, Dir: f.TempDir()}, Timeout: 5 * time.Second})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	owner, err := s.MakeOwner(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	do := func(raw, secret string) *httptest.ResponseRecorder {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		if err != nil {
			return nil
		}
		if secret != "" {
			r.Header.Set("Authorization", "Bearer "+secret)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	post := func(path, body string) answer {
		w := do("POST "+path+" HTTP/1.0\r\nHost: x\r\nContent-Length: "+itoa(len(body))+"\r\n\r\n"+body, owner)
		if w.Code != 201 {
			f.Fatal(w.Code, w.Body)
		}
		return answer{Body: w.Body.Bytes()}
	}
	post("/v1/databases", `{"name":"run-1"}`)
	treasure := post("/v1/databases", `{"name":"other-1","metadata":{"secret":"treasure"}}`).text("id")
	keys := []string{
		"",
		post("/v1/api-keys", `{"name":"s","database_prefixes":["run-"]}`).text("secret"),
		post("/v1/api-keys", `{"name":"s","databases":["run-1"],"read_only":true}`).text("secret"),
	}
	client, err := tonbo.NewClient(tonbo.Options{Remote: store, Dir: f.TempDir()})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw string, which byte) {
		secret := keys[int(which)%len(keys)]
		w := do(raw, secret)
		if w == nil {
			return
		}
		said := w.Body.String()
		switch {
		case w.Code == 500 || w.Code == 0 || w.Header().Get("X-Request-Id") == "":
			t.Errorf("%q: %d %s", raw, w.Code, said)
		case strings.Contains(said, treasure): // random: nothing that was sent has it
			t.Errorf("%q: %s", raw, said)
		case secret == "" && w.Code < 400 && strings.HasPrefix(said, `{"data":{"name"`):
			t.Errorf("%q without a key: %s", raw, said)
		case strings.Contains(said, "tbo_") && !strings.Contains(said, "tbo_..."):
			t.Errorf("%q: %s", raw, said)
		}
		for _, name := range []string{"run-1", "other-1"} {
			if d, err := client.Get(t.Context(), name); err != nil || name == "other-1" && d.ID != treasure {
				t.Fatalf("%q: %s is not what it was: %v, %v", raw, name, d, err)
			}
		}
	})
}
