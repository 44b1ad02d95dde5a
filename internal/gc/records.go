package gc

import (
	"context"
	"fmt"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/remote"
)

// Records looks at a name's index records: a creation left half made is ended (R11), and the record of what will never be, or is no more, is removed. Records younger than
// Options.Grace are left alone. Of each one the slot of its create is read, and then the head.
func Records(ctx context.Context, s remote.Store, name string, o Options) (*Report, error) {
	c := newRun(ctx, s, name, o)
	fail := func(err error) (*Report, error) {
		return c.r, fmt.Errorf("look at the index records of %q: %w", name, err)
	}
	var records []remote.Info
	if err := c.list("names/"+name+"/", func(i remote.Info) { records = append(records, i) }); err != nil {
		return fail(err)
	}
	for _, i := range records {
		_, slot, id, ok := catalog.ParseRecordKey(i.Key)
		if !ok || c.fresh(i) {
			continue
		}
		child := fence.Source{Name: name, ID: id, Slot: slot}
		made, head, err := c.made(child)
		if err != nil {
			return fail(err)
		}
		if made && !dead(child, head) {
			continue
		}
		if err := c.delete(i, &c.r.Records); err != nil {
			return fail(err)
		}
	}
	return c.r, nil
}
