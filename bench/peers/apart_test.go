package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == apartArg { // startApart runs this program
		if err := beApart(os.Args[2:]); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestProxyInAProcessOfItsOwnCounts(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("abc")) }))
	defer s.Close()
	p, err := startApart(s.URL, line{delay: time.Millisecond}, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	get := func() {
		t.Helper()
		r, err := http.Get(p.endpoint())
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(r.Body); err != nil || string(b) != "abc" {
			t.Errorf("got %q, %v", b, err)
		}
		r.Body.Close()
	}
	get()
	p.reset()
	if tr := p.traffic(); tr.requests != 0 {
		t.Errorf("after reset: %+v", tr)
	}
	get()
	get()
	if tr := p.traffic(); tr.requests != 2 || tr.kinds["GET"] != 2 || tr.bytesDown != 6 || tr.serial != 2 {
		t.Errorf("got %+v", tr)
	}
}
