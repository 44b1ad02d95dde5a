package s3_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/s3"
)

// sent is one request as it was on the wire.
type sent struct {
	line   string
	header textproto.MIMEHeader
	body   []byte // by Content-Length
}

// wire takes one request off the wire after another, without a server's interpretation, and answers each with the same bytes.
func wire(t *testing.T, answer string) (endpoint string, next func() sent) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	requests := make(chan sent, 10)
	var wg sync.WaitGroup
	serve := func(c net.Conn) {
		defer c.Close()
		r := textproto.NewReader(bufio.NewReader(c))
		for {
			var s sent
			var err error
			if s.line, err = r.ReadLine(); err != nil {
				return
			}
			s.header, _ = r.ReadMIMEHeader()
			var n int
			_, _ = fmt.Sscan(s.header.Get("Content-Length"), &n)
			s.body = make([]byte, n)
			_, _ = io.ReadFull(r.R, s.body)
			requests <- s
			fmt.Fprint(c, answer)
		}
	}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() }) // after the store's connections are closed
	return "http://" + l.Addr().String(), func() sent { return <-requests }
}

// TestRequestsSendOnlyWhatEveryStoreAndProxyTakes guards PITFALLS 58 and 59.
func TestRequestsSendOnlyWhatEveryStoreAndProxyTakes(t *testing.T) {
	endpoint, next := wire(t, "HTTP/1.1 200 OK\r\nETag: \"e1\"\r\nContent-Length: 0\r\n\r\n")
	s := open(t, endpoint, s3.Options{Tries: 1})
	const minimal = "host;x-amz-content-sha256;x-amz-date"
	empty, large := []byte{}, make([]byte, 17<<20)
	for _, c := range []struct {
		name     string
		call     func() error
		line     string
		body     []byte // nil: none, and no length
		signed   string
		unsigned []string
	}{
		{"create", func() error { _, err := s.Create(bg, "a:b/c%41", []byte("body")); return err },
			"PUT /bucket/prefix/a%3Ab/c%2541 HTTP/1.1", []byte("body"), "host;if-none-match;x-amz-content-sha256;x-amz-date", []string{"Content-Length"}},
		{"create empty", func() error { _, err := s.Create(bg, "a", nil); return err },
			"PUT /bucket/prefix/a HTTP/1.1", empty, "host;if-none-match;x-amz-content-sha256;x-amz-date", []string{"Content-Length"}},
		{"create large", func() error { _, err := s.Create(bg, "a", large); return err },
			"PUT /bucket/prefix/a HTTP/1.1", large, "host;if-none-match;x-amz-content-sha256;x-amz-date", []string{"Content-Length"}},
		{"swap", func() error { _, err := s.Swap(bg, "a", "e0", []byte("body")); return err },
			"PUT /bucket/prefix/a HTTP/1.1", []byte("body"), "host;if-match;x-amz-content-sha256;x-amz-date", []string{"Content-Length"}},
		{"get", func() error { _, err := s.Get(bg, "a", remote.GetOptions{}); return err },
			"GET /bucket/prefix/a HTTP/1.1", nil, minimal, nil},
		{"get range", func() error {
			_, err := s.Get(bg, "a", remote.GetOptions{Offset: 0, Length: 5, IfMatch: "e1"})
			return err
		},
			"GET /bucket/prefix/a HTTP/1.1", nil, "host;if-match;x-amz-content-sha256;x-amz-date", []string{"Range"}},
		{"delete", func() error { return s.Delete(bg, "a") },
			"DELETE /bucket/prefix/a HTTP/1.1", nil, minimal, nil},
		{"list", func() error {
			_, _, err := s.List(bg, "a/", remote.ListOptions{After: "a/:", Max: 1})
			if err != nil && strings.Contains(err.Error(), "not a listing") {
				return nil
			}
			return err
		}, "GET /bucket?encoding-type=url&list-type=2&max-keys=2&prefix=prefix%2Fa%2F&start-after=prefix%2Fa%2F%3A HTTP/1.1", nil, minimal, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.call(); err != nil {
				t.Fatal(err)
			}
			got := next()
			if got.line != c.line {
				t.Errorf("got %s, want %s", got.line, c.line)
			}
			if !bytes.Equal(got.body, c.body) {
				t.Errorf("body of %d bytes, want %d", len(got.body), len(c.body))
			}
			sum := sha256.Sum256(c.body)
			if h := got.header.Get("X-Amz-Content-Sha256"); h != hex.EncodeToString(sum[:]) {
				t.Errorf("X-Amz-Content-Sha256 %s is not the body's", h)
			}
			if signed := signedHeaders(got.header); signed != c.signed {
				t.Errorf("signed %s, want %s", signed, c.signed)
			}
			want := append([]string{"Host", "Authorization", "X-Amz-Date", "X-Amz-Content-Sha256", "User-Agent", "Accept-Encoding"}, c.unsigned...)
			for _, name := range strings.Split(c.signed, ";") {
				want = append(want, textproto.CanonicalMIMEHeaderKey(name))
			}
			for name := range got.header {
				if !slices.Contains(want, name) {
					t.Errorf("header %s: %q is sent", name, got.header[name])
				}
			}
			for _, name := range want {
				if len(got.header[name]) != 1 {
					t.Errorf("header %s: got %q, want one", name, got.header[name])
				}
			}
		})
	}
}

