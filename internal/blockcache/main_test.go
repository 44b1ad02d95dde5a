package blockcache_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// childEnv makes the test binary a child process that does a job.
const childEnv = "TONBO_BLOCKCACHE_CHILD"

func TestMain(m *testing.M) {
	if job := os.Getenv(childEnv); job != "" {
		childMain(job)
		return
	}
	goleak.VerifyTestMain(m)
}
