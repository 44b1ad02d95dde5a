package objects

import (
	"crypto/subtle"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/tonbo-go/tonbo/internal/objectwire"
)

// decodedBase is how many bytes one of a manifest takes, once it is decoded, at worst. Of what would take more than a key's half of the memory there is one at a time.
const decodedBase = 16

// put answers a create (If-None-Match: *) or a swap (If-Match). It sends the store one request, and answers what the store said to that one.
func (x *exchange) put() error {
	// (1) What is asked for, and may this key do such a thing at all? Before a byte of the body is read.
	create, etag := x.r.Header.Get("If-None-Match") == "*", x.r.Header.Get("If-Match")
	switch {
	case !x.ours(x.at.root) && !x.c.Narrowed:
		return &Refusal{Status: http.StatusForbidden, Code: objectwire.EntryRefused, Detail: "the server keeps objects of its own there"}
	case x.c.Narrowed:
		if err := x.mayWrite(); err != nil {
			return err
		}
		if !create {
			return narrowed()
		}
	}
	if create == (etag != "") || len(x.r.Header.Values("If-None-Match")) > 1 || etag == "*" {
		return &Refusal{Status: http.StatusBadRequest, Code: objectwire.InvalidRequest, Detail: "a PUT has If-None-Match: * (create) or If-Match with an entity tag (swap)", Close: true}
	}
	// (2) The body, in memory that is ours.
	switch n := x.r.ContentLength; {
	case n < 0:
		return &Refusal{Status: http.StatusLengthRequired, Code: objectwire.InvalidRequest, Detail: "a PUT says how long it is: Content-Length", Close: true}
	case n > x.o.MaxObject:
		return &Refusal{Status: http.StatusRequestEntityTooLarge, Code: objectwire.TooLarge, Detail: "the server takes no object so large", Close: true}
	}
	room := max(x.r.ContentLength, 1)
	if x.c.Narrowed && x.at.kind == "base" { // it is decoded to be looked at
		room = min(decodedBase*room, x.o.MaxMemory/2)
	}
	held, err := x.memory.Acquire(x.r.Context(), x.c.ID, room, x.o.Wait)
	if err != nil {
		return busy()
	}
	defer held.Release()
	body, err := x.receive()
	if err != nil {
		return err
	}
	// (3) What a narrowed key may write, by what it is.
	var noted *seen
	if x.c.Narrowed {
		if noted, err = x.check(body); err != nil {
			return err
		}
	}
	// (4) One request.
	ctx := x.r.Context()
	if create {
		etag, err = x.store.Create(ctx, x.key, body)
	} else {
		etag, err = x.store.Swap(ctx, x.key, objectwire.Unquote(etag), body)
	}
	x.writing(0)
	if err != nil {
		return ofStore(err)
	}
	if noted != nil {
		x.tops.note(x.at.name, *noted)
	}
	x.w.Header().Set("Etag", objectwire.Quote(etag))
	if digest := x.r.Header.Get(objectwire.DigestHeader); digest != "" { // receive has compared it
		x.w.Header().Set(objectwire.StoredHeader, digest)
	}
	x.w.Header().Set("Content-Length", "0")
	if create {
		x.w.WriteHeader(http.StatusCreated)
	} else {
		x.w.WriteHeader(http.StatusOK)
	}
	return nil
}

// receive reads the body, which must keep moving, and must be what its digest says.
func (x *exchange) receive() ([]byte, error) {
	body := make([]byte, x.r.ContentLength)
	end := time.Now().Add(x.allowance(x.r.ContentLength))
	for n := 0; n < len(body); {
		if err := x.rc.SetReadDeadline(earlier(end, time.Now().Add(x.o.Stall))); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return nil, err
		}
		k, err := x.r.Body.Read(body[n:])
		n += k
		switch {
		case n == len(body):
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, &Refusal{Status: http.StatusRequestTimeout, Code: objectwire.SlowBody, Detail: "the body did not come", Close: true}
		case err != nil:
			return nil, &Refusal{Status: http.StatusBadRequest, Code: objectwire.Damaged, Detail: "the body is cut", Close: true}
		}
	}
	// Nothing more is read, but a deadline in the past would end the request; and how long the store takes is the store's affair.
	x.rc.SetReadDeadline(time.Time{})
	x.rc.SetWriteDeadline(time.Time{})
	if want := x.r.Header.Get(objectwire.DigestHeader); want != "" && subtle.ConstantTimeCompare([]byte(want), []byte(objectwire.Digest(body))) == 0 {
		return nil, &Refusal{Status: http.StatusBadRequest, Code: objectwire.Damaged, Detail: "the body is not what its Content-Digest says (sha-256 is the one that is known)"}
	}
	return body, nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// delete removes an object: the business of keys that are not narrowed.
func (x *exchange) delete() error {
	switch {
	case x.c.Narrowed && !x.c.sees(x.at) && x.at.scoped():
		return absent()
	case x.c.Narrowed:
		return narrowed()
	case !x.ours(x.at.root):
		return &Refusal{Status: http.StatusForbidden, Code: objectwire.EntryRefused, Detail: "the server keeps objects of its own there"}
	}
	x.rc.SetWriteDeadline(time.Time{})
	err := x.store.Delete(x.r.Context(), x.key)
	x.writing(0)
	if err != nil {
		return ofStore(err)
	}
	x.w.WriteHeader(http.StatusNoContent)
	return nil
}
