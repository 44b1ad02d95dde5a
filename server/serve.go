package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Bounds of connections. A request's own are Options.Timeout and MaxBody.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 16 << 10 // bytes
)

// ServeOptions of Serve. The zero value serves HTTP/1.1 without TLS: on loopback, a unix socket, or behind what ends TLS.
type ServeOptions struct {
	TLS   *tls.Config   // with certificates: serve HTTPS, HTTP/2 included
	Drain time.Duration // how long requests under way may take once ctx has ended; default 30 s. What is left then is cut
}

const defaultDrain = 30 * time.Second

// Serve answers requests on a listener until ctx ends. It then takes no new connection, waits for the requests that are under way, and closes the server. Its error is the listener's; nil: ctx had ended.
func (s *Server) Serve(ctx context.Context, l net.Listener, o ServeOptions) error {
	if o.Drain == 0 {
		o.Drain = defaultDrain
	}
	h := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader, TLSConfig: o.TLS,
		// net/http writes of TLS handshakes and of panics, the latter with no more than http.ErrAbortHandler, which it keeps silent about.
		ErrorLog: log.New(logWriter{s.log}, "", 0),
	}
	failed := make(chan error, 1)
	go func() {
		if o.TLS != nil {
			failed <- h.ServeTLS(l, "", "")
			return
		}
		failed <- h.Serve(l)
	}()
	var err error
	select {
	case err = <-failed:
		failed <- http.ErrServerClosed
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.Drain)
	defer cancel()
	if serr := h.Shutdown(drain); serr != nil { // too slow: cut
		s.log.Warn("requests were cut", "after", o.Drain, "error", serr)
		s.stop()
		h.Close()
	}
	<-failed
	cerr := s.Close()
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	}
	return cerr
}

// logWriter is net/http's way to the logger.
type logWriter struct{ l *slog.Logger }

func (w logWriter) Write(b []byte) (int, error) {
	w.l.Debug("http", "message", string(b))
	return len(b), nil
}
