package server_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/server"
)

// gated holds requests about one database back until open is closed.
type gated struct {
	remote.Store
	waiting chan struct{}
	open    chan struct{}
}

func (g *gated) List(ctx context.Context, prefix string, o remote.ListOptions) ([]remote.Info, bool, error) {
	if strings.HasPrefix(prefix, "db/run-1/") {
		g.waiting <- struct{}{}
		select {
		case <-g.open:
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
	return g.Store.List(ctx, prefix, o)
}

// TestNarrowedKeyHasSoManyRequestsUnderWay: beyond that it hears so at once, and other keys do not.
func TestNarrowedKeyHasSoManyRequestsUnderWay(t *testing.T) {
	const most = 256
	g := &gated{waiting: make(chan struct{}, 10*most), open: make(chan struct{})}
	w := newWorld(t, func(o *server.Options) { g.Store, o.Remote = o.Remote, g })
	w.want(201, "POST", "/v1/databases", w.owner, `{"name":"run-2"}`)
	thief, other := w.key(`{"name":"a","database_prefixes":["run-"]}`), w.key(`{"name":"b","database_prefixes":["run-"]}`)
	w.want(200, "GET", "/v1/databases/run-2", thief, "")
	var all sync.WaitGroup
	for range most {
		all.Go(func() { w.do("GET", "/v1/databases/run-1", thief, "") })
	}
	for range most {
		<-g.waiting
	}
	if a := w.do("GET", "/v1/databases/run-2", thief, ""); a.Status != http.StatusTooManyRequests || a.code() != "too_many_requests" || a.Header.Get("Retry-After") == "" {
		t.Errorf("one more: %d %s", a.Status, a.Body)
	}
	w.want(200, "GET", "/v1/databases/run-2", other, "")
	close(g.open)
	all.Wait()
	w.want(200, "GET", "/v1/databases/run-2", thief, "")
}
