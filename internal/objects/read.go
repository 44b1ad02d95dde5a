package objects

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tonbo-go/tonbo/internal/objectwire"
	"github.com/tonbo-go/tonbo/remote"
)

// piece is how many bytes of a download are in memory at once.
const piece = 2 << 20

// get answers a GET or HEAD of an object or a range of it. A large one goes through in pieces, all of one entity tag.
func (x *exchange) get() error {
	ctx := x.r.Context()
	must, err := x.mayRead()
	if err != nil {
		return err
	}
	o, ranged, err := x.asked()
	if err != nil {
		return err
	}
	if o.IfMatch == "" {
		o.IfMatch = must
	} else if must != "" && must != o.IfMatch {
		return absent()
	}
	// (1) The first piece tells what there is.
	wanted := o.Length
	if wanted == 0 && o.Offset < 0 {
		wanted = -o.Offset
	}
	o.Length = min(piece, max(wanted, 0))
	if o.Length == 0 {
		o.Length = piece
	}
	if x.r.Method == http.MethodHead {
		o.Length = 1
	}
	held, err := x.memory.Acquire(ctx, x.c.ID, o.Length, x.o.Wait)
	if err != nil {
		return busy()
	}
	defer held.Release()
	if body, info := x.stream(o, wanted); body != nil {
		defer body.Close()
		return x.hand(remote.Object{Info: info}, body, o.Offset, wanted, ranged)
	}
	first, err := x.store.Get(ctx, x.key, o)
	switch {
	case errors.Is(err, remote.ErrNotFound):
		return x.missing()
	case errors.Is(err, remote.ErrChanged) && must != "":
		return absent()
	case err != nil:
		return ofStore(err)
	}
	held.Shrink(int64(len(first.Body)))
	return x.hand(first, nil, o.Offset, wanted, ranged)
}

// hand answers with wanted bytes from an offset on, 0: all. The first of them are in first, or else they come from a stream.
func (x *exchange) hand(first remote.Object, body io.ReadCloser, offset, wanted int64, ranged bool) error {
	// (2) The answer's head.
	offset, length := remote.GetOptions{Offset: offset, Length: wanted}.Span(first.Size)
	h := x.w.Header()
	h.Set("Etag", objectwire.Quote(first.ETag))
	h.Set("Last-Modified", first.Time.UTC().Format(http.TimeFormat))
	h.Set("Accept-Ranges", "bytes")
	if ranged && length == 0 {
		return &Refusal{Status: http.StatusRequestedRangeNotSatisfiable, Code: objectwire.InvalidRange, Detail: "the range begins behind the object's end",
			Header: http.Header{"Etag": h["Etag"], "Last-Modified": h["Last-Modified"], "Content-Range": {"bytes */" + strconv.FormatInt(first.Size, 10)}}}
	}
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatInt(length, 10))
	status := http.StatusOK
	if ranged {
		status = http.StatusPartialContent
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", offset, offset+length-1, first.Size))
	}
	x.writing(length)
	x.w.WriteHeader(status)
	if x.r.Method == http.MethodHead {
		return nil
	}
	// (3) The body. Cut short, net/http closes the connection: fewer bytes than announced are an error there, never an end.
	if body == nil {
		part := first.Body[:min(int64(len(first.Body)), length)]
		if len(part) == 0 && length > 0 || !x.write(part) {
			return nil
		}
		offset, length = offset+int64(len(part)), length-int64(len(part))
		if length > 0 {
			if body, _ = x.stream(remote.GetOptions{Offset: offset, Length: length, IfMatch: first.ETag}, length); body != nil {
				defer body.Close()
			}
		}
	}
	if body != nil {
		n, ok := x.pass(body)
		if !ok {
			return nil
		}
		offset, length = offset+n, length-n
	}
	for length > 0 { // what a stream has left, or a store without streams has
		part, err := x.store.Get(x.r.Context(), x.key, remote.GetOptions{Offset: offset, Length: min(piece, length), IfMatch: first.ETag})
		if err != nil || len(part.Body) == 0 || !x.write(part.Body[:min(int64(len(part.Body)), length)]) {
			return nil
		}
		offset, length = offset+int64(len(part.Body)), length-int64(len(part.Body))
	}
	return nil
}

