package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/share"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/server/internal/access"
)

// Options of New. The zero value works when $TONBO_URL is set.
type Options struct {
	tonbo.Options               // the account: URL or Remote; Dir for what the server reads itself; Logger for the server, too
	Timeout       time.Duration // of a request, and of each read and write of those that stream; default 60 s
	MaxBody       int64         // bytes of a request's body on routes of the control plane; default 1 MiB
	MaxObject     int64         // bytes of an object on the data plane; default 64 MiB, which is more than the library makes
	MaxMemory     int64         // bytes of objects in memory at once, of uploads and downloads together; default 256 MiB, and at least two of the largest objects. One key has at most half of it
	KeyRate       float64       // requests a second on the data plane of one key; default 5,000; < 0: any number
	KeyCache      time.Duration // how long a verdict on a key may be used again; default 3 s, at most 5 s; < 0: each request asks the remote
	Concurrency   int           // queries, exports and checkpoints at once; default 8. A query may use 48 MiB of memory, an export the room of its database in Dir
	MetricsKey    bool          // /metrics needs a key that is not narrowed, as /v1/usage does; default: it needs none
}

const (
	defaultTimeout  = 60 * time.Second
	defaultMaxBody  = 1 << 20
	defaultKeyCache = 3 * time.Second
	maxKeyCache     = 5 * time.Second
	concurrency     = 8
)

// Server is the handler. Safe for concurrent use. Close it when no more requests come.
type Server struct {
	o      Options
	client *tonbo.Client
	store  remote.Store
	keys   *access.Keys
	log    *slog.Logger
	tree   *node
	all    []route

	metrics   *metrics
	slots     *share.Pool
	crowd     crowd
	queryTime time.Duration
	dir       string // for what a checkpoint opens; "": the system's temporary directory

	readiness readiness

	ctx  context.Context // ends with Close: every request's does then
	stop context.CancelFunc
	busy sync.WaitGroup
	mu   sync.Mutex // guards down, and busy's Add against its Wait
	down bool
}