func signedHeaders(h textproto.MIMEHeader) string {
	_, rest, _ := strings.Cut(h.Get("Authorization"), "SignedHeaders=")
	signed, _, _ := strings.Cut(rest, ",")
	return signed
}

func TestSessionTokenIsSentAndSigned(t *testing.T) {
	endpoint, next := wire(t, "HTTP/1.1 200 OK\r\nETag: \"e1\"\r\nContent-Length: 0\r\n\r\n")
	s := open(t, endpoint, s3.Options{Credentials: credentials.NewStaticCredentialsProvider("KEY", "SECRET", "SESSION")})
	if _, err := s.Create(bg, "a", nil); err != nil {
		t.Fatal(err)
	}
	got := next()
	if got.header.Get("X-Amz-Security-Token") != "SESSION" || !strings.Contains(signedHeaders(got.header), "x-amz-security-token") {
		t.Errorf("got %v", got.header)
	}
}

func TestChecksumIsAHeaderWhenAskedFor(t *testing.T) {
	for checksum, want := range map[s3.Checksum]string{ // of "123456789": each one's published check value
		s3.ChecksumCRC32: "y/Q5Jg==", s3.ChecksumCRC32C: "4waSgw==", s3.ChecksumCRC64NVME: "rosUhgp5mIg=",
		s3.ChecksumSHA256: "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=",
	} {
		t.Run(string(checksum), func(t *testing.T) {
			endpoint, next := wire(t, "HTTP/1.1 200 OK\r\nETag: \"e1\"\r\nContent-Length: 0\r\n\r\n")
			s := open(t, endpoint, s3.Options{Checksum: checksum})
			if _, err := s.Create(bg, "a", []byte("123456789")); err != nil {
				t.Fatal(err)
			}
			got := next().header
			if v := got.Get("X-Amz-Checksum-" + string(checksum)); v != want {
				t.Errorf("got %q, want %q", v, want)
			}
			if got.Get("Transfer-Encoding")+got.Get("Content-Encoding")+got.Get("X-Amz-Trailer") != "" || got.Get("Content-Length") != "9" {
				t.Errorf("not a plain body: %v", got)
			}
		})
	}
}

func TestDamagedBodyIsReadAgainWhenChecksumsAreOn(t *testing.T) {
	f := serve(t, func(w http.ResponseWriter, r *http.Request, n int, _ []byte) {
		if r.Header.Get("X-Amz-Checksum-Mode") != "ENABLED" {
			t.Error("no checksum asked for")
		}
		stored(w)
		w.Header().Set("X-Amz-Checksum-Crc32", "y/Q5Jg==")
		_, _ = w.Write([]byte(map[bool]string{true: "123456780", false: "123456789"}[n == 1]))
	})
	o, err := open(t, f.URL, s3.Options{Checksum: s3.ChecksumCRC32}).Get(bg, "a", remote.GetOptions{})
	if err != nil || string(o.Body) != "123456789" || len(f.requests()) != 2 {
		t.Errorf("got %q, %v after %d requests", o.Body, err, len(f.requests()))
	}
}

// stub answers each request with success and keeps its URL and Host.
type stub struct{ url string }

func (s *stub) Do(r *http.Request) (*http.Response, error) {
	s.url = r.URL.String()
	return &http.Response{StatusCode: 200, Header: http.Header{"Etag": {`"e"`}}, Body: http.NoBody, Request: r}, nil
}

