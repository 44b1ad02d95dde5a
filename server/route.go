package server

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tonbo-go/tonbo/server/internal/access"
)

// route is one method on one path.
type route struct {
	method string
	// path is matched segment by segment: {name} is a database's name, {key} an instance's, {id} a key's id, and {rest...} all that follows, at least one segment.
	path string
	id   string // operationId in the OpenAPI document, and the route's name in metrics and logs
	// public routes need no key; action is what others do, with the name in the path.
	public bool
	action access.Action
	// timeout bounds the request. 0: Options.Timeout. stream: nothing but progress does: each read and write has Options.Timeout.
	timeout time.Duration
	stream  bool
	maxBody int64 // bytes; 0: Options.MaxBody
	handle  func(*call) error
}

// routes are all there are.
func (s *Server) routes() []route {
	all := []route{
		{method: "GET", path: "/healthz", id: "health", public: true, handle: s.health},
		{method: "GET", path: "/readyz", id: "ready", public: true, handle: s.ready},
	}
	return append(all, s.dataRoutes()...)
}

// node is a place in the tree of paths.
type node struct {
	literal  map[string]*node
	param    *node  // any segment
	name     string // of param
	rest     *node  // all segments that follow
	restName string
	methods  map[string]*route
}

// newTree makes the tree of the routes.
func newTree(routes []route) *node {
	root := &node{}
	for i := range routes {
		r := &routes[i]
		n := root
		for seg := range strings.SplitSeq(strings.TrimPrefix(r.path, "/"), "/") {
			name, isParam := strings.CutPrefix(seg, "{")
			name = strings.TrimSuffix(name, "}")
			rest, isRest := strings.CutSuffix(name, "...")
			switch {
			case isParam && isRest:
				if n.rest == nil {
					n.rest, n.restName = &node{}, rest
				}
				n = n.rest
			case isParam:
				if n.param == nil {
					n.param, n.name = &node{}, name
				}
				n = n.param
			default:
				if n.literal == nil {
					n.literal = map[string]*node{}
				}
				if n.literal[seg] == nil {
					n.literal[seg] = &node{}
				}
				n = n.literal[seg]
			}
		}
		if n.methods == nil {
			n.methods = map[string]*route{}
		}
		n.methods[r.method] = r
	}
	return root
}

// find returns the place of a path, and what its parameters are, decoded; nil: there is none. The path is taken as it was sent: nothing is cleaned, so "..", "//" and an encoded slash are segments like others, which no
// name and no object key has. A literal comes before a parameter.
func (n *node) find(u *url.URL) (*node, map[string]string) {
	path, ok := strings.CutPrefix(u.EscapedPath(), "/")
	if !ok {
		return nil, nil
	}
	params := map[string]string{}
	segments := strings.Split(path, "/")
	for i, raw := range segments {
		if next := n.literal[raw]; next != nil {
			n = next
			continue
		}
		if n.param != nil {
			seg, err := url.PathUnescape(raw)
			if err != nil || seg == "" {
				return nil, nil
			}
			params[n.name] = seg
			n = n.param
			continue
		}
		if n.rest == nil {
			return nil, nil
		}
		decoded := make([]string, 0, len(segments)-i)
		for _, raw := range segments[i:] {
			seg, err := url.PathUnescape(raw)
			if err != nil || strings.Contains(seg, "/") {
				return nil, nil
			}
			decoded = append(decoded, seg)
		}
		params[n.restName] = strings.Join(decoded, "/")
		n = n.rest
		break
	}
	if n.methods == nil {
		return nil, nil
	}
	return n, params
}

// allowed lists the methods of a place, for the header Allow.
func (n *node) allowed() string {
	var all []string
	for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if n.methods[m] != nil || m == http.MethodHead && n.methods[http.MethodGet] != nil {
			all = append(all, m)
		}
	}
	return strings.Join(all, ", ")
}

// method returns the place's route for a method. HEAD is GET without a body where it is no route of its own.
func (n *node) method(m string) *route {
	if r := n.methods[m]; r != nil || m != http.MethodHead {
		return r
	}
	return n.methods[http.MethodGet]
}
