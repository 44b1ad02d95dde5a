package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/tonbo-go/tonbo/internal/view"
	"github.com/tonbo-go/tonbo/server/internal/access"
)

func (s *Server) makeKey(c *call) error {
	var b struct {
		Name      string          `json:"name"`
		Role      string          `json:"role"`
		Agent     string          `json:"agent"`
		User      string          `json:"user"`
		Databases []string        `json:"databases"`
		Prefixes  []string        `json:"database_prefixes"`
		ReadOnly  bool            `json:"read_only"`
		ExpiresAt json.RawMessage `json:"expires_at"`
		TTL       json.RawMessage `json:"ttl"`
	}
	if err := c.body(&b); err != nil {
		return err
	}
	// An empty list is a mistake, and must not make a key that reaches all.
	if b.Databases != nil && len(b.Databases) == 0 || b.Prefixes != nil && len(b.Prefixes) == 0 {
		return keyProblem(&access.SpecError{Field: "databases", Reason: "an empty list reaches nothing: leave it out for a key that is not narrowed"})
	}
	spec := access.Spec{Name: b.Name, Role: access.Role(b.Role), Agent: b.Agent, User: b.User, Databases: b.Databases, Prefixes: b.Prefixes, ReadOnly: b.ReadOnly}
	at, ttl, err := expiry(b.ExpiresAt, b.TTL)
	if err != nil {
		return err
	}
	switch {
	case at.Value != nil:
		spec.ExpiresAt = *at.Value
	case ttl != nil:
		spec.ExpiresAt = time.Now().Add(*ttl)
	}
	key, secret, err := s.keys.Make(c.ctx, c.key, spec)
	if err != nil {
		return keyProblem(err)
	}
	c.params["id"] = key.ID // for the log
	c.w.Header().Set("Location", "/v1/api-keys/"+key.ID)
	return c.data(http.StatusCreated, viewKey(key, secret))
}

func (s *Server) listKeys(c *call) error {
	q, err := c.query(func(k string) bool { return k == "limit" || k == "cursor" })
	if err != nil {
		return err
	}
	limit, cursor, err := page(q)
	if err != nil {
		return err
	}
	keys, more, err := s.keys.List(c.ctx, c.key, cursor, limit)
	if errors.Is(err, access.ErrNotFound) {
		return badRequest("cursor: want the next_cursor of the page before")
	}
	if err != nil {
		return err
	}
	var answer struct {
		Data []view.Key `json:"data"`
		Next string     `json:"next_cursor,omitempty"`
	}
	answer.Data = []view.Key{}
	for _, k := range keys {
		answer.Data = append(answer.Data, viewKey(k, ""))
	}
	if more {
		answer.Next = keys[len(keys)-1].ID
	}
	return c.json(http.StatusOK, answer)
}

func (s *Server) rotateKey(c *call) error {
	key, secret, err := s.keys.Rotate(c.ctx, c.key, c.params["id"])
	if err != nil {
		return keyProblem(err)
	}
	return c.data(http.StatusOK, viewKey(key, secret))
}

func (s *Server) revokeKey(c *call) error {
	if err := s.keys.Revoke(c.ctx, c.key, c.params["id"]); err != nil {
		return keyProblem(err)
	}
	return c.none()
}

func keyProblem(err error) error {
	var spec *access.SpecError
	switch {
	case errors.As(err, &spec) && spec.Field == "expires_at":
		return &problem{Status: http.StatusUnprocessableEntity, Code: "invalid_expires_at", Detail: spec.Error()}
	case errors.As(err, &spec):
		return &problem{Status: http.StatusBadRequest, Code: "invalid_key", Detail: spec.Error()}
	case errors.Is(err, access.ErrNotFound):
		return notFound()
	}
	return err
}
