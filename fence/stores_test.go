package fence_test

import (
	"errors"
	"testing"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/dir"
	"github.com/tonbo-go/tonbo/remote/mem"
)

// The log's life over the embedded stores: what it asks of a store, they do.
func TestLogOverRealStores(t *testing.T) {
	d, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []remote.Store{mem.New("account"), d} {
		t.Run(s.String(), func(t *testing.T) {
			ctx := t.Context()
			c := new(remote.Counter)
			l := fence.New(remote.Counted(s, c), "db1", instant("x"))
			for range 2 {
				o, err := l.Create(ctx, fence.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				_, err = l.Create(ctx, fence.CreateOptions{})
				wantErr(t, err, fence.ErrTaken)
				before := c.Counts()
				must(t, o, commit())
				if err := o.Check(ctx); err != nil {
					t.Fatal(err)
				}
				if n := c.Counts(); n.Put-before.Put != 1 || n.Get-before.Get != 1 || n.List != before.List || n.Head != before.Head {
					t.Errorf("append and check: from %+v to %+v", before, n)
				}
				p := claimed(t, l)
				if len(p.Prev().Payload) != 100 || p.Prev().Follows(o.Entry()) != nil {
					t.Errorf("follows %+v", p.Prev())
				}
				_, err = o.Append(ctx, commit())
				wantErr(t, err, fence.ErrFenced)
				r, err := l.Rewind(ctx, fence.RewindOptions{To: o.Generation()})
				if err != nil {
					t.Fatal(err)
				}
				must(t, r, fence.Draft{Kind: fence.Close})
				if _, err := l.Delete(ctx, o.ID()); err != nil {
					t.Fatal(err)
				}
				for _, stale := range []*fence.Owner{p, r} {
					if err := stale.Check(ctx); err == nil || !errors.Is(err, fence.ErrFenced) && !errors.Is(err, fence.ErrDeleted) {
						t.Errorf("got %v", err)
					}
				}
			}
		})
	}
}
