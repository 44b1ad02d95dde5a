package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/tonbo-go/tonbo/remote"
)

// ControlError is what the server's control plane refused, in its own words.
type ControlError struct {
	Code       string // of the problem+json body
	Status     int
	Detail     string
	RequestID  string
	RetryAfter time.Duration
}

func (e *ControlError) Error() string {
	s := fmt.Sprintf("%s: %s (HTTP %d", e.Code, e.Detail, e.Status)
	if e.RequestID != "" {
		s += ", request " + e.RequestID
	}
	return s + ")"
}

const maxControlBody = 16 << 20

// Call sends one request to the server's control plane and decodes its answer, both JSON: path is "/v1/..." as it is in a URL; in and out may be nil. It never repeats it. Errors: [*ControlError] when the server refused it, and else a
// [*remote.Error], most often [remote.ErrUnknown]: it may have been done.
func (s *Store) Call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	fail := func(kind error, status int, cause error) error {
		return &remote.Error{Op: method, Store: s.String(), Key: path, Kind: kind, Status: status, Err: cause}
	}
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fail(remote.ErrUnfit, 0, err)
		}
	}
	token, err := s.tokens.get(ctx)
	if err != nil {
		return fail(remote.ErrUnauthorized, 0, err)
	}
	u := s.loc.base
	u.Path, u.RawQuery = u.Path+path, query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return fail(remote.ErrUnfit, 0, err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("User-Agent", userAgent)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := s.client.RoundTrip(req)
	if err != nil {
		return fail(remote.ErrUnknown, 0, err)
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header, token: token}
	a.body, a.bodyErr = io.ReadAll(io.LimitReader(resp.Body, maxControlBody))
	if a.status < 200 || a.status > 299 {
		p, ours := problemOf(a)
		if !ours {
			return fail(remote.ErrUnknown, a.status, fmt.Errorf("%s: no answer of a tonbo server", http.StatusText(a.status)))
		}
		if a.status == http.StatusUnauthorized {
			s.tokens.refused(token)
		}
		return &ControlError{Code: p.Code, Status: a.status, Detail: p.Detail, RequestID: a.header.Get("X-Request-Id"), RetryAfter: retryAfter(a.header)}
	}
	s.tokens.accepted(token)
	if out == nil {
		return nil
	}
	if a.bodyErr != nil {
		return fail(remote.ErrUnknown, a.status, a.bodyErr)
	}
	if err := json.Unmarshal(a.body, out); err != nil {
		return fail(remote.ErrUnknown, a.status, fmt.Errorf("no answer of a tonbo server: %w", err))
	}
	return nil
}
