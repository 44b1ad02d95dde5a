package catalog

import (
	"context"
	"strings"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
)

// Mark is what the key of an ended incarnation's mark tells, see Ended.
type Mark struct {
	Name string
	Slot uint64 // of its create
	ID   fence.ID
	Time time.Time // when it was put, by the store's clock
}

// Key of the mark's object.
func (m Mark) Key() string { return EndedKey(m.Name, m.Slot, m.ID) }

// Marks calls fn with the mark of each ended incarnation whose name begins with prefix. One LIST per 1,000 of them.
func Marks(ctx context.Context, s remote.Store, prefix string, fn func(Mark)) error {
	return list(ctx, s, EndedPrefix+prefix, "", func(i remote.Info) bool {
		if name, slot, id, ok := ParseEndedKey(i.Key); ok {
			fn(Mark{name, slot, id, i.Time})
		}
		return true
	})
}

// KeyHashes calls fn with the hash of each idempotency key, and when its newest attempt was put, by the store's clock. One LIST per 1,000 attempts.
func KeyHashes(ctx context.Context, s remote.Store, fn func(hash string, newest time.Time)) error {
	var hash string
	var newest time.Time
	flush := func() {
		if hash != "" {
			fn(hash, newest)
		}
	}
	err := list(ctx, s, AttemptPrefix, "", func(i remote.Info) bool {
		h, _, _ := strings.Cut(i.Key[len(AttemptPrefix):], "/")
		if h != hash {
			flush()
		}
		hash, newest = h, i.Time
		return true
	})
	if err == nil {
		flush()
	}
	return err
}
