package s3_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/s3"
)

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// cutting serves an object, closes every answer after limit bytes, and answers each refuseEvery-th request with 503.
func cutting(t *testing.T, object []byte, limit, refuseEvery int, check func(n int, r *http.Request)) *fake {
	return serve(t, func(w http.ResponseWriter, r *http.Request, n int, _ []byte) {
		if refuseEvery > 0 && n%refuseEvery == 0 {
			w.WriteHeader(503)
			return
		}
		if check != nil {
			check(n, r)
		}
		w.Header().Set("ETag", `"e1"`)
		conn := &limited{ResponseWriter: w, left: limit}
		http.ServeContent(conn, r, "", time.Now(), bytes.NewReader(object))
		if conn.cut {
			panic(http.ErrAbortHandler)
		}
	})
}

type limited struct {
	http.ResponseWriter
	left int
	cut  bool
}

func (l *limited) Write(p []byte) (int, error) {
	if len(p) <= l.left {
		l.left -= len(p)
		return l.ResponseWriter.Write(p)
	}
	l.cut = true
	n, _ := l.ResponseWriter.Write(p[:l.left])
	l.left = 0
	http.NewResponseController(l.ResponseWriter).Flush()
	return n, errors.New("cut")
}

func TestCutBodyIsContinuedWhereItBroke(t *testing.T) {
	object := random(1 << 20)
	for _, c := range []struct {
		name string
		o    remote.GetOptions
	}{{"whole", remote.GetOptions{}}, {"range", remote.GetOptions{Offset: 1000, Length: 500_000}}, {"tail", remote.GetOptions{Offset: -300_000}},
		{"start of tail", remote.GetOptions{Offset: -300_000, Length: 200_000}}, {"matching", remote.GetOptions{IfMatch: "e1"}}} {
		t.Run(c.name, func(t *testing.T) {
			from, n := c.o.Span(int64(len(object)))
			f := cutting(t, object, 64<<10, 3, func(n int, r *http.Request) {
				if n > 1 && r.Header.Get("If-Match") != `"e1"` {
					t.Errorf("request %d goes on without If-Match", n)
				}
			})
			s, counts := counted(open(t, f.URL, s3.Options{}))
			o, err := s.Get(bg, "a", c.o)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(o.Body, object[from:from+n]) || o.Size != int64(len(object)) || o.ETag != "e1" {
				t.Errorf("got %d bytes of %+v, want %d", len(o.Body), o.Info, n)
			}
			asked := len(f.requests())
			if most := int(n)>>16*3/2 + 8; asked > most {
				t.Errorf("%d requests, want at most %d", asked, most)
			}
			got := counts()
			if got.Get != int64(asked) || got.BytesDown < n || got.BytesDown > n+int64(asked)<<12 {
				t.Errorf("counted %+v for %d requests and %d bytes", got, asked, n)
			}
		})
	}
}

func TestBodyThatMakesNoProgressIsGivenUp(t *testing.T) {
	f := cutting(t, random(1<<20), 10, 0, nil)
	_, err := open(t, f.URL, s3.Options{Tries: 3}).Get(bg, "a", remote.GetOptions{})
	wantError(t, err, remote.ErrUnknown)
	wantWords(t, err, "cut after", "1048576")
	if n := len(f.requests()); n != 3 {
		t.Errorf("%d requests, want 3", n)
	}
}

func TestObjectOverwrittenWhileItIsReadIsNeverMixed(t *testing.T) {
	object, tag := [2][]byte{random(300_000), random(200_000)}, [2]string{`"old"`, `"new"`}
	var now atomic.Int32
	f := serve(t, func(w http.ResponseWriter, r *http.Request, n int, _ []byte) {
		i := now.Swap(1)
		w.Header().Set("ETag", tag[i])
		conn := &limited{ResponseWriter: w, left: 100_000 + n*200_000*int(i)}
		http.ServeContent(conn, r, "", time.Now(), bytes.NewReader(object[i]))
		if conn.cut {
			panic(http.ErrAbortHandler)
		}
	})
	s := open(t, f.URL, s3.Options{})
	o, err := s.Get(bg, "a", remote.GetOptions{})
	if err != nil || o.ETag != "new" || !bytes.Equal(o.Body, object[1]) {
		t.Errorf("got %d bytes of %+v, %v; want the new object", len(o.Body), o.Info, err)
	}
	now.Store(0)
	_, err = s.Get(bg, "a", remote.GetOptions{IfMatch: "old"})
	wantError(t, err, remote.ErrChanged)
}

