package s3

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/auth"
	"github.com/aws/smithy-go/logging"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/tonbo-go/tonbo/remote"
)

// Store is a [remote.Store] below a prefix of a bucket. Make one with [Open].
type Store struct {
	loc      location
	endpoint *url.URL // with the bucket in its host or path
	service  string   // signing name, "s3"
	region   string   // signing region
	creds    *credentials
	signer   *v4.Signer
	client   interface {
		Do(*http.Request) (*http.Response, error)
	}
	own   *http.Transport // nil when the caller brought the client
	o     Options
	log   *slog.Logger
	trace bool // the client tells (httptrace) when a request gets a connection
}

var _ remote.Store = (*Store)(nil)

// Open prepares a store at s3://bucket/prefix. The query takes region, endpoint, path_style and checksum; [Options] go before it,
// the environment after it. Nothing is sent to the store yet: the first request, or [remote.Probe], tells whether it is there.
// [Store.Close] lets go of idle connections.
func Open(ctx context.Context, url string, o Options) (*Store, error) {
	loc, err := parse(url, &o)
	if err != nil {
		return nil, err
	}
	if o.StallTimeout <= 0 {
		o.StallTimeout = defaultStallTimeout
	}
	if o.Tries <= 0 {
		o.Tries = defaultTries
	}
	s := &Store{loc: loc, o: o, log: o.Logger}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	load := func(ctx context.Context) (aws.Config, error) { return loadConfig(ctx, o.Region, s.log) }
	cfg, err := load(ctx)
	if err != nil {
		return nil, fmt.Errorf("s3: %s: AWS configuration: %w", loc, err)
	}
	if err := s.resolve(ctx, cfg); err != nil {
		return nil, fmt.Errorf("s3: %s: %w", loc, err)
	}
	s.creds = newCredentials(o.Credentials, cfg.Credentials, load)
	// S3 signs the path as it is sent, escaped once.
	s.signer = v4.NewSigner(func(so *v4.SignerOptions) { so.DisableURIPathEscaping = true })
	s.setClient(cfg)
	return s, nil
}

// String names the location, without secrets.
func (s *Store) String() string { return s.loc.String() }

// Close closes idle connections. Requests under way are not touched.
func (s *Store) Close() error {
	if s.own != nil {
		s.own.CloseIdleConnections()
	}
	return nil
}

// loadConfig reads environment and files. Its HTTP client starts from the system's roots, so that a private CA (AWS_CA_BUNDLE, or
// ca_bundle in a profile) adds to the public ones, and is the one kind of client that the SDK can add it to: any other makes it
// fail with "has no WithTransportOptions".
func loadConfig(ctx context.Context, region string, log *slog.Logger) (aws.Config, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	client := awshttp.NewBuildableClient().WithTransportOptions(func(tr *http.Transport) {
		tr.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	})
	opts := []func(*config.LoadOptions) error{config.WithHTTPClient(client), config.WithLogger(sdkLogger{log})}
	if region != "" {
		opts = append(opts, config.WithRegion(region))
	}
	return config.LoadDefaultConfig(ctx, opts...)
}

// sdkLogger has the SDK's warnings in the store's log: without one it writes them to the standard error.
type sdkLogger struct{ log *slog.Logger }

// Logf implements the SDK's logger.
func (l sdkLogger) Logf(c logging.Classification, format string, args ...any) {
	level := slog.LevelDebug
	if c == logging.Warn {
		level = slog.LevelWarn
	}
	l.log.Log(context.Background(), level, fmt.Sprintf(format, args...), "by", "AWS SDK")
}

