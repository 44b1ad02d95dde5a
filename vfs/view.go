package vfs

import (
	"context"
	"fmt"

	"github.com/tonbo-go/tonbo/internal/pageset"
)

// View is what is committed at one moment.
type View struct {
	Version   uint64   // the same as before: nothing has been committed since
	PageCount uint32   // size of the database, in pages
	Changed   []uint32 // pages, ascending, that may differ from the last shipped state: what is being shipped is among them
}

// View waits, as Take does, until no commit is under way that another connection may have read already.
func (d *Database) View(ctx context.Context) (View, error) {
	for {
		if err := d.wait(ctx, d.unsettled); err != nil {
			return View{}, err
		}
		d.mu.Lock()
		if !d.unsettled() {
			break
		}
		d.mu.Unlock()
	}
	defer d.mu.Unlock()
	if d.behind {
		return View{}, fmt.Errorf("%s: %w", d.path, ErrBehind)
	}
	v := View{Version: d.version, PageCount: d.pageCount}
	var set pageset.Set
	set.AddAll(&d.dirty)
	if d.taken != nil {
		set.AddAll(&d.taken.set)
	}
	for p := d.lowest() + 1; p <= d.pageCount; p++ {
		set.Add(p)
	}
	for p := range set.All() {
		if p <= d.pageCount && p != d.lockPage() {
			v.Changed = append(v.Changed, p)
		}
	}
	return v, nil
}
