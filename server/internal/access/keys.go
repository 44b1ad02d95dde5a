package access

import (
	"context"
	"errors"
	"time"

	"github.com/tonbo-go/tonbo/remote"
)

// Prefix is what the keys of all objects of this package begin with.
const Prefix = "keys/"

// Mark is what every secret begins with.
const Mark = "tbo_"

// ErrRefused is a secret that no key in force has.
var ErrRefused = errors.New("no key in force")

// Options of NewKeys.
type Options struct {
	Cache time.Duration    // how long a verdict is used again; 0: never
	Now   func() time.Time // default time.Now
}

// Keys are an account's. Safe for concurrent use.
type Keys struct {
	store remote.Store
	o     Options
}

// NewKeys returns the keys in a store. It sends no request.
func NewKeys(s remote.Store, o Options) *Keys {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Keys{store: s, o: o}
}

// Verify returns the key that a secret stands for. [ErrRefused]: none that is in force.
func (k *Keys) Verify(ctx context.Context, secret string) (*Key, error) {
	return nil, ErrRefused
}
