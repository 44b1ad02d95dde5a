package gc_test

import (
	"testing"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/gc"
)

// A listing in many pages is read whole, and deleting goes on in several requests at once.
func TestCollectOfManyObjects(t *testing.T) {
	s := newStore()
	d := created(t, s, "a")
	for range 1200 {
		d.append(fence.Draft{Kind: fence.Commit, State: state})
	}
	d.base()
	o := now()
	o.Parallel = 16
	r := collected(t, s, "a", o)
	if r.Slots != 1200 || r.Denied != 0 {
		t.Errorf("%+v", r)
	}
	if r := collected(t, s, "a", gc.Options{Grace: -1}); r.Slots != 0 || r.Moved {
		t.Errorf("again: %+v", r)
	}
}
