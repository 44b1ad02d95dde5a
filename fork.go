package tonbo

import (
	"context"
	"fmt"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
)

// ForkOptions of Fork. The zero value forks the source's head.
type ForkOptions struct {
	CreateOptions    // of the fork; PageSize is the source's
	At            At // the source's point; nil: its head
}

// Fork creates a database that begins as source is at a point. It copies no pages: its time and bytes do not depend on the size of the source. From then on
// each goes its own way; deleting the source takes nothing from the fork, which lets go of what it no longer needs of it when it is compacted. The source's owner, if
// there is one, is not disturbed: what it has not shipped is not in the fork.
//
// Errors, for errors.Is: [ErrNotFound] (the source), [ErrPointGone], [ErrExists], [ErrUnsynced] when the outcome is not known (run it again), and Create's.
func (c *Client) Fork(ctx context.Context, source, name string, o ForkOptions) (*Database, error) {
	if err := ValidateName(source); err != nil {
		return nil, err
	}
	if err := ValidateName(name); err != nil {
		return nil, err
	}
	if err := checkMetadata(o.Metadata); err != nil {
		return nil, wrap(name, "fork", err)
	}
	if o.PageSize != 0 {
		return nil, wrap(name, "fork", fmt.Errorf("a fork has its source's page size: leave CreateOptions.PageSize unset"))
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	if err := remote.ProbeOnce(ctx, c.store); err != nil {
		return nil, wrap(name, "fork", err)
	}
	from := &fence.Source{Name: source}
	if o.At != nil {
		h, err := c.handle(source)
		if err != nil {
			return nil, err
		}
		defer h.stop()
		_, e, err := h.resolve(ctx, o.At)
		if err != nil {
			return nil, wrap(source, "fork", err)
		}
		from.ID, from.Slot = e.ID, e.Slot
	}
	db, err := c.begin(ctx, name, o.CreateOptions, fence.CreateOptions{Source: from}, nil)
	if err != nil {
		return nil, wrap(name, "fork of "+source, err)
	}
	return db, nil
}
