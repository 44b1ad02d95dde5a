package tonbo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tonbo-go/tonbo/remote"
)

const (
	recordFormat = 1
	recordMaking = "making"
)

// record is a database's index record: for listing, it never decides existence. See docs/format.md.
type record struct {
	Format    int               `json:"format"`
	Name      string            `json:"name"`
	ID        string            `json:"id"`
	Slot      uint64            `json:"slot"`
	State     string            `json:"state"`
	CreatedAt time.Time         `json:"created_at"`
	Metadata  map[string]string `json:"metadata,omitempty"`
}

func recordPrefix(name string) string { return "names/" + name + "/" }

func recordKey(name string, slot uint64, id string) string {
	return fmt.Sprintf("%s%016x.%s", recordPrefix(name), slot, id)
}

func (r *record) put(ctx context.Context, s remote.Store) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return remote.CreateUnique(ctx, s, recordKey(r.Name, r.Slot, r.ID), b)
}

// findRecord returns the record of an incarnation and its key. nil: there is none.
func findRecord(ctx context.Context, s remote.Store, name, id string) (*record, string, error) {
	after := ""
	for {
		page, more, err := s.List(ctx, recordPrefix(name), remote.ListOptions{After: after})
		if err != nil {
			return nil, "", err
		}
		for _, info := range page {
			if after = info.Key; !strings.HasSuffix(info.Key, "."+id) {
				continue
			}
			o, err := s.Get(ctx, info.Key, remote.GetOptions{})
			if errors.Is(err, remote.ErrNotFound) {
				return nil, "", nil
			}
			if err != nil {
				return nil, "", err
			}
			var r record
			if err := json.Unmarshal(o.Body, &r); err != nil {
				return nil, "", fmt.Errorf("%w: %s/%s: %w", ErrCorrupt, s, info.Key, err)
			}
			if r.Format != recordFormat {
				return nil, "", fmt.Errorf("%w: %s/%s has format %d: update tonbo", ErrUnsupported, s, info.Key, r.Format)
			}
			return &r, info.Key, nil
		}
		if !more {
			return nil, "", nil
		}
	}
}

// checkMetadata enforces the limits of metadata.
func checkMetadata(m map[string]string) error {
	if len(m) > 32 {
		return fmt.Errorf("metadata has %d pairs, at most 32 are allowed", len(m))
	}
	for k, v := range m {
		if k == "" || len(k) > 64 {
			return fmt.Errorf("metadata key %.70q has %d bytes, 1 to 64 are allowed", k, len(k))
		}
		if len(v) > 256 {
			return fmt.Errorf("metadata %q has a value of %d bytes, at most 256 are allowed", k, len(v))
		}
	}
	return nil
}

func isUnknown(err error) bool { return errors.Is(err, remote.ErrUnknown) }
