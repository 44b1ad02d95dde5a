package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/tonbo-go/tonbo/server/internal/access"
)

// call is one request on its way to its answer. The handler has it for itself.
type call struct {
	ctx    context.Context
	w      *recorder
	r      *http.Request
	route  *route
	id     string      // of the request
	key    *access.Key // nil on public routes
	params map[string]string
}

// name is the database, or instance key, in the path. It is a valid name, and the key reaches it.
func (c *call) name() string {
	if n, ok := c.params["name"]; ok {
		return n
	}
	return c.params["key"]
}

// rest is the object key in the path.
func (c *call) rest() string { return c.params["rest"] }

// data answers with {"data": v}.
func (c *call) data(status int, v any) error {
	return c.json(status, struct {
		Data any `json:"data"`
	}{v})
}

// json answers with v.
func (c *call) json(status int, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	c.w.Header().Set("Cache-Control", "no-store")
	return c.send(status, "application/json", b.Bytes())
}

// send answers with b, or to a HEAD with no more than its length.
func (c *call) send(status int, contentType string, b []byte) error {
	h := c.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(b)))
	c.w.WriteHeader(status)
	if c.r.Method == http.MethodHead {
		return nil
	}
	_, err := c.w.Write(b)
	return err
}

// none answers without a body.
func (c *call) none() error {
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// body decodes the request's JSON into v. An empty body leaves v as it is. What v has no field for is refused: a misspelled "read_only" must not make a key that writes.
func (c *call) body(v any) error {
	b, err := io.ReadAll(c.r.Body)
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return err
		}
		return badRequest("the body could not be read to its end")
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return badRequest("the body is not the JSON that this route takes: " + err.Error())
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return badRequest("the body has something behind its JSON")
	}
	return nil
}

// progress gives the next read of the body and the next write of the answer a time of their own, for routes that stream.
func (c *call) progress(d time.Duration) {
	c.reading(d)
	c.writing(d)
}

// reading bounds the next read of the body; 0: it does not.
func (c *call) reading(d time.Duration) {
	// Not every ResponseWriter has deadlines (tests, embedders' own): what then bounds the request is theirs.
	_ = http.NewResponseController(c.w).SetReadDeadline(deadline(d))
}

// writing bounds the next write of the answer; 0: it does not.
func (c *call) writing(d time.Duration) {
	_ = http.NewResponseController(c.w).SetWriteDeadline(deadline(d))
}

func deadline(d time.Duration) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return time.Now().Add(d)
}

// recorder notes what was answered.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// ReadFrom lets net/http take a file as it is.
func (w *recorder) ReadFrom(r io.Reader) (int64, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := io.Copy(w.ResponseWriter, r)
	w.bytes += n
	return n, err
}

// Unwrap is http.ResponseController's way to the writer beneath.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// countedBody counts what is read of a request's body.
type countedBody struct {
	io.ReadCloser
	n int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	return n, err
}

func (b *countedBody) count() int64 {
	if b == nil {
		return 0
	}
	return b.n
}
