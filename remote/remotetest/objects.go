package remotetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing/iotest"
	"time"

	"github.com/tonbo-go/tonbo/remote"
)

const creators = 16

func created(s *suite) {
	want := body(1000)
	etag := s.create("a/b", want)
	got := s.get("a/b", remote.GetOptions{})
	if got.Key != s.base+"a/b" || got.Size != 1000 || got.ETag != etag || !bytes.Equal(got.Body, want) {
		s.Fatalf("got %+v of %d bytes, want etag %s", got.Info, len(got.Body), etag)
	}
	if age := time.Since(got.Time); age > 24*time.Hour || age < -24*time.Hour {
		s.Errorf("time %v, want about now", got.Time)
	}
}

func taken(s *suite) {
	first := body(100)
	s.create("k", first)
	for _, b := range [][]byte{body(100), nil, first} {
		_, err := s.Store.Create(s.ctx, s.base+"k", b)
		s.wantErr("second create", err, remote.ErrExists)
		if errors.Is(err, remote.ErrUnknown) {
			s.Fatalf("a refused create is unknown as well: %v", err)
		}
		s.wantBody("k", first)
	}
}

// compete runs 16 writers at once and returns the tag of the one that succeeded.
func (s *suite) compete(write func(i int) (string, error), lost error) (winner int, etag string) {
	s.Helper()
	var wg sync.WaitGroup
	start := make(chan struct{})
	tags, errs := make([]string, creators), make([]error, creators)
	for i := range creators {
		wg.Go(func() {
			<-start
			tags[i], errs[i] = write(i)
		})
	}
	close(start)
	wg.Wait()
	winner = -1
	for i, err := range errs {
		switch {
		case err == nil && winner >= 0:
			s.Fatalf("writers %d and %d both succeeded", winner, i)
		case err == nil:
			winner = i
		case !errors.Is(err, lost) && !errors.Is(err, remote.ErrUnknown):
			s.Fatalf("writer %d: %v", i, err)
		}
	}
	if winner < 0 {
		s.Fatalf("no writer succeeded: %v", errs)
	}
	return winner, tags[winner]
}

func race(s *suite) {
	for round := range s.rounds {
		key := "race/" + numbered(round)
		bodies := make([][]byte, creators)
		for i := range bodies {
			bodies[i] = body(200 + i)
		}
		i, etag := s.compete(func(i int) (string, error) { return s.Store.Create(s.ctx, s.base+key, bodies[i]) }, remote.ErrExists)
		s.wantBody(key, bodies[i])
		if got := s.get(key, remote.GetOptions{}).ETag; got != etag {
			s.Fatalf("entity tag %s, the winner was told %s", got, etag)
		}
	}
}

func empty(s *suite) {
	etag := s.create("k", nil)
	for _, o := range []remote.GetOptions{{}, {Offset: 3}, {Offset: -3}, {Length: 5}, {IfMatch: etag}} {
		if got := s.get("k", o); len(got.Body) != 0 || got.Size != 0 || got.ETag != etag {
			s.Errorf("Get %+v: %+v, %d bytes", o, got.Info, len(got.Body))
		}
	}
	_, err := s.Store.Create(s.ctx, s.base+"k", []byte("x"))
	s.wantErr("create over an empty object", err, remote.ErrExists)
}

func large(s *suite) {
	want := body(5 << 20)
	s.create("k", want)
	s.wantBody("k", want)
	if got := s.get("k", remote.GetOptions{Offset: 4<<20 - 7, Length: 100000}).Body; !bytes.Equal(got, want[4<<20-7:][:100000]) {
		s.Error("a range of a large object is not its bytes")
	}
}

func copied(s *suite) {
	b := []byte("first")
	s.create("k", b)
	copy(b, "other")
	got := s.get("k", remote.GetOptions{}).Body
	if string(got) != "first" {
		s.Fatalf("the store kept the caller's slice: %q", got)
	}
	copy(got, "other")
	s.wantBody("k", []byte("first"))
}

