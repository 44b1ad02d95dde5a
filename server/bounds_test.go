package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/server"
	"github.com/tonbo-go/tonbo/tonbotest"
)

func TestBodiesAreBounded(t *testing.T) {
	w := newWorld(t)
	a := w.do("POST", "/v1/databases", w.owner, `{"name":"`+strings.Repeat("x", 2<<20)+`"}`)
	if a.Status != 413 || a.code() != "body_too_large" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	for _, body := range []string{`{`, `[]`, `{"name":1}`, `{"name":"x"} {}`, `{"name":"x","nmae":"y"}`, "\x00"} {
		if a := w.do("POST", "/v1/databases", w.owner, body); a.Status != 400 || a.code() != "invalid_request" {
			t.Errorf("%s: %d %s", body, a.Status, a.Body)
		}
	}
	for body, code := range map[string]string{
		`{"name":"a/b"}`: "400 invalid_name", `{"name":""}`: "400 invalid_name", `{}`: "400 invalid_name", ``: "400 invalid_name",
		`{"name":"x","ttl":"1h","expires_at":"2100-01-01T00:00:00Z"}`:     "422 invalid_expires_at",
		`{"name":"x","ttl":"-1h"}`:                                        "422 invalid_expires_at",
		`{"name":"x","ttl":0}`:                                            "422 invalid_expires_at",
		`{"name":"x","expires_at":"2000-01-01T00:00:00Z"}`:                "422 invalid_expires_at",
		`{"name":"x","expires_at":"0001-01-01T00:00:00Z"}`:                "422 invalid_expires_at",
		`{"name":"x","metadata":{"` + strings.Repeat("k", 65) + `":"v"}}`: "422 invalid_metadata",
	} {
		if a := w.do("POST", "/v1/databases", w.owner, body); fmt.Sprint(a.Status, " ", a.code()) != code {
			t.Errorf("%s: %d %s, want %s", body, a.Status, a.Body, code)
		}
	}
	if a := w.do("PUT", "/v1/databases", w.owner, ""); a.Status != 405 || a.Header.Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("%d %v", a.Status, a.Header)
	}
	if a := w.do("POST", "/v1/databases", w.owner, `{"name":"x"}`, "Idempotency-Key", "a", "Idempotency-Key", "b"); a.Status != 400 {
		t.Errorf("two idempotency keys: %d %s", a.Status, a.Body)
	}
	if a := w.do("GET", "/v1/databases", "", "", "Authorization", "Bearer "+w.owner, "Authorization", "Bearer "+w.owner); a.Status != 401 {
		t.Errorf("two keys: %d %s", a.Status, a.Body)
	}
}

