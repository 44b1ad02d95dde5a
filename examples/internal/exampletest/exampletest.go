// Package exampletest is what the examples' tests have in common.
package exampletest

import (
	"bytes"
	"context"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// Main runs a package's tests and looks for goroutines that they left.
func Main(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Idle connections of the S3 client, which this process keeps for its account.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

// TempDir makes the run's temporary directories go into a fresh one. The function that it returns checks that nothing is left in it.
func TempDir(t *testing.T) (check func()) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"TMPDIR", "TEMP", "TMP"} { // Unix, Windows
		t.Setenv(name, dir)
	}
	return func() {
		t.Helper()
		left, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range left {
			t.Errorf("left behind: %s", f.Name())
		}
	}
}

// CancelWriter cancels once a text has been written to it.
type CancelWriter struct {
	Text   string
	Cancel context.CancelFunc

	mu sync.Mutex
	b  bytes.Buffer
}

func (w *CancelWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b.Write(p)
	if bytes.Contains(w.b.Bytes(), []byte(w.Text)) {
		w.Cancel()
	}
	return len(p), nil
}
