package tonbo

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
)

// group lets concurrent callers share a round trip (group commit, R1). A caller is answered only by a run that started after it called.
type group struct {
	run func(ctx context.Context) error

	mu   sync.Mutex
	next *batch        // callers that wait for the next run
	idle chan struct{} // closed when the runs under way have ended; nil when there are none
}

// batch is the callers of one run. The run ends early when none of them waits any more.
type batch struct {
	done    chan struct{}
	err     error
	waiters int // guarded by group.mu
	ctx     context.Context
	cancel  context.CancelFunc
}

// do waits for a run that started after it was called. It leaves when ctx ends; the run goes on while others wait.
func (g *group) do(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	g.mu.Lock()
	b := g.next
	if b == nil {
		b = &batch{done: make(chan struct{})}
		b.ctx, b.cancel = context.WithCancel(context.Background())
		g.next = b
	}
	b.waiters++
	if g.idle == nil {
		g.idle = make(chan struct{})
		go g.loop()
	}
	g.mu.Unlock()
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
	}
	g.mu.Lock()
	b.waiters--
	last := b.waiters == 0
	if last && g.next == b { // not begun
		g.next = nil
		g.mu.Unlock()
		b.cancel()
		return ctx.Err()
	}
	g.mu.Unlock()
	if !last {
		return ctx.Err()
	}
	b.cancel()
	<-b.done // nothing of ours runs on when we return, and its error says what was in the way
	if errors.Is(b.err, context.Canceled) && !errors.Is(b.err, ctx.Err()) {
		return fmt.Errorf("%w: %w", ctx.Err(), b.err)
	}
	return b.err
}

// stackRoom is what a round takes of a goroutine's stack at its deepest, signing a request, in bytes.
const stackRoom = 12 << 10

// makeRoom makes the stack of a fresh goroutine as large as a round needs it. It would otherwise grow several times, each time copied with more calls on it: 20 of the 500 microseconds that a Synced
// takes of a processor.
//
//go:noinline
func makeRoom() {
	var room [stackRoom]byte
	runtime.KeepAlive(&room)
}

// loop runs batches until nobody waits.
func (g *group) loop() {
	makeRoom()
	for {
		g.mu.Lock()
		b := g.next
		g.next = nil
		if b == nil {
			close(g.idle)
			g.idle = nil
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		b.err = g.run(b.ctx)
		close(b.done)
		b.cancel()
	}
}

// wait returns when the runs that were under way have ended. Others may begin: what they must not do is for run to refuse.
func (g *group) wait() {
	g.mu.Lock()
	idle := g.idle
	g.mu.Unlock()
	if idle != nil {
		<-idle
	}
}