func TestStoreWithoutRangesServesParts(t *testing.T) {
	object := random(1000)
	f := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int, _ []byte) { stored(w); _, _ = w.Write(object) })
	s := open(t, f.URL, s3.Options{})
	for _, o := range []remote.GetOptions{{}, {Offset: 10}, {Offset: 10, Length: 20}, {Offset: -30}, {Offset: -30, Length: 10}, {Offset: 2000}} {
		from, n := o.Span(1000)
		got, err := s.Get(bg, "a", o)
		if err != nil || !bytes.Equal(got.Body, object[from:from+n]) || got.Size != 1000 {
			t.Errorf("%+v: got %d bytes of %+v, %v", o, len(got.Body), got.Info, err)
		}
	}
}

// TestSuffixLongerThanTheObjectIsReadFromAStoreThatRefusesIt: some servers answer 416 where S3 sends the whole object.
func TestSuffixLongerThanTheObjectIsReadFromAStoreThatRefusesIt(t *testing.T) {
	body := []byte("ten bytes.")
	f := serve(t, func(w http.ResponseWriter, r *http.Request, _ int, _ []byte) {
		stored(w)
		if strings.HasPrefix(r.Header.Get("Range"), "bytes=-") {
			refuse(w, http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	})
	got, err := open(t, f.URL, s3.Options{}).Get(bg, "k", remote.GetOptions{Offset: -11})
	if err != nil || string(got.Body) != string(body) || got.Size != int64(len(body)) {
		t.Errorf("got %q of %d bytes, %v", got.Body, got.Size, err)
	}
	if n := len(f.requests()); n != 3 {
		t.Errorf("%d requests, want the refused one, its size, and its bytes", n)
	}
}

// TestObjectWithoutAnEntityTagIsAskedForAgain: rclone's server answers so while an object is overwritten. A store that never has one is none.
func TestObjectWithoutAnEntityTagIsAskedForAgain(t *testing.T) {
	for _, tt := range []struct {
		without, requests int
		err               error
	}{{1, 2, nil}, {3, 4, nil}, {100, 4, remote.ErrUnfit}} {
		f := serve(t, func(w http.ResponseWriter, r *http.Request, n int, _ []byte) {
			if n > tt.without {
				stored(w)
			}
			w.Write([]byte("object"))
		})
		o, err := open(t, f.URL, s3.Options{}).Get(bg, "a", remote.GetOptions{})
		if !errors.Is(err, tt.err) || tt.err == nil && string(o.Body) != "object" {
			t.Errorf("%d answers without a tag: %q, %v", tt.without, o.Body, err)
		}
		if got := len(f.requests()); got != tt.requests {
			t.Errorf("%d answers without a tag: %d requests, want %d", tt.without, got, tt.requests)
		}
	}
}

func TestWrongPartsAreRefused(t *testing.T) {
	for name, contentRange := range map[string]string{"other start": "bytes 11-20/100", "shorter": "bytes 10-18/100", "malformed": "bytes 10-19/*",
		"backwards": "bytes 19-10/100", "missing": ""} {
		f := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int, _ []byte) {
			stored(w)
			w.Header().Set("Content-Range", contentRange)
			w.WriteHeader(206)
			_, _ = w.Write(make([]byte, 10))
		})
		_, err := open(t, f.URL, s3.Options{}).Get(bg, "a", remote.GetOptions{Offset: 10, Length: 10})
		if !errors.Is(err, remote.ErrUnfit) {
			t.Errorf("%s: got %v, want %v", name, err, remote.ErrUnfit)
		}
	}
}