func ranges(s *suite) {
	const all = "0123456789"
	etag := s.create("k", []byte(all))
	for _, c := range []struct {
		offset, length int64
		want           string
	}{
		{0, 0, all}, {0, 10, all}, {0, 11, all}, {0, 1, "0"}, {3, 0, "3456789"}, {3, 4, "3456"}, {3, 100, "3456789"}, {9, 1, "9"},
		{9, 0, "9"}, {10, 0, ""}, {10, 5, ""}, {11, 1, ""}, {1 << 40, 1 << 40, ""}, {0, 1 << 62, all}, {9, 1<<63 - 1, "9"},
		{-1, 0, "9"}, {-4, 0, "6789"}, {-4, 2, "67"}, {-4, 100, "6789"}, {-10, 0, all}, {-11, 0, all}, {-1000, 3, "012"},
	} {
		for _, match := range []string{"", etag} {
			got := s.get("k", remote.GetOptions{Offset: c.offset, Length: c.length, IfMatch: match})
			if string(got.Body) != c.want || got.Size != 10 || got.ETag != etag || got.Key != s.base+"k" {
				s.Errorf("offset %d length %d: got %q %+v, want %q", c.offset, c.length, got.Body, got.Info, c.want)
			}
			if st, ok := s.Store.(remote.Streamer); ok && c.offset >= 0 && c.want != "" {
				s.streamed(st, "k", remote.GetOptions{Offset: c.offset, Length: c.length, IfMatch: match}, got.Info, c.want)
			}
		}
	}
}

// streamed reads as Get has read, a byte at a time and as fast as it goes.
func (s *suite) streamed(st remote.Streamer, key string, o remote.GetOptions, want remote.Info, body string) {
	s.Helper()
	for _, read := range []func(io.Reader) ([]byte, error){
		func(r io.Reader) ([]byte, error) { return io.ReadAll(iotest.OneByteReader(r)) },
		func(r io.Reader) ([]byte, error) {
			var b bytes.Buffer
			_, err := io.Copy(&b, r)
			return b.Bytes(), err
		},
	} {
		info, r, err := st.Stream(s.ctx, s.base+key, o)
		if err != nil {
			s.Errorf("stream %+v: %v", o, err)
			return
		}
		got, err := read(r)
		if err = errors.Join(err, r.Close()); err != nil || string(got) != body || info.ETag != want.ETag || info.Size != want.Size || info.Key != want.Key {
			s.Errorf("stream %+v: got %q %+v, %v; want %q %+v", o, got, info, err, body, want)
		}
	}
}

// refusesStream checks that there is no stream where there is nothing for Get.
func (s *suite) refusesStream(key string, o remote.GetOptions) {
	s.Helper()
	st, ok := s.Store.(remote.Streamer)
	if !ok {
		return
	}
	if _, r, err := st.Stream(s.ctx, s.base+key, o); err == nil {
		r.Close()
		s.Errorf("a stream of %s %+v", key, o)
	}
}

func ifMatch(s *suite) {
	a, b := s.create("a", []byte("body of a")), s.create("b", []byte("body of b"))
	if a == b {
		s.Fatal("different bodies have one entity tag")
	}
	for _, o := range []remote.GetOptions{{IfMatch: b}, {IfMatch: b, Offset: 3, Length: 2}, {IfMatch: b, Offset: -2}, {IfMatch: b, Offset: 99}} {
		obj, err := s.Store.Get(s.ctx, s.base+"a", o)
		s.wantErr("Get with another entity tag", err, remote.ErrChanged)
		if len(obj.Body) != 0 {
			s.Error("a body beside ErrChanged")
		}
		s.refusesStream("a", remote.GetOptions{IfMatch: b, Length: 4})
	}
	_, err := s.Store.Get(s.ctx, s.base+"c", remote.GetOptions{IfMatch: a})
	s.wantErr("Get of an absent key with an entity tag", err, remote.ErrNotFound)
}

func absent(s *suite) {
	s.create("a/b/c", []byte("x"))
	for _, key := range []string{"z", "a", "a/b", "a/b/d", "a/b/c/d", "a/b/cc"} {
		for _, o := range []remote.GetOptions{{}, {Offset: 5, Length: 5}, {Offset: -5}} {
			_, err := s.Store.Get(s.ctx, s.base+key, o)
			s.wantErr("Get "+key, err, remote.ErrNotFound)
		}
		s.refusesStream(key, remote.GetOptions{Length: 1})
	}
}

