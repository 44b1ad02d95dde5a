package layout

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tonbo-go/tonbo/internal/segment"
)

// Deltas makes pages what they are in the newest of a list of objects, from their newest whole versions in it: it knows which of them hold deltas of which pages.
// Those are in memory. Safe for concurrent use.
type Deltas struct {
	objects []*Object
	of      map[uint32][]int32 // by page: the objects that have a delta of it, newest first
}

// NewDeltas returns the deltas of objects, newest first. The maps of those that may have deltas, which are entries, must have been read.
func NewDeltas(objects []*Object) *Deltas {
	d := &Deltas{objects: objects}
	for k, o := range objects {
		ix := o.Known()
		if ix == nil || ix.Delta == nil {
			continue
		}
		if d.of == nil {
			d.of = map[uint32][]int32{}
		}
		for _, r := range ix.Delta.Runs {
			for i := range r.Count {
				d.of[r.First+i] = append(d.of[r.First+i], int32(k))
			}
		}
	}
	return d
}

// scratch is room for a page.
var scratch = sync.Pool{New: func() any { b := make([]byte, segment.MaxPageSize); return &b }}

// Apply makes page, which is page p as objects[whole] has it, what it is in the newest object. objects[whole] must be the newest one that holds p whole. Each step is
// compared with the checksum that its writer recorded. Errors: ErrDamaged.
func (d *Deltas) Apply(p uint32, whole int, page []byte) error {
	of := d.of[p]
	for len(of) > 0 && int(of[len(of)-1]) >= whole {
		of = of[:len(of)-1]
	}
	if len(of) == 0 {
		return nil
	}
	b := scratch.Get().(*[]byte)
	defer scratch.Put(b)
	before := (*b)[:len(page)]
	for i := len(of) - 1; i >= 0; i-- {
		copy(before, page)
		if err := d.objects[of[i]].apply(p, page, before); err != nil {
			return err
		}
	}
	return nil
}

// apply makes a page from the version before by the object's delta.
func (o *Object) apply(p uint32, page, before []byte) error {
	part := o.known.Load()
	found := false
	err := part.Index.Delta.Deltas(part.deltas(), func(d segment.Delta) error {
		if d.Page != p {
			return nil
		}
		found = true
		return d.Apply(page, before)
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: page %d is not among the deltas", segment.ErrFormat, p)
	}
	if errors.Is(err, segment.ErrFormat) {
		return fmt.Errorf("%w: %s: %w", ErrDamaged, o.Key, err)
	}
	return err
}

// Page copies page p, as it is in the newest of the objects, into buf. found is false when none of them holds it whole.
func (d *Deltas) Page(ctx context.Context, r *Reader, p uint32, buf []byte) (found bool, err error) {
	for k, o := range d.objects {
		if found, err := r.Page(ctx, o, p, buf); err != nil {
			return false, err
		} else if found {
			return true, d.Apply(p, k, buf)
		}
	}
	return false, nil
}
