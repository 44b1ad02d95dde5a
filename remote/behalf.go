package remote

import "context"

type behalfKey struct{}

// OnBehalf returns s with every request made on behalf of one database. A store that asks a server (remote/gateway) passes that on: what a key may read of others' objects depends on whose pages it is after,
// since a fork's lie partly below its source's prefix. All other stores take no notice.
func OnBehalf(s Store, database string) Store { return behalf{s, database} }

// Behalf returns the database that a request is made on behalf of, "" for the account.
func Behalf(ctx context.Context) string {
	name, _ := ctx.Value(behalfKey{}).(string)
	return name
}

type behalf struct {
	Store
	database string
}

func (s behalf) with(ctx context.Context) context.Context {
	return context.WithValue(ctx, behalfKey{}, s.database)
}

func (s behalf) Create(ctx context.Context, key string, body []byte) (string, error) {
	return s.Store.Create(s.with(ctx), key, body)
}

func (s behalf) Get(ctx context.Context, key string, o GetOptions) (Object, error) {
	return s.Store.Get(s.with(ctx), key, o)
}

func (s behalf) List(ctx context.Context, prefix string, o ListOptions) ([]Info, bool, error) {
	return s.Store.List(s.with(ctx), prefix, o)
}

func (s behalf) Swap(ctx context.Context, key, etag string, body []byte) (string, error) {
	return s.Store.Swap(s.with(ctx), key, etag, body)
}

func (s behalf) Delete(ctx context.Context, key string) error {
	return s.Store.Delete(s.with(ctx), key)
}
