package server

import (
	"net/http"
	"net/url"
	"strings"

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
	// stream: the request is bounded by nothing but progress, each read and write by Options.Timeout. Others are by Options.Timeout as a whole.
	stream  bool
	maxBody int64 // bytes; 0: Options.MaxBody
	handle  func(*call) error
}

// routes are all there are.
func (s *Server) routes() []route {
	const databases, instances, keys = "/v1/databases", "/v1/instances", "/v1/api-keys"
	const database, instance, apiKey = databases + "/{name}", instances + "/{key}", keys + "/{id}"
	all := []route{
		{method: "GET", path: "/healthz", id: "health", public: true, handle: s.health},
		{method: "GET", path: "/readyz", id: "ready", public: true, handle: s.ready},
		{method: "GET", path: "/metrics", id: "metrics", public: !s.o.MetricsKey, action: access.ReadAccount, handle: s.serveMetrics},
		{method: "GET", path: "/openapi.json", id: "openapi", public: true, handle: s.openapi},

		{method: "GET", path: databases, id: "listDatabases", action: access.ListDatabases, handle: s.listDatabases},
		{method: "POST", path: databases, id: "createDatabase", action: access.ListDatabases, handle: s.createDatabase}, // the name is in the body: the handler asks
		{method: "GET", path: database, id: "getDatabase", action: access.ReadDatabase, handle: s.getDatabase},
		{method: "PATCH", path: database, id: "updateDatabase", action: access.ManageDatabase, handle: s.updateDatabase},
		{method: "DELETE", path: database, id: "deleteDatabase", action: access.ManageDatabase, handle: s.deleteDatabase},
		{method: "POST", path: database + "/fork", id: "forkDatabase", action: access.ManageDatabase, handle: s.fork},
		{method: "POST", path: database + "/rewind", id: "rewindDatabase", action: access.ManageDatabase, handle: s.rewind},
		{method: "POST", path: database + "/checkpoints", id: "checkpointDatabase", action: access.Label, handle: s.checkpoint},
		{method: "GET", path: database + "/history", id: "getHistory", action: access.ReadDatabase, handle: s.history},
		{method: "GET", path: database + "/export", id: "exportDatabase", action: access.ReadDatabase, stream: true, handle: s.export},
		{method: "GET", path: database + "/usage", id: "getDatabaseUsage", action: access.ReadDatabase, handle: s.usage},
		{method: "POST", path: database + "/query", id: "queryDatabase", action: access.ReadDatabase, handle: s.query},

		{method: "GET", path: instance, id: "getInstance", action: access.ReadDatabase, handle: s.getInstance},
		{method: "PATCH", path: instance, id: "updateInstance", action: access.ManageDatabase, handle: s.updateInstance},
		{method: "DELETE", path: instance, id: "releaseInstance", action: access.ManageDatabase, handle: s.releaseInstance},
		{method: "PUT", path: instance + "/binding", id: "bindInstance", action: access.ManageDatabase, handle: s.bindInstance},
		{method: "POST", path: instance + "/ensure", id: "ensureInstance", action: access.ManageDatabase, handle: s.ensureInstance},
		{method: "POST", path: instance + "/replace", id: "replaceInstance", action: access.ManageDatabase, handle: s.replaceInstance},

		{method: "GET", path: keys, id: "listKeys", action: access.ListKeys, handle: s.listKeys},
		{method: "POST", path: keys, id: "makeKey", action: access.MakeKeys, handle: s.makeKey},
		{method: "DELETE", path: apiKey, id: "revokeKey", action: access.MakeKeys, handle: s.revokeKey},
		{method: "POST", path: apiKey + "/rotate", id: "rotateKey", action: access.MakeKeys, handle: s.rotateKey},

		{method: "GET", path: "/v1/usage", id: "getUsage", action: access.ReadAccount, handle: s.usage},
	}
	return append(all, s.dataRoutes()...)
}

// changes tells whether the route changes something that an operator wants to see in the log: a database as a whole, or a key.
func (r *route) changes() bool {
	return r.method != http.MethodGet && !r.stream && (r.action == access.ManageDatabase || r.action == access.MakeKeys || r.action == access.Label || r.id == "createDatabase")
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
		if segments[i] == "" { // nothing is no object, and its listing has another path
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
