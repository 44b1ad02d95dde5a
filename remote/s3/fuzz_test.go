package s3

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/remote"
)

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"0", "120", "-1", "99999999999999999999", "Wed, 21 Oct 2015 07:28:00 GMT", "soon"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, v string) {
		if d := retryAfter(http.Header{"Retry-After": {v}}); d < 0 {
			t.Errorf("%q: %v", v, d)
		}
	})
}

// FuzzListing decodes any answer: whatever is taken is in order, below the prefix, and behind after.
func FuzzListing(f *testing.F) {
	f.Add(`<ListBucketResult><Contents><Key>p/a/1</Key></Contents><Contents><Key>p/a/2</Key></Contents></ListBucketResult>`, "a/", "")
	f.Add(`<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>p/a/%31</Key></Contents></ListBucketResult>`, "a/", "a/0")
	s := &Store{loc: location{bucket: "b", prefix: "p"}}
	f.Fuzz(func(t *testing.T, body, prefix, after string) {
		l, err := decodeListing([]byte(body))
		if err != nil {
			return
		}
		page, err := s.page(l, prefix, after)
		if err != nil {
			return
		}
		last := after
		for _, i := range page {
			if i.Key <= last || !strings.HasPrefix(i.Key, prefix) || remote.CheckKey(i.Key) != nil {
				t.Errorf("took %q after %q", i.Key, last)
			}
			last = i.Key
		}
	})
}

// FuzzErrorBody feeds any error answer: it always has a kind and words, and what is no S3 answer is never proof of absence.
func FuzzErrorBody(f *testing.F) {
	f.Add(404, `<Error><Code>NoSuchKey</Code></Error>`)
	f.Add(503, `<html>`)
	f.Add(301, `<Error><Code>PermanentRedirect</Code><Endpoint>x</Endpoint></Error>`)
	s := &Store{loc: location{bucket: "b"}}
	f.Fuzz(func(t *testing.T, status int, body string) {
		for _, r := range []request{{op: remote.OpPut, ifNoneMatch: "*"}, {op: remote.OpPut, ifMatch: `"e"`}, {op: remote.OpGet}, {op: remote.OpList}, {op: remote.OpDelete}} {
			e := s.refused(r, answer{status: status, header: http.Header{"Date": {time.Now().Format(http.TimeFormat)}}, body: []byte(body)}).Error
			if e.Kind == nil || e.Err == nil {
				t.Errorf("%s, status %d: no kind or no words", e.Op, status)
			}
			if e.Kind == remote.ErrNotFound && !strings.Contains(body, "NoSuchKey") {
				t.Errorf("%s, status %d: absent by %q", e.Op, status, body)
			}
		}
	})
}
