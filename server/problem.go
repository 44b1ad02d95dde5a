package server

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/server/internal/access"
)

// problem is an error that the client is told of, as RFC 9457's problem+json. Nothing of it depends on the request but what the client said itself, so that two requests of the same kind get the same bytes: the request's
// id is in the header alone.
type problem struct {
	Status     int
	Code       string
	Detail     string
	RetryAfter time.Duration // > 0: a header says so
	Header     http.Header   // further ones
	Close      bool          // the connection is of no more use
}

func (p *problem) Error() string { return p.Code + ": " + p.Detail }

// notFound is the one answer about what does not exist and about what the key does not reach.
func notFound() *problem {
	return &problem{Status: http.StatusNotFound, Code: "not_found", Detail: "there is no such thing, or the key does not reach it"}
}

func unauthorized() *problem {
	return &problem{Status: http.StatusUnauthorized, Code: "unauthorized", Detail: "a key that is in force is needed: Authorization: Bearer tbo_...",
		Header: http.Header{"Www-Authenticate": {`Bearer realm="tonbo"`}}}
}

func badRequest(detail string) *problem {
	return &problem{Status: http.StatusBadRequest, Code: "invalid_request", Detail: detail}
}

// unavailable is a 503 that a client may repeat.
func unavailable(code, detail string, after time.Duration) *problem {
	return &problem{Status: http.StatusServiceUnavailable, Code: code, Detail: detail, RetryAfter: after}
}

// statuses maps errors to statuses and codes. The first that fits is it. The details are fixed: what errors say beyond that (object keys, paths, hosts) is the log's.
var statuses = []struct {
	err    error
	status int
	code   string
	detail string
}{
	{access.ErrOutOfReach, 404, "not_found", ""},
	{access.ErrNarrowed, 403, "key_narrowed", "the key is narrowed to some databases: it reads and writes them, and may not do this"},
	{access.ErrReadOnly, 403, "key_read_only", "the key is read-only"},
	{access.ErrRole, 403, "role", "the key's role may not do this"},
	{access.ErrWider, 403, "key_wider", "a key is never wider than the one that makes it: it expires no later, and has no wider role"},
	{tonbo.ErrPointGone, 410, "point_gone", "the point is not restorable: GET .../history lists those that are"},
	{tonbo.ErrExpired, 409, "expired", "the database has expired; until it is deleted, PATCH can give it a later expiry"},
	{tonbo.ErrDeleted, 409, "deleting", "the database's deletion has begun"},
	{tonbo.ErrFenced, 409, "fenced", "another owner took the database over meanwhile"},
	{tonbo.ErrBusy, 409, "busy", "somebody has it open, or is at work on it"},
	{tonbo.ErrLocked, 409, "busy", "this server has it open for another request"},
	{tonbo.ErrExists, 409, "name_taken", "a database of that name exists"},
	{tonbo.ErrProtected, 409, "protected", "the database is protected: PATCH {\"protected\": false} takes that away"},
	{tonbo.ErrFrozen, 409, "frozen", "the database is frozen: fork it, or PATCH {\"frozen\": false}"},
	{tonbo.ErrKeyBound, 409, "key_bound", "the key has another database, or the database another key: release that first"},
	{tonbo.ErrTargetChanged, 409, "target_changed", "the key has another database than was expected"},
	{tonbo.ErrRestarting, 503, "instance_restarting", "the key's database does not open at present; POST .../replace gives the key another one"},
	{tonbo.ErrNotFound, 404, "not_found", ""},
	{tonbo.ErrName, 400, "invalid_name", "names have 1 to 200 letters, digits and . _ : @ -, and begin with a letter or digit"},
	{tonbo.ErrLimit, 429, "database_limit", "the account holds as many databases as it may: delete some"},
	{tonbo.ErrQuota, 507, "quota", "the store has no room, or refuses to store more"},
	{tonbo.ErrCorrupt, 500, "corrupt", "data in the store is damaged: tonbo verify tells what"},
	{tonbo.ErrRemoteLost, 500, "remote_lost", "the store has lost objects of the database"},
	{tonbo.ErrUnsupported, 501, "unsupported", "the server does not support this, or what it read was written by a newer version"},
	{tonbo.ErrUnauthorized, 502, "store_refused", "the store refuses the server's credentials"},
	{tonbo.ErrForbidden, 502, "store_refused", "the store refuses the server's credentials"},
	{tonbo.ErrStoreUnfit, 502, "store_unfit", "the server's store cannot hold databases"},
	{remote.ErrNoBucket, 502, "store_unfit", "the server's bucket or directory is not there"},
	{remote.ErrUnauthorized, 502, "store_refused", "the store refuses the server's credentials"},
	{remote.ErrDenied, 502, "store_refused", "the store refuses the server's credentials"},
	{remote.ErrQuota, 507, "quota", "the store has no room, or refuses to store more"},
	{tonbo.ErrUnsynced, 503, "unsynced", "the outcome is not known: it may be done. Send the request again"},
	{remote.ErrUnknown, 503, "store_unavailable", "the store does not answer: send the request again"},
	{context.DeadlineExceeded, 503, "timeout", "it took too long: it may be done. Send the request again"},
	{context.Canceled, 503, "canceled", "the request was given up, or the server is going down: send it again"},
}

