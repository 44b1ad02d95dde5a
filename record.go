package tonbo

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/remote"
)

// recordOf reads the index record of the incarnation that head is of: one GET, and a LIST before it for logs of versions whose entries do not tell the slot of their create. nil: there is none.
func recordOf(ctx context.Context, s remote.Store, name string, head *fence.Entry) (r *catalog.Record, err error) {
	if begin := head.Usage.Begin; begin != 0 {
		r, err = catalog.Read(ctx, s, catalog.RecordKey(name, begin, head.ID))
	} else {
		r, err = catalog.Find(ctx, s, name, head.ID)
	}
	if errors.Is(err, remote.ErrNotFound) {
		return nil, nil
	}
	return r, err
}

// checkMetadata enforces the limits of metadata.
func checkMetadata(m map[string]string) error {
	if len(m) > 32 {
		return &OptionError{"Metadata", fmt.Sprintf("metadata has %d pairs, at most 32 are allowed", len(m))}
	}
	for k, v := range m {
		if k == "" || len(k) > 64 {
			return &OptionError{"Metadata", fmt.Sprintf("metadata key %.70q has %d bytes, 1 to 64 are allowed", k, len(k))}
		}
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return invalid("Metadata", "metadata %.70q: %.70q is no UTF-8", k, v)
		}
		if len(v) > 256 {
			return &OptionError{"Metadata", fmt.Sprintf("metadata %q has a value of %d bytes, at most 256 are allowed", k, len(v))}
		}
	}
	return nil
}

func isUnknown(err error) bool { return errors.Is(err, remote.ErrUnknown) }
