package httpbody_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/tonbo-go/tonbo/internal/httpbody"
)

// countedConn counts the writes to a connection.
type countedConn struct {
	net.Conn
	writes *atomic.Int32
}

func (c countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// TestCopiedBodyGoesOutWithItsHeader: in one write, and as it was when it was attached.
func TestCopiedBodyGoesOutWithItsHeader(t *testing.T) {
	want := bytes.Repeat([]byte("page"), httpbody.MaxCopy/4)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b, err := io.ReadAll(r.Body); err != nil || !bytes.Equal(b, want) || r.ContentLength != int64(len(want)) || len(r.TransferEncoding) > 0 {
			t.Errorf("%d bytes came (announced: %d, %q): %v", len(b), r.ContentLength, r.TransferEncoding, err)
		}
	}))
	defer srv.Close()
	var writes atomic.Int32
	tr := &http.Transport{WriteBufferSize: 32 << 10, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		return countedConn{c, &writes}, err
	}}
	defer tr.CloseIdleConnections()
	for n := range int32(3) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, srv.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		b := bytes.Clone(want)
		up := httpbody.AttachCopy(req, b)
		clear(b) // the caller's again
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		up.Detach()
		if up.Sent() != int64(len(want)) || writes.Load() != n+1 {
			t.Errorf("request %d: %d bytes sent, in %d writes in all", n+1, up.Sent(), writes.Load())
		}
	}
}
