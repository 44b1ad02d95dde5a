package tonbo

import (
	"context"

	"github.com/tonbo-go/tonbo/fence"
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
	if err := c.checkCreate(name, o.CreateOptions); err != nil {
		return nil, wrap(name, "fork", err)
	}
	if o.PageSize != 0 {
		return nil, wrap(name, "fork", &OptionError{"PageSize", "a fork has its source's page size: leave it unset"})
	}
	at, err := atString(o.At)
	if err != nil {
		return nil, wrap(name, "fork", &OptionError{"At", err.Error()})
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	point := func(ctx context.Context) (*fence.Source, error) {
		h, err := c.handle(source)
		if err != nil {
			return nil, err
		}
		defer h.stop()
		_, e, err := h.resolve(ctx, o.At)
		if err != nil {
			return nil, wrap(source, "fork", err)
		}
		return &fence.Source{Name: source, ID: e.ID, Slot: e.Slot}, nil
	}
	from := &fence.Source{Name: source} // its head, looked up beside the fork's own
	if o.At != nil && o.IdempotencyKey == "" {
		if from, err = point(ctx); err != nil {
			return nil, err
		}
	}
	return c.begin(ctx, name, creation{
		doing: "fork of " + source, o: o.CreateOptions, what: request{Kind: "fork", Name: name, Source: source, At: at}, fence: fence.CreateOptions{Source: from}, point: point,
	})
}
