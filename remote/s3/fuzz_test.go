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

// FuzzURL: what is taken for a location reads the same from its own name, has no segment that a store or proxy would resolve, and no error tells a password.
func FuzzURL(f *testing.F) {
	for _, s := range []string{"s3://b/p?region=eu-central-1", "s3://b", "s3://b/a/../c", "s3://u:p4ssw0rd@b/p", "s3://b?path_style=1&endpoint=http://127.0.0.1:9000&checksum=none", "s3://b--x-s3", "s3://b/%2e%2e/", "s3:b", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, url string) {
		l, err := parse(url, &Options{})
		if err != nil {
			if strings.Contains(url, ":p4ssw0rd@") && strings.Contains(err.Error(), "p4ssw0rd") {
				t.Errorf("%q: %v", url, err)
			}
			return
		}
		for seg := range strings.SplitSeq(l.prefix, "/") {
			if seg == "." || seg == ".." || seg == "" && l.prefix != "" {
				t.Errorf("%q: prefix %q", url, l.prefix)
			}
		}
		if l.bucket == "" || strings.ContainsAny(l.bucket, "/@") {
			t.Errorf("%q: bucket %q", url, l.bucket)
		}
	})
}