func keys(s *suite) {
	for _, k := range []string{"lower", "UPPER", "Upper", "a:b", "a@b", "a%2Fb", "a%2fb", "100%", ".hidden", "..x", "dot.", "a.b-c_d", "con", "nul.txt",
		"COM1", "-", "_", "%", ":", "@", "f/UPPER/x", "f/upper/x", ".tonbo/tmp/x", strings.Repeat("x", 255), strings.Repeat("X", 255),
		strings.Repeat("X", 254), "d/" + strings.Repeat(":", 255) + "/k", strings.Repeat("x", 200) + ".a"} {
		want := []byte("body of " + k)
		s.create(k, want)
		defer s.wantBody(k, want)
		page, more, err := s.Store.List(s.ctx, s.base+k, remote.ListOptions{Max: 1})
		if err != nil || len(page) != 1 || page[0].Key != s.base+k {
			s.Errorf("List of %.40q: %v %v %v", k, keysOf(page), more, err)
		}
	}
}

func badKeys(s *suite) {
	for _, k := range []string{"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "a b", "a\x00b", "ä", "a\\b", "a?b", strings.Repeat("x", 256)} {
		_, err := s.Store.Create(s.ctx, k, []byte("x"))
		s.wantErr("Create "+k, err, remote.ErrBadKey)
		s.wantErr("Create "+k, err, remote.ErrUnfit)
		_, err = s.Store.Get(s.ctx, k, remote.GetOptions{})
		s.wantErr("Get "+k, err, remote.ErrBadKey)
		s.wantErr("Delete "+k, s.Store.Delete(s.ctx, k), remote.ErrBadKey)
		_, err = s.Store.Swap(s.ctx, k, "etag", []byte("x"))
		s.wantErr("Swap "+k, err, remote.ErrBadKey)
	}
}

func deleted(s *suite) {
	if err := s.Store.Delete(s.ctx, s.base+"never/was"); err != nil {
		s.Fatal(err)
	}
	s.create("a/k", []byte("x"))
	s.create("a/kk", []byte("neighbour"))
	for range 2 {
		if err := s.Store.Delete(s.ctx, s.base+"a/k"); err != nil {
			s.Fatal(err)
		}
		_, err := s.Store.Get(s.ctx, s.base+"a/k", remote.GetOptions{})
		s.wantErr("Get after Delete", err, remote.ErrNotFound)
	}
	if err := s.Store.Delete(s.ctx, s.base+"a"); err != nil { // a folder, no key
		s.Fatal(err)
	}
	s.wantBody("a/kk", []byte("neighbour"))
	if page, _, err := s.Store.List(s.ctx, s.base, remote.ListOptions{}); err != nil || len(page) != 1 {
		s.Errorf("List after Delete: %v %v", keysOf(page), err)
	}
}

func recreated(s *suite) {
	seen := make(map[string]bool)
	for i := range 20 {
		b := []byte("equal")
		if !s.unique {
			b = append(b, byte(i))
		}
		etag := s.create("k", b)
		if seen[etag] {
			s.Fatalf("entity tag %s for the second time", etag)
		}
		seen[etag] = true
		page, _, err := s.Store.List(s.ctx, s.base+"k", remote.ListOptions{})
		if err != nil || len(page) != 1 || page[0].ETag != etag {
			s.Fatalf("List: %+v, %v; want entity tag %s", page, err, etag)
		}
		if err := s.Store.Delete(s.ctx, s.base+"k"); err != nil {
			s.Fatal(err)
		}
	}
}

