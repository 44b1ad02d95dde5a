package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"golang.org/x/sync/errgroup"
)

// rawClient is the least that talks to the store: net/http and a signature.
type rawClient struct {
	client *http.Client
	signer *v4.Signer
	creds  aws.Credentials
	base   string
	region string
}

func (e *env) raw(endpoint string) *rawClient {
	return &rawClient{
		client: &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}},
		signer: v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }),
		creds:  aws.Credentials{AccessKeyID: e.server.AccessKey, SecretAccessKey: e.server.SecretKey},
		base:   endpoint + "/" + e.server.Bucket + "/", region: e.server.Region,
	}
}

func (r *rawClient) close() { r.client.CloseIdleConnections() }

func (r *rawClient) do(ctx context.Context, method, key string, body []byte, header http.Header, read func(*http.Response) error) error {
	req, err := http.NewRequestWithContext(ctx, method, r.base+key, bytes.NewReader(body))
	if err != nil {
		return err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	req.Header.Set("X-Amz-Content-Sha256", hash)
	if err := r.signer.SignHTTP(ctx, r.creds, req, hash, "s3", r.region, time.Now()); err != nil {
		return err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return fmt.Errorf("%s %s: %s: %s", method, key, resp.Status, text)
	}
	return read(resp)
}

// put is a conditional PUT.
func (r *rawClient) put(ctx context.Context, key string, body []byte) error {
	return r.do(ctx, http.MethodPut, key, body, http.Header{"If-None-Match": {"*"}}, func(resp *http.Response) error {
		_, err := io.Copy(io.Discard, resp.Body)
		return err
	})
}

// part is a range of an object.
type part struct {
	key      string
	from, to int64 // to is behind the last byte
}

// get reads a part and hands it to fn in pieces of a buffer that is used again.
func (r *rawClient) get(ctx context.Context, p part, buf []byte, fn func(at int64, b []byte) error) error {
	h := http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", p.from, p.to-1)}}
	return r.do(ctx, http.MethodGet, p.key, nil, h, func(resp *http.Response) error {
		at := int64(0)
		for {
			n, err := resp.Body.Read(buf)
			if n > 0 {
				if ferr := fn(at, buf[:n]); ferr != nil {
					return ferr
				}
				at += int64(n)
			}
			if errors.Is(err, io.EOF) {
				if at != p.to-p.from {
					return io.ErrUnexpectedEOF
				}
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
}

// getAll reads parts, several at once, and throws them away or writes them one behind the other into a file.
func (r *rawClient) getAll(ctx context.Context, parts []part, parallel int, to *os.File) error {
	g, ctx := errgroup.WithContext(ctx)
	queue := make(chan int)
	offsets := make([]int64, len(parts))
	var sum int64
	for i, p := range parts {
		offsets[i] = sum
		sum += p.to - p.from
	}
	for range parallel {
		g.Go(func() error {
			buf := make([]byte, 256<<10)
			for i := range queue {
				if err := r.get(ctx, parts[i], buf, func(at int64, b []byte) error {
					if to == nil {
						return nil
					}
					_, err := to.WriteAt(b, offsets[i]+at)
					return err
				}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		defer close(queue)
		for i := range parts {
			select {
			case queue <- i:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	return g.Wait()
}

// object is one that the server keeps.
type object struct {
	key  string
	size int64
}

// stored lists the objects below a prefix, as they lie in the server's directory.
func (e *env) stored(prefix string) ([]object, error) {
	root := filepath.Join(e.server.Dir, e.server.Bucket)
	var list []object
	err := filepath.WalkDir(filepath.Join(root, filepath.FromSlash(prefix)), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		list = append(list, object{filepath.ToSlash(rel), fi.Size()})
		return err
	})
	slices.SortFunc(list, func(a, b object) int { return strings.Compare(a.key, b.key) })
	return list, err
}

// bytesIn adds up objects.
func bytesIn(list []object) (n int64) {
	for _, o := range list {
		n += o.size
	}
	return n
}

// split cuts objects into parts of at most n bytes.
func split(list []object, n int64) []part {
	var parts []part
	for _, o := range list {
		for at := int64(0); at < o.size; at += n {
			parts = append(parts, part{o.key, at, min(at+n, o.size)})
		}
	}
	return parts
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	if cerr := dst.Close(); err == nil {
		err = cerr
	}
	return err
}
