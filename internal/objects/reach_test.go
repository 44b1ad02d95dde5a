package objects_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/objects"
	"github.com/tonbo-go/tonbo/internal/objects/objectstest"
	"github.com/tonbo-go/tonbo/internal/objectwire"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
)

// plane is a store with the databases golden, its fork run-1, run-2 and other, and keys of the server in front of it.
type plane struct {
	t     *testing.T
	store remote.Store
	c     *tonbo.Client
	url   string
}

func newPlane(t *testing.T, o objects.Options) *plane {
	p := &plane{t: t, store: mem.New("account")}
	var err error
	if p.c, err = tonbo.NewClient(tonbo.Options{Remote: p.store, Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for _, name := range []string{"golden", "run-2", "other"} {
		if _, err := p.c.Create(ctx, name, tonbo.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		p.write(name)
	}
	if _, err := p.c.Fork(ctx, "golden", "run-1", tonbo.ForkOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.store.Create(ctx, "keys/k1/fffffffffffffffe", []byte("the server's own")); err != nil {
		t.Fatal(err)
	}
	if err := remote.Probe(ctx, p.store); err != nil {
		t.Fatal(err)
	}
	p.url = objectstest.New(t, p.store, o, objectstest.Keys{
		"one":  {ID: "one", Narrowed: true, Names: []string{"run-1"}},
		"runs": {ID: "runs", Narrowed: true, Prefixes: []string{"run-"}},
		"read": {ID: "read", Narrowed: true, ReadOnly: true, Names: []string{"run-1"}},
		"none": {ID: "none", Narrowed: true},
	}).URL
	return p
}

func (p *plane) write(name string) {
	p.t.Helper()
	db, err := p.c.Open(p.t.Context(), name)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE t(v); INSERT INTO t VALUES(1)"); err != nil {
		p.t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		p.t.Fatal(err)
	}
}

// keys lists the store behind the server.
func (p *plane) keys(prefix string) (keys []string) {
	p.t.Helper()
	page, _, err := p.store.List(p.t.Context(), prefix, remote.ListOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, i := range page {
		keys = append(keys, i.Key)
	}
	return keys
}

type answer struct {
	status int
	code   string
	body   string
	header http.Header
}

func (p *plane) do(secret, method, path string, body []byte, header ...string) answer {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, bytes.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+secret)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, body: string(b), header: resp.Header}
	if method != http.MethodHead && resp.Header.Get("Content-Type") == "application/problem+json" {
		var problem objectwire.Problem
		if err := json.Unmarshal(b, &problem); err != nil {
			p.t.Fatalf("%s: %v", b, err)
		}
		a.code = problem.Code
	}
	return a
}

func path(database, key string) string {
	_, escaped := objectwire.Path(database, key)
	return escaped
}

var createHeader = []string{"If-None-Match", "*"}

func TestKeysReachTheirOwnAndNothingElse(t *testing.T) {
	p := newPlane(t, objects.Options{})
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	head := func(name string) string { return p.keys("db/" + name + "/log/")[0] }
	record := func(name string) string { return p.keys("names/" + name + "/")[0] }
	pin := p.keys("db/golden/pin/")[0]
	full := objectstest.Full
	for _, c := range []struct {
		secret, method, path string
		header               []string
		status               int
		code                 string
	}{
		// Own objects, under the database and under the account.
		{"one", "GET", path("run-1", head("run-1")), nil, 200, ""},
		{"one", "GET", path("", head("run-1")), nil, 200, ""},
		{"one", "HEAD", path("run-1", head("run-1")), nil, 200, ""},
		{"one", "GET", path("run-1", record("run-1")), nil, 200, ""},
		{"read", "GET", path("run-1", head("run-1")), nil, 200, ""},
		{"runs", "GET", path("run-2", head("run-2")), nil, 200, ""},
		{"runs", "GET", path("run-1", head("run-2")), nil, 200, ""},
		{"one", "GET", path("run-1", "probe/ok-v1"), nil, 200, ""},
		{"one", "GET", path("run-1", fence.SlotKey("run-1", 999)), nil, 404, "object_not_found"},
		// Others' objects: as if they were not there.
		{"one", "GET", path("run-2", head("run-2")), nil, 404, "not_found"},
		{"one", "GET", path("run-1", head("run-2")), nil, 404, "not_found"},
		{"one", "GET", path("", head("run-2")), nil, 404, "not_found"},
		{"one", "GET", path("run-1", record("run-2")), nil, 404, "not_found"},
		{"one", "GET", path("run-1", record("golden")), nil, 404, "not_found"},
		{"one", "GET", path("run-1", "keys/k1/fffffffffffffffe"), nil, 404, "not_found"},
		{"none", "GET", path("", head("run-1")), nil, 404, "not_found"},
		{"runs", "GET", path("", fence.SlotKey("run-never", 1)), nil, 404, "not_found"},
		{"one", "GET", path("run-1", pin), nil, 404, "not_found"},
		// What a fork stands on, on its behalf alone: its source's log up to the fork is in its create, what is not is absent.
		{"one", "GET", path("", head("golden")), nil, 404, "not_found"},
		{"runs", "GET", path("run-2", head("golden")), nil, 404, "not_found"},
		{"one", "GET", path("run-1", fence.SlotKey("golden", 999)), nil, 404, "object_not_found"},
		// Writes.
		{"one", "PUT", path("run-1", head("run-1")), createHeader, 403, "entry_refused"},
		{"one", "PUT", path("run-1", record("run-1")), createHeader, 403, "key_narrowed"},
		{"one", "PUT", path("run-1", record("run-1")), []string{"If-Match", `"1"`}, 403, "key_narrowed"},
		{"one", "PUT", path("run-1", head("run-1")), []string{"If-Match", `"1"`}, 403, "key_narrowed"},
		{"one", "PUT", path("run-1", fence.SlotKey("run-2", 9)), createHeader, 404, "not_found"},
		{"one", "PUT", path("run-1", fence.SlotKey("golden", 9)), createHeader, 404, "not_found"},
		{"one", "PUT", path("run-1", strings.Replace(pin, "run-1", "run-9", 1)), createHeader, 404, "not_found"},
		{"runs", "PUT", path("run-2", strings.Replace(pin, "golden", "run-2", 1)), createHeader, 403, "key_narrowed"},
		{"one", "PUT", path("", "idem/x/1"), createHeader, 403, "key_narrowed"},
		{"one", "PUT", path("", "keys/k2/fffffffffffffffe"), createHeader, 403, "key_narrowed"},
		{"one", "PUT", path("run-1", "db/run-1/other/x"), createHeader, 403, "entry_refused"},
		{"one", "PUT", path("run-1", "db/run-1/log/x"), createHeader, 403, "entry_refused"},
		{"one", "PUT", path("run-1", "probe/ok-v1"), createHeader, 412, "object_exists"},
		{"read", "PUT", path("run-1", fence.SlotKey("run-1", 9)), createHeader, 403, "key_read_only"},
		{"one", "DELETE", path("run-1", head("run-1")), nil, 403, "key_narrowed"},
		{"one", "DELETE", path("run-1", head("run-2")), nil, 404, "not_found"},
		{"one", "DELETE", path("run-1", fence.SlotKey("nothing", 2)), nil, 404, "not_found"},
		{"one", "DELETE", path("", "probe/ok-v1"), nil, 403, "key_narrowed"},
		// What the server keeps for itself is nobody's.
		{full, "GET", path("", "keys/k1/fffffffffffffffe"), nil, 404, "not_found"},
		{full, "PUT", path("", "keys/k2/fffffffffffffffe"), createHeader, 403, "entry_refused"},
		{full, "DELETE", path("", "keys/k1/fffffffffffffffe"), nil, 403, "entry_refused"},
		{full, "GET", path("golden", pin), nil, 200, ""},
		{full, "PUT", path("golden", pin), createHeader, 412, "object_exists"},
		{full, "PUT", path("golden", pin), nil, 400, "invalid_request"},
		{full, "PUT", path("golden", pin), []string{"If-Match", `"no"`}, 412, "object_changed"},
		{full, "POST", path("golden", pin), nil, 400, "invalid_request"},
		{full, "GET", path("golden", "db/golden//log"), nil, 400, "invalid_key"},
		{full, "GET", path("golden", "db/golden/../run-1"), nil, 400, "invalid_key"},
		{full, "GET", path("golden", pin), []string{"Range", "bytes=1-0"}, 400, "invalid_request"},
		{full, "GET", path("golden", pin), []string{"Range", "bytes=0-1,3-4"}, 400, "invalid_request"},
		{full, "GET", path("golden", pin), []string{"Range", "bytes=99999-"}, 416, "invalid_range"},
		{full, "GET", path("golden", pin), []string{"Range", "bytes=0-18446744073709551615"}, 400, "invalid_request"},
		{full, "GET", path("golden", pin), []string{"Range", "bytes=0-9223372036854775807"}, 206, ""},
	} {
		got := p.do(c.secret, c.method, c.path, []byte("x"), c.header...)
		if c.method == "HEAD" {
			got.code = ""
		}
		if got.status != c.status || got.code != c.code {
			t.Errorf("%s %s %s %v: got %d %s, want %d %s", c.secret, c.method, c.path, c.header, got.status, got.code, c.status, c.code)
		}
		if got.header.Get("Cache-Control") != "no-store" && got.status != 401 && got.code != "key_read_only" && got.code != "not_found" {
			t.Errorf("%s %s %s may be cached", c.secret, c.method, c.path)
		}
	}
	if got := p.keys("keys/"); len(got) != 1 {
		t.Errorf("the server's own: %v", got)
	}
}

// TestOutOfReachAndAbsentAreTheSameBytes compares whole answers.
func TestOutOfReachAndAbsentAreTheSameBytes(t *testing.T) {
	p := newPlane(t, objects.Options{})
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	for _, c := range []struct {
		method string
		there  string
		absent string
		header []string
	}{
		{"GET", path("", p.keys("db/other/log/")[0]), path("", fence.SlotKey("nothing", 3)), nil},
		{"GET", path("run-1", p.keys("db/other/log/")[0]), path("run-1", fence.SlotKey("nothing", 3)), nil},
		{"GET", path("other", p.keys("db/other/log/")[0]), path("nothing", fence.SlotKey("nothing", 3)), nil},
		{"GET", path("", p.keys("names/other/")[0]), path("", "names/nothing/x"), nil},
		{"HEAD", path("", p.keys("db/other/log/")[0]), path("", fence.SlotKey("nothing", 3)), nil},
		{"DELETE", path("", p.keys("db/other/log/")[0]), path("", fence.SlotKey("nothing", 3)), nil},
		{"PUT", path("", p.keys("db/other/log/")[0]), path("", fence.SlotKey("nothing", 3)), createHeader},
		{"GET", path("", "") + "?prefix=db/other/log/", path("", "") + "?prefix=db/nothing/log/", nil},
		{"GET", path("run-1", "") + "?prefix=db/other/", path("run-1", "") + "?prefix=db/nothing/", nil},
		{"GET", path("", "") + "?prefix=names/other/", path("", "") + "?prefix=names/nothing/", nil},
		{"GET", path("", "") + "?prefix=names/o", path("", "") + "?prefix=names/n", nil},
		// And a name in reach that does not exist, like one out of reach.
		{"GET", path("", p.keys("db/other/log/")[0]), path("", fence.SlotKey("run-9", 3)), nil},
		{"GET", path("", "") + "?prefix=db/other/log/", path("", "") + "?prefix=db/run-9/log/", nil},
	} {
		a, b := p.do("runs", c.method, c.there, nil, c.header...), p.do("runs", c.method, c.absent, nil, c.header...)
		a.header.Del("Date")
		b.header.Del("Date")
		if a.status != b.status || a.body != b.body || fmt.Sprint(a.header) != fmt.Sprint(b.header) {
			t.Errorf("%s %s: %d %v %s\n%s: %d %v %s", c.method, c.there, a.status, a.header, a.body, c.absent, b.status, b.header, b.body)
		}
	}
}

func TestListingsShowWhatTheKeyReaches(t *testing.T) {
	p := newPlane(t, objects.Options{})
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	if _, err := p.c.Fork(t.Context(), "run-2", "other-2", tonbo.ForkOptions{}); err != nil { // a pin on run-2 of a fork that its key does not reach
		t.Fatal(err)
	}
	list := func(secret, prefix string, max int) (keys []string) {
		after := ""
		for {
			a := p.do(secret, "GET", fmt.Sprintf("%s?prefix=%s&max=%d&after=%s", path("", ""), prefix, max, after), nil)
			if a.status != 200 {
				t.Fatalf("%s lists %s: %d %s", secret, prefix, a.status, a.body)
			}
			var l struct{ Data objectwire.Listing }
			if err := json.Unmarshal([]byte(a.body), &l); err != nil {
				t.Fatal(err)
			}
			for _, o := range l.Data.Objects {
				keys = append(keys, o.Key)
			}
			if !l.Data.More {
				return keys
			}
			if len(l.Data.Objects) == 0 {
				t.Fatalf("%s lists %s: more after an empty page", secret, prefix)
			}
			after = keys[len(keys)-1]
		}
	}
	of := func(prefixes ...string) (keys []string) {
		for _, prefix := range prefixes {
			keys = append(keys, p.keys(prefix)...)
		}
		return keys
	}
	for _, c := range []struct {
		secret, prefix string
		want           []string
	}{
		{"one", "names/", of("names/run-1/")},
		{"runs", "names/", of("names/run-1/", "names/run-2/")},
		{"runs", "names/run-2", of("names/run-2/")},
		{"none", "names/", nil},
		{"runs", "db/run-2/", slices.DeleteFunc(of("db/run-2/"), func(k string) bool { return strings.Contains(k, "/pin/") })},
		{"runs", "db/run-2/pin/", nil},
		{"runs", "db/run-2/log/", of("db/run-2/log/")},
		{"runs", "probe/ok-v1", of("probe/ok-v1")},
		{objectstest.Full, "", slices.DeleteFunc(of(""), func(k string) bool { return strings.HasPrefix(k, "keys/") })},
		{objectstest.Full, "names/", of("names/")},
		{objectstest.Full, "keys/", nil},
	} {
		for _, max := range []int{1, 2, 1000} {
			if got := list(c.secret, c.prefix, max); !slices.Equal(got, c.want) {
				t.Errorf("%s lists %q by %d: got %v, want %v", c.secret, c.prefix, max, got, c.want)
			}
		}
	}
	for _, prefix := range []string{"", "db/", "db/run-1", "idem/", "instances/", "usage/"} {
		if a := p.do("runs", "GET", path("", "")+"?prefix="+prefix, nil); a.code != "key_narrowed" {
			t.Errorf("a narrowed key lists %q: %d %s", prefix, a.status, a.body)
		}
	}
}

// TestSourceIsReadOnBehalfOfTheFork: the fork's create names what may be read, and nothing that came later.
func TestSourceIsReadOnBehalfOfTheFork(t *testing.T) {
	p := newPlane(t, objects.Options{})
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	create, err := fence.New(p.store, "run-1", fence.Options{}).Read(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	p.write2("golden")
	stands := map[string]bool{}
	for _, s := range create.Tail {
		stands[fence.SlotKey("golden", s)] = true
	}
	if create.Base != "" {
		stands[create.Base] = true
	}
	read := 0
	for _, key := range p.keys("db/golden/") {
		got := p.do("one", "GET", path("run-1", key), nil)
		segment := strings.Contains(key, "/seg/")
		if want := stands[key]; !segment && want != (got.status == 200) {
			t.Errorf("%s: %d %s, stood on: %v", key, got.status, got.code, want)
		}
		if got.status == 200 {
			read++
		}
		if a := p.do("one", "PUT", path("run-1", key), nil, createHeader...); a.code != "not_found" {
			t.Errorf("%s is written: %d %s", key, a.status, a.code)
		}
		if a := p.do("runs", "GET", path("run-2", key), nil); a.code != "not_found" {
			t.Errorf("%s is read on behalf of another: %d", key, a.status)
		}
	}
	if read == 0 {
		t.Error("nothing of the source is read")
	}
}

// write2 goes on with a database.
func (p *plane) write2(name string) {
	p.t.Helper()
	db, err := p.c.Open(p.t.Context(), name)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := db.Exec("INSERT INTO t VALUES('later')"); err != nil {
		p.t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		p.t.Fatal(err)
	}
}
