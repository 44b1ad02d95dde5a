package s3server_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/internal/s3server"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv("TONBO_TEST_S3SERVER_CHILD") != "" {
		child()
	}
	goleak.VerifyTestMain(m)
}

// child starts a server, tells where, and waits to be killed.
func child() {
	s, err := s3server.Run(context.Background())
	if err != nil {
		println(err.Error())
		os.Exit(1)
	}
	os.Stdout.WriteString(s.Endpoint + "\n")
	select {}
}

func skipUnlessAsked(t *testing.T) {
	t.Helper()
	if os.Getenv("TONBO_TEST_S3") != "versitygw" {
		t.Skip("builds an S3 server: set TONBO_TEST_S3=versitygw")
	}
}

func healthy(endpoint string) bool {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	resp, err := client.Get(endpoint + "/health")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func TestServerRunsUntilStopped(t *testing.T) {
	skipUnlessAsked(t)
	a, b := s3server.Start(t), s3server.Start(t)
	if a.Endpoint == b.Endpoint || !healthy(a.Endpoint) || !healthy(b.Endpoint) {
		t.Fatalf("two servers: %s, %s", a.Endpoint, b.Endpoint)
	}
	a.Stop()
	a.Stop()
	if healthy(a.Endpoint) || !healthy(b.Endpoint) {
		t.Error("the wrong one is stopped")
	}
	if _, err := os.Stat(a.Dir); !os.IsNotExist(err) {
		t.Errorf("its directory is still there: %v", err)
	}
}

func TestServerDiesWithItsProcess(t *testing.T) {
	skipUnlessAsked(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "TONBO_TEST_S3SERVER_CHILD=1", "TMPDIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := bufio.NewScanner(out)
	if !line.Scan() || !healthy(line.Text()) {
		t.Fatalf("no server: %q", line.Text())
	}
	// A connection to it ends when it does.
	conn, err := net.Dial("tcp", strings.TrimPrefix(line.Text(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) || healthy(line.Text()) {
		t.Errorf("the server outlived its process: %v", err)
	}
}
