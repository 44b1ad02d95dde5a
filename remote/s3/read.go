package s3

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/tonbo-go/tonbo/internal/httpbody"
	"github.com/tonbo-go/tonbo/remote"
)

// Get implements [remote.Store]. A body that is cut is continued from where it broke, as long as the object is the same.
func (s *Store) Get(ctx context.Context, key string, o remote.GetOptions) (remote.Object, error) {
	r := request{op: remote.OpGet, method: http.MethodGet, key: key, checksum: s.o.Checksum}
	if err := remote.CheckKey(key); err != nil {
		return remote.Object{}, s.error(r, remote.ErrUnfit, err)
	}
	if o.Length < 0 || o.Offset == math.MinInt64 {
		return remote.Object{}, s.error(r, remote.ErrUnfit, fmt.Errorf("range of %d bytes from %d", o.Length, o.Offset))
	}
	t := retry{s: s}
	d := download{s: s, o: o, base: r}
	for {
		before, empty := len(d.body), d.empty
		f := s.once(ctx, d.next(), d.take)
		if f == nil {
			return d.object(), nil
		}
		if d.empty && !empty || empty && d.known {
			continue
		}
		if d.cut && len(d.body)-before >= minProgress {
			t.progress()
			if ctx.Err() == nil {
				s.log.DebugContext(ctx, "s3: go on with a cut body", "err", f.Error, "at", len(d.body))
				continue
			}
		}
		if err := t.again(ctx, f); err != nil {
			return remote.Object{}, err
		}
	}
}

// minProgress is what a request has to bring to count as progress: it bounds the requests for an object.
const minProgress = 4 << 10

// download collects the asked part of one object, over as many requests as it takes.
type download struct {
	s    *Store
	o    remote.GetOptions
	base request // of the whole object
	r    request // the last one sent

	known  bool // the following are
	info   remote.Info
	from   int64 // first byte asked for
	length int64
	body   []byte // what is here of it
	cut    bool   // the last answer was good as far as it went
	empty  bool   // the range lies behind the end: ask for the size alone

	untagged int // answers without an entity tag
}

// untaggedTries is how many answers without an entity tag tell that this is no S3 store. rclone's gives now and then one of an object that is overwritten at that moment.
const untaggedTries = 4

// next returns the request for what is missing.
func (d *download) next() request {
	r := d.base
	if d.o.IfMatch != "" {
		r.ifMatch = quote(d.o.IfMatch)
	}
	switch {
	case d.empty:
		r.op, r.method, r.checksum = remote.OpHead, http.MethodHead, ChecksumNone
	case d.known:
		r.ifMatch = quote(d.info.ETag)
		r.rng = httpbody.Range(d.from+int64(len(d.body)), d.length-int64(len(d.body)))
	case d.o.Offset < 0:
		r.rng = "bytes=" + strconv.FormatInt(d.o.Offset, 10)
	case d.o.Offset > 0 || d.o.Length > 0:
		r.rng = httpbody.Range(d.o.Offset, d.o.Length)
	}
	d.r = r
	return r
}

