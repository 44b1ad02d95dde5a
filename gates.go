package tonbo

import (
	"context"
	"sync"

	"github.com/tonbo-go/tonbo/internal/layout"
)

// gates let one fetch a block at a time. Who waits leaves when its context ends.
type gates struct {
	mu sync.Mutex
	m  map[gateKey]*gate
}

type gateKey struct {
	o     *layout.Object
	block int
}

type gate struct {
	turn  chan struct{}
	users int
}

func (g *gates) lock(ctx context.Context, k gateKey) (unlock func(), err error) {
	g.mu.Lock()
	t := g.m[k]
	if t == nil {
		t = &gate{turn: make(chan struct{}, 1)}
		g.m[k] = t
	}
	t.users++
	g.mu.Unlock()
	select {
	case t.turn <- struct{}{}:
		return func() { <-t.turn; g.leave(k, t) }, nil
	case <-ctx.Done():
		g.leave(k, t)
		return nil, ctx.Err()
	}
}

// try is lock for who does not wait: nil when somebody has it.
func (g *gates) try(k gateKey) (unlock func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.m[k] != nil {
		return nil
	}
	t := &gate{turn: make(chan struct{}, 1), users: 1}
	t.turn <- struct{}{}
	g.m[k] = t
	return func() { <-t.turn; g.leave(k, t) }
}

func (g *gates) leave(k gateKey, t *gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(g.m, k)
	}
}
