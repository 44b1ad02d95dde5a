package s3

import (
	"context"
	"errors"
	"net/http"

	"github.com/tonbo-go/tonbo/remote"
)

// Create implements [remote.Store]. It sends one request.
func (s *Store) Create(ctx context.Context, key string, body []byte) (string, error) {
	return s.put(ctx, request{op: remote.OpPut, method: http.MethodPut, key: key, body: body, ifNoneMatch: "*", checksum: s.o.Checksum})
}

// Swap implements [remote.Store]. It sends one request.
func (s *Store) Swap(ctx context.Context, key, etag string, body []byte) (string, error) {
	r := request{op: remote.OpPut, method: http.MethodPut, key: key, body: body, ifMatch: quote(etag), checksum: s.o.Checksum}
	if etag == "" {
		return "", s.error(r, remote.ErrUnfit, errors.New("swap without an entity tag"))
	}
	return s.put(ctx, r)
}

// put sends one request, ever: R2 is the caller's to follow.
func (s *Store) put(ctx context.Context, r request) (etag string, err error) {
	if err := remote.CheckKey(r.key); err != nil {
		return "", s.error(r, remote.ErrUnfit, err)
	}
	f := s.once(ctx, r, func(a answer) *failure {
		if a.status != http.StatusOK && a.status != http.StatusCreated {
			return s.refused(r, a)
		}
		// Once the store has said so, it is stored, even if the rest of the answer was cut. But the word of something that is no
		// S3 store is no acknowledgement.
		if etag = unquote(a.header.Get("Etag")); etag == "" {
			return s.strange(r, a, remote.ErrUnknown, "success without an entity tag: is this an S3 endpoint?")
		}
		return nil
	})
	if f != nil {
		if f.expired {
			s.creds.refused(ctx, f.used) // the caller's next try gets fresh ones
		}
		return "", f.Error
	}
	return etag, nil
}

// Delete implements [remote.Store].
func (s *Store) Delete(ctx context.Context, key string) error {
	r := request{op: remote.OpDelete, method: http.MethodDelete, key: key}
	if err := remote.CheckKey(key); err != nil {
		return s.error(r, remote.ErrUnfit, err)
	}
	return s.until(ctx, r, func(a answer) *failure {
		switch a.status {
		case http.StatusOK, http.StatusNoContent:
			return nil
		}
		if f := s.refused(r, a); f.Kind != remote.ErrNotFound {
			return f
		}
		return nil
	})
}

// strange is an answer that no S3 store gives.
func (s *Store) strange(r request, a answer, kind error, what string) *failure {
	f := &failure{Error: s.error(r, kind, errors.New(what))}
	f.Status = a.status
	return f
}
