package tonbo_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/tonbotest"
)

// TestReaderCutOffAtAnyRequest: whichever request of a reader's life gets no answer, is refused, finds nothing or is cancelled, the reader gets an error that says so or what
// is right, never another state, and works afterwards.
func TestReaderCutOffAtAnyRequest(t *testing.T) {
	inner := mem.New("test")
	a := &account{t: t, store: inner}
	a.grown("run", 3000, true)
	owner := open(t, "run", a.machine().Tuned(10, 0))
	// life is a reader's: opened, read, moved on, read, hydrated. Each step is tried once more after an error, without disturbance.
	life := func(t *testing.T, i int, s remote.Store, ctx context.Context, expected ...error) {
		try := func(what string, f func(context.Context) error) bool {
			err := f(ctx)
			if err == nil {
				return true
			}
			ok := strings.Contains(err.Error(), "interrupt") && ctx.Err() != nil
			for _, w := range expected {
				ok = ok || errors.Is(err, w)
			}
			if !ok {
				t.Errorf("request %d: %s: %v", i, what, err)
			}
			if err := f(t.Context()); err != nil {
				t.Errorf("request %d: %s once more: %v", i, what, err)
				return false
			}
			return true
		}
		o := a.lazyMachine()
		o.Remote = s
		var ro *tonbo.DB
		if !try("open", func(ctx context.Context) (err error) { ro, err = tonbo.OpenReadOnly(ctx, "run", o); return err }) {
			return
		}
		defer closeDB(t, ro)
		read := func(ctx context.Context) error {
			want := digest(t, owner)
			var got string
			err := ro.QueryRowContext(ctx, "SELECT count(*)||':'||coalesce(sum(length(v)),0)||':'||coalesce(sum(k),0)||':'||coalesce(sum(unicode(hex(substr(v,7,1)))*id),0) FROM t").Scan(&got)
			if err == nil && got != want {
				t.Errorf("request %d: got %s, want %s", i, got, want)
			}
			return err
		}
		try("query", read)
		exec(t, owner, "UPDATE t SET k=k+1, v=randomblob(800) WHERE id%11=?", (i+1)%11)
		synced(t, owner)
		try("refresh", ro.Refresh)
		try("query after it", read)
		try("hydrated", ro.Hydrated)
	}
	count := &numbered{Store: inner}
	life(t, -1, count, t.Context())
	n := int(count.n.Load())
	for _, c := range []struct {
		name     string
		set      func(s *tonbotest.Store, skip int)
		expected []error
	}{
		{"no answer", func(s *tonbotest.Store, skip int) { s.Lose(tonbotest.Match{Skip: skip}, 1) }, []error{remote.ErrUnknown}},
		{"absent", func(s *tonbotest.Store, skip int) {
			s.Fail(tonbotest.Match{Op: tonbotest.Get, Skip: skip}, 1, remote.ErrNotFound)
		}, []error{tonbo.ErrCorrupt, tonbo.ErrPointGone}},
		{"denied", func(s *tonbotest.Store, skip int) { s.Fail(tonbotest.Match{Skip: skip}, 1, remote.ErrDenied) }, []error{remote.ErrDenied}},
		{"cancelled", nil, []error{context.Canceled}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range n {
				if (raceEnabled || testing.Short()) && i%3 != 0 {
					continue
				}
				if c.set != nil {
					s := tonbotest.NewStore(inner)
					c.set(s, i)
					life(t, i, s, t.Context(), c.expected...)
					continue
				}
				ctx, cancel := context.WithCancel(t.Context())
				s := &numbered{Store: inner, before: func(n int64) {
					if n == int64(i+1) {
						cancel()
					}
				}}
				life(t, i, s, ctx, c.expected...)
				cancel()
			}
		})
	}
}
