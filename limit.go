package tonbo

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"sync/atomic"

	"github.com/tonbo-go/tonbo/internal/catalog"
)

const (
	defaultMaxDatabases = 10_000
	sampleCreations     = 64 // one in so many creations is looked at, when the limit is the default
)

// limiter is when a client counts databases, when the limit is the default: a count costs a LIST per 1,000 of them, and a creation is to cost three requests.
type limiter struct {
	since atomic.Int64 // creations since the last count
	full  atomic.Bool  // the last count found too many
}

// due tells whether a creation is to be counted for: one name in 64, whoever creates it, since many a client creates one database and no more; 64 creations after a client's last count at the latest; and each of them
// while the client knows the account to be full.
func (l *limiter) due(name string) bool {
	f := fnv.New32a()
	io.WriteString(f, name)
	return l.since.Add(1) >= sampleCreations || l.full.Load() || f.Sum32()%sampleCreations == 0
}

// checkLimit refuses a creation that is too many. It is called when the creation's own index record is there: of two at the edge each sees the other, so they may both be refused, but never
// both pass.
func (c *Client) checkLimit(ctx context.Context, name string) error {
	limit := c.o.MaxDatabases
	switch {
	case limit < 0, limit == 0 && !c.limiter.due(name):
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
	c.limiter.since.Store(0)
	c.limiter.full.Store(found > limit)
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
