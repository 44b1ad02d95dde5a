package gateway

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/tonbo-go/tonbo/internal/httpbody"
	"github.com/tonbo-go/tonbo/internal/objectwire"
	"github.com/tonbo-go/tonbo/remote"
)

// Get implements [remote.Store]. A body that is cut is continued from where it broke, as long as the object is the same.
func (s *Store) Get(ctx context.Context, key string, o remote.GetOptions) (remote.Object, error) {
	base := request{op: remote.OpGet, name: "get", method: http.MethodGet, database: databaseOf(ctx, key), key: key}
	if err := remote.CheckKey(key); err != nil {
		return remote.Object{}, s.error(&base, remote.ErrUnfit, err)
	}
	if o.Length < 0 || o.Offset == math.MinInt64 {
		return remote.Object{}, s.error(&base, remote.ErrUnfit, fmt.Errorf("range of %d bytes from %d", o.Length, o.Offset))
	}
	t := retry{s: s}
	d := download{s: s, o: o, base: base}
	for {
		before := len(d.body)
		f := s.once(ctx, d.next(), d.take)
		if f == nil {
			return d.object(), nil
		}
		if d.cut && len(d.body)-before >= minProgress {
			t.progress()
			if ctx.Err() == nil {
				s.log.DebugContext(ctx, "gateway: go on with a cut body", "err", f.Error, "at", len(d.body))
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
	r    *request

	known  bool // the following are
	info   remote.Info
	from   int64 // first byte asked for
	length int64
	body   []byte // what is here of it
	cut    bool   // the last answer was good as far as it went
}

// next returns the request for what is missing.
func (d *download) next() *request {
	r := d.base
	if d.o.IfMatch != "" {
		r.ifMatch = objectwire.Quote(d.o.IfMatch)
	}
	switch {
	case d.known:
		r.ifMatch = objectwire.Quote(d.info.ETag)
		r.rng = httpbody.Range(d.from+int64(len(d.body)), d.length-int64(len(d.body)))
	case d.o.Offset < 0:
		r.rng = "bytes=" + strconv.FormatInt(d.o.Offset, 10)
	case d.o.Offset > 0 || d.o.Length > 0:
		r.rng = httpbody.Range(d.o.Offset, d.o.Length)
	}
	d.r = &r
	return &r
}

// take adds an answer. It returns nil when the part is complete.
func (d *download) take(a answer) *failure {
	s, r := d.s, d.r
	d.cut = false
	info := remote.Info{Key: r.key, ETag: objectwire.Unquote(a.header.Get("Etag"))}
	info.Time, _ = http.ParseTime(a.header.Get("Last-Modified"))
	var start, n, size int64 // where the bytes of this answer begin, how many they are, and how large the object is
	var err error
	switch a.status {
	case http.StatusOK:
		n, size = a.length, a.length
	case http.StatusPartialContent:
		start, n, size, err = httpbody.ContentRange(a.header.Get("Content-Range"))
	case http.StatusRequestedRangeNotSatisfiable:
		if p, ours := problemOf(a); !ours || p.Code != objectwire.InvalidRange || d.known {
			return s.refused(r, a)
		}
		if size, err = unsatisfied(a.header.Get("Content-Range")); err != nil {
			break
		}
		if _, n := d.o.Span(size); n > 0 {
			err = errors.New("which is not so")
			break
		}
		info.Size = size
		d.info, d.body = info, nil
		if info.ETag == "" {
			return s.strange(r, a, remote.ErrUnknown, "object without an entity tag: is this a tonbo server?")
		}
		s.accepted(r, a)
		return nil
	case http.StatusPreconditionFailed:
		f := s.refused(r, a)
		if d.known && d.o.IfMatch == "" && errors.Is(f.Kind, remote.ErrChanged) { // overwritten meanwhile: from the start
			d.known, d.body = false, nil
			f.Kind = remote.ErrUnknown
		}
		return f
	default:
		return s.refused(r, a)
	}
	switch {
	case err != nil || a.length != n || n < 0:
		return s.strange(r, a, remote.ErrUnknown, fmt.Sprintf("answer of %d bytes with Content-Range %.100q: is this a tonbo server?", a.length, a.header.Get("Content-Range")))
	case info.ETag == "":
		return s.strange(r, a, remote.ErrUnknown, "object without an entity tag: is this a tonbo server?")
	case d.o.IfMatch != "" && info.ETag != d.o.IfMatch || d.known && (info.ETag != d.info.ETag || size != d.info.Size):
		return s.strange(r, a, remote.ErrUnfit, "another object than the one that If-Match asked for")
	}
	if !d.known {
		d.known, d.info = true, info
		d.info.Size = size
		d.from, d.length = d.o.Span(size)
	}
	at, missing := d.from+int64(len(d.body)), d.length-int64(len(d.body))
	if start != at || n < missing {
		return s.strange(r, a, remote.ErrUnfit, fmt.Sprintf("asked for %d bytes from %d, got %d from %d", missing, at, n, start))
	}
	got := a.body[:min(int64(len(a.body)), missing)] // of a part counted from the end, a range cannot say how long it is
	if d.body == nil {
		d.body = got
	} else {
		d.body = append(d.body, got...)
	}
	if int64(len(d.body)) < d.length {
		d.cut = true
		f := s.strange(r, a, remote.ErrUnknown, "")
		cause := a.bodyErr
		if cause == nil {
			cause = errors.New("fewer bytes than announced")
		}
		f.Err = fmt.Errorf("body is cut after %d of %d bytes: %w", len(d.body), d.length, cause)
		return f
	}
	s.accepted(r, a)
	return nil
}

func (d *download) object() remote.Object {
	if d.body == nil {
		d.body = []byte{}
	}
	return remote.Object{Info: d.info, Body: d.body[:len(d.body):len(d.body)]}
}

// unsatisfied reads "bytes */100".
func unsatisfied(v string) (size int64, err error) {
	v, ok := strings.CutPrefix(v, "bytes */")
	n, err := strconv.ParseUint(v, 10, 62)
	if !ok || err != nil {
		return 0, errors.New("malformed Content-Range")
	}
	return int64(n), nil
}
