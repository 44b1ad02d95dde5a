package access

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
)

// namesAtOnce is how many logs of named databases are looked at at once.
const namesAtOnce = 8

// name notes which incarnation of each database a key means that is made now.
func (k *Keys) name(ctx context.Context, names []string) ([]named, error) {
	all := make([]named, len(names))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(namesAtOnce)
	for i, name := range names {
		g.Go(func() error {
			head, err := k.log(name).HeadHeader(gctx)
			if err != nil {
				return err
			}
			all[i] = named{Name: name}
			if head != nil {
				all[i].Slot = head.Slot
				if !head.Ends() {
					all[i].ID = head.ID.String()
				}
			}
			return nil
		})
	}
	return all, g.Wait()
}

// standing returns those of the databases that a key names which have not ended since: a key dies with what it names, also when another database of that name comes.
func (k *Keys) standing(ctx context.Context, all []named) ([]string, error) {
	stand := make([]bool, len(all))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(namesAtOnce)
	for i, d := range all {
		g.Go(func() (err error) { stand[i], err = k.stands(gctx, d); return err })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var names []string
	for i, d := range all {
		if stand[i] {
			names = append(names, d.Name)
		}
	}
	return names, nil
}

func (k *Keys) log(name string) *fence.Log { return fence.New(k.store, name, fence.Options{}) }

// stands tells whether the database that d means is live, or still to come. Ends are never collected (R5), so the log knows for ever: the slots behind d.Slot are voids, then the create of the first one to come, and no
// delete. A LIST and a GET; one GET more when the name has had another database.
func (k *Keys) stands(ctx context.Context, d named) (bool, error) {
	l := k.log(d.Name)
	head, err := l.HeadHeader(ctx)
	switch {
	case err != nil:
		return false, err
	case head == nil || head.Slot < d.Slot: // what was there when the key was made has been lost, or nothing was
		return head == nil && d.Slot == 0, nil
	case d.ID != "":
		return !head.Ends() && head.ID.String() == d.ID, nil
	case head.Kind == fence.Delete:
		return head.Slot == d.Slot, nil
	}
	// The slots from d.Slot to where the live incarnation begins, or to the head when none lives, have to be voids.
	below := head.Slot
	if !head.Ends() {
		below = head.Usage.Begin
		if below == 0 {
			return false, fmt.Errorf("%w: database %s: entry %d does not say where its incarnation begins", ErrDamaged, d.Name, head.Slot)
		}
	}
	for slot := below - 1; slot > d.Slot && slot > 0; slot-- {
		e, err := l.ReadHeader(ctx, slot)
		if errors.Is(err, remote.ErrNotFound) { // of an incarnation that has ended
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if e.Kind != fence.Void {
			return false, nil
		}
	}
	return true, nil
}
