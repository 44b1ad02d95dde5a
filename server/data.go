package server

import (
	"errors"
	"net/http"

	"github.com/tonbo-go/tonbo/internal/objects"
	"github.com/tonbo-go/tonbo/internal/objectwire"
	"github.com/tonbo-go/tonbo/server/internal/access"
)

// dataRoutes are those of the data plane: the objects of a database by their keys, and those of the account. What a narrowed key may do with which of them, package internal/objects decides, by what the key belongs to and by what is in it.
func (s *Server) dataRoutes() []route {
	h := objects.New(s.store, objects.Options{MaxObject: s.o.MaxObject, MaxMemory: s.o.MaxMemory, Rate: s.o.KeyRate})
	var all []route
	for _, of := range []string{"Database", "Account"} {
		path := "/v1/objects"
		if of == "Database" {
			path = "/v1/databases/{name}/objects"
		}
		one := path + "/{rest...}"
		all = append(all,
			route{method: http.MethodGet, path: path, id: "list" + of + "Objects", action: access.ReadObjects, handle: s.objects(h)},
			route{method: http.MethodGet, path: one, id: "get" + of + "Object", action: access.ReadObjects, stream: true, handle: s.objects(h)},
			route{method: http.MethodPut, path: one, id: "put" + of + "Object", action: access.WriteObjects, stream: true, maxBody: h.MaxObject(), handle: s.objects(h)},
			route{method: http.MethodDelete, path: one, id: "delete" + of + "Object", action: access.WriteObjects, handle: s.objects(h)},
		)
	}
	return all
}

// objects hands a request to the data plane.
func (s *Server) objects(h *objects.Handler) func(*call) error {
	return func(c *call) error {
		caller := &objects.Caller{ID: c.key.ID, Narrowed: c.key.Narrowed(), ReadOnly: c.key.ReadOnly, Names: c.key.Databases, Prefixes: c.key.Prefixes}
		err := h.Serve(c.w, c.r.WithContext(c.ctx), caller, c.name(), c.rest())
		var r *objects.Refusal
		if !errors.As(err, &r) {
			return err
		}
		if r.Code == objectwire.NotFound {
			return notFound() // the bytes of all others
		}
		return &problem{Status: r.Status, Code: r.Code, Detail: r.Detail, RetryAfter: r.RetryAfter, Header: r.Header, Close: r.Close}
	}
}
