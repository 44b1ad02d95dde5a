package server_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(childEnv); url != "" {
		fmt.Fprintln(os.Stderr, child(url))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}
