package s3

import (
	"context"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// credentials keeps a provider's answer until it expires or the store refuses it.
type credentials struct {
	cache *aws.CredentialsCache
}

// newCredentials uses given when the caller brought a provider. Otherwise the AWS chain: first as loaded already, from then on
// loaded anew, since the SDK reads the environment and the shared files once and would never see that they were rotated.
func newCredentials(given, loaded aws.CredentialsProvider, load func(context.Context) (aws.Config, error)) *credentials {
	if cache, ok := given.(*aws.CredentialsCache); ok {
		return &credentials{cache}
	}
	if given == nil {
		var again atomic.Bool
		given = aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
			if !again.Swap(true) {
				return loaded.Retrieve(ctx)
			}
			cfg, err := load(ctx)
			if err != nil {
				return aws.Credentials{}, err
			}
			return cfg.Credentials.Retrieve(ctx)
		})
	}
	return &credentials{aws.NewCredentialsCache(given)}
}

func (c *credentials) get(ctx context.Context) (aws.Credentials, error) { return c.cache.Retrieve(ctx) }

// refused forgets the credentials that the store did not take, unless another request has had them replaced already.
func (c *credentials) refused(ctx context.Context, used aws.Credentials) {
	if now, err := c.cache.Retrieve(ctx); err == nil && now.AccessKeyID == used.AccessKeyID &&
		now.SecretAccessKey == used.SecretAccessKey && now.SessionToken == used.SessionToken {
		c.cache.Invalidate()
	}
}
