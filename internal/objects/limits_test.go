package objects_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tonbo-go/tonbo/internal/objects"
	"github.com/tonbo-go/tonbo/internal/objects/objectstest"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// raw sends bytes to a server and returns what it answers to them.
func raw(t *testing.T, url, request string) (status int, body string, rest error) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return 0, "", err
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, string(b), err
	}
	_, err = r.ReadByte() // io.EOF: the server has closed the connection
	return resp.StatusCode, string(b), err
}

const putHead = "PUT /v1/objects/db/run/seg/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + objectstest.Full + "\r\nIf-None-Match: *\r\n"

func TestBodyThatDoesNotComeIsGivenUp(t *testing.T) {
	store := tonbotest.NewStore(mem.New("account"))
	srv := objectstest.New(t, store, objects.Options{Stall: 30 * time.Millisecond}, nil)
	status, body, rest := raw(t, srv.URL, putHead+"Content-Length: 100\r\n\r\nten bytes.")
	if status != 408 || !strings.Contains(body, "body_too_slow") || rest != io.EOF {
		t.Errorf("got %d %s, then %v", status, body, rest)
	}
	if calls := store.Calls(); len(calls) != 0 {
		t.Errorf("the store was asked: %v", calls)
	}
}

func TestBodyIsBoundedBeforeItIsRead(t *testing.T) {
	store := tonbotest.NewStore(mem.New("account"))
	srv := objectstest.New(t, store, objects.Options{MaxObject: 1000}, nil)
	for _, c := range []struct {
		request string
		status  int
		code    string
	}{
		{putHead + "Content-Length: 1001\r\n\r\n", 413, "object_too_large"},
		{putHead + "Content-Length: 9223372036854775807\r\n\r\n", 413, "object_too_large"},
		{putHead + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 411, "invalid_request"},
		{putHead + "Content-Length: 5\r\nContent-Digest: sha-256=:AAAA:\r\nConnection: close\r\n\r\nhello", 400, "body_damaged"},
	} {
		status, body, rest := raw(t, srv.URL, c.request)
		if status != c.status || !strings.Contains(body, c.code) || rest != io.EOF {
			t.Errorf("%q: got %d %s, then %v", c.request, status, body, rest)
		}
	}
	if calls := store.Calls(); len(calls) != 0 {
		t.Errorf("the store was asked: %v", calls)
	}
}

// TestCutBodyIsNotStored: half an entry under a slot's key would be there for ever.
func TestCutBodyIsNotStored(t *testing.T) {
	store := tonbotest.NewStore(mem.New("account"))
	srv := objectstest.New(t, store, objects.Options{}, nil)
	c, err := net.Dial("tcp", strings.TrimPrefix(srv.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, putHead+"Content-Length: 100\r\n\r\nten bytes.")
	c.(*net.TCPConn).CloseWrite()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode < 400 {
			t.Errorf("answered with %d", resp.StatusCode)
		}
	}
	c.Close()
	srv.Close()
	if calls := store.Calls(); len(calls) != 0 {
		t.Errorf("the store was asked: %v", calls)
	}
}

