// Package toxiproxy runs Shopify's toxiproxy, in the version that internal/tools/toxiproxy pins, between a test and a server: a TCP proxy on the loopback interface that is told over HTTP
// what is wrong with the line (https://github.com/Shopify/toxiproxy#toxics).
package toxiproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/internal/peer"
)

var program = peer.Program{Name: "toxiproxy", Tools: "toxiproxy", Module: "github.com/Shopify/toxiproxy/v2", Package: "cmd/server"}

// Toxic is one thing that is wrong with a line.
type Toxic struct {
	Type       string         `json:"type"`               // "latency", "bandwidth", "reset_peer", ...
	Stream     string         `json:"stream"`             // "upstream": what the test sends, or "downstream"
	Toxicity   float32        `json:"toxicity,omitempty"` // share of the connections, 0: all
	Attributes map[string]any `json:"attributes"`
}

// Line is a proxy to one address.
type Line struct {
	Addr string // where it listens

	api    string
	client *http.Client
}

// Start runs a proxy to an address until the test has ended. The first time it builds it (some 10 s).
func Start(t testing.TB, to string) *Line {
	t.Helper()
	bin, err := program.Build(t.Context())
	if err != nil {
		t.Fatalf("build toxiproxy: %v", err)
	}
	l := &Line{client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}}
	log := filepath.Join(t.TempDir(), "log")
	for try := 0; ; try++ {
		address, err := peer.FreeAddress()
		if err != nil {
			t.Fatal(err)
		}
		l.api = "http://" + address
		p, err := start(t.Context(), bin, address, log)
		if err == nil {
			t.Cleanup(p.Stop)
			break
		}
		if try == 4 || t.Context().Err() != nil {
			t.Fatalf("start toxiproxy: %v", err)
		}
	}
	var made struct{ Listen string }
	if err := l.call(t.Context(), http.MethodPost, "/proxies", map[string]any{"name": "line", "listen": "127.0.0.1:0", "upstream": to, "enabled": true}, &made); err != nil {
		t.Fatal(err)
	}
	l.Addr = made.Listen
	return l
}

func start(ctx context.Context, bin, address, log string) (*peer.Process, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return peer.Start(ctx, exec.Command(bin, "-host", host, "-port", port, "-seed", "1"), log, "http://"+address+"/version")
}

// Add makes the line worse, for the connections that are there too. The toxic's name is its type and its stream.
func (l *Line) Add(ctx context.Context, x Toxic) error {
	return l.call(ctx, http.MethodPost, "/proxies/line/toxics", x, nil)
}

// Remove takes the toxic of a type away.
func (l *Line) Remove(ctx context.Context, x Toxic) error {
	return l.call(ctx, http.MethodDelete, "/proxies/line/toxics/"+x.Type+"_"+x.Stream, nil, nil)
}

func (l *Line) call(ctx context.Context, method, path string, body, answer any) error {
	var b []byte
	if body != nil {
		var err error
		if b, err = json.Marshal(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, l.api+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("HTTP %d: %s", resp.StatusCode, text)
	}
	if err == nil && answer != nil {
		err = json.Unmarshal(text, answer)
	}
	if err != nil {
		return fmt.Errorf("toxiproxy: %s %s: %w", method, path, err)
	}
	return nil
}
