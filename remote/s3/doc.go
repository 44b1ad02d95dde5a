// Package s3 is a [remote.Store] in a bucket of S3 or of a store that speaks its protocol.
//
// It promises what remote.Store asks for, and these about the wire, since each has broken a store or lost a write elsewhere:
//
//   - one Create or Swap is one HTTP request: neither the SDK, nor net/http, nor a redirect, sends a second one (R2);
//   - bodies are always signed: X-Amz-Content-Sha256 is the hash of the body, so that an upload that was cut is never published;
//   - Content-Length is always sent; no aws-chunked encoding, no trailers, and no checksum header unless [Options].Checksum asks for it;
//   - signed are host, x-amz-date, x-amz-content-sha256, the condition, a session token and an asked checksum: nothing that a
//     proxy may rewrite;
//   - an answer that does not look like an S3 store's (success without an entity tag, a 404 that names neither key nor bucket) is
//     not believed.
//
// Settings, credentials, endpoints and signatures are aws-sdk-go-v2's; the four requests themselves (PUT, GET, LIST, DELETE, and
// one HEAD for a range that is empty) are made here. The SDK's generated client costs 0.1 ms of CPU a request, a fifth of a PUT to
// a near store, and hides how often a request was sent.
//
// An object is at most a few dozen MiB (segments are cut to that), so each is one PUT: there are no multipart uploads, and
// nothing half uploaded is left behind in the bucket.
//
// Not for S3 Express directory buckets, which list without order. HTTP/1.1 only.
package s3
