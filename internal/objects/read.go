package objects

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
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
	// (2) The answer's head.
	offset, length := remote.GetOptions{Offset: o.Offset, Length: wanted}.Span(first.Size)
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
	body := first.Body[:min(int64(len(first.Body)), length)]
	for {
		if len(body) == 0 && length > 0 {
			return nil
		}
		if _, err := x.w.Write(body); err != nil {
			return nil
		}
		offset += int64(len(body))
		if length -= int64(len(body)); length <= 0 {
			return nil
		}
		part, err := x.store.Get(ctx, x.key, remote.GetOptions{Offset: offset, Length: min(piece, length), IfMatch: first.ETag})
		if err != nil {
			return nil
		}
		body = part.Body[:min(int64(len(part.Body)), length)]
	}
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
