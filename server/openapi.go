package server

import (
	_ "embed"
	"net/http"
)

// openapiJSON is kept by hand; a test compares it with the routes.
//
//go:embed openapi.json
var openapiJSON []byte

func (s *Server) openapi(c *call) error {
	return c.send(http.StatusOK, "application/json", openapiJSON)
}
