package tonbo

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/tonbo-go/tonbo/remote/gateway"
)

// Keys makes, lists and ends the API keys of a server. On a bucket there are none: its calls are [ErrUnsupported] then.
type Keys struct{ c *Client }

// Keys returns the API keys of the server that Options.URL names.
func (c *Client) Keys() *Keys { return &Keys{c} }

// KeyOptions say which key to make. Name is needed.
type KeyOptions struct {
	Name      string        // 1 to 100 bytes, for people
	Role      string        // "owner", "admin", "member"; default the maker's, and "member" for a new Agent or User
	Agent     string        // the key acts as this agent: an owner or admin makes it
	User      string        // likewise, as this user
	Databases []string      // narrowed to these databases, whether they exist yet or not
	Prefixes  []string      // and to those whose names begin so
	ReadOnly  bool          // it writes nothing
	ExpiresAt time.Time     // zero: when the maker's does
	TTL       time.Duration // instead: so long from now
}

// APIKey is a key of a server.
type APIKey struct {
	ID        string // for Revoke and Rotate; no secret
	Name      string
	Secret    string // tbo_...: when it was made or rotated just now, and never again
	Role      string
	Identity  string // whom it acts as
	Agent     bool   // that is an agent, no user
	Narrowed  bool
	Databases []string
	Prefixes  []string
	ReadOnly  bool
	State     string // "active", "expired", "revoked"
	CreatedAt time.Time
	CreatedBy string
	RotatedAt time.Time // zero: never
	ExpiresAt time.Time // zero: never
}

// Error is what a server refused, for errors.As. errors.Is finds the kind in it: [ErrUnauthorized], [ErrForbidden], [ErrNotFound], [ErrInvalid], [ErrQuota].
type Error struct {
	Code       string // "key_narrowed", "invalid_key", ...: see docs/server.md
	Status     int    // of HTTP
	Message    string
	RequestID  string
	RetryAfter time.Duration

	kind error
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s (HTTP %d", e.Code, e.Message, e.Status)
	if e.RequestID != "" {
		s += ", request " + e.RequestID
	}
	return s + ")"
}

// Unwrap makes errors.Is see the kind.
func (e *Error) Unwrap() error { return e.kind }

// serverKinds are the public kinds of a server's statuses.
var serverKinds = map[int]error{
	http.StatusUnauthorized: ErrUnauthorized, http.StatusForbidden: ErrForbidden, http.StatusNotFound: ErrNotFound,
	http.StatusBadRequest: ErrInvalid, http.StatusUnprocessableEntity: ErrInvalid, http.StatusInsufficientStorage: ErrQuota,
}

// keyAnswer is the server's form of a key.
type keyAnswer struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Secret   string `json:"secret"`
	Role     string `json:"role"`
	Identity struct {
		ID   string `json:"id"`
		Kind string `json:"kind"`
	} `json:"identity"`
	Narrowed  bool      `json:"narrowed"`
	Databases []string  `json:"databases"`
	Prefixes  []string  `json:"database_prefixes"`
	ReadOnly  bool      `json:"read_only"`
	State     string    `json:"state"`
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
	RotatedAt time.Time `json:"rotated_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

func (k *keyAnswer) key() *APIKey {
	return &APIKey{
		ID: k.ID, Name: k.Name, Secret: k.Secret, Role: k.Role, Identity: k.Identity.ID, Agent: k.Identity.Kind == "agent", Narrowed: k.Narrowed, Databases: k.Databases, Prefixes: k.Prefixes,
		ReadOnly: k.ReadOnly, State: k.State, CreatedAt: k.CreatedAt, CreatedBy: k.CreatedBy, RotatedAt: k.RotatedAt, ExpiresAt: k.ExpiresAt,
	}
}

// Create makes a key. Its Secret is told this once. A call that ended with an error of an unknown outcome may have made one, which nobody holds: List shows it.
func (k *Keys) Create(ctx context.Context, o KeyOptions) (*APIKey, error) {
	body := map[string]any{"name": o.Name}
	for field, v := range map[string]string{"role": o.Role, "agent": o.Agent, "user": o.User} {
		if v != "" {
			body[field] = v
		}
	}
	if o.Databases != nil {
		body["databases"] = o.Databases
	}
	if o.Prefixes != nil {
		body["database_prefixes"] = o.Prefixes
	}
	if o.ReadOnly {
		body["read_only"] = true
	}
	if !o.ExpiresAt.IsZero() {
		body["expires_at"] = o.ExpiresAt.UTC()
	}
	if o.TTL != 0 {
		body["ttl"] = o.TTL.String()
	}
	return k.one(ctx, "create", http.MethodPost, "/v1/api-keys", body)
}

// List lists the keys that the caller's may know of: those of its own identity, and of all for an owner or admin.
func (k *Keys) List(ctx context.Context) iter.Seq2[*APIKey, error] {
	return func(yield func(*APIKey, error) bool) {
		q := url.Values{}
		for {
			var page struct {
				Data []keyAnswer `json:"data"`
				Next string      `json:"next_cursor"`
			}
			if err := k.call(ctx, "list", http.MethodGet, "/v1/api-keys", q, nil, &page); err != nil {
				yield(nil, err)
				return
			}
			for i := range page.Data {
				if !yield(page.Data[i].key(), nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			q.Set("cursor", page.Next)
		}
	}
}

// Rotate gives a key another secret, which is told this once. The old one is refused from the next request on, by other servers of the account within 5 s.
func (k *Keys) Rotate(ctx context.Context, id string) (*APIKey, error) {
	return k.one(ctx, "rotate", http.MethodPost, "/v1/api-keys/"+url.PathEscape(id)+"/rotate", nil)
}

// Revoke ends a key: it is refused from the next request on, by other servers of the account within 5 s. What its owners have committed stays in their local copies.
func (k *Keys) Revoke(ctx context.Context, id string) error {
	return k.call(ctx, "revoke", http.MethodDelete, "/v1/api-keys/"+url.PathEscape(id), nil, nil, nil)
}

func (k *Keys) one(ctx context.Context, doing, method, path string, in any) (*APIKey, error) {
	var out struct {
		Data keyAnswer `json:"data"`
	}
	if err := k.call(ctx, doing, method, path, nil, in, &out); err != nil {
		return nil, err
	}
	return out.Data.key(), nil
}

func (k *Keys) call(ctx context.Context, doing, method, path string, q url.Values, in, out any) error {
	g, ok := k.c.o.Remote.(*gateway.Store)
	if !ok {
		return fmt.Errorf("%s API key: %w: API keys are a server's, and %s is none: set Options.URL to https://...", doing, ErrUnsupported, k.c.o.Remote)
	}
	ctx, cancel := k.c.bounded(ctx)
	defer cancel()
	err := g.Call(ctx, method, path, q, in, out)
	var refused *gateway.ControlError
	switch {
	case errors.As(err, &refused):
		return fmt.Errorf("%s API key: %w", doing, &Error{refused.Code, refused.Status, refused.Detail, refused.RequestID, refused.RetryAfter, serverKinds[refused.Status]})
	case err != nil:
		return fmt.Errorf("%s API key: %w", doing, public(err))
	}
	return nil
}