// problemOf turns an error into what the client is told.
func problemOf(err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return &problem{Status: http.StatusRequestEntityTooLarge, Code: "body_too_large", Detail: "the body has more bytes than " + strconv.FormatInt(tooLarge.Limit, 10), Close: true}
	}
	var option *tonbo.OptionError
	if errors.As(err, &option) {
		return optionProblem(option)
	}
	if errors.Is(err, tonbo.ErrIdempotency) {
		return idempotencyProblem(err)
	}
	for _, s := range statuses {
		if !errors.Is(err, s.err) {
			continue
		}
		if s.status == http.StatusNotFound {
			return notFound()
		}
		p := &problem{Status: s.status, Code: s.code, Detail: s.detail}
		var restarting *tonbo.RestartingError
		var store *remote.Error
		switch {
		case errors.As(err, &restarting):
			p.RetryAfter = restarting.RetryAfter
		case errors.As(err, &store):
			p.RetryAfter = store.RetryAfter
		}
		if s.status == http.StatusServiceUnavailable {
			p.RetryAfter = max(p.RetryAfter, time.Second)
		}
		return p
	}
	return &problem{Status: http.StatusInternalServerError, Code: "internal", Detail: "something went wrong in the server: its log tells more, under the request's id"}
}

// write answers with the problem.
func (p *problem) write(w http.ResponseWriter, head bool) {
	h := w.Header()
	for _, k := range []string{"Content-Disposition", "Content-Encoding", "Content-Length", "Etag", "Last-Modified", "Cache-Control"} { // of an answer that had begun to be made
		h.Del(k)
	}
	for k, v := range p.Header {
		h[k] = v
	}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64(math.Ceil(p.RetryAfter.Seconds())), 10))
	}
	if p.Close {
		h.Set("Connection", "close")
	}
	body, err := json.Marshal(struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Code   string `json:"code"`
		Detail string `json:"detail,omitempty"`
	}{"about:blank", http.StatusText(p.Status), p.Status, p.Code, p.Detail})
	if err != nil { // never, for strings and numbers
		panic(err)
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(p.Status)
	if !head {
		w.Write(append(body, '\n'))
	}
}

// optionProblem is what the client asked for that cannot be.
func optionProblem(e *tonbo.OptionError) *problem {
	p := badRequest(e.Error())
	p.Code = "invalid_option"
	switch e.Option {
	case "ExpiresAt", "TTL":
		p.Status, p.Code = http.StatusUnprocessableEntity, "invalid_expires_at"
	case "Metadata":
		p.Status, p.Code = http.StatusUnprocessableEntity, "invalid_metadata"
	}
	return p
}

func idempotencyProblem(err error) *problem {
	if errors.Is(err, catalog.ErrGone) {
		return &problem{Status: http.StatusConflict, Code: "idempotency_gone", Detail: "the database that this Idempotency-Key made has ended: another one needs another key"}
	}
	return &problem{Status: http.StatusConflict, Code: "idempotency_conflict", Detail: "the Idempotency-Key was used for another request"}
}
