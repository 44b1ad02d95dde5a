package s3

import (
	"crypto/tls"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/tonbo-go/tonbo/remote"
)

// failure is why a request did not do what it was sent for.
type failure struct {
	*remote.Error
	expired bool // other credentials may be taken
	used    aws.Credentials
}

// errorBody is the store's own word: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html.
type errorBody struct {
	XMLName xml.Name `xml:"Error"`
	Code    string
	Message string
	Region  string
	Header  string // of NotImplemented
}

// failed explains a request without an answer. Every such write is ErrUnknown (R2); when nothing was sent at all, the message says so.
func (s *Store) failed(r request, e *sendError) *failure {
	f := &failure{Error: s.error(r, remote.ErrUnknown, e.err)}
	var untrusted *tls.CertificateVerificationError
	switch {
	case e.auth:
		f.Kind = remote.ErrUnauthorized
		f.Err = fmt.Errorf("no credentials (AWS_ACCESS_KEY_ID, AWS_PROFILE, ...): %w", e.err)
	case e.sent:
	case errors.As(e.err, &untrusted):
		f.Kind = remote.ErrUnfit
		f.Err = fmt.Errorf("the certificate is not trusted; if a private CA signs it, name its PEM file in AWS_CA_BUNDLE: %w", e.err)
	default:
		f.Err = fmt.Errorf("nothing was sent: %w", e.err)
	}
	return f
}

// refused explains an answer that is not success.
func (s *Store) refused(r request, a answer) *failure {
	var eb errorBody
	if xml.Unmarshal(a.body, &eb) != nil {
		eb = errorBody{}
	}
	f := &failure{Error: s.error(r, kindOf(r, a.status, eb.Code), explain(r, a, eb)), used: a.creds}
	f.Status = a.status
	f.RetryAfter = retryAfter(a.header)
	switch eb.Code {
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken", "InvalidAccessKeyId", "XAdminUserNotFound":
		f.expired = true
	case "":
		f.expired = a.status == http.StatusUnauthorized
	}
	return f
}

func (s *Store) error(r request, kind, cause error) *remote.Error {
	return &remote.Error{Op: r.name(), Store: s.String(), Key: r.about(), Kind: kind, Err: cause}
}

func (r request) name() string {
	switch {
	case r.ifMatch != "" && r.op == remote.OpPut:
		return "swap"
	case r.op == remote.OpPut:
		return "create"
	case r.op == remote.OpList:
		return "list"
	case r.op == remote.OpDelete:
		return "delete"
	}
	return "get"
}

func (r request) about() string { return r.key + r.prefix }

// kindOf maps an answer to the package's errors. The code decides before the status, since stores differ in the latter.
func kindOf(r request, status int, code string) error {
	switch code {
	case "NoSuchBucket":
		return remote.ErrNoBucket
	case "PermanentRedirect": // the bucket is in another region, so it is not where we look
		return remote.ErrNoBucket
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken", "InvalidAccessKeyId", "SignatureDoesNotMatch",
		"RequestTimeTooSkewed", "AuthorizationHeaderMalformed", "InvalidSecurity", "UnauthorizedAccess", "Unauthorized",
		"XAdminUserNotFound": // versitygw's InvalidAccessKeyId, sent as a 404
		return remote.ErrUnauthorized
	case "NotImplemented":
		return remote.ErrUnfit
	case "QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded":
		return remote.ErrQuota
	case "SlowDown", "Throttling", "ThrottlingException", "RequestThrottled", "RequestThrottledException", "TooManyRequests",
		"TooManyRequestsException", "RequestLimitExceeded", "BandwidthLimitExceeded", "RequestTimeout", "RequestTimeoutException",
		"InternalError", "ServiceUnavailable", "OperationAborted", "TemporaryRedirect":
		return remote.ErrUnknown
	case "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch": // damaged on its way
		return remote.ErrUnknown
	}
	switch status {
	case http.StatusNotModified, http.StatusPreconditionFailed:
		if r.ifNoneMatch != "" {
			return remote.ErrExists // some stores say 304
		}
		if r.ifMatch != "" {
			return remote.ErrChanged
		}
	case http.StatusNotFound:
		// Only the store's own word is proof of absence: R6 rests on it. Anything else is some proxy's page.
		if code == "NoSuchKey" && r.ifNoneMatch == "" && r.op != remote.OpList || r.op == remote.OpHead {
			return remote.ErrNotFound
		}
		return remote.ErrUnknown
	case http.StatusUnauthorized, http.StatusProxyAuthRequired:
		return remote.ErrUnauthorized
	case http.StatusForbidden:
		return remote.ErrDenied
	case http.StatusPaymentRequired, http.StatusInsufficientStorage:
		return remote.ErrQuota
	case http.StatusNotImplemented:
		return remote.ErrUnfit
	case http.StatusConflict, http.StatusTooManyRequests, http.StatusRequestTimeout:
		return remote.ErrUnknown
	}
	if status >= 400 && status < 500 && code != "" {
		return remote.ErrUnfit // the store understood the request and will never do it
	}
	return remote.ErrUnknown
}

