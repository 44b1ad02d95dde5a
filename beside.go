package tonbo

import (
	"context"
	"sync"

	"github.com/tonbo-go/tonbo/remote"
)

// beside is work that goes on beside other work. Whoever begins it waits for it, or stops it.
type beside struct {
	done   chan struct{}
	err    error // once done is closed
	cancel context.CancelFunc
}

func begin(ctx context.Context, f func(context.Context) error) *beside {
	ctx, cancel := context.WithCancel(ctx)
	b := &beside{done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(b.done)
		b.err = f(ctx)
	}()
	return b
}

// wait waits until the work has ended, or ctx has.
func (b *beside) wait(ctx context.Context) error {
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stop ends the work and waits for that.
func (b *beside) stop() {
	b.cancel()
	<-b.done
}

// probe is the look at what a store can do, beside other requests to it, once it is known that there is something in it.
type probe struct {
	ctx   context.Context
	store remote.Store
	once  sync.Once
	work  *beside
}

func newProbe(ctx context.Context, s remote.Store) *probe { return &probe{ctx: ctx, store: s} }

func (p *probe) begin() {
	p.once.Do(func() {
		p.work = begin(p.ctx, func(ctx context.Context) error { return remote.ProbeOnce(ctx, p.store) })
	})
}

// wait returns what the probe found. One that was never begun has found nothing.
func (p *probe) wait() error {
	if p.work == nil {
		return nil
	}
	<-p.work.done
	p.work.cancel()
	return p.work.err
}
