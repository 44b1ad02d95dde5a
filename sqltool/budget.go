package sqltool

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// budget is the context of a call. The driver's progress handler asks it whether to go on, each progressSteps, so it can count. Others ask too (the driver for each row, reads of pages that are not here), so the count is a little high.
type budget struct {
	context.Context
	end   context.CancelCauseFunc
	late  *time.Timer
	most  *ends
	asked atomic.Int64
}

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
	return &budget{Context: ctx, end: cancel, late: time.AfterFunc(most.time, func() { cancel(most.late) }), most: most}
}

func (b *budget) release() {
	b.late.Stop()
	b.end(nil)
}

// Err implements [context.Context].
func (b *budget) Err() error {
	if b.asked.Add(progressSteps) > b.most.steps {
		b.end(b.most.spent)
	}
	return b.Context.Err()
}
