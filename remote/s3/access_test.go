package s3_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/s3"
)

// rotating is a provider whose keys are numbered: KEY1 at first, the next at each further call.
type rotating struct{ calls atomic.Int32 }

func (r *rotating) Retrieve(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: fmt.Sprintf("KEY%d", r.calls.Add(1)), SecretAccessKey: "SECRET", SessionToken: "T"}, nil
}

func keyOf(r *http.Request) string {
	_, rest, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	key, _, _ := strings.Cut(rest, "/")
	return key
}

// onlyKey takes requests with one key and answers others as expired.
func onlyKey(t *testing.T, key func() string, status int, code string) *fake {
	return serve(t, func(w http.ResponseWriter, r *http.Request, _ int, _ []byte) {
		switch {
		case keyOf(r) != key() && code == "":
			w.WriteHeader(status)
		case keyOf(r) != key():
			refuse(w, status, code)
		default:
			stored(w)
			_, _ = io.WriteString(w, "body")
		}
	})
}

func TestExpiredCredentialsAreRenewedOnce(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
	}{{400, "ExpiredToken"}, {403, "InvalidAccessKeyId"}, {401, ""}} {
		f := onlyKey(t, func() string { return "KEY2" }, c.status, c.code)
		keys := &rotating{}
		s := open(t, f.URL, s3.Options{Credentials: keys})
		if _, err := s.Get(bg, "a", remote.GetOptions{}); err != nil {
			t.Errorf("%d %s: Get: %v", c.status, c.code, err)
		}
		if n := len(f.requests()); n != 2 || keys.calls.Load() != 2 {
			t.Errorf("%d requests with %d keys, want 2 and 2", n, keys.calls.Load())
		}

		never := onlyKey(t, func() string { return "KEY0" }, c.status, c.code)
		_, err := open(t, never.URL, s3.Options{Credentials: &rotating{}}).Get(bg, "a", remote.GetOptions{})
		wantError(t, err, remote.ErrUnauthorized)
		if n := len(never.requests()); n != 2 {
			t.Errorf("%d requests, want 2", n)
		}
	}
}

func TestCreateWithExpiredCredentialsLeavesFreshOnesToTheNextTry(t *testing.T) {
	f := onlyKey(t, func() string { return "KEY2" }, 400, "ExpiredToken")
	s := open(t, f.URL, s3.Options{Credentials: &rotating{}})
	_, err := s.Create(bg, "a", []byte("x"))
	wantError(t, err, remote.ErrUnauthorized)
	if n := len(f.requests()); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
	if _, err := s.Create(bg, "a", []byte("x")); err != nil {
		t.Fatal(err)
	}
}

func TestRotatedCredentialsFileIsReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "credentials")
	write := func(key string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("[default]\naws_access_key_id="+key+"\naws_secret_access_key=S\naws_session_token=T\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		t.Setenv(v, "")
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	var key atomic.Value
	key.Store("FIRST")
	write("FIRST")
	f := onlyKey(t, func() string { return key.Load().(string) }, 400, "ExpiredToken")
	s, err := s3.Open(bg, "s3://bucket/prefix?endpoint="+f.URL, s3.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, k := range []string{"FIRST", "SECOND", "THIRD"} {
		write(k)
		key.Store(k)
		if _, err := s.Get(bg, "a", remote.GetOptions{}); err != nil {
			t.Fatalf("%s: %v", k, err)
		}
	}
	if n := len(f.requests()); n != 5 {
		t.Errorf("%d requests, want 1 and twice 2", n)
	}
}

func TestMissingCredentialsAreNamed(t *testing.T) {
	for _, v := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		t.Setenv(v, "")
	}
	s, err := s3.Open(bg, "s3://bucket/prefix?endpoint=http://127.0.0.1:1", s3.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Create(bg, "a", nil)
	wantError(t, err, remote.ErrUnauthorized)
	wantWords(t, err, "AWS_ACCESS_KEY_ID")
}

// private starts a store behind a certificate that only caFile vouches for.
func private(t *testing.T) (f *fake, caFile string) {
	t.Helper()
	f = &fake{}
	f.Server = httptest.NewUnstartedServer(f.handler(func(w http.ResponseWriter, _ *http.Request, _ int, _ []byte) { stored(w) }))
	f.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that fail are wanted
	f.StartTLS()
	t.Cleanup(f.Close)
	caFile = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return f, caFile
}

func TestPrivateCAOfTheEnvironmentIsTrusted(t *testing.T) {
	f, ca := private(t)
	_, err := open(t, f.URL, s3.Options{}).Create(bg, "a", nil)
	wantError(t, err, remote.ErrUnfit)
	wantWords(t, err, "AWS_CA_BUNDLE")

	t.Setenv("AWS_CA_BUNDLE", ca)
	if _, err := open(t, f.URL, s3.Options{}).Create(bg, "a", nil); err != nil {
		t.Fatal(err)
	}
	if got := f.requests()[0].Proto; got != "HTTP/1.1" {
		t.Errorf("spoke %s", got)
	}
}

func TestOwnHTTPClientAndPrivateCAGoTogether(t *testing.T) {
	f, ca := private(t)
	t.Setenv("AWS_CA_BUNDLE", ca) // the SDK alone would not start: PITFALLS 62
	if _, err := open(t, f.URL, s3.Options{HTTPClient: f.Client()}).Create(bg, "a", nil); err != nil {
		t.Fatal(err)
	}
	f.Client().CloseIdleConnections()
}

func TestUnreadableCAFileIsNamed(t *testing.T) {
	t.Setenv("AWS_CA_BUNDLE", filepath.Join(t.TempDir(), "absent.pem"))
	if _, err := s3.Open(bg, "s3://bucket?region=x", s3.Options{}); err == nil || !strings.Contains(err.Error(), "absent.pem") {
		t.Errorf("got %v", err)
	}
}

// TestProxyOfTheEnvironmentIsUsed needs a process of its own, since net/http reads the proxy's address once.
func TestProxyOfTheEnvironmentIsUsed(t *testing.T) {
	if endpoint := os.Getenv("TONBO_TEST_S3_BEHIND_PROXY"); endpoint != "" {
		if _, err := open(t, endpoint, s3.Options{}).Create(bg, "a", nil); err != nil {
			t.Fatal(err)
		}
		return
	}
	f, ca := private(t)
	var asked atomic.Value
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.Method + " " + r.Host)
		up, err := net.Dial("tcp", f.Listener.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		defer up.Close()
		down, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer down.Close()
		_, _ = io.WriteString(down, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(up, down); up.(*net.TCPConn).CloseWrite() }()
		_, _ = io.Copy(down, up)
	}))
	defer proxy.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
	// The test certificate is made out to example.com; nothing goes there.
	cmd.Env = append(os.Environ(), "TONBO_TEST_S3_BEHIND_PROXY=https://example.com", "HTTPS_PROXY="+proxy.URL, "NO_PROXY=", "https_proxy=", "no_proxy=", "AWS_CA_BUNDLE="+ca)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if asked.Load() != "CONNECT example.com:443" || len(f.requests()) != 1 {
		t.Errorf("proxy was asked %v, store got %d requests", asked.Load(), len(f.requests()))
	}
}
