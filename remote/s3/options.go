package s3

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/tonbo-go/tonbo/remote"
)

// Options tune Open. The zero value works: what is not set here comes from the URL's query, then from the environment and the AWS
// configuration files (AWS_REGION, AWS_PROFILE, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_CA_BUNDLE, HTTPS_PROXY, NO_PROXY, ...).
type Options struct {
	// Endpoint is the store's base URL, such as "https://minio.example.com:9000". Default: AWS for the region.
	Endpoint string
	// Region of the bucket. Default "us-east-1" when an endpoint is set; without one it is required.
	Region string
	// PathStyle puts the bucket into the path, not into the host name. Default: true when the endpoint is not amazonaws.com.
	PathStyle *bool
	// Credentials are asked again when they expire or are refused. Default: the AWS chain (environment, files, SSO, web identity,
	// container, instance), which is read anew each time, so that rotated files are seen.
	Credentials aws.CredentialsProvider
	// HTTPClient sends the requests instead of our own, as it is: proxy and private CA are then its business. It must not retry.
	// Redirects of an *http.Client are turned off.
	HTTPClient interface {
		Do(*http.Request) (*http.Response, error)
	}
	// Checksum is sent with each body, in a header, beside the signed hash. Default none, since many stores refuse it.
	Checksum Checksum
	// StallTimeout ends a request during which no byte moved for so long. Default 15 s.
	StallTimeout time.Duration
	// Tries bounds how often Get, List and Delete are sent without any progress. Default 8 (about 5 s with the waits between).
	Tries int
	// Logger hears of each retry, at level debug. Default: none.
	Logger *slog.Logger
}

const (
	defaultStallTimeout = 15 * time.Second
	defaultTries        = 8
)

// location is where a URL points to, and how to get there.
type location struct {
	bucket, prefix string // prefix without slashes at its ends
}

func (l location) String() string {
	if l.prefix == "" {
		return "s3://" + l.bucket
	}
	return "s3://" + l.bucket + "/" + l.prefix
}

// parse reads s3://bucket/prefix?region=&endpoint=&path_style=&checksum= and fills in what o leaves open.
func parse(raw string, o *Options) (location, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return location{}, errors.New("s3: the URL does not parse: want s3://bucket/prefix?region=...") // it may hold a secret
	}
	if u.User != nil {
		return location{}, errors.New("s3: the URL holds credentials: give them in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or in Options.Credentials")
	}
	if u.Scheme != "s3" || u.Host == "" || u.Opaque != "" || u.Port() != "" || u.Fragment != "" {
		return location{}, fmt.Errorf("s3: scheme %q, bucket %q: want s3://bucket/prefix?region=...", u.Scheme, u.Hostname()) // not all of it: it may hold a secret
	}
	l := location{bucket: u.Host, prefix: strings.Trim(u.Path, "/")}
	if l.prefix != "" {
		for seg := range strings.SplitSeq(l.prefix, "/") {
			if seg == "" || seg == "." || seg == ".." {
				return location{}, fmt.Errorf("s3: %s: the prefix has an empty or dot segment", l)
			}
		}
	}
	if strings.HasSuffix(l.bucket, "--x-s3") {
		return location{}, fmt.Errorf("s3: %s: %w: an S3 Express directory bucket lists without order: use a general purpose bucket", l, remote.ErrUnfit)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return location{}, fmt.Errorf("s3: %s: query: %w", l, err)
	}
	for name, values := range query {
		v := values[len(values)-1]
		switch name {
		case "region":
			if o.Region == "" {
				o.Region = v
			}
		case "endpoint":
			if o.Endpoint == "" {
				o.Endpoint = v
			}
		case "checksum":
			if o.Checksum == "" {
				o.Checksum = Checksum(v)
			}
		case "path_style":
			b, err := strconv.ParseBool(v)
			if err != nil {
				return location{}, fmt.Errorf("s3: %s: path_style=%q: want true or false", l, v)
			}
			if o.PathStyle == nil {
				o.PathStyle = &b
			}
		default:
			return location{}, fmt.Errorf("s3: %s: unknown parameter %q: there are region, endpoint, path_style and checksum", l, name)
		}
	}
	return l, o.Checksum.check()
}

// checkEndpoint refuses what would be misread later.
func checkEndpoint(endpoint string) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		return nil, fmt.Errorf("endpoint %q: want http://host:port or https://host", redact(endpoint))
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("endpoint %q: want no credentials, query or fragment in it", redact(endpoint))
	}
	return u, nil
}

func redact(s string) string {
	if u, err := url.Parse(s); err == nil {
		return u.Redacted()
	}
	return "(unparsable)"
}

// isAWS tells whether the host is one of AWS's own, which want the bucket in the host name.
func isAWS(host string) bool {
	for _, suffix := range []string{"amazonaws.com", "amazonaws.com.cn"} {
		if host == suffix || strings.HasSuffix(host, "."+suffix) {
			return true
		}
	}
	return false
}
