package objects_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tonbo-go/tonbo/internal/objects"
	"github.com/tonbo-go/tonbo/internal/objects/objectstest"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/dir"
	"github.com/tonbo-go/tonbo/remote/mem"
)

// breaking is a store whose streams break after so many bytes, and which may overwrite the object then.
type breaking struct {
	*mem.Store
	after     int64
	overwrite func()
	streams   int
}

func (s *breaking) Stream(ctx context.Context, key string, o remote.GetOptions) (remote.Info, io.ReadCloser, error) {
	info, r, err := s.Store.Stream(ctx, key, o)
	if err != nil {
		return info, nil, err
	}
	s.streams++
	return info, struct {
		io.Reader
		io.Closer
	}{io.MultiReader(io.LimitReader(r, s.after), broken(s.overwrite)), r}, nil
}

type broken func()

func (b broken) Read([]byte) (int, error) {
	if b != nil {
		b()
	}
	return 0, errors.New("connection reset")
}

// TestStreamThatBreaksIsContinued: the client gets the whole of what it asked for, or, if the object is another one by then, less than was announced. Never a mixture.
func TestStreamThatBreaksIsContinued(t *testing.T) {
	want := make([]byte, 5<<20)
	rand.NewChaCha8([32]byte{1}).Read(want)
	const key = "db/run/seg/x"
	for _, c := range []struct {
		after     int64
		overwrite bool
		rng       string
		from      int
	}{
		{0, false, "", 0}, {1, false, "bytes=0-", 0}, {3 << 20, false, "bytes=7-5242879", 7}, {1 << 30, false, "bytes=100-", 100},
		{1 << 20, true, "bytes=0-5242879", 0}, {1 << 20, true, "", 0},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			s := &breaking{Store: mem.New(t.Name()), after: c.after}
			etag, err := s.Create(t.Context(), key, want)
			if err != nil {
				t.Fatal(err)
			}
			if c.overwrite {
				s.overwrite = func() {
					if _, err := s.Swap(context.Background(), key, etag, make([]byte, len(want))); err != nil {
						t.Error(err)
					}
				}
			}
			got, err := fetched(t, s, key, c.rng)
			switch {
			case c.overwrite && (err == nil || !bytes.HasPrefix(want[c.from:], got)):
				t.Errorf("%d bytes, of one object: %v; %v", len(got), bytes.HasPrefix(want[c.from:], got), err)
			case !c.overwrite && (err != nil || !bytes.Equal(got, want[c.from:])):
				t.Errorf("%d bytes of %d: %v", len(got), len(want)-c.from, err)
			}
			if s.streams == 0 {
				t.Error("nothing was streamed")
			}
		})
	}
}

// TestFileGoesThroughAsItIs: a directory's objects, of which net/http takes the files.
func TestFileGoesThroughAsItIs(t *testing.T) {
	s, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 3<<20)
	rand.NewChaCha8([32]byte{2}).Read(want)
	const key = "db/run/seg/x"
	if _, err := s.Create(t.Context(), key, want); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rng      string
		from, to int
	}{{"", 0, len(want)}, {"bytes=1-", 1, len(want)}, {"bytes=1000000-1999999", 1000000, 2000000}, {"bytes=-5", len(want) - 5, len(want)}} {
		if got, err := fetched(t, s, key, c.rng); err != nil || !bytes.Equal(got, want[c.from:c.to]) {
			t.Errorf("%q: %d bytes: %v", c.rng, len(got), err)
		}
	}
}

// keeping is a client that went away, whose connection still has what it was to get.
type keeping struct {
	http.ResponseWriter
	kept []byte
}

func (w *keeping) Write(b []byte) (int, error) {
	w.kept = b
	return 0, errors.New("stream closed")
}

// TestBufferOfAClientThatWentAwayIsNobodyElses: net/http's HTTP/2 may be about to write it.
func TestBufferOfAClientThatWentAwayIsNobodyElses(t *testing.T) {
	s := &breaking{Store: mem.New(t.Name()), after: 1 << 30}
	h := objects.New(s, objects.Options{})
	get := func(w http.ResponseWriter, content byte) {
		t.Helper()
		key := fmt.Sprint("db/run/seg/", content)
		if _, err := s.Create(t.Context(), key, bytes.Repeat([]byte{content}, 300<<10)); err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.Header.Set("Range", fmt.Sprintf("bytes=0-%d", 300<<10-1))
		if err := h.Serve(w, r, &objects.Caller{}, "", key); err != nil {
			t.Fatal(err)
		}
	}
	gone := &keeping{ResponseWriter: httptest.NewRecorder()}
	get(gone, 1)
	for i := range byte(20) {
		get(httptest.NewRecorder(), 2+i)
	}
	if s.streams != 21 || len(gone.kept) == 0 || bytes.ContainsFunc(gone.kept, func(r rune) bool { return r != 1 }) {
		t.Errorf("%d streams; what is kept has become another object's", s.streams)
	}
}

// fetched reads an object through a data plane.
func fetched(t *testing.T, s remote.Store, key, rng string) ([]byte, error) {
	t.Helper()
	srv := objectstest.New(t, s, objects.Options{}, nil)
	r, err := http.NewRequestWithContext(t.Context(), "GET", srv.URL+path("", key), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+objectstest.Full)
	if rng != "" {
		r.Header.Set("Range", rng)
	}
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}