func TestEndpointRegionAndPathStyle(t *testing.T) {
	creds := credentials.NewStaticCredentialsProvider("KEY", "SECRET", "")
	for _, c := range []struct {
		name, url string
		env       map[string]string
		o         s3.Options
		want      string
	}{
		{"AWS by region", "s3://bkt/p?region=eu-west-3", nil, s3.Options{}, "https://bkt.s3.eu-west-3.amazonaws.com/p/k"},
		{"AWS by environment", "s3://bkt", map[string]string{"AWS_REGION": "cn-north-1"}, s3.Options{}, "https://bkt.s3.cn-north-1.amazonaws.com.cn/k"},
		{"options first", "s3://bkt/p?region=eu-west-3", map[string]string{"AWS_REGION": "us-east-2"}, s3.Options{Region: "eu-west-1"}, "https://bkt.s3.eu-west-1.amazonaws.com/p/k"},
		{"dotted bucket", "s3://b.k.t/p?region=eu-west-3", nil, s3.Options{}, "https://s3.eu-west-3.amazonaws.com/b.k.t/p/k"},
		{"AWS in path style", "s3://bkt/p?region=eu-west-3&path_style=true", nil, s3.Options{}, "https://s3.eu-west-3.amazonaws.com/bkt/p/k"},
		{"other store", "s3://bkt/p/?endpoint=https://minio.test:9000", nil, s3.Options{}, "https://minio.test:9000/bkt/p/k"},
		{"other store, base path", "s3://bkt/p?endpoint=https://minio.test/s3/", nil, s3.Options{}, "https://minio.test/s3/bkt/p/k"},
		{"other store, host style", "s3://bkt/p?endpoint=https://store.test", nil, s3.Options{PathStyle: aws.Bool(false)}, "https://bkt.store.test/p/k"},
		{"AWS endpoint", "s3://bkt?endpoint=https://s3.us-west-2.amazonaws.com&region=us-west-2", nil, s3.Options{}, "https://bkt.s3.us-west-2.amazonaws.com/k"},
		{"endpoint by environment", "s3://bkt", map[string]string{"AWS_ENDPOINT_URL": "http://e.test:1"}, s3.Options{}, "http://e.test:1/bkt/k"},
		{"endpoint of S3 by environment", "s3://bkt", map[string]string{"AWS_ENDPOINT_URL_S3": "http://s.test:1", "AWS_ENDPOINT_URL": "http://e.test:1"}, s3.Options{}, "http://s.test:1/bkt/k"},
		{"FIPS by environment", "s3://bkt", map[string]string{"AWS_REGION": "us-east-1", "AWS_USE_FIPS_ENDPOINT": "true"}, s3.Options{}, "https://bkt.s3-fips.us-east-1.amazonaws.com/k"},
		{"prefix in need of escaping", "s3://bkt/a%20b/%C3%A4?region=us-east-1", nil, s3.Options{}, "https://bkt.s3.us-east-1.amazonaws.com/a%20b/%C3%A4/k"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			st := &stub{}
			c.o.Credentials, c.o.HTTPClient = creds, st
			s, err := s3.Open(bg, c.url, c.o)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Create(bg, "k", []byte("x")); err != nil {
				t.Fatal(err)
			}
			if st.url != c.want {
				t.Errorf("got %s, want %s", st.url, c.want)
			}
		})
	}
}

func TestBadLocationsAreRefused(t *testing.T) {
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	for _, c := range []struct {
		url, words string
		o          s3.Options
	}{
		{"", "s3://bucket/prefix", s3.Options{}},
		{"http://bucket", "s3://bucket/prefix", s3.Options{}},
		{"s3:///prefix", "s3://bucket/prefix", s3.Options{}},
		{"s3://bucket", "AWS_REGION", s3.Options{}},
		{"s3://bucket?path_style=maybe", "path_style", s3.Options{}},
		{"s3://bucket?regoin=x", `"regoin"`, s3.Options{}},
		{"s3://bucket?checksum=md4", `"md4"`, s3.Options{}},
		{"s3://bucket/a//b?region=x", "empty", s3.Options{}},
		{"s3://bucket/../b?region=x", "dot", s3.Options{}},
		{"s3://bucket?endpoint=localhost:9000", "http://host:port", s3.Options{}},
		{"s3://bucket", "http://host:port", s3.Options{Endpoint: "minio"}},
		{"s3://bkt--use1-az4--x-s3?region=us-east-1", "without order", s3.Options{}},
		{"s3://KEY:hush-hush@bucket", "AWS_ACCESS_KEY_ID", s3.Options{}},
		{"s3://bucket?endpoint=http://u:hush-hush@h", "credentials", s3.Options{}},
	} {
		_, err := s3.Open(bg, c.url, c.o)
		if err == nil || !strings.Contains(err.Error(), c.words) || strings.Contains(err.Error(), "hush-hush") {
			t.Errorf("%s: got %v, want %q in it", c.url, err, c.words)
		}
	}
}
