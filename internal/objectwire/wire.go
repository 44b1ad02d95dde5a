// Package objectwire is what a server's data plane (internal/objects) and its client (remote/gateway) say to each other: paths, headers, codes and the form of a listing. docs/server.md describes it for others.
package objectwire

import (
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strings"
	"time"
)

// Codes of problem+json bodies. A client goes by the code, never by the status alone: an answer without one of them comes from something in between, and proves nothing.
const (
	NotFound       = "not_found"        // there is no such database, or the key does not reach it
	ObjectNotFound = "object_not_found" // the database is there, and the store says that the object is not
	Exists         = "object_exists"    // the store says that the key is taken
	Changed        = "object_changed"   // the store says that the entity tag is another
	Unavailable    = "store_unavailable"
	Refused        = "store_refused" // the server's own credentials
	Unfit          = "store_unfit"
	ObjectDamaged  = "object_damaged" // the store says that what is there is no whole object
	Quota          = "quota"
	Unauthorized   = "unauthorized"
	Narrowed       = "key_narrowed"
	ReadOnly       = "key_read_only"
	Role           = "role"
	EntryRefused   = "entry_refused" // a narrowed key may not write this log entry or base
	TooLarge       = "object_too_large"
	TooMany        = "too_many_requests"
	Busy           = "server_busy"
	InvalidKey     = "invalid_key"
	InvalidRequest = "invalid_request"
	Damaged        = "body_damaged" // it is not what its digest says
	SlowBody       = "body_too_slow"
	InvalidRange   = "invalid_range" // it begins behind the object's end: Content-Range says how large it is
)

// Problem is the part of a problem+json body that a client goes by.
type Problem struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// Listing is the data of a listing's answer: {"data": ...}.
type Listing struct {
	Objects []Object `json:"objects"`
	More    bool     `json:"more"` // there are further ones: ask with after=<the last key>
}

// Object describes one object.
type Object struct {
	Key  string    `json:"key"`
	Size int64     `json:"size"`
	ETag string    `json:"etag"`
	Time time.Time `json:"time"`
}

// Path is where an object is, seen from a database, or with "" from the account. With no key it is where the listing is.
func Path(database, key string) (path, escaped string) {
	path, escaped = "/v1/objects", "/v1/objects"
	if database != "" {
		path, escaped = "/v1/databases/"+database+"/objects", "/v1/databases/"+url.PathEscape(database)+"/objects"
	}
	if key != "" {
		path += "/" + key
		for segment := range strings.SplitSeq(key, "/") {
			escaped += "/" + url.PathEscape(segment)
		}
	}
	return path, escaped
}

// DigestHeader carries an upload's digest (RFC 9530).
const DigestHeader = "Content-Digest"

// StoredHeader tells the digest of what was stored (RFC 9530), when the upload had one: it is the proof that whoever answers has read this very upload. A success without it is no acknowledgement: a page that something in between
// puts in the place of an answer may have an entity tag, too.
const StoredHeader = "Repr-Digest"

// Digest is the value of both.
func Digest(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// Quote and Unquote spell an entity tag for a header, and back.
func Quote(etag string) string { return `"` + etag + `"` }

// Unquote is Quote's inverse.
func Unquote(etag string) string { return strings.Trim(strings.TrimPrefix(etag, "W/"), `"`) }
