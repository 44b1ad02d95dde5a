// Package s3test gives tests a place in a real S3 store. Which one says the environment:
//
//	TONBO_TEST_S3=versitygw                  a server of the test's own (package s3server), started and stopped with it
//	TONBO_TEST_S3=http://host:port/bucket    any store; credentials and region from AWS_ACCESS_KEY_ID, AWS_REGION, ...
//	TONBO_TEST_S3=s3://bucket?endpoint=...   the same, with all that remote/s3 takes
//
// Without it tests that ask for a store are skipped.
package s3test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/tonbo-go/tonbo/internal/s3server"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/s3"
)

// Place is an empty prefix of a bucket, for one test.
type Place struct {
	URL string   // s3://bucket/prefix?endpoint=...
	Env []string // what a child process needs beside the URL; nil when the environment has it already

	options s3.Options
}

// Store returns a store below a fresh prefix. What the test leaves there is removed.
func Store(t testing.TB) remote.Store {
	t.Helper()
	return At(t).Open(t)
}

// At returns a fresh prefix. What the test leaves there is removed.
func At(t testing.TB) Place {
	t.Helper()
	var p Place
	base := os.Getenv("TONBO_TEST_S3")
	switch {
	case base == "":
		t.Skip("needs an S3 store: set TONBO_TEST_S3 to versitygw, or to http://host:port/bucket")
	case base == "versitygw":
		srv := shared(t)
		base, p.Env = srv.URL(), srv.Env()
		p.options.Credentials = credentials.NewStaticCredentialsProvider(srv.AccessKey, srv.SecretKey, "")
	}
	u, err := locate(base)
	if err != nil {
		t.Fatalf("TONBO_TEST_S3: %v", err)
	}
	u.Path = strings.TrimSuffix(u.Path, "/") + "/test-" + rand.Text()
	p.URL = u.String()
	t.Cleanup(func() { p.empty(t) })
	return p
}

// Open opens the place. The connections are closed with the test.
func (p Place) Open(t testing.TB) *s3.Store {
	t.Helper()
	return p.OpenWith(t, s3.Options{})
}

// OpenWith is Open with options; credentials are the place's unless o has some.
func (p Place) OpenWith(t testing.TB, o s3.Options) *s3.Store {
	t.Helper()
	if o.Credentials == nil {
		o.Credentials = p.options.Credentials
	}
	s, err := s3.Open(t.Context(), p.URL, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Credentials returns the provider to use, or nil when the environment has it.
func (p Place) Credentials() aws.CredentialsProvider { return p.options.Credentials }

// locate turns http://host:port/bucket/prefix into the URL that remote/s3 takes.
func locate(base string) (*url.URL, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme == "s3" {
		return u, err
	}
	bucket, prefix, _ := strings.Cut(strings.Trim(u.Path, "/"), "/")
	if bucket == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q: want versitygw, http://host:port/bucket or s3://bucket?endpoint=...", base)
	}
	q := u.Query()
	q.Set("endpoint", u.Scheme+"://"+u.Host)
	return &url.URL{Scheme: "s3", Host: bucket, Path: "/" + prefix, RawQuery: q.Encode()}, nil
}

// empty removes what is left in the place.
func (p Place) empty(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := s3.Open(ctx, p.URL, p.options)
	if err != nil {
		t.Errorf("clean up: %v", err)
		return
	}
	defer s.Close()
	for {
		page, more, err := s.List(ctx, "", remote.ListOptions{})
		for i := 0; err == nil && i < len(page); i++ {
			err = s.Delete(ctx, page[i].Key)
		}
		if err != nil {
			t.Errorf("clean up %s: %v", s, err)
			return
		}
		if !more {
			return
		}
	}
}

var running struct {
	mu    sync.Mutex
	users int
	srv   *s3server.Server
}

// shared returns the process's server, which runs as long as a test uses it.
func shared(t testing.TB) *s3server.Server {
	t.Helper()
	running.mu.Lock()
	defer running.mu.Unlock()
	if running.users == 0 {
		srv, err := s3server.Run(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		running.srv = srv
	}
	running.users++
	t.Cleanup(func() {
		running.mu.Lock()
		defer running.mu.Unlock()
		if running.users--; running.users == 0 {
			running.srv.Stop()
		}
	})
	return running.srv
}
