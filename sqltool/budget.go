package sqltool

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tonbo-go/tonbo/vfs"
)

// budget is the context of a call. The driver's progress handler asks it whether to go on, each so many steps, so it can count. Others ask too (the driver for each row, reads of pages that are not here), so the count is a little high.
type budget struct {
	context.Context
	end   context.CancelCauseFunc
	late  *time.Timer
	most  *ends
	each  atomic.Int64 // steps
	asked atomic.Int64

	reads   atomic.Int64 // of pages since it was asked
	stopped atomic.Bool  // a read has been stopped
}

var _ vfs.Stopper = (*budget)(nil)

// ends are what a call may take, and what the model is told then.
type ends struct {
	time        time.Duration
	steps       int64
	late, spent *Error
}

func newEnds(l Limits) *ends {
	return &ends{
		time: l.Time, late: &Error{Message: fmt.Sprintf("stopped: a call may take %v", l.Time), Hint: hintLess},
		steps: l.Steps, spent: &Error{Message: fmt.Sprintf("stopped: a call may take %d steps of SQLite's machine", l.Steps), Hint: hintLess},
	}
}

// newBudget begins a call. Its release is the caller's.
func newBudget(ctx context.Context, most *ends) *budget {
	ctx, cancel := context.WithCancelCause(ctx)
	b := &budget{Context: ctx, end: cancel, late: time.AfterFunc(most.time, func() { cancel(most.late) }), most: most}
	b.each.Store(progressSteps)
	return b
}

func (b *budget) release() {
	b.late.Stop()
	b.end(nil)
}

// Err implements [context.Context].
func (b *budget) Err() error {
	b.reads.Store(0)
	if b.asked.Add(b.each.Load()) > b.most.steps {
		b.end(b.most.spent)
	}
	return b.Context.Err()
}

// stepReads is how many pages an ordinary step reads at most, and more: one of the longest value, and the way to it.
const stepReads = 1024

// StopRead implements [vfs.Stopper]: the progress handler is not asked while a table is counted, emptied or dropped.
func (b *budget) StopRead() bool {
	return b.reads.Add(1) > stepReads && b.Context.Err() != nil && b.stopped.CompareAndSwap(false, true)
}
