package server_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/server"
)

// world is a store with servers on it.
type world struct {
	t     *testing.T
	store remote.Store
	*front
	owner string
}

// front is one server.
type front struct {
	t   *testing.T
	s   *server.Server
	url string
	log *syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newWorld(t *testing.T, change ...func(*server.Options)) *world {
	t.Helper()
	w := newWorldWithoutOwner(t, change...)
	secret, err := w.s.MakeOwner(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.owner = secret
	return w
}

func newWorldWithoutOwner(t *testing.T, change ...func(*server.Options)) *world {
	t.Helper()
	w := &world{t: t, store: mem.New(t.Name())}
	w.front = w.serve(change...)
	return w
}

// serve starts another server on the store.
func (w *world) serve(change ...func(*server.Options)) *front {
	w.t.Helper()
	f := &front{t: w.t, log: new(syncBuffer)}
	o := server.Options{Options: tonbo.Options{
		Remote: w.store, Dir: w.t.TempDir(), Logger: slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}}
	for _, c := range change {
		c(&o)
	}
	s, err := server.New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	h := httptest.NewServer(s)
	w.t.Cleanup(func() {
		h.Close()
		s.Close()
	})
	f.s, f.url = s, h.URL
	return f
}

// answer is what a server said.
type answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// code is the problem's.
func (a answer) code() string {
	var p struct{ Code string }
	json.Unmarshal(a.Body, &p)
	return p.Code
}

// field digs in data.
func (a answer) field(path ...string) any {
	var v any
	if err := json.Unmarshal(a.Body, &v); err != nil {
		return nil
	}
	for _, p := range append([]string{"data"}, path...) {
		m, _ := v.(map[string]any)
		v = m[p]
	}
	return v
}

func (a answer) text(path ...string) string {
	s, _ := a.field(path...).(string)
	return s
}

// do sends a request. headers come in pairs.
func (f *front) do(method, path, secret, body string, headers ...string) answer {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	if secret != "" {
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, b}
}

// want is do, with the status that it must have.
func (f *front) want(status int, method, path, secret, body string, headers ...string) answer {
	f.t.Helper()
	a := f.do(method, path, secret, body, headers...)
	if a.Status != status {
		f.t.Fatalf("%s %s: %d %s, want %d", method, path, a.Status, a.Body, status)
	}
	return a
}

// key makes one with the owner's.
func (w *world) key(body string) string {
	w.t.Helper()
	return w.want(201, "POST", "/v1/api-keys", w.owner, body).text("secret")
}

func TestARunFromItsCreationToItsEnd(t *testing.T) {
	w := newWorld(t)
	orchestrator := w.key(`{"name":"first","agent":"orchestrator","role":"member"}`)
	a := w.want(201, "POST", "/v1/databases", orchestrator, `{"name":"run-42","ttl":"1h","metadata":{"task":"42"}}`, "Idempotency-Key", "k1")
	id := a.text("id")
	a = w.want(201, "POST", "/v1/databases", orchestrator, `{"name":"run-42","ttl":"1h","metadata":{"task":"42"}}`, "Idempotency-Key", "k1")
	if a.text("id") != id || a.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("the retry got %s, %v", a.Body, a.Header)
	}
	a = w.want(409, "POST", "/v1/databases", orchestrator, `{"name":"run-43"}`, "Idempotency-Key", "k1")
	if a.code() != "idempotency_conflict" {
		t.Error(a.code())
	}
	if a = w.want(200, "GET", "/v1/databases/run-42", orchestrator, ""); a.text("state") != "active" {
		t.Errorf("%s", a.Body)
	}
	sandbox := w.want(201, "POST", "/v1/api-keys", orchestrator, `{"name":"run-sandboxes","database_prefixes":["run-"]}`).text("secret")

	// As the sandbox would, but straight on the store.
	db, err := tonbo.Open(t.Context(), "run-42", tonbo.Options{Remote: w.store, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE steps(id INTEGER PRIMARY KEY, body TEXT); INSERT INTO steps(body) VALUES ('one')"); err != nil {
		t.Fatal(err)
	}
	if a = w.do("POST", "/v1/databases/run-42/checkpoints", orchestrator, `{"label":"x"}`); a.Status != 409 || a.code() != "busy" {
		t.Errorf("checkpoint of one that is open: %d %s", a.Status, a.Body)
	}
	if _, err := db.Checkpoint(t.Context(), "step-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("INSERT INTO steps(body) VALUES ('two')"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	query := func(key, at string) string {
		a := w.want(200, "POST", "/v1/databases/run-42/query", key, `{"sql":"SELECT count(*) AS n FROM steps","at":"`+at+`"}`)
		b, _ := json.Marshal(a.field("rows"))
		return string(b)
	}
	if got := query(sandbox, "step-1") + query(orchestrator, ""); got != "[[1]][[2]]" {
		t.Error(got)
	}
	a = w.want(201, "POST", "/v1/databases/run-42/fork", orchestrator, `{"name":"fork-1","at":"step-1"}`)
	if a.text("parent_name") != "run-42" {
		t.Errorf("%s", a.Body)
	}
	a = w.want(201, "POST", "/v1/databases/run-42/checkpoints", sandbox, `{"label":"end"}`)
	if a.text("point", "label") != "end" {
		t.Errorf("%s", a.Body)
	}
	a = w.want(200, "GET", "/v1/databases/run-42/history?limit=2", sandbox, "")
	var page struct {
		Data []map[string]any
		Next string `json:"next_cursor"`
	}
	json.Unmarshal(a.Body, &page)
	if len(page.Data) != 2 || page.Next == "" {
		t.Errorf("%s", a.Body)
	}
	n := len(page.Data)
	for page.Next != "" {
		a = w.want(200, "GET", "/v1/databases/run-42/history?limit=2&cursor="+page.Next, sandbox, "")
		page.Next = ""
		json.Unmarshal(a.Body, &page)
		n += len(page.Data)
	}
	if n < 7 {
		t.Errorf("%d entries", n)
	}
	a = w.want(200, "GET", "/v1/databases/run-42/export?at=step-1", sandbox, "")
	if !bytes.HasPrefix(a.Body, []byte("SQLite format 3\x00")) {
		t.Errorf("an export begins with %.20q", a.Body)
	}
	if a = w.want(410, "GET", "/v1/databases/run-42/export?at=nothing", sandbox, ""); a.code() != "point_gone" {
		t.Error(a.code())
	}
	a = w.want(200, "POST", "/v1/databases/run-42/rewind", orchestrator, `{"at":"step-1"}`)
	if got := query(sandbox, ""); got != "[[1]]" {
		t.Error(got)
	}
	w.want(200, "POST", "/v1/databases/run-42/rewind", orchestrator, `{"at":"point:`+a.text("before", "point")+`"}`)
	if got := query(sandbox, ""); got != "[[2]]" {
		t.Error(got)
	}
	if a = w.want(200, "GET", "/v1/databases/run-42/usage", sandbox, ""); a.field("commits") == 0.0 {
		t.Errorf("%s", a.Body)
	}
	w.want(200, "PATCH", "/v1/databases/run-42", orchestrator, `{"protected":true,"expires_at":null,"metadata":{"task":null,"x":"y"}}`)
	if a = w.want(409, "DELETE", "/v1/databases/run-42", orchestrator, ""); a.code() != "protected" {
		t.Error(a.code())
	}
	w.want(200, "PATCH", "/v1/databases/run-42", orchestrator, `{"protected":false}`)
	w.want(204, "DELETE", "/v1/databases/run-42", orchestrator, "")
	w.want(404, "DELETE", "/v1/databases/run-42", orchestrator, "")
	if a = w.want(409, "POST", "/v1/databases", orchestrator, `{"name":"run-42","ttl":"1h","metadata":{"task":"42"}}`, "Idempotency-Key", "k1"); a.code() != "idempotency_gone" {
		t.Error(a.code())
	}
}

// certificate makes one that signs itself, and its key.
func certificate(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}, IPAddresses: []net.IP{{127, 0, 0, 1}}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
}
