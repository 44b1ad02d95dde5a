package gateway_test

import (
	"net"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/tonbo-go/tonbo/internal/objects"
	"github.com/tonbo-go/tonbo/internal/objects/objectstest"
	"github.com/tonbo-go/tonbo/internal/s3test"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/dir"
	"github.com/tonbo-go/tonbo/remote/gateway"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/remote/remotetest"
)

// open returns a client of a server.
func open(t testing.TB, url string, o gateway.Options) *gateway.Store {
	t.Helper()
	if o.APIKey == "" && o.Token == nil {
		o.APIKey = objectstest.Full
	}
	s, err := gateway.Open(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func conforms(t *testing.T, inner remote.Store, options ...remotetest.Option) {
	srv := objectstest.New(t, inner, objects.Options{AnyRoot: true, Rate: -1}, nil)
	s := open(t, srv.URL, gateway.Options{})
	remotetest.Run(t, func(*testing.T) remote.Store { return s }, options...)
}

func TestConformanceOverMem(t *testing.T) {
	conforms(t, mem.New("account"), remotetest.UniqueETags(), remotetest.Keys(1010), remotetest.Rounds(20))
}

func TestConformanceOverDir(t *testing.T) {
	inner, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	conforms(t, inner, remotetest.Keys(100), remotetest.Rounds(5))
}

func TestConformanceOverS3(t *testing.T) {
	conforms(t, s3test.Store(t), remotetest.Keys(300), remotetest.Rounds(10))
}

func TestConformanceOverAUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(objectstest.Handler(objects.New(mem.New("account"), objects.Options{AnyRoot: true, Rate: -1}), nil))
	srv.Listener.Close()
	srv.Listener = l
	srv.Start()
	t.Cleanup(srv.Close)
	s := open(t, "unix://"+path, gateway.Options{})
	if got := s.String(); got != "unix://"+path {
		t.Errorf("it calls itself %s", got)
	}
	remotetest.Run(t, func(*testing.T) remote.Store { return s }, remotetest.Keys(50), remotetest.Rounds(5))
}
