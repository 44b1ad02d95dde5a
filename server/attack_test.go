package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/server"
)

// wire is a server as it listens, with the bounds of its connections.
type wire struct {
	t    *testing.T
	addr string
}

func newWire(t *testing.T, s *server.Server) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l, server.ServeOptions{Drain: time.Second}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &wire{t, l.Addr().String()}
}

// send writes a request on a connection of its own, and returns the statuses and all else that comes back until the server closes it.
func (w *wire) send(raw string) (statuses []int, said string) {
	w.t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	go io.WriteString(c, strings.Replace(raw, "\r\nHost: x\r\n", "\r\nHost: x\r\nConnection: close\r\n", 1))
	r := bufio.NewReader(c)
	var all strings.Builder
	for {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return statuses, all.String()
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		statuses = append(statuses, resp.StatusCode)
		fmt.Fprintf(&all, "%v %s", resp.Header, body)
	}
}

// below lists all objects of a store with their entity tags, but for those of the probe and of keys.
func below(t *testing.T, s remote.Store) (all []string) {
	t.Helper()
	for _, prefix := range []string{"db/", "names/", "instances/", "ended/", "idem/"} {
		for after, more := "", true; more; {
			page, m, err := s.List(t.Context(), prefix, remote.ListOptions{After: after})
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range page {
				all = append(all, i.Key+" "+i.ETag)
				after = i.Key
			}
			more = m
		}
	}
	return all
}

