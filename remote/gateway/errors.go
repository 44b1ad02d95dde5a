package gateway

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/tonbo-go/tonbo/internal/objectwire"
	"github.com/tonbo-go/tonbo/remote"
)

// failure is why a request did not do what it was sent for.
type failure struct {
	*remote.Error
	code    string // the server's
	renewed bool   // the token was refused, and there may be another one
}

func (s *Store) error(r *request, kind, cause error) *remote.Error {
	return &remote.Error{Op: r.name, Store: s.String(), Key: r.key + r.prefix, Kind: kind, Err: cause}
}

// failed explains a request without an answer. Every such write is ErrUnknown (R2); when nothing was sent at all, the message says so.
func (s *Store) failed(r *request, e *sendError) *failure {
	f := &failure{Error: s.error(r, remote.ErrUnknown, e.err)}
	var untrusted *tls.CertificateVerificationError
	switch {
	case e.auth:
		f.Kind = remote.ErrUnauthorized
	case e.sent:
	case errors.As(e.err, &untrusted):
		f.Kind = remote.ErrUnfit
		f.Err = fmt.Errorf("the server's certificate is not trusted; if a private CA signs it, name its PEM file in SSL_CERT_FILE: %w", e.err)
	default:
		f.Err = fmt.Errorf("nothing was sent: %w", e.err)
	}
	return f
}

// refused explains an answer that is not success.
func (s *Store) refused(r *request, a answer) *failure {
	p, ours := problemOf(a)
	f := &failure{code: p.Code}
	hint, kind := kindOf(r, a.status, p.Code)
	switch {
	case !ours:
		kind = remote.ErrUnknown
		p.Detail, hint = http.StatusText(a.status), "no answer of a tonbo server: it comes from something in between, and proves nothing"
	case p.Code == objectwire.Unauthorized:
		if f.renewed = s.tokens.refused(a.token); f.renewed && r.op == remote.OpPut {
			// The caller's next try brings another token: by R2 it makes it, where a refusal would be final.
			hint, kind = "the token was refused and will be asked for again", remote.ErrUnknown
		}
	case p.Code == objectwire.NotFound && s.hasReached(r.database):
		// It was there, and a name that was ever used stays: so it is the key that has changed.
		hint, kind = "the key does not reach database "+r.database+" any more", remote.ErrDenied
	}
	words := p.Detail
	if p.Code != "" {
		words = p.Code + ": " + words
	}
	if hint != "" {
		words += " (" + hint + ")"
	}
	if id := a.header.Get("X-Request-Id"); id != "" {
		words += ", request " + id
	}
	f.Error = s.error(r, kind, errors.New(words))
	f.Status = a.status
	f.RetryAfter = retryAfter(a.header)
	return f
}

// problemOf reads the server's own word. ours is false for any other page.
func problemOf(a answer) (p objectwire.Problem, ours bool) {
	kind, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	if err != nil || a.status < 400 || kind != "application/problem+json" || a.bodyErr != nil || json.Unmarshal(a.body, &p) != nil || p.Code == "" {
		return objectwire.Problem{}, false
	}
	return p, true
}

// kindOf maps the server's codes to the package's errors. What is not here is unknown.
func kindOf(r *request, status int, code string) (hint string, kind error) {
	switch code {
	case objectwire.Exists: // decides whether a commit is in the log: the status must say so as well
		if r.ifNoneMatch != "" && status == http.StatusPreconditionFailed {
			return "", remote.ErrExists
		}
	case objectwire.Changed:
		if r.ifMatch != "" {
			return "", remote.ErrChanged
		}
	case objectwire.ObjectNotFound:
		if r.ifNoneMatch == "" && r.op != remote.OpList {
			return "", remote.ErrNotFound
		}
	case objectwire.NotFound:
		switch {
		case r.op == remote.OpGet || r.ifMatch != "":
			return "", remote.ErrNotFound
		case r.op == remote.OpPut || r.op == remote.OpDelete:
			return "there is no such database, or the key does not reach it", remote.ErrDenied
		}
	case objectwire.Unauthorized:
		return "the API key is missing, wrong, revoked or expired", remote.ErrUnauthorized
	case objectwire.Narrowed, objectwire.ReadOnly, objectwire.Role, objectwire.EntryRefused:
		return "", remote.ErrDenied
	case objectwire.Refused:
		return "the server's own credentials for its store", remote.ErrDenied
	case objectwire.ObjectDamaged:
		if r.op == remote.OpGet {
			return "", remote.ErrDamaged
		}
	case objectwire.Unfit, objectwire.InvalidKey:
		return "", remote.ErrUnfit
	case objectwire.TooLarge:
		return "the server takes no object so large", remote.ErrUnfit
	case objectwire.Quota:
		return "", remote.ErrQuota
	}
	return "", remote.ErrUnknown
}

// strange is an answer that no tonbo server gives, or one that has to be asked for again.
func (s *Store) strange(r *request, a answer, kind error, what string) *failure {
	f := &failure{Error: s.error(r, kind, errors.New(what))}
	f.Status = a.status
	return f
}

func gaveUp(tries int, err error) error { return fmt.Errorf("gave up after %d tries: %w", tries, err) }

func retryAfter(h http.Header) time.Duration {
	n, err := strconv.ParseUint(h.Get("Retry-After"), 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Second
}
