package catalog

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
)

// EndedPrefix is what the keys of all marks of ended incarnations begin with.
const EndedPrefix = "ended/"

// Ended marks an incarnation that has ended and whose objects wait for a collector: it is put when its index record goes, and goes when nothing is left to collect. Janitors find their work by
// it, without a look at every name that ever was.
type Ended struct {
	Format  int       `json:"format"`
	Name    string    `json:"name"`
	ID      string    `json:"id"`
	Slot    uint64    `json:"slot"` // of its create
	EndedAt time.Time `json:"ended_at"`
}

// EndedKey is the key of an incarnation's mark.
func EndedKey(name string, slot uint64, id fence.ID) string {
	return incarnationKey(EndedPrefix, name, slot, id)
}

// ParseEndedKey is EndedKey's inverse.
func ParseEndedKey(key string) (name string, slot uint64, id fence.ID, ok bool) {
	return parseIncarnationKey(EndedPrefix, key)
}

// MarkEnded puts the mark of the incarnation of a record. Marked before, it stays as it is.
func MarkEnded(ctx context.Context, s remote.Store, r *Record, at time.Time) error {
	body, err := json.Marshal(Ended{format, r.Name, r.ID, r.Slot, at})
	if err != nil {
		return err
	}
	id, _ := fence.ParseID(r.ID)
	return createOnce(ctx, s, EndedKey(r.Name, r.Slot, id), body, nil)
}
