package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// Options of Open.
type Options struct {
	// APIKey is the key's secret, tbo_...
	APIKey string
	// Token is used instead of APIKey: it is asked once, and again after the server has refused what it said.
	Token func(context.Context) (string, error)
	// Insecure lets the key go over http:// to a host that is not this machine. The URL's ?insecure=true does the same.
	Insecure bool
	// Transport sends the requests instead of our own. It must not retry; redirects are not followed.
	Transport http.RoundTripper
	// StallTimeout ends a request during which no byte moved for so long. Default 15 s.
	StallTimeout time.Duration
	// Tries bounds how often Get, List and Delete are sent without any progress. Default 8 (about 5 s with the waits between).
	Tries int
	// Logger hears of each retry, at level debug. Default: none.
	Logger *slog.Logger
}

const (
	defaultStallTimeout = 15 * time.Second
	defaultTries        = 8
)

// location is where a URL points to.
type location struct {
	base   url.URL // of requests; the path without a slash at its end
	socket string  // unix: the socket's path
	name   string  // for messages
}

// parse reads https://host[:port][/path], http://... or unix:///socket.
func parse(raw string, o *Options) (location, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return location{}, errors.New("gateway: the URL does not parse: want https://host, http://127.0.0.1:port or unix:///socket") // it may hold a secret
	}
	if u.User != nil {
		return location{}, errors.New("gateway: the URL holds credentials: give the key in TONBO_API_KEY")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return location{}, errors.New("gateway: the URL's query does not parse")
	}
	for name, values := range query {
		if name != "insecure" {
			return location{}, fmt.Errorf("gateway: unknown parameter %q: there is insecure", name)
		}
		switch v := values[len(values)-1]; v {
		case "true":
			o.Insecure = true
		case "false":
		default:
			return location{}, fmt.Errorf("gateway: insecure=%q: want true or false", v)
		}
	}
	l := location{base: url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimSuffix(u.Path, "/")}}
	switch {
	case u.Fragment != "" || u.Opaque != "" || u.RawPath != "":
		return location{}, fmt.Errorf("gateway: scheme %q, host %q: want https://host, http://127.0.0.1:port or unix:///socket", u.Scheme, u.Hostname()) // not all of it: it may hold a secret
	case u.Scheme == "unix" && u.Host == "" && len(u.Path) > 1:
		l.socket, l.name = u.Path, "unix://"+u.Path
		l.base = url.URL{Scheme: "http", Host: "tonbo"}
		return l, nil
	case u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "":
		return location{}, fmt.Errorf("gateway: scheme %q, host %q: want https://host, http://127.0.0.1:port or unix:///socket (three slashes)", u.Scheme, u.Hostname())
	case u.Scheme == "http" && !o.Insecure && !loopback(u.Hostname()):
		return location{}, fmt.Errorf("gateway: %s: the key would go over the network in the clear: use https://, or ?insecure=true where the network is your own", l.base.String())
	}
	l.name = l.base.String()
	if _, err := url.Parse(l.name); err != nil { // a zone of bytes that no URL can spell
		return location{}, fmt.Errorf("gateway: host %q cannot be spelled in a URL", u.Hostname())
	}
	return l, nil
}

// loopback tells whether a host is this machine, without asking anybody.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

// transport is our own: one connection a request under way. Many streams in one TCP connection share its losses, and an HTTP/2 transport resends some PUTs by itself.
func (l location) transport() *http.Transport {
	dialer := &net.Dialer{Timeout: 2 * time.Second, KeepAlive: 15 * time.Second}
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSHandshakeTimeout: 5 * time.Second,
		MaxIdleConns: 256, MaxIdleConnsPerHost: 256, IdleConnTimeout: 60 * time.Second, DisableCompression: true,
		WriteBufferSize: 32 << 10, ReadBufferSize: 32 << 10, Protocols: new(http.Protocols), MaxResponseHeaderBytes: 64 << 10,
	}
	t.Protocols.SetHTTP1(true)
	if l.socket != "" {
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", l.socket)
		}
	}
	return t
}
