package s3_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/tonbo-go/tonbo/internal/s3test"
	"github.com/tonbo-go/tonbo/remote"
)

// BenchmarkCreate compares Create with the same conditional PUT done by net/http with a signature, and by the SDK's client with its
// retries and checksums off, in turns on one server. Metrics are medians in microseconds and their ratios.
func BenchmarkCreate(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			place := s3test.At(b)
			s := place.Open(b)
			raw := newRaw(b, place)
			var ours, signed, generated []time.Duration
			for n := 0; b.Loop(); n++ {
				run := func(which string, into *[]time.Duration, put func(key string, body []byte) error) {
					body := make([]byte, size)
					rand.Read(body)
					begin := time.Now()
					if err := put(fmt.Sprintf("%s/%d", which, n), body); err != nil {
						b.Fatal(which, err)
					}
					*into = append(*into, time.Since(begin))
				}
				run("ours", &ours, func(key string, body []byte) error { _, err := s.Create(bg, key, body); return err })
				run("signed", &signed, raw.put)
				run("generated", &generated, raw.putGenerated)
			}
			o, r, g := median(ours), median(signed), median(generated)
			b.ReportMetric(micros(o), "create-µs")
			b.ReportMetric(micros(r), "nethttp-µs")
			b.ReportMetric(micros(g), "sdk-µs")
			b.ReportMetric(float64(o)/float64(r), "create/nethttp")
			b.ReportMetric(float64(o)/float64(g), "create/sdk")
			b.ReportMetric(0, "ns/op") // three puts: says nothing
		})
	}
}

// BenchmarkGet compares Get with a GET by net/http that reads into a buffer of the right size.
func BenchmarkGet(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10, 8 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			place := s3test.At(b)
			s := place.Open(b)
			raw := newRaw(b, place)
			if _, err := s.Create(bg, "k", random(size)); err != nil {
				b.Fatal(err)
			}
			var ours, signed []time.Duration
			for b.Loop() {
				begin := time.Now()
				if _, err := s.Get(bg, "k", remote.GetOptions{}); err != nil {
					b.Fatal(err)
				}
				ours = append(ours, time.Since(begin))
				begin = time.Now()
				if err := raw.get("k", size); err != nil {
					b.Fatal(err)
				}
				signed = append(signed, time.Since(begin))
			}
			o, r := median(ours), median(signed)
			b.ReportMetric(micros(o), "get-µs")
			b.ReportMetric(micros(r), "nethttp-µs")
			b.ReportMetric(float64(o)/float64(r), "get/nethttp")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// rawClient is the least that talks to the store.
type rawClient struct {
	client  *http.Client
	signer  *v4.Signer
	creds   aws.Credentials
	base    string // URL of the prefix
	region  string
	sdk     *sdk.Client
	bucket  string
	sdkBase string
}

func newRaw(b *testing.B, place s3test.Place) *rawClient {
	u, err := url.Parse(place.URL)
	if err != nil {
		b.Fatal(err)
	}
	endpoint := u.Query().Get("endpoint")
	if endpoint == "" {
		b.Skip("needs a store with an endpoint")
	}
	r := &rawClient{signer: v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }), region: "us-east-1",
		base: endpoint + "/" + u.Host + u.Path, bucket: u.Host, sdkBase: u.Path[1:]}
	tr := &http.Transport{DisableCompression: true}
	b.Cleanup(tr.CloseIdleConnections)
	r.client = &http.Client{Transport: tr}
	provider := place.Credentials()
	if provider == nil {
		cfg, err := config.LoadDefaultConfig(bg)
		if err != nil {
			b.Fatal(err)
		}
		provider = cfg.Credentials
	}
	if r.creds, err = provider.Retrieve(bg); err != nil {
		b.Fatal(err)
	}
	r.sdk = sdk.New(sdk.Options{Region: r.region, BaseEndpoint: &endpoint, UsePathStyle: true, HTTPClient: r.client,
		Credentials: aws.NewCredentialsCache(provider), Retryer: aws.NopRetryer{},
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired})
	return r
}

func (r *rawClient) do(method, key string, body []byte, read func(*http.Response) error) error {
	req, err := http.NewRequestWithContext(bg, method, r.base+"/"+key, bytes.NewReader(body))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	req.Header.Set("X-Amz-Content-Sha256", hash)
	if method == http.MethodPut {
		req.Header.Set("If-None-Match", "*")
	}
	if err := r.signer.SignHTTP(bg, r.creds, req, hash, "s3", r.region, time.Now()); err != nil {
		return err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", resp.Status)
	}
	return read(resp)
}

func (r *rawClient) put(key string, body []byte) error {
	return r.do(http.MethodPut, key, body, func(resp *http.Response) error { _, err := io.Copy(io.Discard, resp.Body); return err })
}

func (r *rawClient) putGenerated(key string, body []byte) error {
	full := r.sdkBase + "/" + key
	_, err := r.sdk.PutObject(context.Background(), &sdk.PutObjectInput{Bucket: &r.bucket, Key: &full, Body: bytes.NewReader(body), IfNoneMatch: aws.String("*")})
	return err
}

func (r *rawClient) get(key string, size int) error {
	return r.do(http.MethodGet, key, nil, func(resp *http.Response) error {
		_, err := io.ReadFull(resp.Body, make([]byte, size))
		return err
	})
}
