package tonbo

import (
	"context"
	"fmt"

	"github.com/tonbo-go/tonbo/internal/catalog"
)

const (
	defaultMaxDatabases = 10_000
	sampleCreations     = 64 // a client counts at each of so many of its creations, when the limit is the default
)

// checkLimit refuses a creation that is too many. It is called when the creation's own index record is there: of two at the edge each sees the other, so they may both be refused, but never
// both pass.
func (c *Client) checkLimit(ctx context.Context) error {
	limit := c.o.MaxDatabases
	n := c.creations.Add(1)
	switch {
	case limit < 0, limit == 0 && n%sampleCreations != 0:
		return nil
	case limit == 0:
		limit = defaultMaxDatabases
	}
	found := 0
	err := catalog.Names(ctx, c.store, "", "", func(string, []catalog.Incarnation) bool {
		found++
		return found <= limit
	})
	if err != nil {
		return fmt.Errorf("count the databases of the account: %w", err)
	}
	if found > limit {
		return &limitError{limit, c.store.String()}
	}
	return nil
}

// limitError is ErrLimit.
type limitError struct {
	limit int
	store string
}

func (e *limitError) Error() string {
	return fmt.Sprintf("%v: %s holds %d, those being created or deleted included; delete some, or raise Options.MaxDatabases", ErrLimit, e.store, e.limit)
}

func (e *limitError) Is(target error) bool { return target == ErrLimit }
