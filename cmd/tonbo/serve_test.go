package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// served is a tonbo serve --json under way.
type served struct {
	URL      string `json:"url"`
	OwnerKey string `json:"owner_key"`
	stop     func() (code int, stderr string)
}

// serve runs tonbo serve until it listens.
func (s *shell) serve(args ...string) served {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	in, out := io.Pipe()
	var errs bytes.Buffer
	done := make(chan int, 1)
	go func() {
		code := run(ctx, s.args(append([]string{"serve", "--json", "--listen", "127.0.0.1:0"}, args...)...), strings.NewReader(""), out, &errs, func(any) bool { return false })
		out.Close()
		done <- code
	}()
	var v served
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil {
		cancel()
		s.t.Fatalf("tonbo serve: exit %d, %s", <-done, errs.String())
	}
	if err := json.Unmarshal([]byte(line), &v); err != nil {
		s.t.Error(err, line)
	}
	stopped := false
	v.stop = func() (int, string) {
		if stopped {
			return 0, ""
		}
		stopped = true
		cancel()
		return <-done, errs.String()
	}
	s.t.Cleanup(func() { v.stop() })
	return v
}

func status(t *testing.T, url, key string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func TestServeMakesTheOwnerKeyOnceAndShowsItOnce(t *testing.T) {
	s := newDirShell(t)
	bare := s.serve()
	if bare.OwnerKey != "" || status(t, bare.URL+"/healthz", "") != 200 || status(t, bare.URL+"/v1/databases", "") != 401 {
		t.Errorf("without --init: %+v", bare)
	}
	first := s.serve("--init")
	if !strings.HasPrefix(first.OwnerKey, "tbo_") || status(t, first.URL+"/v1/databases", first.OwnerKey) != 200 {
		t.Errorf("%+v", first)
	}
	second := s.serve("--init")
	if second.OwnerKey != "" || status(t, second.URL+"/v1/databases", first.OwnerKey) != 200 || status(t, bare.URL+"/v1/databases", first.OwnerKey) != 200 {
		t.Errorf("%+v", second)
	}
	for _, v := range []served{bare, first, second} {
		code, stderr := v.stop()
		if code != exitOK || strings.Contains(stderr, "tbo_") {
			t.Errorf("exit %d, %s", code, stderr)
		}
	}
}

func TestServeTakesTheOwnerKeyFromAFile(t *testing.T) {
	s := newDirShell(t)
	file := filepath.Join(t.TempDir(), "owner.key")
	first := s.serve("--init", "--owner-key", file)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	secret := strings.TrimSpace(string(b))
	second := s.serve("--owner-key", file)
	for _, v := range []served{first, second} {
		if v.OwnerKey != "" || status(t, v.URL+"/v1/api-keys", secret) != 200 {
			t.Errorf("%+v", v)
		}
	}
}

func TestServeRefusesWhatCannotBeOrIsUnsafe(t *testing.T) {
	s := newDirShell(t)
	for _, c := range []struct {
		code int
		args []string
	}{
		{exitUsage, []string{"--listen", "0.0.0.0:0"}},
		{exitUsage, []string{"--tls-cert", "x"}},
		{exitUsage, []string{"--socket-mode", "rw"}},
		{exitUsage, []string{"--key-cache", "1m"}},
		{exitUsage, []string{"--url", "https://example.com"}},
		{exitFailed, []string{"--tls-cert", "/nothing", "--tls-key", "/nothing"}},
		{exitFailed, []string{"--owner-key", "/nothing/owner.key"}},
		{exitFailed, []string{"--listen", "unix://relative"}},
		{exitUsage, []string{"here"}},
	} {
		if r := s.run(append([]string{"serve", "--listen", "127.0.0.1:0"}, c.args...)...); r.code != c.code || r.out != "" || r.err == "" {
			t.Errorf("%v: %+v", c.args, r)
		}
	}
}