func TestLostAnswerIsUnknownAndNotSentAgain(t *testing.T) {
	var applied atomic.Int32
	f := serve(t, func(w http.ResponseWriter, r *http.Request, _ int, _ []byte) {
		switch {
		case r.Method != http.MethodPut:
			refuse(w, 404, "NoSuchKey") // warms a connection up: a dead reused one is what net/http would replace
		case applied.Add(1) == 1:
			panic(http.ErrAbortHandler) // stored, then the connection is cut
		default:
			refuse(w, 412, "PreconditionFailed")
		}
	})
	for _, size := range []int{0, 100, 1 << 20} {
		applied.Store(0)
		s, counts := counted(open(t, f.URL, s3.Options{}))
		_, err := s.Get(bg, "a", remote.GetOptions{})
		wantError(t, err, remote.ErrNotFound)
		_, err = s.Create(bg, "a", random(size))
		wantError(t, err, remote.ErrUnknown)
		if n := applied.Load(); n != 1 || counts().Put != 1 {
			t.Fatalf("%d bytes: sent %d times, counted %+v", size, n, counts())
		}
		_, err = s.Create(bg, "a", random(size))
		wantError(t, err, remote.ErrExists)
	}
}

func TestHangingStoreIsNoticed(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request, _ int, _ []byte) { <-r.Context().Done() }
	t.Run("before the answer", func(t *testing.T) {
		f := serve(t, hang)
		s, counts := counted(open(t, f.URL, s3.Options{StallTimeout: 50 * time.Millisecond}))
		_, err := s.Create(bg, "a", []byte("x"))
		wantError(t, err, remote.ErrUnknown)
		wantWords(t, err, "hangs", "50ms")
		if counts().Put != 1 {
			t.Errorf("counted %+v", counts())
		}
	})
	t.Run("in the answer", func(t *testing.T) {
		object := random(200_000)
		f := serve(t, func(w http.ResponseWriter, r *http.Request, n int, body []byte) {
			stored(w)
			if n == 1 {
				w.Header().Set("Content-Length", strconv.Itoa(len(object)))
				_, _ = w.Write(object[:100_000])
				hang(w, r, n, body)
				return
			}
			http.ServeContent(w, r, "", time.Now(), bytes.NewReader(object))
		})
		o, err := open(t, f.URL, s3.Options{StallTimeout: 100 * time.Millisecond}).Get(bg, "a", remote.GetOptions{})
		if err != nil || !bytes.Equal(o.Body, object) {
			t.Errorf("got %d bytes, %v; want it to go on by a second request", len(o.Body), err)
		}
	})
	t.Run("in the upload", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections into its backlog, and reads nothing
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, err = open(t, "http://"+l.Addr().String(), s3.Options{StallTimeout: 100 * time.Millisecond}).Create(bg, "a", make([]byte, 32<<20))
		wantError(t, err, remote.ErrUnknown)
		wantWords(t, err, "hangs")
	})
	t.Run("ended by the caller", func(t *testing.T) {
		arrived := make(chan struct{})
		f := serve(t, func(w http.ResponseWriter, r *http.Request, n int, body []byte) {
			arrived <- struct{}{}
			hang(w, r, n, body)
		})
		s := open(t, f.URL, s3.Options{})
		for op, call := range map[string]func(context.Context) error{
			"create": func(ctx context.Context) error { _, err := s.Create(ctx, "a", []byte("x")); return err },
			"swap":   func(ctx context.Context) error { _, err := s.Swap(ctx, "a", "e", []byte("x")); return err },
			"get":    func(ctx context.Context) error { _, err := s.Get(ctx, "a", remote.GetOptions{}); return err },
			"list":   func(ctx context.Context) error { _, _, err := s.List(ctx, "a", remote.ListOptions{}); return err },
			"delete": func(ctx context.Context) error { return s.Delete(ctx, "a") },
		} {
			ctx, cancel := context.WithCancel(bg)
			go func() {
				<-arrived
				cancel()
			}()
			err := call(ctx)
			wantError(t, err, remote.ErrUnknown)
			if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "nothing was sent") {
				t.Errorf("%s: %v", op, err)
			}
		}
	})
}