// take adds an answer. It returns nil when the part is complete.
func (d *download) take(a answer) *failure {
	s, r := d.s, d.r
	d.cut = false
	switch a.status {
	case http.StatusOK, http.StatusPartialContent:
	case http.StatusRequestedRangeNotSatisfiable:
		if !d.known && !d.empty {
			d.empty = true
			return s.strange(r, a, remote.ErrUnknown, "the range is behind the end")
		}
		return s.refused(r, a)
	case http.StatusPreconditionFailed:
		if d.known && d.o.IfMatch == "" { // overwritten meanwhile: from the start
			d.known, d.body = false, nil
			return s.strange(r, a, remote.ErrUnknown, "the object was overwritten while it was read")
		}
		return s.refused(r, a)
	default:
		return s.refused(r, a)
	}

	info := remote.Info{Key: r.key, ETag: unquote(a.header.Get("Etag"))}
	info.Time, _ = http.ParseTime(a.header.Get("Last-Modified"))
	if info.ETag == "" {
		if d.untagged++; d.untagged < min(untaggedTries, s.o.Tries) {
			return s.strange(r, a, remote.ErrUnknown, "object without an entity tag")
		}
		return s.strange(r, a, remote.ErrUnfit, "object without an entity tag: is this an S3 endpoint?")
	}
	if d.o.IfMatch != "" && info.ETag != d.o.IfMatch || d.known && info.ETag != d.info.ETag {
		return s.strange(r, a, remote.ErrUnfit, "the store ignores If-Match on GET")
	}
	if d.empty {
		info.Size = a.length
		d.info, d.body = info, nil
		if info.Size < 0 {
			d.empty = false
			return s.strange(r, a, remote.ErrUnknown, "object without a length")
		}
		// The object has grown meanwhile, or the store refuses a suffix that is longer than the object (RFC 9110, 14.1.2: that means all of it): by its place.
		if d.from, d.length = d.o.Span(info.Size); d.length > 0 {
			d.empty, d.known = false, true
			return s.strange(r, a, remote.ErrUnknown, "the range is in the object after all")
		}
		return nil
	}
	if a.length < 0 && !a.chunked {
		return s.strange(r, a, remote.ErrUnfit, "object without a length: a cut could not be told from the end")
	}

	// Where the bytes of this answer begin, and how large the object is.
	var start, size, n int64
	if a.status == http.StatusPartialContent {
		var err error
		if start, n, size, err = httpbody.ContentRange(a.header.Get("Content-Range")); err != nil || a.length >= 0 && a.length != n {
			return s.strange(r, a, remote.ErrUnfit, fmt.Sprintf("part of %d bytes with Content-Range %q", a.length, a.header.Get("Content-Range")))
		}
	} else if n, size = a.length, a.length; n < 0 {
		if a.bodyErr != nil {
			return s.strange(r, a, remote.ErrUnknown, "answer is cut: "+a.bodyErr.Error())
		}
		n = int64(len(a.body))
		size = n
	}
	if d.known && size != d.info.Size {
		return s.strange(r, a, remote.ErrUnfit, "two sizes of one object with one entity tag")
	}
	if !d.known {
		d.known, d.info = true, info
		d.info.Size = size
		d.from, d.length = d.o.Span(size)
	}
	if a.status == http.StatusOK && len(d.body) > 0 {
		d.body = nil // the store does not know ranges: everything comes again
	}
	at := d.from + int64(len(d.body)) - start // where in this answer the missing bytes begin
	if at < 0 || at+d.length-int64(len(d.body)) > n {
		return s.strange(r, a, remote.ErrUnfit, fmt.Sprintf("asked for %d bytes from %d, got %d from %d", d.length, d.from, n, start))
	}
	if a.bodyErr == nil && int64(len(a.body)) < n {
		a.bodyErr = errors.New("fewer bytes than announced")
	}
	got := a.body[min(at, int64(len(a.body))):]
	got = got[:min(int64(len(got)), d.length-int64(len(d.body)))]
	if d.body == nil {
		d.body = got
	} else {
		d.body = append(d.body, got...)
	}
	if int64(len(d.body)) < d.length {
		d.cut = true
		f := s.strange(r, a, remote.ErrUnknown, "")
		f.Err = fmt.Errorf("body is cut after %d of %d bytes: %w", len(d.body), d.length, a.bodyErr)
		return f
	}
	if d.r.checksum != ChecksumNone && d.length == size {
		if want := a.header.Get(d.r.checksum.header()); want != "" && !strings.Contains(want, "-") && a.status == http.StatusOK &&
			want != d.r.checksum.of(d.body) {
			d.known, d.body = false, nil
			return s.strange(r, a, remote.ErrUnknown, "the body does not match its checksum "+want)
		}
	}
	return nil
}

func (d *download) object() remote.Object {
	if d.body == nil {
		d.body = []byte{}
	}
	return remote.Object{Info: d.info, Body: d.body[:len(d.body):len(d.body)]}
}

func quote(etag string) string {
	if etag == "" {
		return ""
	}
	return `"` + etag + `"`
}

// unquote makes the header's and the listing's spelling of an entity tag the same.
func unquote(etag string) string { return strings.Trim(strings.TrimPrefix(etag, "W/"), `"`) }
