package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/tonbo-go/tonbo/internal/s3test"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/remotetest"
	"github.com/tonbo-go/tonbo/remote/s3"
)

func TestConformance(t *testing.T) {
	place := s3test.At(t)
	remotetest.Run(t, func(t *testing.T) remote.Store { return place.Open(t) })
}

func TestChecksumsAreTakenByARealStore(t *testing.T) {
	place := s3test.At(t)
	for _, c := range []s3.Checksum{s3.ChecksumCRC32, s3.ChecksumCRC32C, s3.ChecksumCRC64NVME, s3.ChecksumSHA256} {
		s := place.OpenWith(t, s3.Options{Checksum: c})
		for _, n := range []int{0, 1, 70_000} {
			key, body := fmt.Sprintf("%s/%d", c, n), random(n)
			if _, err := s.Create(bg, key, body); err != nil {
				t.Fatal(err)
			}
			o, err := s.Get(bg, key, remote.GetOptions{})
			if err != nil || !bytes.Equal(o.Body, body) {
				t.Fatalf("%s: got %d bytes, %v", key, len(o.Body), err)
			}
		}
	}
}

func TestObjectOf32MiB(t *testing.T) {
	s := s3test.Store(t)
	body := random(32 << 20)
	if _, err := s.Create(bg, "large", body); err != nil {
		t.Fatal(err)
	}
	o, err := s.Get(bg, "large", remote.GetOptions{})
	if err != nil || !bytes.Equal(o.Body, body) {
		t.Fatalf("got %d bytes, %v", len(o.Body), err)
	}
}

func TestRealStoreRefusesWrongCredentials(t *testing.T) {
	place := s3test.At(t)
	s := place.OpenWith(t, s3.Options{Credentials: credentials.NewStaticCredentialsProvider("nobody", "wrong", "")})
	_, err := s.Create(bg, "a", nil)
	if !errors.Is(err, remote.ErrUnauthorized) {
		t.Errorf("unknown key: got %v", err)
	}
	_, err = s.Get(bg, "a", remote.GetOptions{})
	if !errors.Is(err, remote.ErrUnauthorized) {
		t.Errorf("unknown key: got %v", err)
	}
}

// TestUploadThatIsCutIsNeverPublished cuts the TCP connection after some of the request, at every sixteenth of the body.
func TestUploadThatIsCutIsNeverPublished(t *testing.T) {
	place := s3test.At(t)
	whole := place.Open(t)
	body := random(1 << 20)
	for i := range 17 {
		cut := &cutDialer{limit: i * len(body) / 16}
		tr := &http.Transport{DialContext: cut.dial, DisableKeepAlives: true}
		s := place.OpenWith(t, s3.Options{HTTPClient: &http.Client{Transport: tr}})
		key := fmt.Sprintf("cut/%d", i)
		_, err := s.Create(bg, key, body)
		if !errors.Is(err, remote.ErrUnknown) {
			t.Fatalf("cut at %d: got %v, want %v", cut.limit, err, remote.ErrUnknown)
		}
		cut.wait()
	}
	// A whole one afterwards tells that the server has come to these.
	for i := range 17 {
		_, err := whole.Get(bg, fmt.Sprintf("cut/%d", i), remote.GetOptions{})
		if !errors.Is(err, remote.ErrNotFound) {
			t.Errorf("cut at %d/16: got %v, want %v", i, err, remote.ErrNotFound)
		}
	}
	for i := range 17 {
		if _, err := whole.Create(bg, fmt.Sprintf("cut/%d", i), body); err != nil {
			t.Errorf("cut at %d/16, sent again: %v", i, err)
		}
	}
}

// cutDialer makes connections that are closed once limit bytes have been written.
type cutDialer struct {
	limit int
	conns sync.WaitGroup
}

func (d *cutDialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	d.conns.Add(1)
	return &cutConn{Conn: c, d: d, left: d.limit}, nil
}

func (d *cutDialer) wait() { d.conns.Wait() }

type cutConn struct {
	net.Conn
	d    *cutDialer
	left int
	once sync.Once
}

func (c *cutConn) Write(p []byte) (int, error) {
	if len(p) < c.left {
		c.left -= len(p)
		return c.Conn.Write(p)
	}
	n, _ := c.Conn.Write(p[:c.left])
	c.Close()
	return n, errors.New("cut")
}

func (c *cutConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.d.conns.Done)
	return err
}

func TestCancelledCreatesLeaveAllOrNothing(t *testing.T) {
	s := s3test.Store(t)
	body := random(256 << 10)
	for i := range 30 {
		key := fmt.Sprintf("c/%d", i)
		ctx, cancel := context.WithTimeout(bg, time.Duration(i)*100*time.Microsecond)
		_, err := s.Create(ctx, key, body)
		cancel()
		if err != nil && !errors.Is(err, remote.ErrUnknown) {
			t.Fatalf("got %v", err)
		}
		o, getErr := s.Get(bg, key, remote.GetOptions{})
		switch {
		case errors.Is(getErr, remote.ErrNotFound) && err != nil:
		case getErr != nil || !bytes.Equal(o.Body, body):
			t.Fatalf("create said %v, then get %v with %d bytes", err, getErr, len(o.Body))
		}
	}
}
