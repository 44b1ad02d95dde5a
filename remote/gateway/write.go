package gateway

import (
	"context"
	"errors"
	"net/http"

	"github.com/tonbo-go/tonbo/internal/objectwire"
	"github.com/tonbo-go/tonbo/remote"
)

// Create implements [remote.Store]. It sends one request.
func (s *Store) Create(ctx context.Context, key string, body []byte) (string, error) {
	return s.put(ctx, &request{op: remote.OpPut, name: "create", method: http.MethodPut, database: databaseOf(ctx, key), key: key, body: body, ifNoneMatch: "*"})
}

// Swap implements [remote.Store]. It sends one request.
func (s *Store) Swap(ctx context.Context, key, etag string, body []byte) (string, error) {
	r := &request{op: remote.OpPut, name: "swap", method: http.MethodPut, database: databaseOf(ctx, key), key: key, body: body, ifMatch: objectwire.Quote(etag)}
	if etag == "" {
		return "", s.error(r, remote.ErrUnfit, errors.New("swap without an entity tag"))
	}
	return s.put(ctx, r)
}

// put sends one request, ever: R2 is the caller's to follow.
func (s *Store) put(ctx context.Context, r *request) (etag string, err error) {
	if err := remote.CheckKey(r.key); err != nil {
		return "", s.error(r, remote.ErrUnfit, err)
	}
	r.digest = objectwire.Digest(r.body)
	f := s.once(ctx, r, func(a answer) *failure {
		if a.status != http.StatusCreated && a.status != http.StatusOK {
			return s.refused(r, a)
		}
		// Once the server has said so, it is stored, even if the rest of the answer was cut. But the word of something that is no tonbo server is no acknowledgement: it has to say what was stored.
		if etag = objectwire.Unquote(a.header.Get("Etag")); etag == "" || a.header.Get(objectwire.StoredHeader) != r.digest {
			return s.strange(r, a, remote.ErrUnknown, "success that does not say what was stored: is this a tonbo server?")
		}
		s.accepted(r, a)
		return nil
	})
	if f != nil {
		return "", f.Error
	}
	return etag, nil
}

// Delete implements [remote.Store].
func (s *Store) Delete(ctx context.Context, key string) error {
	r := &request{op: remote.OpDelete, name: "delete", method: http.MethodDelete, database: databaseOf(ctx, key), key: key}
	if err := remote.CheckKey(key); err != nil {
		return s.error(r, remote.ErrUnfit, err)
	}
	return s.until(ctx, r, func(a answer) *failure {
		if a.status == http.StatusNoContent {
			s.accepted(r, a)
			return nil
		}
		return s.refused(r, a)
	})
}

// accepted notes what a good answer tells about token and reach.
func (s *Store) accepted(r *request, a answer) {
	s.tokens.accepted(a.token)
	s.reach(r.database)
}
