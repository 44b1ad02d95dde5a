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
	h := c.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(b.Len()))
	c.w.WriteHeader(status)
	if c.r.Method == http.MethodHead {
		return nil
	}
	_, err := c.w.Write(b.Bytes())
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
	rc := http.NewResponseController(c.w)
	at := time.Now().Add(d)
	// Not every ResponseWriter has deadlines (tests, embedders' own): what then bounds the request is theirs.
	_ = rc.SetReadDeadline(at)
	_ = rc.SetWriteDeadline(at)
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

// Unwrap is http.ResponseController's way to the writer beneath.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