// New returns the server of an account. It sends no request.
func New(o Options) (*Server, error) {
	if o.Timeout < 0 || o.MaxBody < 0 || o.Concurrency < 0 || o.MaxObject < 0 || o.MaxMemory < 0 {
		return nil, errors.New("server: Options.Timeout, MaxBody, Concurrency, MaxObject and MaxMemory are not negative")
	}
	if o.KeyCache > maxKeyCache {
		return nil, fmt.Errorf("server: Options.KeyCache is %s: at most %s, by which a revoked key is refused everywhere", o.KeyCache, maxKeyCache)
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.MaxBody == 0 {
		o.MaxBody = defaultMaxBody
	}
	if o.KeyCache == 0 {
		o.KeyCache = defaultKeyCache
	}
	if o.Concurrency == 0 {
		o.Concurrency = concurrency
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	client, err := tonbo.NewClient(o.Options)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s := &Server{o: o, client: client, store: client.Remote(), log: o.Logger, metrics: newMetrics(), slots: share.New(int64(o.Concurrency)), queryTime: queryTime, dir: o.Dir}
	if s.dir != "" {
		if err := os.MkdirAll(s.dir, 0o700); err != nil {
			return nil, fmt.Errorf("server: Options.Dir: %w", err)
		}
	}
	s.keys = access.NewKeys(s.store, access.Options{Cache: max(0, o.KeyCache)})
	s.all = s.routes()
	s.tree = newTree(s.all)
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// Close ends the requests that are under way and waits for them. Later ones get 503.
func (s *Server) Close() error {
	s.mu.Lock()
	s.down = true
	s.mu.Unlock()
	s.stop()
	s.busy.Wait()
	return nil
}

// begin counts a request. False: the server is closed.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return false
	}
	s.busy.Add(1)
	return true
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{w: &recorder{ResponseWriter: w}, r: r, id: requestID(r)}
	c.w.Header().Set("X-Request-Id", c.id)
	c.w.Header().Set("X-Content-Type-Options", "nosniff")
	if !s.begin() {
		unavailable("closing", "the server is going down", time.Second).write(c.w, r.Method == http.MethodHead)
		return
	}
	defer s.busy.Done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	c.ctx = ctx
	began := time.Now()
	s.metrics.inFlight.Add(1)
	defer s.metrics.inFlight.Add(-1)
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p != http.ErrAbortHandler {
			s.log.Error("a handler panicked", "request", c.id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			s.done(c, began, errors.New("panic"))
		}
		panic(http.ErrAbortHandler) // the connection is cut, so that nobody takes half an answer for a whole one
	}()
	c.progress(s.o.Timeout + grace) // what was left of the connection's request before may have passed
	err := s.answer(c)
	begun := c.w.status != 0
	if err != nil && !begun {
		problemOf(err).write(c.w, r.Method == http.MethodHead)
	}
	s.done(c, began, err)
	if err != nil && begun {
		panic(http.ErrAbortHandler)
	}
}

// grace is what a connection has beyond its request's time, for the answer.
const grace = 5 * time.Second

// answer finds the route and the key, and has the handler answer.
func (s *Server) answer(c *call) error {
	// (1) Who asks? Before anything about the path is told. Routes without a key are outside /v1.
	place, params := s.tree.find(c.r.URL)
	var rt *route
	if place != nil {
		rt = place.method(c.r.Method)
	}
	if rt == nil || !rt.public {
		key, err := s.authenticate(c)
		if err != nil {
			return err
		}
		c.key = key
	}
	// (2) What is asked for?
	switch {
	case place == nil:
		return notFound()
	case rt == nil:
		return &problem{Status: http.StatusMethodNotAllowed, Code: "method_not_allowed", Detail: "this path has no such method", Header: http.Header{"Allow": {place.allowed()}}}
	}
	c.route, c.params = rt, params
	// (3) May it? A name that cannot be is one that does not exist.
	if !rt.public {
		name := c.name()
		if name != "" && tonbo.ValidateName(name) != nil {
			return notFound()
		}
		if err := c.key.May(rt.action, name); err != nil {
			return err
		}
	}
	// (4) Within its bounds.
	if !rt.public && c.key.Narrowed() && rt.action != access.ReadObjects && rt.action != access.WriteObjects { // the data plane has its own
		leave, err := s.crowd.enter(c.key.ID)
		if err != nil {
			return err
		}
		defer leave()
	}
	limit := rt.maxBody
	if limit == 0 {
		limit = s.o.MaxBody
	}
	c.r.Body = &countedBody{ReadCloser: http.MaxBytesReader(c.w.ResponseWriter, c.r.Body, limit)}
	if !rt.stream {
		ctx, cancel := context.WithTimeout(c.ctx, s.o.Timeout)
		defer cancel()
		c.ctx = ctx
	}
	if rt.stream && (c.r.Method == http.MethodGet || c.r.Method == http.MethodHead) {
		c.reading(0) // a deadline that passes while the handler is at work would end its context
	}
	return rt.handle(c)
}

// authenticate finds the key of a request.
func (s *Server) authenticate(c *call) (*access.Key, error) {
	values := c.r.Header.Values("Authorization")
	if len(values) != 1 {
		return nil, unauthorized()
	}
	scheme, secret, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return nil, unauthorized()
	}
	key, err := s.keys.Verify(c.ctx, strings.TrimSpace(secret))
	if errors.Is(err, access.ErrRefused) {
		return nil, unauthorized()
	}
	return key, err
}

// done notes what became of a request. Nothing of its headers or body is logged.
func (s *Server) done(c *call, began time.Time, err error) {
	route, key := "none", ""
	if c.route != nil {
		route = c.route.id
	}
	if c.key != nil {
		key = c.key.ID
	}
	up, _ := c.r.Body.(*countedBody)
	s.metrics.note(answered{route, methodLabel(c.r.Method), c.w.status}, up.count(), c.w.bytes, time.Since(began))
	level := slog.LevelDebug
	switch {
	case c.w.status >= 500 && c.r.Context().Err() != nil: // the client went away: nothing is wrong here
	case c.w.status >= 500:
		level = slog.LevelError
	case c.w.status < 400 && c.route != nil && c.route.changes(): // who changed what
		level = slog.LevelInfo
	}
	attrs := []slog.Attr{slog.String("request", c.id), slog.String("route", route), slog.Int("status", c.w.status), slog.String("key", key), slog.Duration("took", time.Since(began))}
	if c.key != nil && c.route != nil && c.w.status < 400 { // names that the key reaches
		for _, name := range []string{"name", "key", "id"} {
			if v, ok := c.params[name]; ok {
				attrs = append(attrs, slog.String("of", v))
			}
		}
	}
	var p *problem
	switch {
	case err == nil:
	case errors.As(err, &p):
		attrs = append(attrs, slog.String("code", p.Code))
	case c.w.status < 500 && c.w.status != 0: // the client's: what it sent may be in the text
		attrs = append(attrs, slog.String("code", problemOf(err).Code))
	default:
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	s.log.LogAttrs(context.WithoutCancel(c.ctx), level, "request", attrs...)
}

// requestID is what the client calls the request, if that can be a name in logs, or a new one.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	if id != "" && len(id) <= 64 && strings.IndexFunc(id, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.')
	}) < 0 && !strings.Contains(id, access.Mark) {
		return id
	}
	var b [12]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
