// Package s3server runs a real S3 server for tests: versitygw, in the version that internal/tools/s3 pins, over a temporary
// directory on the loopback interface. It honours conditions and signatures, and does not fsync.
package s3server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tonbo-go/tonbo/internal/peer"
)

// Server is a running server with one bucket. Its fields are fixed once it runs.
type Server struct {
	Endpoint  string // "http://127.0.0.1:port"
	Bucket    string // exists, empty at first
	AccessKey string
	SecretKey string
	Region    string
	Dir       string // where it keeps objects: Dir/Bucket/key is the body of an object

	work    string
	process *peer.Process
}

var program = peer.Program{Name: "versitygw", Tools: "s3", Module: "github.com/versity/versitygw", Package: "cmd/versitygw"}

// URL returns the location of the bucket as remote/s3 takes it.
func (s *Server) URL() string {
	return "s3://" + s.Bucket + "?endpoint=" + s.Endpoint + "&region=" + s.Region
}

// Env returns what a child process needs in its environment to reach the server with [Server.URL].
func (s *Server) Env() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + s.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s.SecretKey, "AWS_REGION=" + s.Region,
		"AWS_EC2_METADATA_DISABLED=true"}
}

// Start runs a server until the test has ended. It fails the test when there is none to be had.
func Start(t testing.TB) *Server {
	t.Helper()
	s, err := Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// Run builds the server if need be (once per version and user; 100 s), starts it, and waits until it answers. It ends with
// [Server.Stop], and when this process dies.
func Run(ctx context.Context) (*Server, error) {
	bin, err := program.Build(ctx)
	if err != nil {
		return nil, fmt.Errorf("build the S3 server: %w", err)
	}
	work, err := workDir()
	if err != nil {
		return nil, fmt.Errorf("S3 server: %w", err)
	}
	s := &Server{Bucket: "tonbo-test", AccessKey: "tonbotest", SecretKey: "tonbotestsecret", Region: "us-east-1",
		Dir: filepath.Join(work, "buckets"), work: work}
	// A directory of the posix backend is a bucket.
	if err := os.MkdirAll(filepath.Join(s.Dir, s.Bucket), 0o700); err != nil {
		return nil, errors.Join(err, os.RemoveAll(work))
	}
	for range 5 { // another process may take the port before the server does
		if err = s.start(ctx, bin); err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(fmt.Errorf("start the S3 server: %w", err), os.RemoveAll(work))
}

func (s *Server) start(ctx context.Context, bin string) error {
	address, err := peer.FreeAddress()
	if err != nil {
		return err
	}
	cmd := exec.Command(bin, "-q", "--keep-alive", "--health", "/health", "--port", address, "posix", s.Dir)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s.AccessKey, "ROOT_SECRET_KEY="+s.SecretKey)
	cmd.Dir = s.work
	s.Endpoint = "http://" + address
	s.process, err = peer.Start(ctx, cmd, filepath.Join(s.work, "log"), s.Endpoint+"/health")
	return err
}

// Stop ends the server and removes its directory. More calls do nothing.
func (s *Server) Stop() {
	s.process.Stop()
	_ = os.RemoveAll(s.work) // nothing depends on it
}

// workDir makes a directory on a file system that takes user extended attributes, where the server keeps entity tags.
func workDir() (string, error) {
	bases := []string{os.TempDir(), "/dev/shm"}
	if cache, err := os.UserCacheDir(); err == nil {
		bases = append(bases, cache)
	}
	var errs []error
	for _, base := range bases {
		dir, err := os.MkdirTemp(base, "tonbo-s3-")
		if err == nil {
			if err = tryXattr(dir); err == nil {
				return dir, nil
			}
			err = errors.Join(err, os.RemoveAll(dir))
		}
		errs = append(errs, fmt.Errorf("%s: %w", base, err))
	}
	return "", fmt.Errorf("no directory with user extended attributes (ext4, xfs or tmpfs): set TMPDIR to one: %w", errors.Join(errs...))
}
