package tonbo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
)

// Provide is [Instances.Ensure] for who does not open the database himself, such as a server that answers which one to open: it makes the key's database when there is none, and its next generation when the last one has ended, and
// takes nothing over. Whether the database opens is told by reading what an Open begins with. Instance.DB is nil and Version is "". Started is [Created]; [Running] when its log has no close at its end and was written within
// the last 30 seconds; or [Resumed].
//
// Version and Migrate of o must not be set ([ErrInvalid]): both need an open database. Errors are those of Ensure otherwise.
func (i *Instances) Provide(ctx context.Context, key string, o EnsureOptions) (*Instance, error) {
	if err := ValidateName(key); err != nil {
		return nil, err
	}
	if err := o.check(i.c.o.time()); err != nil {
		return nil, i.wrap(key, "provide", err)
	}
	if o.Version != "" {
		return nil, i.wrap(key, "provide", invalid("Version", "the database is not opened: use Ensure"))
	}
	ctx, cancel := i.c.bounded(ctx)
	defer cancel()
	unlock, err := i.lock(ctx, key)
	if err != nil {
		return nil, i.wrap(key, "provide", err)
	}
	defer unlock()
	in, err := i.provide(ctx, key, o)
	return in, i.wrap(key, "provide", err)
}

func (i *Instances) provide(ctx context.Context, key string, o EnsureOptions) (*Instance, error) {
	created := false
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		// (1) As in ensure: which database has the key?
		b, ours, again, err := i.which(ctx, key, o)
		if err != nil {
			return nil, err
		}
		if created = created || ours; again {
			continue
		}
		// (2) Does it open? That incarnation and no other.
		id, err := idOf(b)
		if err != nil {
			return nil, err
		}
		started, err := i.opens(ctx, key, b, id)
		if err != nil {
			if ours, err = i.unopened(ctx, key, b, o, created, err); err != nil {
				return nil, err
			}
			created = created || ours
			continue
		}
		if b.Kind == catalog.Failing {
			if _, _, err := i.append(ctx, key, b, catalog.Binding{Kind: catalog.Bound, Generation: b.Generation, Name: b.Name, ID: b.ID}); err != nil {
				return nil, err
			}
		}
		in := instanceOf(key, b)
		if in.Started = started; created {
			in.Started = Created
		}
		return in, nil
	}
}

// opens tells whether an Open of the database that b names would come to its pages: its head, its record, and the entries and manifest that it stands on. Without a claim.
func (i *Instances) opens(ctx context.Context, key string, b *catalog.Binding, id fence.ID) (Started, error) {
	head, r, err := i.c.look(ctx, b.Name)
	if errors.Is(err, fence.ErrNoDatabase) {
		return "", i.whyGone(ctx, b, err)
	}
	if err != nil {
		return "", wrap(b.Name, "open", err)
	}
	switch {
	case head.ID != id:
		return "", i.whyGone(ctx, b, fence.ErrNoDatabase)
	case r != nil && r.Instance != "" && r.Instance != key:
		return "", fmt.Errorf("%w: %s is the database of key %s", ErrKeyBound, b.Name, r.Instance)
	case r != nil && r.State == catalog.Deleting:
		return "", fmt.Errorf("%w: its deletion has begun", ErrDeleted)
	case r != nil && (r.State == catalog.Expiring || r.Expired(i.c.o.time())):
		return "", fmt.Errorf("%w: at %s", ErrExpired, r.ExpiresAt)
	case head.Frozen:
		return "", ErrFrozen
	}
	h, err := i.c.handle(b.Name)
	if err != nil {
		return "", err
	}
	defer h.stop()
	if head.Payload == nil && head.PayloadSize > 0 {
		if head, err = h.log.Read(ctx, head.Slot); err != nil {
			return "", wrap(b.Name, "open", err)
		}
	}
	if err := h.newTail(head).load(ctx, 0); err != nil {
		return "", wrap(b.Name, "open", err)
	}
	if head.Kind != fence.Close && head.Kind != fence.Create && time.Since(head.Time).Abs() < runningWithin {
		return Running, nil
	}
	return Resumed, nil
}
