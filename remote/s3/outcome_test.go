package s3_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/s3"
)

// outcome is an answer of the store and what it means.
type outcome struct {
	name    string
	status  int
	code    string // S3 error code; "" sends a page of HTML
	header  map[string]string
	kind    error
	retryIn time.Duration
	words   []string
}

func (o outcome) write(w http.ResponseWriter) {
	for k, v := range o.header {
		w.Header().Set(k, v)
	}
	if o.code != "" {
		refuse(w, o.status, o.code)
		return
	}
	w.WriteHeader(o.status)
	if o.status >= 200 && o.status != http.StatusNotModified {
		_, _ = w.Write([]byte("<html>words of something in between</html>"))
	}
}

// anyRequest are the outcomes that mean the same whatever was asked.
func anyRequest() []outcome {
	now := time.Now().UTC().Truncate(time.Second)
	return []outcome{
		{name: "401", status: 401, kind: remote.ErrUnauthorized},
		{name: "expired", status: 400, code: "ExpiredToken", kind: remote.ErrUnauthorized},
		{name: "unknown key", status: 403, code: "InvalidAccessKeyId", kind: remote.ErrUnauthorized},
		{name: "bad signature", status: 403, code: "SignatureDoesNotMatch", kind: remote.ErrUnauthorized},
		{name: "clock off", status: 403, code: "RequestTimeTooSkewed", header: map[string]string{"Date": now.Add(3*time.Hour + 30*time.Minute).Format(http.TimeFormat)},
			kind: remote.ErrUnauthorized, words: []string{"clock", "off by 3h"}},
		{name: "other region", status: 400, code: "AuthorizationHeaderMalformed", header: map[string]string{"X-Amz-Bucket-Region": "eu-west-3"},
			kind: remote.ErrUnauthorized, words: []string{"eu-west-3", "AWS_REGION"}},
		{name: "denied", status: 403, code: "AccessDenied", kind: remote.ErrDenied, words: []string{"words of the store"}},
		{name: "denied by something in between", status: 403, kind: remote.ErrDenied},
		{name: "payment", status: 402, kind: remote.ErrQuota},
		{name: "full", status: 507, kind: remote.ErrQuota},
		{name: "quota by code", status: 403, code: "QuotaExceeded", kind: remote.ErrQuota},
		{name: "no bucket", status: 404, code: "NoSuchBucket", kind: remote.ErrNoBucket},
		{name: "bucket elsewhere", status: 301, code: "PermanentRedirect", header: map[string]string{"X-Amz-Bucket-Region": "eu-west-3"},
			kind: remote.ErrNoBucket, words: []string{"eu-west-3"}},
		{name: "not implemented", status: 501, code: "NotImplemented", kind: remote.ErrUnfit},
		{name: "not implemented, 400", status: 400, code: "NotImplemented", kind: remote.ErrUnfit},
		{name: "never", status: 400, code: "InvalidRequest", kind: remote.ErrUnfit},
	}
}