// TestTricksOnNamesAndHeadersGetNothing: each request is refused with one of the statuses that are said, tells nothing of what the key does not reach, and changes nothing; the server goes on.
func TestTricksOnNamesAndHeadersGetNothing(t *testing.T) {
	w := newWorld(t)
	w.want(201, "POST", "/v1/databases", w.owner, `{"name":"run-1"}`)
	treasure := w.want(201, "POST", "/v1/databases", w.owner, `{"name":"other-1","metadata":{"what":"treasure"}}`).text("id")
	key := w.want(201, "POST", "/v1/api-keys", w.owner, `{"name":"s","databases":["run-1"]}`)
	reader := w.want(201, "POST", "/v1/api-keys", w.owner, `{"name":"r","database_prefixes":["run-"],"read_only":true}`).text("secret")
	secret := key.text("secret")
	log := below(t, w.store)
	var theirs string
	for _, k := range log {
		if strings.HasPrefix(k, "db/other-1/log/") {
			theirs, _, _ = strings.Cut(k, " ")
		}
	}
	wire := newWire(t, w.s)
	auth := "Host: x\r\nAuthorization: Bearer " + secret + "\r\n"
	get := func(path string) string { return "GET " + path + " HTTP/1.1\r\n" + auth + "\r\n" }
	with := func(method, path, headers, body string) string {
		return method + " " + path + " HTTP/1.1\r\n" + auth + headers + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	}
	type trick struct {
		raw  string
		want []int // of every answer, one of these
	}
	tricks := map[string]trick{}
	// Names: what is not exactly a name in reach is not there.
	for _, name := range []string{
		"other-1", "run-1%2f..%2fother-1", "run-1%2F%2e%2e%2Fother-1", "%2e%2e", "..", ".", "run-1%00", "run-1%0d%0aX:%20y", "run-1.", "run-1%20", "%20run-1", "RUN-1", "%72un-2", "run%252d1", "%25", "run-1;other-1",
		"r%C3%BCn-1", "%EF%BD%92un-1", "run-1%E2%80%8B", "run-1%C0%AE", strings.Repeat("r", 201), "run-1%2fobjects", "other-1%23", "run-1%3f", "*", "run-*", "%2a",
	} {
		for _, rest := range []string{"", "/history", "/usage", "/export", "/objects/" + theirs, "/objects?prefix=db/other-1/"} {
			tricks["name "+name+rest] = trick{get("/v1/databases/" + name + rest), []int{400, 403, 404}}
		}
		tricks["instance "+name] = trick{get("/v1/instances/" + name), []int{404}}
		tricks["query "+name] = trick{with("POST", "/v1/databases/"+name+"/query", "", `{"sql":"SELECT 1"}`), []int{404}}
		tricks["delete "+name] = trick{with("DELETE", "/v1/databases/"+name, "", ""), []int{403, 404}}
		tricks["key id "+name] = trick{with("DELETE", "/v1/api-keys/"+name, "", ""), []int{403, 404}}
	}
	// Object keys, on behalf of a database in reach.
	for _, object := range []string{
		theirs, "db/run-1/../other-1/log/ffffffffffffffff", "db%2fother-1%2flog", strings.Replace(theirs, "db/", "db//", 1), strings.Replace(theirs, "other", "%6fther", 1), strings.Replace(theirs, "/log", "%2flog", 1), "/" + theirs, "./" + theirs,
		"names/other-1/", "keys/" + key.text("id") + "/fffffffffffffffe", "db/run-1", "db", "db/run-1/", strings.Repeat("a", 300), "db/" + strings.Repeat("a/", 4000), "%", "%zz", "db/run-1/log/%ff",
	} {
		for _, base := range []string{"/v1/databases/run-1/objects/", "/v1/objects/"} {
			tricks["get "+base+object] = trick{get(base + object), []int{400, 404, 431}}
			tricks["put "+base+object] = trick{with("PUT", base+object, "If-None-Match: *\r\n", "x"), []int{400, 403, 404, 431}}
			tricks["swap "+base+object] = trick{with("PUT", base+object, "If-Match: \"x\"\r\n", "x"), []int{400, 403, 404, 431}}
			tricks["overwrite "+base+object] = trick{with("PUT", base+object, "", "x"), []int{400, 403, 404, 431}}
			tricks["delete "+base+object] = trick{with("DELETE", base+object, "", ""), []int{400, 403, 404, 431}}
		}
	}
	for _, prefix := range []string{"", "db/", "db/other-1/", "db/run-1/../other-1/", "names/", "names/o", "keys/", "instances/", "idem/", "db%2fother-1%2f", "%00", "db/run-1/log/&after=db/other-1/", "names/run-1&after=names/a&max=1000000000", "names/&prefix=db/other-1/", "names/;prefix=db/"} {
		tricks["list "+prefix] = trick{get("/v1/objects?prefix=" + prefix), []int{200, 400, 403, 404}}
		tricks["list of run-1 "+prefix] = trick{get("/v1/databases/run-1/objects?prefix=" + prefix), []int{200, 400, 403, 404}}
	}
	tricks["objects with nothing behind"] = trick{get("/v1/databases/run-1/objects/"), []int{404}}
	for _, cursor := range []string{"a", "other-0", "%00", strings.Repeat("z", 10000), "-1", "18446744073709551616", "0", "1e3", "%2e%2e%2f"} {
		tricks["cursor "+cursor] = trick{get("/v1/databases?cursor=" + cursor), []int{200, 400}}
		tricks["cursor of a history "+cursor] = trick{get("/v1/databases/run-1/history?cursor=" + cursor), []int{400}}
		tricks["cursor of their history "+cursor] = trick{get("/v1/databases/other-1/history?cursor=" + cursor), []int{404}}
	}
	// Headers.
	for name, t := range map[string]trick{
		"two keys":                 {"GET /v1/databases HTTP/1.1\r\n" + auth + "Authorization: Bearer " + w.owner[:30] + "\r\n\r\n", []int{401}},
		"two keys in one":          {"GET /v1/databases HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + secret + ", Bearer " + secret + "\r\n\r\n", []int{401}},
		"another scheme":           {"GET /v1/databases HTTP/1.1\r\nHost: x\r\nAuthorization: Basic " + secret + "\r\n\r\n", []int{401}},
		"a key with a NUL":         {"GET /v1/databases HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + secret + "\x00\r\n\r\n", []int{400, 401}},
		"a key that is cut":        {"GET /v1/databases HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + secret[:len(secret)-1] + "\r\n\r\n", []int{401}},
		"a key of another case":    {"GET /v1/databases HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + strings.ToUpper(secret) + "\r\n\r\n", []int{401}},
		"a folded header":          {"GET /v1/databases/other-1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer\r\n " + secret + "\r\n\r\n", []int{400, 401, 404}},
		"a body with two lengths":  {"POST /v1/databases/run-1/query HTTP/1.1\r\n" + auth + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n{\"a\"}", []int{400}},
		"a length and chunks":      {"POST /v1/databases/run-1/query HTTP/1.1\r\n" + auth + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/databases/other-1 HTTP/1.1\r\n" + auth + "\r\n", []int{400, 404}},
		"chunks that are not":      {"POST /v1/databases/run-1/query HTTP/1.1\r\n" + auth + "Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n", []int{400}},
		"chunks of another kind":   {"POST /v1/databases/run-1/query HTTP/1.1\r\n" + auth + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", []int{400, 501}},
		"a chunked object":         {"PUT /v1/databases/run-1/objects/db/run-1/seg/x HTTP/1.1\r\n" + auth + "If-None-Match: *\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", []int{403, 411}},
		"a length below zero":      {"PUT /v1/databases/run-1/objects/db/run-1/seg/x HTTP/1.1\r\n" + auth + "If-None-Match: *\r\nContent-Length: -1\r\n\r\n", []int{400}},
		"a create that is a swap":  {with("PUT", "/v1/databases/run-1/objects/db/run-1/log/x", "If-None-Match: *\r\nIf-Match: \"a\"\r\n", "x"), []int{400, 403}},
		"a create of a tag":        {with("PUT", "/v1/databases/run-1/objects/"+strings.Replace(theirs, "other-1", "run-1", 1), "If-None-Match: \"a\"\r\n", "x"), []int{400, 403}},
		"a create twice":           {with("PUT", "/v1/databases/run-1/objects/"+strings.Replace(theirs, "other-1", "run-1", 1), "If-None-Match: *\r\nIf-None-Match: *\r\n", "x"), []int{400, 403}},
		"another method in one":    {with("POST", "/v1/databases/run-1", "X-HTTP-Method-Override: DELETE\r\nX-Method-Override: DELETE\r\n", ""), []int{405}},
		"another path in one":      {"GET /v1/databases/run-2 HTTP/1.1\r\n" + auth + "X-Original-URL: /v1/databases/other-1\r\nX-Rewrite-Url: /v1/databases/other-1\r\nX-Forwarded-For: 127.0.0.1\r\n\r\n", []int{404}},
		"a proxy's form":           {"GET http://other/v1/databases/other-1 HTTP/1.1\r\n" + auth + "\r\n", []int{404}},
		"a server as a whole":      {"OPTIONS * HTTP/1.1\r\n" + auth + "\r\n", []int{200, 400, 404, 405}},
		"a tunnel":                 {"CONNECT other:80 HTTP/1.1\r\n" + auth + "\r\n", []int{400, 404, 405}},
		"no host":                  {"GET /v1/databases/other-1 HTTP/1.1\r\nAuthorization: Bearer " + secret + "\r\n\r\n", []int{400}},
		"a long header":            {"GET /v1/databases HTTP/1.1\r\n" + auth + "X: " + strings.Repeat("x", 40<<10) + "\r\n\r\n", []int{431}},
		"an id of a request":       {"GET /v1/databases/other-1 HTTP/1.1\r\n" + auth + "X-Request-Id: " + secret + "\r\n\r\n", []int{404}},
		"a read-only key labels":   {"POST /v1/databases/run-1/checkpoints HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + reader + "\r\nContent-Length: 13\r\n\r\n{\"label\":\"x\"}", []int{403}},
		"a read-only key writes":   {"PUT /v1/databases/run-1/objects/" + strings.Replace(theirs, "other-1", "run-1", 1) + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + reader + "\r\nIf-None-Match: *\r\nContent-Length: 1\r\n\r\nx", []int{403}},
		"a query that writes":      {with("POST", "/v1/databases/run-1/query", "", `{"sql":"CREATE TABLE t(x)"}`), []int{400}},
		"a query that attaches":    {with("POST", "/v1/databases/run-1/query", "", `{"sql":"ATTACH '/etc/passwd' AS p"}`), []int{400}},
		"a query that exports":     {with("POST", "/v1/databases/run-1/query", "", `{"sql":"VACUUM INTO '/tmp/x.db'"}`), []int{400}},
		"a fork of theirs":         {with("POST", "/v1/databases/other-1/fork", "", `{"name":"run-1"}`), []int{404}},
		"a fork under its name":    {with("POST", "/v1/databases/run-1/fork", "Idempotency-Key: x\r\n", `{"name":"run-9"}`), []int{403, 404}},
		"a name said twice":        {with("POST", "/v1/databases", "", `{"name":"run-1","name":"other-2"}`), []int{403, 404}},
		"a key of all":             {with("POST", "/v1/api-keys", "", `{"name":"x","database_prefixes":[""]}`), []int{403}},
		"a key for an instance":    {with("PUT", "/v1/instances/run-1/binding", "", `{"database":"other-1"}`), []int{403, 404}},
		"an answer to a condition": {"GET /v1/databases/run-1/objects/" + theirs + " HTTP/1.1\r\n" + auth + "If-None-Match: *\r\nIf-Modified-Since: Mon, 30 Nov 2099 10:00:00 GMT\r\n\r\n", []int{404}},
	} {
		tricks[name] = t
	}
	for _, rng := range []string{"bytes=0-0,1-1", "bytes=-", "bytes=5-1", "bytes=-0", "bytes= 0-1", "lines=0-1", "bytes=0-1;x", "bytes=99999999999999999999-", "bytes=-9223372036854775808", strings.Repeat("bytes=0-1,", 900)} {
		own := strings.Replace(theirs, "other-1", "run-1", 1)
		tricks["range "+rng] = trick{"GET /v1/databases/run-1/objects/" + own + " HTTP/1.1\r\n" + auth + "Range: " + rng + "\r\n\r\n", []int{206, 400, 416}}
		tricks["range of theirs "+rng] = trick{"GET /v1/databases/run-1/objects/" + theirs + " HTTP/1.1\r\n" + auth + "Range: " + rng + "\r\n\r\n", []int{404, 400}}
	}
	for name, c := range tricks {
		statuses, said := wire.send(c.raw)
		if len(statuses) == 0 {
			t.Errorf("%s: no answer", name)
		}
		for _, s := range statuses {
			if !slices.Contains(c.want, s) {
				t.Errorf("%s: %d, want one of %v: %.300s", name, s, c.want, said)
			}
		}
		if strings.Contains(said, treasure) || strings.Contains(said, "treasure") || strings.Contains(said, secret) {
			t.Errorf("%s tells: %s", name, said)
		}
	}
	if now := below(t, w.store); !slices.Equal(now, log) {
		t.Errorf("the store has changed:\n%s\nwas\n%s", strings.Join(now, "\n"), strings.Join(log, "\n"))
	}
	if statuses, _ := wire.send(get("/v1/databases/run-1")); !slices.Equal(statuses, []int{200}) {
		t.Errorf("the server answers %v afterwards", statuses)
	}
	if log := w.log.String(); strings.Contains(log, secret) || strings.Contains(log, "level=ERROR") {
		t.Errorf("%d bytes of log with a secret or an error", len(log))
	}
}
