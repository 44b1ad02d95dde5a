package mcpserver_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tonbo-go/tonbo/sqltool/mcpserver"
)

// serve serves a database over HTTP until the test ends.
func serve(t *testing.T, origins ...string) (url string, stop func()) {
	t.Helper()
	c, db, _ := account(t, `CREATE TABLE t(a)`)
	s, err := mcpserver.New(c, db, mcpserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.ServeHTTP(ctx, l, s.Handler(origins)) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return "http://" + l.Addr().String(), stop
}

func dial(t *testing.T, url string) *mcp.ClientSession {
	t.Helper()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(context.Background(), &mcp.StreamableClientTransport{Endpoint: url}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	return session
}

func TestHTTPClientsShareTheDatabase(t *testing.T) {
	url, _ := serve(t)
	one, other := dial(t, url), dial(t, url)
	if out, bad := call(t, one, "run_sql", args{"sql": `INSERT INTO t VALUES(1)`}); bad {
		t.Fatal(out)
	}
	if out, bad := call(t, other, "run_sql", args{"sql": `SELECT a FROM t`}); bad || out != `{"columns":["a"],"rows":[[1]]}` {
		t.Errorf("got %s", out)
	}
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	if out, bad := call(t, other, "run_sql", args{"sql": `SELECT a FROM t`}); bad {
		t.Errorf("after the other has gone: %s", out)
	}
}

func TestHTTPServerEndsWithClientsConnected(t *testing.T) {
	url, stop := serve(t)
	session := dial(t, url)
	call(t, session, "describe_schema", args{})
	stop()
	if _, err := session.CallTool(context.Background(), &mcp.CallToolParams{Name: "describe_schema"}); err == nil {
		t.Error("it answers")
	}
}

func TestPagesOfOtherSitesAreRefused(t *testing.T) {
	url, _ := serve(t, "https://app.example.com")
	for _, test := range []struct {
		origin, host string
		want         int
	}{
		{"", "", http.StatusOK},
		{"", "localhost", http.StatusOK},
		{"http://localhost:6274", "", http.StatusOK},
		{"http://127.0.0.1", "", http.StatusOK},
		{"http://[::1]:80", "", http.StatusOK},
		{"https://app.example.com", "", http.StatusOK},
		{"http://app.example.com", "", http.StatusForbidden},
		{"https://app.example.com.evil.com", "", http.StatusForbidden},
		{"https://evil.com", "", http.StatusForbidden},
		{"http://localhost.evil.com", "", http.StatusForbidden},
		{"http://evil.com#@localhost", "", http.StatusForbidden},
		{"null", "", http.StatusForbidden},
		{"file://", "", http.StatusForbidden},
		{"", "evil.com", http.StatusForbidden}, // DNS rebinding, from a browser that sends no Origin
		{"http://evil.com", "evil.com", http.StatusForbidden},
	} {
		req, err := http.NewRequest("POST", url, strings.NewReader(initialize))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		if test.origin != "" {
			req.Header.Set("Origin", test.origin)
		}
		if test.host != "" {
			req.Host = test.host
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != test.want {
			t.Errorf("Origin %q, Host %q: got %d, want %d", test.origin, test.host, res.StatusCode, test.want)
		}
	}
}
