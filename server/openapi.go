package server

import (
	_ "embed"
	"net/http"
	"strconv"
)

// openapiJSON is kept by hand; a test compares it with the routes.
//
//go:embed openapi.json
var openapiJSON []byte

func (s *Server) openapi(c *call) error {
	h := c.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(openapiJSON)))
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return nil
	}
	_, err := c.w.Write(openapiJSON)
	return err
}
