package fence

import (
	"context"
	"errors"
	"fmt"

	"github.com/tonbo-go/tonbo/remote"
)

// attempt is one entry on its way into its slot, the same bytes at every try (R2).
type attempt struct {
	entry  *Entry
	body   []byte
	unsure bool // a try ended otherwise than in success or a definite refusal: the entry may be stored, now or later
	stored bool // it is known to be stored
}

func newAttempt(e *Entry) (*attempt, error) {
	body, err := encode(e)
	return &attempt{entry: e, body: body}, err
}

// put brings a to its end (R2): stored (by and err are nil), taken by another entry, or an error. With an error, a.unsure tells the two kinds of it
// apart: false, nothing was stored and nothing will be; true, the outcome is unknown and the error is remote.ErrUnknown. It tries until ctx ends.
func (l *Log) put(ctx context.Context, a *attempt) (by *Entry, err error) {
	if err := ctx.Err(); err != nil && !a.unsure {
		return nil, err
	}
	slot := a.entry.Slot
	for try := 0; ; try++ {
		// 1. Create-if-absent, with the same bytes each time.
		etag, err := l.store.Create(ctx, SlotKey(l.name, slot), a.body)
		switch {
		case err == nil:
			a.stored, a.entry.ETag = true, etag
			return nil, nil
		case errors.Is(err, remote.ErrExists):
			a.unsure = true
			if l.broken == existsIsStored {
				a.stored = true
				return nil, nil
			}
			// 2. 412: the slot says whose it is. Absent: it has been collected since, or the answer was a proxy's: still unknown.
			found, rerr := l.ReadHeader(ctx, slot)
			switch {
			case rerr == nil && found.Nonce == a.entry.Nonce && l.broken != existsIsTaken:
				a.stored, a.entry.ETag = true, found.ETag
				return nil, nil
			case rerr == nil:
				return found, nil
			case errors.Is(rerr, ErrDamaged) || errors.Is(rerr, ErrNewer) || definite(rerr):
				return nil, l.unknown(a, rerr)
			}
			err = rerr
		case definite(err):
			// 3. Certainly not stored by this try. That settles it only if no earlier one is open.
			if a.unsure {
				return nil, l.unknown(a, err)
			}
			return nil, err
		default:
			// 4. 409, 429, 5xx, a timeout, a cut connection: unknown. Never move on, never report.
			a.unsure = true
			switch l.broken {
			case unknownIsStored:
				a.stored = true
				return nil, nil
			case newBytes:
				err = l.otherBytes(a)
			case unknownIsFailed:
				if a.entry.Kind == Create {
					return nil, l.unknown(a, err)
				}
			}
		}
		l.o.Logger.Debug("slot unknown, trying again", "database", l.name, "slot", slot, "try", try+1, "error", err)
		if werr := l.wait(ctx, try, err); werr != nil {
			return nil, l.unknown(a, errors.Join(err, werr))
		}
	}
}

func (l *Log) unknown(a *attempt, cause error) error {
	if errors.Is(cause, remote.ErrUnknown) {
		return fmt.Errorf("slot %d of %q: %w", a.entry.Slot, l.name, cause)
	}
	return fmt.Errorf("slot %d of %q: %w: %w", a.entry.Slot, l.name, remote.ErrUnknown, cause)
}

// definite tells whether a request was refused for certain.
func definite(err error) bool {
	if errors.Is(err, remote.ErrUnknown) {
		return false
	}
	for _, kind := range []error{remote.ErrDenied, remote.ErrUnauthorized, remote.ErrQuota, remote.ErrUnfit, remote.ErrDamaged, remote.ErrNoBucket} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