// write hands bytes to the client. False: it takes no more.
func (x *exchange) write(b []byte) bool {
	_, err := x.w.Write(b)
	return err == nil
}

// Sizes of streams, in bytes.
const (
	streamed = 256 << 10 // what is worth one
	buffer   = 256 << 10 // of it in memory: little enough to stay in a processor's cache between its socket and the client's
)

// stream begins to read wanted bytes, if there are so many of them that it is worth it and the store can. nil: ask Get, which also tells what is wrong.
func (x *exchange) stream(o remote.GetOptions, wanted int64) (io.ReadCloser, remote.Info) {
	s, ok := x.store.(remote.Streamer)
	if !ok || wanted < streamed || o.Offset < 0 || x.r.Method == http.MethodHead {
		return nil, remote.Info{}
	}
	o.Length = wanted
	info, body, err := s.Stream(x.r.Context(), x.key, o)
	if err != nil {
		return nil, remote.Info{}
	}
	return body, info
}

var buffers = sync.Pool{New: func() any { return new([buffer]byte) }}

// pass hands on what a stream brings. False: the client takes no more; true with less than all of it: the stream broke.
func (x *exchange) pass(body io.ReadCloser) (n int64, ok bool) {
	to := &client{w: x.w}
	if direct, is := body.(io.WriterTo); is {
		direct.WriteTo(to) // of its errors, those of the client are in to, and for others fewer bytes came
		return to.n, to.err == nil
	}
	b := buffers.Get().(*[buffer]byte)
	for {
		n, err := body.Read(b[:])
		if to.Write(b[:n]); to.err != nil {
			return to.n, false // and b is lost: HTTP/2 returns from the Write of a stream that the client resets while a frame of it may still be on its way, and b would be another's by then
		} else if err != nil {
			buffers.Put(b)
			return to.n, true
		}
	}
}

// client tells what was taken of an answer's body, and whether more is.
type client struct {
	w   http.ResponseWriter
	n   int64
	err error
}

func (c *client) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n, c.err = c.n+int64(n), err
	return n, err
}

// ReadFrom lets net/http take a file as it is.
func (c *client) ReadFrom(r io.Reader) (int64, error) {
	n, err := io.Copy(c.w, r)
	c.n, c.err = c.n+n, err
	return n, err
}

// asked reads the headers Range and If-Match.
func (x *exchange) asked() (o remote.GetOptions, ranged bool, err error) {
	if m := x.r.Header.Get("If-Match"); m != "" && m != "*" {
		o.IfMatch = objectwire.Unquote(m)
	}
	v := x.r.Header.Get("Range")
	if v == "" || x.r.Method == http.MethodHead {
		return o, false, nil
	}
	spec, ok := strings.CutPrefix(v, "bytes=")
	first, last, ok2 := strings.Cut(spec, "-")
	bad := invalid("want one range: bytes=0-99, bytes=100- or bytes=-100")
	if !ok || !ok2 {
		return o, false, bad
	}
	if first == "" {
		n, err := strconv.ParseUint(last, 10, 63)
		if err != nil || n == 0 {
			return o, false, bad
		}
		o.Offset = -int64(n)
		return o, true, nil
	}
	a, err := strconv.ParseUint(first, 10, 63)
	if err != nil {
		return o, false, bad
	}
	o.Offset = int64(a)
	if last != "" {
		b, err := strconv.ParseUint(last, 10, 63)
		if err != nil || b < a {
			return o, false, bad
		}
		if b < math.MaxInt64 || a > 0 {
			o.Length = int64(b - a + 1)
		}
	}
	return o, true, nil
}

// writing bounds the time that an answer with so many bytes may take. A reader that stalls holds memory.
func (x *exchange) writing(n int64) {
	x.rc.SetWriteDeadline(time.Now().Add(x.allowance(n)))
}

// allowance is how long a body of n bytes may take.
func (x *exchange) allowance(n int64) time.Duration {
	if x.o.Speed < 0 {
		return 365 * 24 * time.Hour
	}
	return x.o.Stall + time.Duration(float64(n)/float64(x.o.Speed)*float64(time.Second))
}
