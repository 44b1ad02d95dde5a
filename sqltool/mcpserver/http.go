package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	sessionIdle = time.Hour        // after which a session is forgotten
	headerTime  = 10 * time.Second // for a request's headers
)

// Handler serves the streamable HTTP transport, at any path. There is no authentication: whoever reaches it has the database.
//
// What a browser sends for a page of another site is refused, so that no page that a person looks at reaches a server on their machine, by DNS rebinding either: a request with an Origin must have that of a loopback address, or one of origins, spelled as
// browsers do ("https://app.example.com"); and one that comes in over a loopback address must have a loopback Host. https://modelcontextprotocol.io/specification/2025-06-18/basic/transports#security-warning
func (s *Server) Handler(origins []string) http.Handler {
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.mcp }, &mcp.StreamableHTTPOptions{Logger: s.o.Logger, SessionTimeout: sessionIdle, MaxRequestBodyBytes: maxInput})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, origin := range r.Header.Values("Origin") {
			if !slices.Contains(origins, origin) && !loopbackOrigin(origin) {
				http.Error(w, fmt.Sprintf("Forbidden: pages of %.100q may not use this server", origin), http.StatusForbidden)
				return
			}
		}
		ctx, leave, ok := s.enter(r.Context()) // a stream that is open ends with the server
		if !ok {
			http.Error(w, errClosed.Error(), http.StatusServiceUnavailable)
			return
		}
		defer leave()
		h.ServeHTTP(w, r.WithContext(ctx)) // it looks at Host
	})
}

func loopbackOrigin(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && Loopback(u.Hostname())
}

// Loopback tells whether a host, a name or an address, is this machine alone.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// ServeHTTP serves h, which is a Handler's or leads to one, on l, until ctx ends or the server is broken. Then it ends sessions and calls, and returns when none is left.
func (s *Server) ServeHTTP(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: headerTime}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	var err error
	select {
	case err := <-done: // the listener failed
		return errors.Join(err, s.Close())
	case <-ctx.Done():
		err = ctx.Err()
	case <-s.broken:
		err = fmt.Errorf("a call panicked: %v", s.first)
	}
	err = errors.Join(err, s.Close()) // no request is under way then. (Shutdown would wait for connections that clients have made and not used.)
	if cerr := srv.Close(); !errors.Is(cerr, net.ErrClosed) {
		err = errors.Join(err, cerr)
	}
	<-done
	return err
}