// resolve finds the URL of the bucket and what to sign for, by the SDK's own rules.
func (s *Store) resolve(ctx context.Context, cfg aws.Config) error {
	// The generated client is made only to have it read AWS_ENDPOINT_URL_S3, FIPS, dual stack and the like.
	so := sdk.NewFromConfig(cfg, func(so *sdk.Options) {
		if s.o.Endpoint != "" {
			so.BaseEndpoint = &s.o.Endpoint
		}
	}).Options()
	if so.BaseEndpoint != nil {
		u, err := checkEndpoint(*so.BaseEndpoint)
		if err != nil {
			return err
		}
		so.UsePathStyle = !isAWS(u.Hostname())
		if so.Region == "" && so.UsePathStyle {
			so.Region = "us-east-1"
		}
	}
	if s.o.PathStyle != nil {
		so.UsePathStyle = *s.o.PathStyle
	}
	if so.Region == "" {
		return errors.New("no region: set AWS_REGION, or add ?region=... to the URL")
	}
	ep, err := so.EndpointResolverV2.ResolveEndpoint(ctx, sdk.EndpointParameters{
		Bucket:         &s.loc.bucket,
		Region:         &so.Region,
		Endpoint:       so.BaseEndpoint,
		ForcePathStyle: &so.UsePathStyle,
		UseFIPS:        aws.Bool(so.EndpointOptions.UseFIPSEndpoint == aws.FIPSEndpointStateEnabled),
		UseDualStack:   aws.Bool(so.EndpointOptions.UseDualStackEndpoint == aws.DualStackEndpointStateEnabled),
		Accelerate:     &so.UseAccelerate,
		UseArnRegion:   &so.UseARNRegion,
	}.WithDefaults())
	if err != nil {
		return fmt.Errorf("endpoint: %w", err)
	}
	s.endpoint, s.service, s.region = &ep.URI, "s3", so.Region
	schemes, _ := auth.GetAuthOptions(&ep.Properties)
	for _, scheme := range schemes {
		if scheme.SchemeID != "sigv4" && scheme.SchemeID != auth.SchemeIDSigV4 { // the rules use the short form
			continue
		}
		if name, ok := smithyhttp.GetSigV4SigningName(&scheme.SignerProperties); ok {
			s.service = name
		}
		if region, ok := smithyhttp.GetSigV4SigningRegion(&scheme.SignerProperties); ok {
			s.region = region
		}
		return nil
	}
	if len(schemes) > 0 {
		return fmt.Errorf("%w: the bucket wants another signature than SigV4: name it by its plain name", remote.ErrUnfit)
	}
	return nil
}

// setClient makes the HTTP client, or takes the caller's.
func (s *Store) setClient(cfg aws.Config) {
	if s.o.HTTPClient != nil {
		s.client = s.o.HTTPClient
		if c, ok := s.client.(*http.Client); ok {
			same := *c
			// A redirected PUT would be a second request (R2).
			same.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			s.client = &same
		}
		return
	}
	// The configuration's transport has the private CA in it.
	built := awshttp.NewBuildableClient()
	if c, ok := cfg.HTTPClient.(*awshttp.BuildableClient); ok {
		built = c
	}
	tr := built.GetTransport()
	tr.Proxy = http.ProxyFromEnvironment
	tr.DialContext = (&net.Dialer{Timeout: 2 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	tr.TLSHandshakeTimeout = 5 * time.Second
	tr.MaxIdleConns, tr.MaxIdleConnsPerHost = 256, 256
	tr.IdleConnTimeout = 60 * time.Second
	tr.ResponseHeaderTimeout = 0 // the stall timer of each request watches this too
	tr.DisableCompression = true // a gzipped answer has another length than the object
	tr.WriteBufferSize, tr.ReadBufferSize = 32<<10, 32<<10
	// One connection per request under way: many streams in one TCP connection share its losses, and an HTTP/2 transport
	// resends some PUTs by itself.
	tr.ForceAttemptHTTP2 = false
	tr.Protocols = new(http.Protocols)
	tr.Protocols.SetHTTP1(true)
	s.own, s.trace = tr, true
	s.client = bare{tr}
}

// bare sends requests by a transport alone: without redirects, cookies, and what else an http.Client does.
type bare struct{ *http.Transport }

func (b bare) Do(r *http.Request) (*http.Response, error) { return b.RoundTrip(r) }

// path returns the escaped URL path of a key, or of the bucket for "".
func (s *Store) path(key string) (path, escaped string) {
	base := strings.TrimSuffix(s.endpoint.Path, "/")
	switch {
	case key != "":
		path = base + "/" + s.full(key)
	case base != "":
		path = base
	default:
		path = "/"
	}
	return path, escapePath(path)
}

// full returns the object key of a relative one.
func (s *Store) full(key string) string {
	if s.loc.prefix == "" {
		return key
	}
	return s.loc.prefix + "/" + key
}
