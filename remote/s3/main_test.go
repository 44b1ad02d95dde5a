package s3_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The developer's own AWS settings must not decide what is tested; the integration tests bring theirs along.
	if os.Getenv("TONBO_TEST_S3_BEHIND_PROXY") != "" {
		// A child of TestProxyOfTheEnvironmentIsUsed, with an environment made for it.
	} else if os.Getenv("TONBO_TEST_S3") == "" || os.Getenv("TONBO_TEST_S3") == "versitygw" {
		for _, v := range []string{"AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE", "AWS_SESSION_TOKEN"} {
			os.Unsetenv(v)
		}
		os.Setenv("AWS_CONFIG_FILE", os.DevNull)
		os.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
		os.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	}
	goleak.VerifyTestMain(m)
}