func swap(s *suite) {
	_, err := s.Store.Swap(s.ctx, s.base+"k", "0123456789abcdef0123456789abcdef", []byte("x"))
	s.wantErr("Swap of an absent key", err, remote.ErrNotFound)
	_, err = s.Store.Get(s.ctx, s.base+"k", remote.GetOptions{})
	s.wantErr("Get after it", err, remote.ErrNotFound)

	first := s.create("k", []byte("one"))
	second, err := s.Store.Swap(s.ctx, s.base+"k", first, []byte("two"))
	if err != nil || second == "" || second == first {
		s.Fatalf("Swap: %q, %v", second, err)
	}
	s.wantBody("k", []byte("two"))
	if got := s.get("k", remote.GetOptions{IfMatch: second}).ETag; got != second {
		s.Errorf("entity tag %s, Swap told %s", got, second)
	}
	_, err = s.Store.Swap(s.ctx, s.base+"k", first, []byte("three"))
	s.wantErr("Swap with an old entity tag", err, remote.ErrChanged)
	s.wantBody("k", []byte("two"))
	_, err = s.Store.Create(s.ctx, s.base+"k", []byte("four"))
	s.wantErr("create over a swapped object", err, remote.ErrExists)
}

func swapRace(s *suite) {
	etag := s.create("k", []byte("start"))
	for range min(s.rounds, 20) {
		old := etag
		bodies := make([][]byte, creators)
		for i := range bodies {
			bodies[i] = body(100 + i)
		}
		var i int
		i, etag = s.compete(func(i int) (string, error) { return s.Store.Swap(s.ctx, s.base+"k", old, bodies[i]) }, remote.ErrChanged)
		s.wantBody("k", bodies[i])
	}
}

func cancelled(s *suite) {
	etag := s.create("k", []byte("x"))
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	_, err := s.Store.Create(ctx, s.base+"new", []byte("x"))
	s.wantErr("Create", err, context.Canceled)
	s.wantErr("Create", err, remote.ErrUnknown)
	_, err = s.Store.Get(ctx, s.base+"k", remote.GetOptions{})
	s.wantErr("Get", err, context.Canceled)
	_, err = s.Store.Get(ctx, s.base+"absent", remote.GetOptions{})
	if errors.Is(err, remote.ErrNotFound) {
		s.Errorf("Get of an absent key: %v: nobody has looked", err)
	}
	_, _, err = s.Store.List(ctx, s.base, remote.ListOptions{})
	s.wantErr("List", err, context.Canceled)
	_, err = s.Store.Swap(ctx, s.base+"k", etag, []byte("y"))
	s.wantErr("Swap", err, context.Canceled)
	s.wantErr("Swap", err, remote.ErrUnknown)
	s.wantErr("Delete", s.Store.Delete(ctx, s.base+"k"), context.Canceled)
	s.wantBody("k", []byte("x"))
}

func counts(s *suite) {
	var c remote.Counter
	st := remote.Counted(s.Store, &c)
	if st.String() != s.Store.String() {
		s.Errorf("Counted is called %s", st)
	}
	must := func(err error) {
		s.Helper()
		if err != nil {
			s.Fatal(err)
		}
	}
	_, err := st.Create(s.ctx, s.base+"k", make([]byte, 100))
	must(err)
	_, err = st.Create(s.ctx, s.base+"k", make([]byte, 100))
	s.wantErr("second create", err, remote.ErrExists)
	_, err = st.Get(s.ctx, s.base+"k", remote.GetOptions{Length: 30})
	must(err)
	_, err = st.Get(s.ctx, s.base+"absent", remote.GetOptions{})
	s.wantErr("Get", err, remote.ErrNotFound)
	_, _, err = st.List(s.ctx, s.base, remote.ListOptions{})
	must(err)
	want := remote.Counts{Put: 2, Get: 2, List: 1, BytesUp: 200, BytesDown: 30}
	if got := c.Counts(); got != want {
		s.Errorf("got %+v, want %+v", got, want)
	}
	if s.noDelete {
		return
	}
	must(st.Delete(s.ctx, s.base+"k"))
	if got := c.Counts().Delete; got != 1 {
		s.Errorf("got %d deletes, want 1", got)
	}
}

func probe(s *suite) {
	for range 2 {
		if err := remote.Probe(s.ctx, s.Store); err != nil {
			s.Fatal(err)
		}
	}
	if err := remote.ProbeOnce(s.ctx, s.Store); err != nil {
		s.Fatal(err)
	}
}
