package server_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/server"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// TestProbesOfTheStoreAreShared: while the store does not answer, however many ask whether the server is ready, the store is asked once; each waits no longer than it likes, and Close for none of them.
func TestProbesOfTheStoreAreShared(t *testing.T) {
	store := tonbotest.NewStore(mem.New("account"))
	w := newWorldWithoutOwner(t, func(o *server.Options) { o.Options = tonbo.Options{Remote: store, Dir: o.Dir, Logger: o.Logger} })
	store.ResetCalls()
	gate := store.Block(tonbotest.Match{Op: tonbotest.List})
	ask := func(ctx context.Context) (int, error) {
		r, err := http.NewRequestWithContext(ctx, "GET", w.url+"/readyz", nil)
		if err != nil {
			t.Error(err)
		}
		r.Close = true
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	const n = 20
	statuses := make(chan int, n)
	for range n {
		go func() {
			status, err := ask(t.Context())
			if err != nil {
				t.Error(err)
			}
			statuses <- status
		}()
	}
	if err := gate.Wait(t.Context(), 1); err != nil { // the probe is under way
		t.Fatal(err)
	}
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if status, err := ask(impatient); err == nil {
		t.Errorf("one that gave up got %d", status)
	}
	gate.Open()
	for range n {
		if s := <-statuses; s != http.StatusOK {
			t.Errorf("got %d", s)
		}
	}
	if calls := store.Calls(); len(calls) >= n/2 { // on a busy machine, requests may come seconds later
		t.Errorf("the store was asked %d times", len(calls))
	}
}

// TestCloseEndsAProbe: of a store that never answers.
func TestCloseEndsAProbe(t *testing.T) {
	store := tonbotest.NewStore(mem.New("account"))
	w := newWorldWithoutOwner(t, func(o *server.Options) { o.Options = tonbo.Options{Remote: store, Dir: o.Dir, Logger: o.Logger} })
	gate := store.Block(tonbotest.Match{Op: tonbotest.List})
	answered := make(chan int, 1)
	go func() { answered <- w.do("GET", "/readyz", "", "").Status }()
	if err := gate.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if err := w.s.Close(); err != nil {
		t.Error(err)
	}
	if s := <-answered; s != http.StatusServiceUnavailable {
		t.Errorf("got %d", s)
	}
}