// unknown are the outcomes that leave it open, and are worth another try of what may be repeated.
func unknown() []outcome {
	now := time.Now().UTC().Truncate(time.Second)
	return []outcome{
		{name: "conflict", status: 409, code: "ConditionalRequestConflict", kind: remote.ErrUnknown},
		{name: "throttled", status: 429, header: map[string]string{"Retry-After": "1"}, kind: remote.ErrUnknown, retryIn: time.Second},
		{name: "slow down until", status: 503, code: "SlowDown", header: map[string]string{
			"Date": now.Format(http.TimeFormat), "Retry-After": now.Add(time.Second).Format(http.TimeFormat)}, kind: remote.ErrUnknown, retryIn: time.Second},
		{name: "503", status: 503, kind: remote.ErrUnknown},
		{name: "500", status: 500, code: "InternalError", kind: remote.ErrUnknown},
		{name: "502", status: 502, kind: remote.ErrUnknown},
		{name: "504", status: 504, kind: remote.ErrUnknown},
		{name: "408", status: 408, kind: remote.ErrUnknown},
		{name: "request timeout", status: 400, code: "RequestTimeout", kind: remote.ErrUnknown},
		{name: "damaged on its way", status: 400, code: "XAmzContentSHA256Mismatch", kind: remote.ErrUnknown},
		{name: "page of something in between", status: 404, kind: remote.ErrUnknown, words: []string{"NoSuchKey"}},
		{name: "bad request without a code", status: 400, kind: remote.ErrUnknown},
		{name: "redirect", status: 307, code: "TemporaryRedirect", header: map[string]string{"Location": "http://127.0.0.1:1/x"}, kind: remote.ErrUnknown,
			words: []string{"127.0.0.1:1"}},
		{name: "success without a tag", status: 200, kind: remote.ErrUnknown, words: []string{"entity tag"}},
		{name: "accepted only", status: 202, header: map[string]string{"ETag": `"x"`}, kind: remote.ErrUnknown},
	}
}

func TestCreateIsOneRequestAndTellsItsOutcome(t *testing.T) {
	rows := append(anyRequest(), unknown()...)
	rows = append(rows,
		outcome{name: "taken", status: 412, code: "PreconditionFailed", kind: remote.ErrExists},
		outcome{name: "taken, 412 alone", status: 412, kind: remote.ErrExists},
		outcome{name: "taken, 304", status: 304, kind: remote.ErrExists},
		outcome{name: "501 alone", status: 501, kind: remote.ErrUnfit, words: []string{"If-None-Match"}},
		outcome{name: "wait long", status: 503, header: map[string]string{"Retry-After": "86400"}, kind: remote.ErrUnknown, retryIn: 24 * time.Hour},
	)
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			f := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int, _ []byte) { row.write(w) })
			s, counts := counted(open(t, f.URL, s3.Options{}))
			_, err := s.Create(bg, "a/b", []byte("body"))
			e := wantError(t, err, row.kind)
			wantWords(t, err, append(row.words, "create s3://bucket/prefix/a/b")...)
			if e.Status != row.status || e.RetryAfter != row.retryIn {
				t.Errorf("status %d, retry after %v; want %d, %v", e.Status, e.RetryAfter, row.status, row.retryIn)
			}
			if n := len(f.requests()); n != 1 {
				t.Errorf("%d requests, want 1", n)
			}
			if got, want := counts(), (remote.Counts{Put: 1, BytesUp: 4}); got != want {
				t.Errorf("counted %+v, want %+v", got, want)
			}
		})
	}
}

func TestSwapIsOneRequestAndTellsItsOutcome(t *testing.T) {
	rows := append(anyRequest(), unknown()...)
	rows = append(rows,
		outcome{name: "changed", status: 412, code: "PreconditionFailed", kind: remote.ErrChanged},
		outcome{name: "changed, 304", status: 304, kind: remote.ErrChanged},
		outcome{name: "absent", status: 404, code: "NoSuchKey", kind: remote.ErrNotFound},
		outcome{name: "501 alone", status: 501, kind: remote.ErrUnfit, words: []string{"If-Match"}},
	)
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			f := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int, _ []byte) { row.write(w) })
			s := open(t, f.URL, s3.Options{})
			_, err := s.Swap(bg, "a", "etag", []byte("body"))
			wantError(t, err, row.kind)
			wantWords(t, err, row.words...)
			if n := len(f.requests()); n != 1 {
				t.Errorf("%d requests, want 1", n)
			}
		})
	}
}

