package s3_test

import (
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/s3"
)

// TestStreamIsOneRequestAndNeverShort: what is not the part that was asked for is an error, and so is a body that is cut or stalls.
func TestStreamIsOneRequestAndNeverShort(t *testing.T) {
	for name, c := range map[string]struct {
		status      int
		rng, etag   string
		length      int
		body        string
		stall       bool
		begun, read bool
	}{
		"whole":          {206, "bytes 2-5/10", `"a"`, 4, "2345", false, true, true},
		"everything":     {200, "", `"a"`, 10, "0123456789", false, false, false},
		"another part":   {206, "bytes 1-4/10", `"a"`, 4, "1234", false, false, false},
		"more":           {206, "bytes 2-6/10", `"a"`, 5, "23456", false, false, false},
		"another length": {206, "bytes 2-5/10", `"a"`, 3, "234", false, false, false},
		"no range":       {206, "", `"a"`, 4, "2345", false, false, false},
		"another object": {206, "bytes 2-5/10", `"b"`, 4, "2345", false, false, false},
		"no tag":         {206, "bytes 2-5/10", "", 4, "2345", false, false, false},
		"unavailable":    {503, "", "", 0, "", false, false, false},
		"absent":         {404, "", "", 0, "", false, false, false},
		"cut":            {206, "bytes 2-5/10", `"a"`, 4, "23", false, true, false},
		"stalled":        {206, "bytes 2-5/10", `"a"`, 4, "23", true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, func(w http.ResponseWriter, r *http.Request, _ int, _ []byte) {
				h := w.Header()
				h.Set("Content-Length", strconv.Itoa(c.length))
				if c.rng != "" {
					h.Set("Content-Range", c.rng)
				}
				if c.etag != "" {
					h.Set("Etag", c.etag)
				}
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
				if c.stall {
					w.(http.Flusher).Flush()
					<-r.Context().Done()
				}
			})
			var o s3.Options
			if c.stall {
				o.StallTimeout = 100 * time.Millisecond
			}
			s := open(t, f.URL, o)
			info, body, err := s.Stream(t.Context(), "k", remote.GetOptions{Offset: 2, Length: 4, IfMatch: "a"})
			if (err == nil) != c.begun {
				t.Fatalf("begun: %+v, %v", info, err)
			}
			if err == nil {
				got, err := io.ReadAll(body)
				if (err == nil) != c.read || string(got) != c.body || info.Size != 10 || info.ETag != "a" {
					t.Errorf("got %q of %+v, %v", got, info, err)
				}
				if err := body.Close(); err != nil {
					t.Error(err)
				}
			}
			if n := len(f.requests()); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}
