// Package remote defines the object store that a database lives in.
//
// Everything that tonbo promises rests on one primitive, [Store.Create]: write an object only if its key is absent
// (If-None-Match: *), and on strongly consistent Get and List. A store that accepts the condition and ignores it is found
// out by [Probe] and refused.
//
// The package knows no log, no pages and no SQLite. Implementations: remote/mem, remote/dir, remote/s3. Any other one must
// pass remote/remotetest.
package remote

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Store is a flat, strongly consistent object store, seen from one location (bucket and prefix, directory, ...).
// Keys are relative to that location: slash-separated segments of 1 to 255 bytes out of letters, digits and ". _ : @ % -",
// none of them "." or "..", no leading or trailing slash; no key is a folder of another.
//
// All methods are safe for concurrent use, end when ctx does, and return one of this package's errors (errors.Is).
type Store interface {
	// Create writes the object if and only if key is absent, with one request: it never retries. It returns the new
	// object's entity tag when this very request stored it, [ErrExists] when the key is taken (perhaps by an earlier try of
	// the caller's own), a definite refusal ([ErrDenied], [ErrUnauthorized], [ErrQuota], [ErrUnfit]) when the object was
	// certainly not stored, and otherwise an error that is [ErrUnknown]: stored, not stored, or stored later.
	Create(ctx context.Context, key string, body []byte) (etag string, err error)

	// Get reads an object or a part of it and retries what is worth it. [ErrNotFound] means that the key was certainly
	// absent at some time after the call began. The answer is complete or an error: never a part.
	Get(ctx context.Context, key string, o GetOptions) (Object, error)

	// List returns the infos of keys that begin with prefix and sort after o.After, in ascending byte order.
	// more tells that there are further ones. It retries what is worth it.
	List(ctx context.Context, prefix string, o ListOptions) (page []Info, more bool, err error)

	// Swap overwrites the object if its entity tag is still etag (If-Match). [ErrChanged] when it is not,
	// [ErrNotFound] when the key is absent, [ErrUnknown] as for Create. For expiry and metadata alone.
	Swap(ctx context.Context, key, etag string, body []byte) (newETag string, err error)

	// Delete removes the object. An absent key is no error. It retries what is worth it.
	Delete(ctx context.Context, key string) error

	// String names the location for messages, without secrets: "s3://bucket/prefix".
	String() string
}

// Info describes an object.
type Info struct {
	Key  string
	Size int64  // bytes, of the whole object
	ETag string // opaque; differs between objects with different bodies at one key
	Time time.Time
}

// Object is what Get read: the asked range of the body.
type Object struct {
	Info
	Body []byte
}

// GetOptions pick a part of an object. The zero value reads the whole.
type GetOptions struct {
	Offset  int64  // first byte; negative: that many bytes from the end (or the whole object when it is shorter)
	Length  int64  // bytes, clipped to the object's end; 0: to the end
	IfMatch string // not empty: the object must have this entity tag, else ErrChanged
}

// ListOptions pick a page of a listing. The zero value asks for the first page in the store's own size (at most 1000).
type ListOptions struct {
	After string // only keys greater than this one
	Max   int    // at most this many keys
}

// Errors of every Store, for errors.Is.
var (
	ErrNotFound     = errors.New("object not found")
	ErrExists       = errors.New("object exists")
	ErrChanged      = errors.New("object has changed")
	ErrUnknown      = errors.New("outcome unknown")            // 409, 429, 5xx, timeout, cut connection
	ErrUnauthorized = errors.New("credentials refused")        // 401, expired or unknown credentials, bad signature
	ErrDenied       = errors.New("access denied")              // 403
	ErrQuota        = errors.New("quota exceeded")             // 402, 507, full disk
	ErrUnfit        = errors.New("store unfit")                // it cannot do what tonbo needs (501, condition ignored)
	ErrDamaged      = errors.New("object damaged")             // what is stored under the key is no whole object
	ErrNoBucket     = errors.New("bucket or directory absent") // the location itself is not there
)

// Error says which request failed, where, and why. It wraps one of the errors above and the cause.
type Error struct {
	Op         string        // "create", "get", "list", "swap", "delete"
	Store      string        // the store's String
	Key        string        // or prefix
	Kind       error         // one of the errors above, or nil
	Status     int           // HTTP status, 0 when there was none
	RetryAfter time.Duration // how long the store asked to wait, 0 when it did not say
	Err        error         // cause
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s %s/%s", e.Op, e.Store, e.Key)
	if e.Kind != nil {
		s += ": " + e.Kind.Error()
	}
	if e.Status != 0 {
		s += fmt.Sprintf(" (HTTP %d)", e.Status)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap makes errors.Is see both the kind and the cause.
func (e *Error) Unwrap() []error {
	var u []error
	if e.Kind != nil {
		u = append(u, e.Kind)
	}
	if e.Err != nil {
		u = append(u, e.Err)
	}
	return u
}
