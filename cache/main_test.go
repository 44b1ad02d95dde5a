package cache_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// childEnv makes the test binary a child process that does one thing and is killed; see childMain.
const childEnv = "TONBO_CACHE_TEST_CHILD"

func TestMain(m *testing.M) {
	if job := os.Getenv(childEnv); job != "" {
		childMain(job)
		return
	}
	goleak.VerifyTestMain(m)
}
