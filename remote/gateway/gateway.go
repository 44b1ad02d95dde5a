package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tonbo-go/tonbo/internal/objectwire"
	"github.com/tonbo-go/tonbo/remote"
)

// Store is a [remote.Store] behind a tonbo server. Make one with [Open].
type Store struct {
	loc    location
	tokens tokens
	client http.RoundTripper
	own    *http.Transport // nil when the caller brought one
	o      Options
	log    *slog.Logger

	reached sync.Map // database: struct{}, those that the server has answered for
}

var _ remote.Store = (*Store)(nil)

// Open prepares a store at https://host[:port][/path], http:// (to this machine alone, unless insecure=true is in the query) or unix:///path/of/socket. Nothing is sent yet. [Store.Close] lets go of idle connections.
func Open(url string, o Options) (*Store, error) {
	l, err := parse(url, &o)
	if err != nil {
		return nil, err
	}
	if o.StallTimeout <= 0 {
		o.StallTimeout = defaultStallTimeout
	}
	if o.Tries <= 0 {
		o.Tries = defaultTries
	}
	s := &Store{loc: l, o: o, log: o.Logger, client: o.Transport}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.tokens.ask = o.Token
	if o.Token == nil {
		if err := checkToken(o.APIKey); err != nil {
			return nil, fmt.Errorf("gateway: %s: %w: %w", l.name, remote.ErrUnauthorized, err)
		}
		s.tokens.fixed, s.tokens.ask = true, func(context.Context) (string, error) { return o.APIKey, nil }
	}
	if s.client == nil {
		s.own = l.transport()
		s.client = s.own
	}
	return s, nil
}

// String names the server, without secrets.
func (s *Store) String() string { return s.loc.name }

// Close closes idle connections. Requests under way are not touched.
func (s *Store) Close() error {
	if s.own != nil {
		s.own.CloseIdleConnections()
	}
	return nil
}

// databaseOf is the database on whose behalf a request is made: the caller's, else the one that the key or prefix names. "" is the account.
func databaseOf(ctx context.Context, key string) string {
	if name := remote.Behalf(ctx); name != "" {
		return name
	}
	root, rest, _ := strings.Cut(key, "/")
	name, _, whole := strings.Cut(rest, "/")
	if whole && (root == "db" || root == "names") {
		return name
	}
	return ""
}

// url returns the URL of r.
func (s *Store) url(r *request) (u urlParts) {
	path, escaped := objectwire.Path(r.database, r.key)
	return urlParts{s.loc.base.Path + path, s.loc.base.EscapedPath() + escaped}
}

type urlParts struct{ path, raw string }

// reach notes that the server has answered for a database, so that a later not_found means that the key does not reach it any more, and is no proof of anything else (R6).
func (s *Store) reach(database string) {
	if database == "" {
		return
	}
	if _, known := s.reached.Load(database); !known {
		s.reached.Store(database, struct{}{})
	}
}

func (s *Store) hasReached(database string) bool {
	_, known := s.reached.Load(database)
	return known
}

// retry decides whether a request that may be repeated (never Create or Swap) is sent again.
type retry struct {
	s       *Store
	backoff remote.Backoff
	tries   int // failed ones since the last progress
}

// maxRetryAfter is the longest wait that a server can ask us for: beyond it the caller is told.
const maxRetryAfter = time.Minute

// again waits and returns nil when the request is to be sent again, else the error for the caller.
func (t *retry) again(ctx context.Context, f *failure) error {
	t.tries++
	if f.renewed && ctx.Err() == nil && t.tries <= t.s.o.Tries {
		return nil
	}
	if !errors.Is(f.Kind, remote.ErrUnknown) || ctx.Err() != nil {
		return f.Error
	}
	deadline, bounded := ctx.Deadline()
	if t.tries >= t.s.o.Tries || f.RetryAfter > maxRetryAfter || bounded && time.Until(deadline) <= f.RetryAfter {
		if t.tries > 1 {
			f.Err = gaveUp(t.tries, f.Err)
		}
		return f.Error
	}
	t.s.log.DebugContext(ctx, "gateway: try again", "err", f.Error, "tries", t.tries)
	if err := t.backoff.Wait(ctx, f.Error); err != nil {
		f.Err = errors.Join(context.Cause(ctx), gaveUp(t.tries, f.Err))
		return f.Error
	}
	return nil
}

// progress starts the count of tries anew.
func (t *retry) progress() { t.tries, t.backoff = 0, remote.Backoff{} }

// until sends r until ok is nil for its answer.
func (s *Store) until(ctx context.Context, r *request, ok func(answer) *failure) error {
	t := retry{s: s}
	for {
		f := s.once(ctx, r, ok)
		if f == nil {
			return nil
		}
		if err := t.again(ctx, f); err != nil {
			return err
		}
	}
}

// once sends r once.
func (s *Store) once(ctx context.Context, r *request, ok func(answer) *failure) *failure {
	a, e := s.send(ctx, r)
	if e != nil {
		return s.failed(r, e)
	}
	return ok(a)
}
