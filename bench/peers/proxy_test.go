package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// behind starts a server and a proxy in front of it.
func behind(t *testing.T, l line, h http.HandlerFunc) (*proxy, *http.Client) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	p, err := startProxy(s.URL, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	c := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
	t.Cleanup(c.CloseIdleConnections)
	return p, c
}

func TestProxyPassesOnAndCountsWhatGoesThrough(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789"), 50_000)
	p, c := behind(t, line{rate: 1e9}, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		switch r.URL.Path {
		case "/chunked":
			for range 3 {
				fmt.Fprint(w, "abc")
				w.(http.Flusher).Flush()
			}
		case "/large":
			w.Write(large)
		case "/none":
			w.WriteHeader(http.StatusNoContent)
		default:
			fmt.Fprintf(w, "%d", len(body))
		}
	})
	for _, q := range []struct{ method, path, body, want string }{
		{"GET", "/large", "", string(large)}, {"GET", "/chunked", "", "abcabcabc"}, {"PUT", "/up", string(large), "500000"}, {"GET", "/?list-type=2&prefix=a", "", "0"},
		{"HEAD", "/large", "", ""}, {"DELETE", "/none", "", ""}, {"GET", "/again", "", "0"},
	} {
		req, err := http.NewRequest(q.method, p.endpoint()+q.path, strings.NewReader(q.body))
		if err != nil {
			t.Fatal(err)
		}
		if q.body != "" {
			req.Header.Set("Expect", "100-continue")
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatalf("%s %s: %v", q.method, q.path, err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(got) != q.want {
			t.Fatalf("%s %s: %d bytes, %v; want %d", q.method, q.path, len(got), err, len(q.want))
		}
	}
	tr := sum(p.passed())
	if tr.kinds["GET"] != 3 || tr.kinds["LIST"] != 1 || tr.kinds["PUT"] != 1 || tr.kinds["HEAD"] != 1 || tr.kinds["DELETE"] != 1 {
		t.Errorf("kinds: %v", tr.kinds)
	}
	if want := int64(len(large)); tr.bytesUp != want || tr.bytesDown != want+9+6+1+1 {
		t.Errorf("%d bytes up, %d down; want %d and %d", tr.bytesUp, tr.bytesDown, want, want+17)
	}
	if tr.serial != 7 {
		t.Errorf("serial %d, want 7: they came one after the other", tr.serial)
	}
}

func TestChainCountsRequestsThatWaitForEachOther(t *testing.T) {
	at := func(begin, end int) request {
		t0 := time.Unix(0, 0)
		return request{Begin: t0.Add(time.Duration(begin)), End: t0.Add(time.Duration(end))}
	}
	for _, c := range []struct {
		log  []request
		want int
	}{
		{nil, 0},
		{[]request{at(1, 5), at(1, 6), at(2, 7)}, 1},
		{[]request{at(1, 5), at(6, 9), at(10, 12)}, 3},
		{[]request{at(1, 3), at(4, 6), at(1, 8), at(9, 10)}, 3}, // a long one beside two short ones
	} {
		if got := chain(c.log); got != c.want {
			t.Errorf("%v: %d, want %d", c.log, got, c.want)
		}
	}
}

func TestRowsAreTheSameForTheSameSeed(t *testing.T) {
	a, b, c := newWriter(1), newWriter(1), newWriter(2)
	same, other := 0, 0
	for range 50 {
		x, y, z := fmt.Sprint(a.nextStep(900)...), fmt.Sprint(b.nextStep(900)...), fmt.Sprint(c.nextStep(900)...)
		if x == y {
			same++
		}
		if x != z {
			other++
		}
		if len(x) < 600 || len(x) > 2000 {
			t.Errorf("a step of %d bytes", len(x))
		}
	}
	if same != 50 || other != 50 {
		t.Errorf("%d of 50 the same, %d of 50 other", same, other)
	}
}
