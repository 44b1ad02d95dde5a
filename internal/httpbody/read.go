package httpbody

import (
	"errors"
	"io"
	"net/http"
	"strconv"
)

// Bounds, in bytes.
const (
	ErrorLimit  = 64 << 10 // how much of an answer that is no object and no listing is worth reading
	Unlimited   = 1 << 62
	MaxPrealloc = 64 << 20 // what an announced length alone makes us allocate
)

// Read reads the body of an answer up to limit; beyond that is an error, and the rest is left to net/http, which keeps the connection if there is little of it. moved is called whenever some has come. What was read is
// returned with an error, too.
func Read(resp *http.Response, limit int64, moved func()) ([]byte, error) {
	if resp.ContentLength == 0 {
		return nil, nil
	}
	var buf []byte
	if n := resp.ContentLength; n > 0 {
		buf = make([]byte, 0, min(n, limit, MaxPrealloc)+1) // one more, to see the end without growing
	}
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, make([]byte, max(4096, min(len(buf), 16<<20)))...)[:len(buf)]
		}
		n, err := resp.Body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if n > 0 {
			moved()
		}
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
		if int64(len(buf)) > limit {
			return buf[:limit], errors.New("answer is longer than " + strconv.FormatInt(limit, 10) + " bytes")
		}
	}
}