// TestReadsAndDeletesAreRepeated sends each transient outcome once, and once too often.
func TestReadsAndDeletesAreRepeated(t *testing.T) {
	calls := map[string]func(remote.Store) error{
		"get":    func(s remote.Store) error { _, err := s.Get(bg, "a", remote.GetOptions{}); return err },
		"list":   func(s remote.Store) error { _, _, err := s.List(bg, "a", remote.ListOptions{}); return err },
		"delete": func(s remote.Store) error { return s.Delete(bg, "a") },
	}
	good := map[string]func(http.ResponseWriter){
		"get":    func(w http.ResponseWriter) { stored(w); _, _ = w.Write([]byte("body")) },
		"list":   func(w http.ResponseWriter) { _, _ = w.Write([]byte("<ListBucketResult></ListBucketResult>")) },
		"delete": func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) },
	}
	for op, call := range calls {
		for _, row := range unknown() {
			if row.status < 300 {
				continue
			}
			t.Run(op+"/"+row.name, func(t *testing.T) {
				t.Parallel()
				f := serve(t, func(w http.ResponseWriter, _ *http.Request, n int, _ []byte) {
					if n == 1 {
						row.write(w)
					} else {
						good[op](w)
					}
				})
				if err := call(open(t, f.URL, s3.Options{Tries: 2})); err != nil {
					t.Errorf("once: %v", err)
				}
				always := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int, _ []byte) { row.write(w) })
				s, counts := counted(open(t, always.URL, s3.Options{Tries: 2}))
				wantError(t, call(s), remote.ErrUnknown)
				if c := counts(); len(always.requests()) != 2 || c.Get+c.List+c.Delete != 2 {
					t.Errorf("%d requests, counted %+v; want 2", len(always.requests()), c)
				}
			})
		}
		for _, row := range anyRequest() {
			t.Run(op+"/"+row.name, func(t *testing.T) {
				t.Parallel()
				f := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int, _ []byte) { row.write(w) })
				err := call(open(t, f.URL, s3.Options{}))
				wantError(t, err, row.kind)
				wantWords(t, err, row.words...)
			})
		}
	}
}

func TestOnlyTheStoresWordIsProofOfAbsence(t *testing.T) {
	f := serve(t, func(w http.ResponseWriter, _ *http.Request, n int, _ []byte) {
		if n == 1 {
			http.NotFound(w, nil)
			return
		}
		refuse(w, 404, "NoSuchKey")
	})
	_, err := open(t, f.URL, s3.Options{}).Get(bg, "a", remote.GetOptions{})
	wantError(t, err, remote.ErrNotFound)
	if n := len(f.requests()); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

func TestForbiddenGetSaysThatListingIsNeeded(t *testing.T) {
	f := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int, _ []byte) { refuse(w, 403, "AccessDenied") })
	_, err := open(t, f.URL, s3.Options{}).Get(bg, "a", remote.GetOptions{})
	wantError(t, err, remote.ErrDenied)
	wantWords(t, err, "s3:ListBucket", "absent")
}

func TestDeleteOfAnAbsentKeyIsNoError(t *testing.T) {
	f := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int, _ []byte) { refuse(w, 404, "NoSuchKey") })
	if err := open(t, f.URL, s3.Options{}).Delete(bg, "a"); err != nil {
		t.Fatal(err)
	}
}

func TestRetryAfterIsWaitedForOrGivenToTheCaller(t *testing.T) {
	f := serve(t, func(w http.ResponseWriter, _ *http.Request, n int, _ []byte) {
		if n == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(429)
			return
		}
		w.WriteHeader(204)
	})
	begin := time.Now()
	if err := open(t, f.URL, s3.Options{}).Delete(bg, "a"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < time.Second {
		t.Errorf("sent again after %v, asked to wait 1 s", took)
	}

	f = serve(t, func(w http.ResponseWriter, _ *http.Request, _ int, _ []byte) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(503)
	})
	e := wantError(t, open(t, f.URL, s3.Options{}).Delete(bg, "a"), remote.ErrUnknown)
	if e.RetryAfter != time.Hour || len(f.requests()) != 1 {
		t.Errorf("retry after %v, %d requests; want 1h at once", e.RetryAfter, len(f.requests()))
	}
}