func TestNothingSentSaysSo(t *testing.T) {
	f := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int, _ []byte) { stored(w) })
	ctx, cancel := context.WithCancel(bg)
	cancel()
	s, counts := counted(open(t, f.URL, s3.Options{Tries: 2}))
	_, err := s.Create(ctx, "a", []byte("x"))
	wantError(t, err, remote.ErrUnknown)
	wantWords(t, err, "nothing was sent")
	if !errors.Is(err, context.Canceled) || counts() != (remote.Counts{}) || len(f.requests()) != 0 {
		t.Errorf("%v, counted %+v", err, counts())
	}

	f.Close() // nobody listens
	_, err = s.Create(bg, "a", []byte("x"))
	wantError(t, err, remote.ErrUnknown)
	wantWords(t, err, "nothing was sent", "refused")
	_, err = s.Get(bg, "a", remote.GetOptions{})
	wantError(t, err, remote.ErrUnknown)
	wantWords(t, err, "2 tries")
	if counts() != (remote.Counts{}) {
		t.Errorf("counted %+v", counts())
	}
}

// TestBodyIsTheCallersAgain would be a data race if the transport still read the body after Create has returned.
func TestBodyIsTheCallersAgain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		defer close(accepted)
		if c, err := l.Accept(); err == nil {
			// Answers before it has read the body, and then reads on.
			_, _ = io.ReadFull(c, make([]byte, 100_000))
			fmt.Fprint(c, "HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n")
			accepted <- c
		}
	}()
	body := make([]byte, 16<<20)
	_, err = open(t, "http://"+l.Addr().String(), s3.Options{}).Create(bg, "a", body)
	wantError(t, err, remote.ErrUnknown)
	for i := range body {
		body[i] = 1
	}
	c := <-accepted
	_, _ = io.Copy(io.Discard, c)
	c.Close()
	for range accepted {
	}
}

func TestListingThatLogsCannotRestOnIsRefused(t *testing.T) {
	listing := func(keys ...string) string {
		s := "<ListBucketResult>"
		for _, k := range keys {
			s += "<Contents><Key>prefix/" + k + `</Key><ETag>"e"</ETag><Size>1</Size><LastModified>2026-01-02T03:04:05.000Z</LastModified></Contents>`
		}
		return s + "</ListBucketResult>"
	}
	for name, c := range map[string]struct{ body, after string }{
		"without order":       {listing("a/2", "a/1"), ""},
		"ignores start-after": {listing("a/1", "a/2"), "a/1"},
		"ignores prefix":      {listing("b/1"), ""},
		"twice the same":      {listing("a/1", "a/1"), ""},
		"endless empty page":  {"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>", ""},
	} {
		f := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int, _ []byte) { fmt.Fprint(w, c.body) })
		_, _, err := open(t, f.URL, s3.Options{}).List(bg, "a/", remote.ListOptions{After: c.after})
		if !errors.Is(err, remote.ErrUnfit) {
			t.Errorf("%s: got %v, want %v", name, err, remote.ErrUnfit)
		}
	}
}

func TestListGoesOnBehindEmptyPagesAndCuts(t *testing.T) {
	f := serve(t, func(w http.ResponseWriter, r *http.Request, n int, _ []byte) {
		switch {
		case n == 1:
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, "<ListBucketResult><Cont")
			panic(http.ErrAbortHandler)
		case n == 2:
			fmt.Fprint(w, "<html>not a listing</html>")
		case r.URL.Query().Get("continuation-token") == "":
			fmt.Fprint(w, "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t/+ 1</NextContinuationToken></ListBucketResult>")
		case r.URL.Query().Get("continuation-token") == "t/+ 1":
			fmt.Fprint(w, `<ListBucketResult><EncodingType>url</EncodingType>`+
				`<Contents><Key>prefix/a/folder/</Key><ETag>"e"</ETag></Contents>`+
				`<Contents><Key>prefix/a/k%253A%3A</Key><ETag>"e"</ETag><Size>7</Size><LastModified>2026-01-02T03:04:05.000Z</LastModified></Contents></ListBucketResult>`)
		}
	})
	page, more, err := open(t, f.URL, s3.Options{}).List(bg, "a/", remote.ListOptions{})
	if err != nil || more || len(page) != 1 {
		t.Fatalf("got %+v, %v, %v", page, more, err)
	}
	want := remote.Info{Key: "a/k%3A:", ETag: "e", Size: 7, Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	if page[0] != want {
		t.Errorf("got %+v, want %+v", page[0], want)
	}
}