func TestTooManyDatabasesAreRefused(t *testing.T) {
	w := newWorld(t, func(o *server.Options) { o.MaxDatabases = 1 })
	w.want(201, "POST", "/v1/databases", w.owner, `{"name":"a"}`)
	if a := w.do("POST", "/v1/databases", w.owner, `{"name":"b"}`); a.Status != 429 || a.code() != "database_limit" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

func TestQueryIsBoundedAndReadsOnly(t *testing.T) {
	w := newWorld(t)
	w.want(201, "POST", "/v1/databases", w.owner, `{"name":"run-1"}`)
	query := func(sql string) answer {
		return w.do("POST", "/v1/databases/run-1/query", w.owner, fmt.Sprintf(`{"sql":%q}`, sql))
	}
	for _, sql := range []string{"", "SELEC 1", "SELECT 1; SELECT 2", "CREATE TABLE t(x)", "ATTACH 'x' AS y", "PRAGMA journal_mode=DELETE", "VACUUM INTO '/tmp/x'", "SELECT * FROM nothing", "SELECT load_extension('x')"} {
		if a := query(sql); a.Status != 400 || a.code() != "sql_error" {
			t.Errorf("%s: %d %s", sql, a.Status, a.Body)
		}
	}
	if a := query("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 5000) SELECT i FROM n"); a.field("truncated") != true {
		t.Errorf("%.200s", a.Body)
	}
	w.s.SetQueryTime(50 * time.Millisecond)
	if a := query("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n"); a.Status != 408 || a.code() != "query_timeout" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

func TestStoreThatDoesNotAnswerIs503(t *testing.T) {
	var store *tonbotest.Store
	w := newWorld(t, func(o *server.Options) {
		store = tonbotest.NewStore(o.Remote)
		o.Remote, o.Timeout, o.SyncTimeout = store, time.Second, 100*time.Millisecond
	})
	w.want(201, "POST", "/v1/databases", w.owner, `{"name":"run-1"}`)
	w.want(200, "GET", "/readyz", "", "")
	store.Partition(true)
	for _, c := range [][3]string{{"GET", "/v1/databases/run-1", ""}, {"POST", "/v1/databases", `{"name":"run-2"}`}, {"DELETE", "/v1/databases/run-1", ""}} {
		if a := w.do(c[0], c[1], w.owner, c[2]); a.Status != 503 || a.Header.Get("Retry-After") == "" || strings.Contains(string(a.Body), "mem://") {
			t.Errorf("%v: %d %s", c, a.Status, a.Body)
		}
	}
	w.want(200, "GET", "/healthz", "", "")
	store.Heal()
	// An answer that was lost: the store has it.
	store.DropAnswer(tonbotest.Match{Op: tonbotest.Create, Key: "db/run-3/log/"}, 1)
	w.want(201, "POST", "/v1/databases", w.owner, `{"name":"run-3"}`, "Idempotency-Key", "x")
	w.want(201, "POST", "/v1/databases", w.owner, `{"name":"run-3"}`, "Idempotency-Key", "x")
}

func TestExportIsTheDatabase(t *testing.T) {
	w := newWorld(t)
	w.want(201, "POST", "/v1/databases", w.owner, `{"name":"run-1"}`)
	db, err := tonbo.Open(t.Context(), "run-1", tonbo.Options{Remote: w.store, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE t(x); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 200) INSERT INTO t SELECT randomblob(5000) FROM n"); err != nil {
		t.Fatal(err)
	}
	var want string
	if err := db.QueryRow("SELECT group_concat(hex(x)) FROM t").Scan(&want); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	a := w.want(200, "GET", "/v1/databases/run-1/export", w.owner, "")
	file := filepath.Join(t.TempDir(), "copy.db")
	if err := os.WriteFile(file, a.Body, 0o600); err != nil {
		t.Fatal(err)
	}
	copied, err := sql.Open("sqlite3", "file:"+file)
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	var got string
	if err := copied.QueryRow("SELECT group_concat(hex(x)) FROM t").Scan(&got); err != nil || got != want {
		t.Errorf("the copy holds other rows: %v", err)
	}
	if a := w.want(200, "HEAD", "/v1/databases/run-1/export", w.owner, ""); len(a.Body) > 0 {
		t.Error("HEAD has a body")
	}
}

// Whatever is asked, no secret is in a log, an error or a metric.
func TestSecretsAreInNoLogErrorOrMetric(t *testing.T) {
	w := newWorld(t)
	sandbox := w.key(`{"name":"s","database_prefixes":["run-"]}`)
	var all bytes.Buffer
	for _, secret := range []string{w.owner, sandbox} {
		for _, c := range append(cells, cell{method: "GET", path: "/metrics"}, cell{method: "GET", path: "/nothing/" + secret}, cell{method: "GET", path: "/v1/databases/" + secret}, cell{method: "DELETE", path: "/v1/api-keys/" + secret}) {
			body := strings.NewReplacer("NAME", "run-1", "FRESH", "run-2", "DATABASE", "run-3").Replace(c.body)
			if c.id == "makeKey" {
				continue // shows one, rightly
			}
			a := w.do(c.method, strings.ReplaceAll(c.path, "NAME", "run-1"), secret, body, "X-Request-Id", secret)
			all.Write(a.Body)
			fmt.Fprint(&all, a.Header)
		}
		all.Write(w.do("POST", "/v1/databases/run-1/query", secret, `{"sql":"SELECT a FROM nothing -- x"}`).Body)
	}
	all.WriteString(string(w.want(200, "GET", "/metrics", "", "").Body))
	all.WriteString(w.log.String())
	for _, secret := range []string{w.owner, sandbox} {
		if i := strings.Index(all.String(), secret[len(secret)-43:]); i >= 0 {
			t.Errorf("a secret shows: ...%s...", all.String()[max(0, i-300):i+43])
		}
	}
	if !strings.Contains(w.log.String(), "route=getDatabase") {
		t.Error("nothing was logged")
	}
}

func TestMetricsCountWhatWasAnswered(t *testing.T) {
	w := newWorld(t)
	w.want(201, "POST", "/v1/databases", w.owner, `{"name":"run-1"}`)
	for range 3 {
		w.want(200, "GET", "/v1/databases/run-1", w.owner, "")
	}
	w.want(401, "GET", "/v1/databases/run-1", "", "")
	w.do("BREW", "/v1/databases/run-1", w.owner, "")
	text := string(w.want(200, "GET", "/metrics", "", "").Body)
	for _, line := range []string{
		`tonbo_http_requests_total{route="getDatabase",method="GET",status="200"} 3`,
		`tonbo_http_requests_total{route="none",method="GET",status="401"} 1`,
		`tonbo_http_requests_total{route="none",method="other",status="405"} 1`,
		`tonbo_http_request_bytes_total{route="createDatabase",method="POST",status="201"} 16`,
		`tonbo_http_request_duration_seconds_count{route="getDatabase"} 3`,
		`tonbo_http_request_duration_seconds_bucket{route="getDatabase",le="+Inf"} 3`,
		"tonbo_http_requests_in_flight 1",
		`tonbo_key_verdicts_total{from="store"} 1`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s in\n%s", line, text)
		}
	}
	if strings.Contains(text, "run-1") {
		t.Error("a name is in the metrics")
	}
	closed := w.serve(func(o *server.Options) { o.MetricsKey = true })
	closed.want(401, "GET", "/metrics", "", "")
	closed.want(200, "GET", "/metrics", w.owner, "")
	closed.want(403, "GET", "/metrics", w.key(`{"name":"n","databases":["x"]}`), "")
}

// serveOn runs a server on a listener until the test has ended, or stop is called.
func serveOn(t *testing.T, w *world, l net.Listener, o server.ServeOptions) (stop func()) {
	t.Helper()
	s, err := server.New(server.Options{Options: tonbo.Options{Remote: w.store, Dir: t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l, o) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func TestUnixSocketServesAndAStaleOneIsReplaced(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes of sockets")
	}
	w := newWorld(t)
	dir, err := os.MkdirTemp("", "t") // short: a socket's path has 104 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := dir + "/s"
	old, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Listen("unix://"+path, 0); err == nil {
		t.Error("two processes listen on one socket")
	}
	old.(*net.UnixListener).SetUnlinkOnClose(false)
	old.Close()
	l, err := server.Listen("unix://"+path, 0o660)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Error(info, err)
	}
	if !server.Loopback(l) {
		t.Error("a socket is taken for one that others reach")
	}
	stop := serveOn(t, w, l, server.ServeOptions{})
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get("http://tonbo/healthz")
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	resp.Body.Close()
	stop()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"unix://" + dir + "/file", "unix://relative"} {
		if _, err := server.Listen(address, 0); err == nil {
			t.Errorf("listens on %s", address)
		}
	}
}

func TestTLSFilesAreReadAgainWhenTheyChange(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	write := func(name string) {
		t.Helper()
		c, k := certificate(t, name)
		for path, b := range map[string][]byte{cert: c, key: k} {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := server.TLSFiles(cert, key); err == nil {
		t.Error("no files are no error")
	}
	write("one")
	config, err := server.TLSFiles(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	l, err := server.Listen("127.0.0.1:0", 0)
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, w, l, server.ServeOptions{TLS: config})
	peer := func() string {
		t.Helper()
		c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if c.ConnectionState().NegotiatedProtocol != "h2" {
			t.Error("no HTTP/2")
		}
		return c.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if got := peer(); got != "one" {
		t.Error(got)
	}
	write("two")
	later := time.Now().Add(time.Minute)
	for _, path := range []string{cert, key} {
		if err := os.Chtimes(path, later, later); err != nil {
			t.Fatal(err)
		}
	}
	if got := peer(); got != "two" {
		t.Error(got)
	}
	if err := os.WriteFile(key, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := peer(); got != "two" {
		t.Error("with files that do not fit together:", got)
	}
}

// Told to end, a server answers what is under way, and takes nothing more.
func TestEndingWaitsForRequestsUnderWay(t *testing.T) {
	w := newWorld(t)
	store := tonbotest.NewStore(w.store)
	w.store = store
	l, err := server.Listen("127.0.0.1:0", 0)
	if err != nil {
		t.Fatal(err)
	}
	gate := store.Block(tonbotest.Match{Op: tonbotest.Create, Key: "db/slow/log/"})
	stop := serveOn(t, w, l, server.ServeOptions{})
	f := &front{t: t, url: "http://" + l.Addr().String()}
	status := make(chan int)
	go func() { status <- f.do("POST", "/v1/databases", w.owner, `{"name":"slow"}`).Status }()
	if err := gate.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { stop(); close(ended) }()
	for { // until nobody listens any more
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			break
		}
		c.Close()
	}
	select {
	case <-ended:
		t.Error("it ended before the request did")
	default:
	}
	gate.Open()
	if got := <-status; got != 201 {
		t.Error(got)
	}
	<-ended
}

func TestOwnerFileIsMadeOnceAndForAllServers(t *testing.T) {
	w := newWorldWithoutOwner(t)
	b := w.serve()
	path := filepath.Join(t.TempDir(), "owner.key")
	if err := w.s.OwnerFile(t.Context(), path, false); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	for _, f := range []*front{w.front, b, w.front} {
		if err := f.s.OwnerFile(t.Context(), path, true); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	secret, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b.want(200, "GET", "/v1/api-keys", strings.TrimSpace(string(secret)), "")
	if err := w.s.OwnerFile(t.Context(), filepath.Join(t.TempDir(), "other"), true); !errors.Is(err, server.ErrHasOwner) {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("password"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.s.OwnerFile(t.Context(), path, true); err == nil {
		t.Error("a secret of one's own was taken")
	}
}

// A key that keeps the server busy leaves room for others.
func TestOneKeyDoesNotTakeAllSlots(t *testing.T) {
	store := tonbotest.NewStore(mem.New(t.Name()))
	w := newWorld(t, func(o *server.Options) { o.Remote, o.Concurrency = store, 2 })
	for _, name := range []string{"slow", "fast"} {
		w.want(201, "POST", "/v1/databases", w.owner, `{"name":"`+name+`"}`)
	}
	sandbox := w.key(`{"name":"s","database_prefixes":["slow","fast"]}`)
	w.want(200, "GET", "/v1/databases", sandbox, "")
	gate := store.Block(tonbotest.Match{Op: tonbotest.List, Key: "db/slow/log/"})
	const query = `{"sql":"SELECT 1"}`
	status := make(chan int)
	go func() { status <- w.do("POST", "/v1/databases/slow/query", sandbox, query).Status }()
	if err := gate.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "POST", w.url+"/v1/databases/fast/query", strings.NewReader(query))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+sandbox)
	if resp, err := http.DefaultClient.Do(r); err == nil {
		resp.Body.Close()
		t.Errorf("the same key got another slot: %d", resp.StatusCode)
	}
	w.want(200, "POST", "/v1/databases/fast/query", w.owner, query)
	gate.Open()
	if got := <-status; got != 200 {
		t.Error(got)
	}
	w.want(200, "POST", "/v1/databases/fast/query", sandbox, query)
}

// What changes a database or a key as a whole is in the log of a server that is not told to be verbose, with the key that did it.
func TestChangesAreLogged(t *testing.T) {
	log := new(syncBuffer)
	w := newWorld(t, func(o *server.Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	key := w.want(201, "POST", "/v1/api-keys", w.owner, `{"name":"x"}`)
	w.want(201, "POST", "/v1/databases", key.text("secret"), `{"name":"run-1"}`)
	w.want(200, "GET", "/v1/databases/run-1", w.owner, "")
	w.want(204, "DELETE", "/v1/databases/run-1", key.text("secret"), "")
	var got []string
	for line := range strings.Lines(log.String()) {
		got = append(got, regexp.MustCompile(`route=\S+`).FindString(line)+" "+regexp.MustCompile(`key=\S+`).FindString(line)+" "+regexp.MustCompile(`of=\S+`).FindString(line))
	}
	id := key.text("id")
	want := []string{
		"route=makeKey key=owner000000000000000 of=" + id,
		"route=createDatabase key=" + id + " of=run-1",
		"route=deleteDatabase key=" + id + " of=run-1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