// TestReaderThatStallsIsCutOff: what it holds in memory is free again, without a byte read.
func TestReaderThatStallsIsCutOff(t *testing.T) {
	store := mem.New("account")
	if _, err := store.Create(t.Context(), "db/run/seg/x", make([]byte, 32<<20)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{}, 1)
	h := objectstest.Handler(objects.New(store, objects.Options{Stall: 50 * time.Millisecond, Speed: 1 << 40}), nil)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		ended <- struct{}{}
	}))
	t.Cleanup(srv.Close)
	c, err := net.Dial("tcp", strings.TrimPrefix(srv.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.(*net.TCPConn).SetReadBuffer(4 << 10)
	fmt.Fprintf(c, "GET /v1/objects/db/run/seg/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", objectstest.Full)
	<-ended // although nobody has read
}

// TestMemoryOfBodiesIsBounded: as many uploads as there is room for, and one key has half of it.
func TestMemoryOfBodiesIsBounded(t *testing.T) {
	store := tonbotest.NewStore(mem.New("account"))
	gate := store.Block(tonbotest.Match{Op: tonbotest.Create})
	srv := objectstest.New(t, store, objects.Options{MaxObject: 1 << 20, MaxMemory: 4 << 20, Wait: 20 * time.Millisecond}, objectstest.Keys{"other": {ID: "other"}})
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	put := func(secret string, i int) int {
		r, err := http.NewRequestWithContext(t.Context(), "PUT", fmt.Sprintf("%s/v1/objects/db/run/seg/%s%d", srv.URL, secret, i), strings.NewReader(strings.Repeat("x", 1<<20)))
		if err != nil {
			t.Error(err)
			return 0
		}
		r.Header.Set("Authorization", "Bearer "+secret)
		r.Header.Set("If-None-Match", "*")
		resp, err := client.Do(r)
		if err != nil {
			return 503 // the server closes while the body is on its way
		}
		defer resp.Body.Close()
		if resp.StatusCode == 503 && resp.Header.Get("Retry-After") == "" {
			t.Error("503 without Retry-After")
		}
		return resp.StatusCode
	}
	list := func(secret string, max int) int {
		r, err := http.NewRequestWithContext(t.Context(), "GET", fmt.Sprintf("%s/v1/objects?max=%d&prefix=db/", srv.URL, max), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+secret)
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	var wg sync.WaitGroup
	for _, secret := range []string{objectstest.Full, "other"} {
		for i := range 2 {
			wg.Go(func() {
				if got := put(secret, i); got != 201 {
					t.Errorf("%s: %d", secret, got)
				}
			})
		}
	}
	if err := gate.Wait(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{objectstest.Full, "other"} {
		if got := put(secret, 9); got != 503 {
			t.Errorf("beyond the budget: %d", got)
		}
		for max, want := range map[int]int{1: 200, 1000: 503} { // a client that does not read it keeps the answer in memory, too
			if got := list(secret, max); got != want {
				t.Errorf("a listing of %d keys beyond the budget: %d", max, got)
			}
		}
	}
	gate.Open()
	wg.Wait()
	if got := put("other", 10); got != 201 {
		t.Errorf("with room again: %d", got)
	}
}

func TestRateOfAKeyIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := objects.New(mem.New("account"), objects.Options{Rate: 10})
		handler := objectstest.Handler(h, objectstest.Keys{"a": {ID: "a"}, "b": {ID: "b"}})
		get := func(secret string) int {
			r := httptest.NewRequest("GET", "/v1/objects?prefix=db/", nil)
			r.Header.Set("Authorization", "Bearer "+secret)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if w.Code == 429 && w.Header().Get("Retry-After") != "1" {
				t.Errorf("Retry-After %q", w.Header().Get("Retry-After"))
			}
			return w.Code
		}
		for i := range 10 {
			if got := get("a"); got != 200 {
				t.Fatalf("request %d: %d", i, got)
			}
		}
		if got := get("a"); got != 429 {
			t.Errorf("the eleventh: %d", got)
		}
		if got := get("b"); got != 200 {
			t.Errorf("another key: %d", got)
		}
		time.Sleep(time.Second)
		for i := range 10 {
			if got := get("a"); got != 200 {
				t.Fatalf("a second later, request %d: %d", i, got)
			}
		}
		if got := get("a"); got != 429 {
			t.Errorf("and the eleventh: %d", got)
		}
	})
}

// TestLargeObjectsGoThroughInPieces: no download is in memory whole.
func TestLargeObjectsGoThroughInPieces(t *testing.T) {
	store := tonbotest.NewStore(mem.New("account"))
	var largest int64
	watch := sized{store, &largest}
	if _, err := store.Create(t.Context(), "db/run/seg/x", make([]byte, 9<<20+5)); err != nil {
		t.Fatal(err)
	}
	srv := objectstest.New(t, watch, objects.Options{}, nil)
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	for _, c := range []struct {
		rng  string
		want int64
	}{{"", 9<<20 + 5}, {"bytes=100-", 9<<20 - 95}, {"bytes=-8388609", 8<<20 + 1}, {"bytes=1-3000000", 3000000}} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", srv.URL+"/v1/objects/db/run/seg/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+objectstest.Full)
		if c.rng != "" {
			r.Header.Set("Range", c.rng)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil || n != c.want || resp.ContentLength != c.want {
			t.Errorf("%s: %d of %d bytes, %v", c.rng, n, c.want, err)
		}
	}
	if largest > 2<<20 {
		t.Errorf("%d bytes at once", largest)
	}
}

// sized notes the largest answer of a store.
type sized struct {
	remote.Store
	largest *int64
}

func (s sized) Get(ctx context.Context, key string, o remote.GetOptions) (remote.Object, error) {
	obj, err := s.Store.Get(ctx, key, o)
	*s.largest = max(*s.largest, int64(len(obj.Body)))
	return obj, err
}