// explain puts the store's words together with what to do.
func explain(r request, a answer, eb errorBody) error {
	words := eb.Code
	if eb.Message != "" {
		words += ": " + eb.Message
	}
	if words == "" {
		words = http.StatusText(a.status)
	}
	hint := ""
	switch {
	case eb.Code == "RequestTimeTooSkewed":
		hint = "the clock of this machine is off" + skew(a.header) + ": set it"
	case eb.Code == "PermanentRedirect" || eb.Code == "AuthorizationHeaderMalformed" || a.status == http.StatusMovedPermanently:
		region := a.header.Get("X-Amz-Bucket-Region")
		if region == "" {
			region = eb.Region
		}
		if region != "" {
			hint = "the bucket is in region " + region + ": set AWS_REGION or ?region= to it"
		} else {
			hint = "the bucket is in another region, or the endpoint is not its own"
		}
	case a.status == http.StatusNotImplemented || eb.Code == "NotImplemented":
		switch {
		case r.ifNoneMatch != "":
			hint = "the store does not implement the header If-None-Match: *, by which tonbo keeps writers apart"
		case r.op == remote.OpPut:
			hint = "the store does not implement the header If-Match on PUT"
		default:
			hint = "the store does not implement this request"
		}
	case a.status == http.StatusForbidden && r.op == remote.OpGet && kindOf(r, a.status, eb.Code) == remote.ErrDenied:
		hint = "without permission to list the bucket (s3:ListBucket) S3 answers so for an absent object too: " +
			"these credentials need Get, Put and List"
	case a.status == http.StatusNotFound && kindOf(r, a.status, eb.Code) == remote.ErrUnknown:
		hint = "the 404 does not say NoSuchKey, so it may come from something in between, and proves nothing"
	case eb.Code == "NoSuchBucket":
		hint = "make the bucket first, or correct its name, region or endpoint"
	case a.status >= 300 && a.status < 400 && a.header.Get("Location") != "":
		hint = "redirected to " + redact(a.header.Get("Location")) + ": name the right endpoint"
	}
	if hint != "" {
		words += " (" + hint + ")"
	}
	if id := a.header.Get("X-Amz-Request-Id"); id != "" {
		words += ", request " + id
	}
	return errors.New(words)
}

// skew says how far the clock is off, when the store tells its own.
func skew(h http.Header) string {
	at, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return ""
	}
	return " by " + time.Since(at).Abs().Round(time.Second).String()
}

// retryAfter reads Retry-After: seconds, or a date, which is taken against the store's own clock when it tells it.
func retryAfter(h http.Header) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0
	}
	if n, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return max(at.Sub(now), 0)
}
